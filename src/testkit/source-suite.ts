/**
 * source-suite — the contract of a source in full, one case per promise.
 *
 * Every source of this package passes it against the real thing; so should yours. Each case gets a
 * fresh source from the maker and disposes of it. Time passes by the maker's word: virtual where
 * it can be, real where a server has its own.
 */

import assert from 'node:assert/strict';
import { sourceCases } from './source-cases/next.ts';
import { settleCases } from './source-cases/settle.ts';
import type { SourceAbilities, SourceCase, SourceMaker } from './source-cases/shared.ts';
import type { SuiteCase } from './suite.ts';

export type {
  Fate,
  SourceAbilities,
  SourceMaker,
  SourceUnderTest,
  SuiteMessage,
} from './source-cases/shared.ts';

const CASES: readonly SourceCase[] = [...sourceCases, ...settleCases];

/** The cases this source has to pass, by what it can be asked. */
export function sourceSuite(make: SourceMaker, can: SourceAbilities): readonly SuiteCase[] {
  return CASES.filter(({ needs }) => needs === undefined || can[needs]).map(({ name, run }) => ({
    name,
    async run() {
      const { dispose, ...under } = await make();
      const missing = (): never =>
        assert.fail('the maker promised "loseClaims" and does not give it');
      try {
        await run({ loseClaims: missing, ...under, delayMs: can.delayMs ?? DELAY_MS });
      } finally {
        await dispose();
      }
    },
  }));
}

/** How long deferred messages wait, where the source has no wish of its own. */
const DELAY_MS = 1_000;
