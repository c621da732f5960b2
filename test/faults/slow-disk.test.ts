/** A disk that answers, but late. */
import { expect, test } from 'vitest';
import { PLACES } from '../torture/places.ts';
import { slow } from '../torture/slow.ts';
import { lacking } from '../torture/tools.ts';

const noTrace = await lacking('strace');

test.for(PLACES)(
  'a slow disk under %s stops the event loop once at most',
  async (place, context) => {
    if (noTrace !== undefined) context.skip(noTrace);
    const fsyncMs = 1_500;
    const { stoodMs, kept } = await slow(place, { messages: 5, fsyncMs });
    expect(kept).toBe(6);
    expect(stoodMs).toHaveLength(5);
    expect(stoodMs.filter((ms) => ms > 0.9 * fsyncMs).length).toBeLessThanOrEqual(1);
  },
);
