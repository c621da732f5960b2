/**
 * Several nodes on one store: they share the work, take over from one that dies or sleeps, and lose
 * nothing while they are killed. `npm run torture -- nodes` does the same with larger numbers.
 */
import { describe, expect, test } from 'vitest';
import { longOr } from '../long.ts';
import { skipReason } from '../services/index.ts';
import { freshSeed } from '../torture/chance.ts';
import { pause } from '../torture/pause.ts';
import { kills } from './kills.ts';
import { spread } from './spread.ts';

/** How often nodes are killed, and how many there are. */
const PLACES = [
  { place: 'sqlite', count: longOr(5, 3), nodes: 2 },
  { place: 'postgres', count: longOr(25, 8), nodes: 4 },
  { place: 'nats', count: longOr(10, 4), nodes: 2 },
] as const;
const TIMEOUT_MS = 600_000;

for (const { place, count, nodes } of PLACES) {
  const reason = place === 'sqlite' ? undefined : skipReason(place);
  const skipped = reason === undefined ? '' : ` (skipped: ${reason})`;
  describe.skipIf(reason !== undefined)(`on ${place}${skipped}`, () => {
    test(
      'nodes lose nothing and repeat little when they are killed again and again',
      async () => {
        const seed = freshSeed();
        const result = await kills(place, { kills: count, nodes, seed });
        expect(result.complaints, `seed ${seed}`).toEqual([]);
        expect(result).toMatchObject({ lost: 0, unexpected: 0, corrupt: 0 });
        expect(result.duplicated).toBeLessThanOrEqual(result.bound);
        expect(result.kills).toBeGreaterThanOrEqual(count);
        expect(result.accepted).toBeGreaterThan(count);
      },
      TIMEOUT_MS,
    );

    test(
      `each of ${nodes} nodes handles a share, and the others take over what a dead one held`,
      async () => {
        const seed = freshSeed();
        const result = await spread(place, { nodes, seed });
        expect(result.complaints, `seed ${seed}`).toEqual([]);
        // A node that gets next to nothing, of half of the messages, is not used.
        const least = Math.min(...result.shares);
        expect(least, result.shares.join(' ')).toBeGreaterThan(result.messages / 2 / 40);
        expect(result.takenOver).toBeGreaterThan(0);
      },
      TIMEOUT_MS,
    );

    // On SQLite: test/faults/life.test.ts.
    test.skipIf(place === 'sqlite')(
      'a node that slept past its lease cannot settle what another one took over',
      async () => {
        const result = await pause(place);
        expect(result.complaints).toEqual([]);
        expect(result.stale).toBeGreaterThan(0);
      },
      TIMEOUT_MS,
    );
  });
}
