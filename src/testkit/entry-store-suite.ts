/**
 * entry-store-suite — the contract of an entry store in full, one case per promise.
 *
 * Every store of this package passes it against the real thing; so should yours. Each case gets a
 * fresh store from the maker and disposes of it. docs/project/features.md quotes names of cases.
 */

import assert from 'node:assert/strict';
import { claimCases, claimFilterCases } from './entry-cases/claim.ts';
import { commitCases } from './entry-cases/commit.ts';
import { historyCases } from './entry-cases/history.ts';
import { insertCases } from './entry-cases/insert.ts';
import { lifeCases, operationCases } from './entry-cases/life.ts';
import { listCases, pageCases, tallyCases } from './entry-cases/list.ts';
import { loadCases, raceCases } from './entry-cases/load.ts';
import { orderCases } from './entry-cases/order.ts';
import { orderCrowdCases, orderModelCases } from './entry-cases/order-model.ts';
import { recordCases } from './entry-cases/records.ts';
import type { EntryCase, SampleNeed } from './entry-cases/shared.ts';
import type { EntryStoreAbilities, EntryStoreMaker, StoreUnderTest, SuiteCase } from './suite.ts';

const CASES: readonly EntryCase[] = [
  ...insertCases,
  ...claimCases,
  ...claimFilterCases,
  ...commitCases,
  ...raceCases,
  ...listCases,
  ...pageCases,
  ...tallyCases,
  ...recordCases,
  ...lifeCases,
  ...historyCases,
  ...loadCases,
  ...operationCases,
  ...orderCases,
  ...orderCrowdCases,
  ...orderModelCases,
];

/** Also in docs/how-to/write-a-store.md. */
const CROWD_DEFAULT = 20_000;

/** The cases this store has to pass, by what it can be asked. */
export function entryStoreSuite(
  make: EntryStoreMaker,
  can: EntryStoreAbilities,
): readonly SuiteCase[] {
  const has: Readonly<Record<SampleNeed, boolean>> = {
    reopen: can.canReopen,
    share: can.canShare,
    damage: can.canDamage,
    expireLost: can.canExpireLost === true,
    search: can.refusesSearch !== true,
    noSearch: can.refusesSearch === true,
    order: can.canOrder === true,
    noOrder: can.canOrder !== true,
  };
  return CASES.filter(({ needs = [] }) => needs.every((need) => has[need])).map((entryCase) => ({
    name: entryCase.name,
    run: () => runCase(entryCase, make, can.crowd ?? CROWD_DEFAULT),
  }));
}

async function runCase({ run }: EntryCase, make: EntryStoreMaker, crowd: number): Promise<void> {
  const under = await make();
  try {
    await run({
      store: under.store,
      reopen: () => known(under, 'reopen')(),
      second: () => known(under, 'second')(),
      damage: (id) => known(under, 'damage')(id),
      crowd,
    });
  } finally {
    await under.dispose();
  }
}

function known<K extends 'reopen' | 'second' | 'damage'>(
  under: StoreUnderTest,
  way: K,
): NonNullable<StoreUnderTest[K]> {
  const found = under[way];
  assert.ok(found !== undefined, `the maker promised "${way}" and does not give it`);
  return found.bind(under) as NonNullable<StoreUnderTest[K]>;
}
