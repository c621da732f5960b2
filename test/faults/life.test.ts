/** Processes that are paused, poisoned and told to stop. */
import { describe, expect, test } from 'vitest';
import { pause } from '../torture/pause.ts';
import { PLACES } from '../torture/places.ts';
import { poison } from '../torture/poison.ts';
import { shutdown } from '../torture/shutdown.ts';

test('a process that slept past its lease cannot settle what another one took over', async () => {
  const result = await pause('sqlite');
  expect(result.complaints).toEqual([]);
  expect(result.stale).toBeGreaterThan(0);
});

describe.each(PLACES)('on %s', (place) => {
  test.each(['kill', 'exit'] as const)(
    'a message that ends its process (%s) is held within its attempts, and the others pass',
    async (kind) => {
      const result = await poison(place, kind);
      expect(result.complaints).toEqual([]);
      expect(result.end).toBe('hold, holder.lost');
      expect(result.deaths).toBeGreaterThan(1);
    },
  );

  test.each(['undefined', 'huge', 'hang'] as const)(
    'a handler that fails oddly (%s) bounces its message and harms no other',
    async (kind) => {
      const result = await poison(place, kind);
      expect(result.complaints).toEqual([]);
      expect(result.end).toMatch(/^bounce/);
    },
  );

  test('a stop under load leaves nothing active and charges no attempt', async () => {
    const result = await shutdown(place);
    expect(result.complaints).toEqual([]);
  });
});
