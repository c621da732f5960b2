/**
 * dead-letters-suite — the contract of a place of dead letters in full, one case per promise.
 *
 * Both places of this package pass it against the real thing; so should yours. Each case gets a
 * fresh, empty place from the maker and disposes of it.
 */

import assert from 'node:assert/strict';
import {
  type LetterCase,
  type LettersAbilities,
  type LettersMaker,
  lookCases,
  settleCases,
  takeCases,
} from './letter-cases.ts';
import type { SuiteCase } from './suite.ts';

export type {
  LetterArrival,
  LettersAbilities,
  LetterSample,
  LettersMaker,
  LettersUnderTest,
} from './letter-cases.ts';

const CASES: readonly LetterCase[] = [...lookCases, ...takeCases, ...settleCases];

/**
 * The cases this place has to pass, by what it can be asked.
 *
 * @example
 * import { deadLettersSuite, type LettersAbilities, type LettersUnderTest } from 'respool/testkit';
 * declare function make(): Promise<LettersUnderTest>;
 * declare const can: LettersAbilities;
 * for (const { run } of deadLettersSuite(make, can)) await run();
 */
export function deadLettersSuite(make: LettersMaker, can: LettersAbilities): readonly SuiteCase[] {
  return CASES.filter(({ needs }) => needs === undefined || can[needs]).map(({ name, run }) => ({
    name,
    async run() {
      const { dispose, ...under } = await make();
      const missing = (way: string) => (): never =>
        assert.fail(`the maker promised "${way}" and does not give it`);
      try {
        await run({
          second: missing('second'),
          failAgain: missing('failAgain'),
          deliver: missing('deliver'),
          breakDown: missing('breakDown'),
          recover: missing('recover'),
          elsewhere: missing('elsewhere'),
          ...under,
        });
      } finally {
        await dispose();
      }
    },
  }));
}
