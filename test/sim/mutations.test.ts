/** mutations — every planted bug is found, by the promise it breaks, within so many seeds. */
import { describe, expect, test } from 'vitest';
import { commandFor, simulate } from 'respool/testkit';
import { MUTANTS } from './mutants.ts';

const SEEDS_MAX = 200;

describe('the simulator finds', () => {
  test.for(MUTANTS)('$name', { timeout: 600_000 }, async ({ name, breaks, mutation }) => {
    for (let seed = 1; seed <= SEEDS_MAX; seed += 1) {
      const { violation } = await simulate(seed, mutation);
      if (violation === undefined) continue;
      console.info(`${seed} seeds, "${violation.invariant}": ${name}`);
      expect(breaks, `${violation.text} (${commandFor(seed)})`).toContain(violation.invariant);
      return;
    }
    throw new Error(`nothing was found in ${SEEDS_MAX} seeds`);
  });
});
