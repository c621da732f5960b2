/**
 * Nodes at work while their server crashes, freezes and comes back, and while their connections are
 * spoiled in every way. `npm run torture -- servers` does the same with larger numbers.
 */
import { expect, test } from 'vitest';
import { longOr } from '../long.ts';
import { skipReason } from '../services/index.ts';
import { freshSeed } from '../torture/chance.ts';
import { faults } from './faults.ts';
import { SERVERS_OF } from './ground.ts';
import { SPOILS } from './proxy.ts';

const RESTARTS = longOr(3, 1);
const CUTS = SPOILS.length;
const LONGEST_MS = 700;
const TIMEOUT_MS = 600_000;

/** Bodies in S3 are read and written on the way: one crash of each server, every other cut. */
const PLACES = [
  { place: 'postgres', restarts: RESTARTS, cuts: CUTS },
  { place: 'nats', restarts: RESTARTS, cuts: CUTS },
  { place: 'postgres-s3', restarts: 1, cuts: 4 },
] as const;

for (const { place, restarts, cuts } of PLACES) {
  const reason = SERVERS_OF[place].map((name) => skipReason(name)).find((text) => text);
  const skipped = reason === undefined ? '' : ` (skipped: ${reason})`;
  test(`nodes on ${place} lose nothing and go on after every fault${skipped}`, {
    concurrent: true,
    skip: reason !== undefined,
    timeout: TIMEOUT_MS,
  }, async () => {
    const seed = freshSeed();
    const options = { restarts, cuts, nodes: 2, seed, longestMs: LONGEST_MS };
    const result = await faults(place, options);
    expect(result.complaints, `seed ${seed}`).toEqual([]);
    expect(result).toMatchObject({ lost: 0, unexpected: 0, corrupt: 0 });
    expect(result.faults).toBeGreaterThanOrEqual(restarts * 2 + cuts);
    expect(result.accepted).toBeGreaterThan(result.faults);
  });
}
