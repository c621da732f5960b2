/** Processes that are after the same entries: who spreads, how far, and for how long. */

import { expect, test } from 'vitest';
import { Catalog } from '../../../src/stores/nats/catalog.ts';
import { ClaimContention } from '../../../src/stores/nats/claim.ts';
import { factsOf } from '../../../src/stores/nats/row.ts';
import { SAMPLE_AT, sampleEntries } from 'respool/testkit';

const DELIVERY = { lane: 'delivery', states: ['incoming'] } as const;

/** A hundred entries, every second of priority 0, the others of priority 5. */
function filledCatalog(): Catalog {
  const catalog = new Catalog();
  const entries = sampleEntries(100, 'm', (at) => ({ priority: at % 2 === 0 ? 0 : 5 }));
  for (const [at, { envelope, status }] of entries.entries()) {
    catalog.put(envelope.id, at + 1, factsOf({ envelope, status, birth: 1 }, false));
  }
  return catalog;
}

const rivals = (instance: string): ClaimContention => {
  const rivalry = new ClaimContention(instance);
  rivalry.note(1);
  return rivalry;
};

test('a store without rivals takes the first entries', () => {
  const rivalry = new ClaimContention('one');
  const taken = filledCatalog().take(DELIVERY, SAMPLE_AT, 5, rivalry.spread);
  const ids = ['m-00000', 'm-00002', 'm-00004', 'm-00006', 'm-00008'];
  expect(taken.map(({ id }) => id)).toEqual(ids);
});

test('stores that met take other entries each, in order and of no later priority', () => {
  const taken = ['one', 'two', 'three'].map((instance) =>
    filledCatalog().take(DELIVERY, SAMPLE_AT, 10, rivals(instance).spread),
  );
  for (const rows of taken) {
    const ids = rows.map(({ id }) => id);
    expect(ids).toEqual([...ids].sort());
    expect(ids).toHaveLength(10);
    expect(rows.every(({ priority }) => priority === 0)).toBe(true);
  }
  const all = taken.flat().map(({ id }) => id);
  expect(new Set(all).size).toBeGreaterThan(18);
});

test('the end of a priority ends the spreading, not the claim', () => {
  const catalog = filledCatalog();
  catalog.take(DELIVERY, SAMPLE_AT, 48);
  const rows = catalog.take(DELIVERY, SAMPLE_AT, 4, rivals('one').spread);
  expect(rows.map(({ priority }) => priority)).toEqual(expect.arrayContaining([5]));
  expect(rows).toHaveLength(4);
});

test('a store that met nobody for a while takes the first entries again', () => {
  const rivalry = rivals('one');
  for (let calm = 0; calm < 15; calm += 1) rivalry.note(0);
  expect(rivalry.spread).toBeTypeOf('function');
  rivalry.note(0);
  expect(rivalry.spread).toBeUndefined();
});
