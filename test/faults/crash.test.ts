/**
 * A busy spool is killed with SIGKILL at random moments, on each pair of stores; the ledger
 * outside knows what was accepted and what happened. `npm run torture -- crash` kills 500 times.
 */
import { expect, test } from 'vitest';
import { freshSeed } from '../torture/chance.ts';
import { crash } from '../torture/crash.ts';
import { PLACES } from '../torture/places.ts';
import { longOr } from '../long.ts';

const KILLS = longOr(25, 8);

test.concurrent.each(PLACES)(
  'a spool on %s loses nothing and repeats little when it is killed again and again',
  async (place) => {
    const seed = freshSeed();
    const result = await crash(place, { kills: KILLS, seed });
    const again = `npm run torture -- crash --kills ${KILLS} --seed ${seed}`;
    expect(result.complaints, again).toEqual([]);
    expect(result).toMatchObject({ lost: 0, unexpected: 0, corrupt: 0 });
    expect(result.duplicated).toBeLessThanOrEqual(result.bound);
    expect(result.kills).toBeGreaterThanOrEqual(KILLS);
    expect(result.accepted).toBeGreaterThan(KILLS);
  },
);
