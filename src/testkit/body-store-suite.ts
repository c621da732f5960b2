/**
 * body-store-suite — the contract of a body store in full, one case per promise.
 *
 * Bodies are streams: the large ones are generated and checked by a running hash, never held whole.
 * Each case gets a fresh store from the maker and disposes of it.
 */

import assert from 'node:assert/strict';
import { bodyLifeCases, bodyOperationCases } from './body-cases/life.ts';
import { putCases } from './body-cases/put.ts';
import type { BodyCase } from './body-cases/shared.ts';
import type { BodyStoreAbilities, BodyStoreMaker, SuiteCase } from './suite.ts';

const CASES: readonly BodyCase[] = [...putCases, ...bodyLifeCases, ...bodyOperationCases];

/** The cases this body store has to pass, by what it can be asked. */
export function bodyStoreSuite(
  make: BodyStoreMaker,
  can: BodyStoreAbilities,
): readonly SuiteCase[] {
  return CASES.filter(({ needs }) => needs === undefined || can.canReopen).map(({ name, run }) => ({
    name,
    async run() {
      const under = await make();
      try {
        const { bodies, reopen } = under;
        const missing = () => assert.fail('the maker promised "reopen" and does not give it');
        await run({ bodies, reopen: reopen ?? missing });
      } finally {
        await under.dispose();
      }
    },
  }));
}
