/** look-cost — a look for work reads as many rows beside a large backlog as beside a small one. */

import { expect, test } from 'vitest';
import type { ClaimFilter, Entry } from 'respool';
import { sampleEntries } from 'respool/testkit';
import { Claims } from '../../../src/stores/postgres/claim.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import type { Ask } from '../../../src/stores/postgres/connection.ts';
import { claimRequest } from '../../../src/testkit/entry-cases/shared.ts';
import { withService } from '../../services/index.ts';
import { backlog, FILTERS, LEAVING_OUT, LONG_DUE, NOT_DUE } from '../look-samples.ts';
import { mostRows, type Node } from './plan.ts';
import { asking, openClient, openStore, ownSchema } from './setup.ts';
import { systemClock } from '../../time.ts';

const FEW = 500;
const MANY = 10_000;
const BATCH = 2_000;
const MAX = 10;
const LIVE = sampleEntries(3, 'live', { topic: 'live' });
/** A step may read a few rows more where an index has another level or another page. */
const MORE_ROWS = 20;

/** A schema with these entries, and what looks for work read in it. */
async function filled(entries: readonly Entry[]) {
  const schema = ownSchema();
  const store = await openStore({ schema });
  const client = await openClient();
  for (let at = 0; at < entries.length; at += BATCH) {
    await store.insert(entries.slice(at, at + BATCH));
  }
  const ask = asking(client);
  await ask(`VACUUM ANALYZE "${schema}".entries`);
  let rows = 0;
  /** Explains each look before it is made; a claim is then taken back with the rest. */
  const counting: Ask = async (text, values) => {
    const explained = text.replace('WITH RECURSIVE', 'EXPLAIN (ANALYZE, FORMAT JSON) $&');
    if (explained === text) return ask(text, values);
    await ask('SAVEPOINT look');
    const [[plan] = []] = await ask(explained, values);
    const [{ Plan }] = JSON.parse(plan as string) as readonly [{ readonly Plan: Node }];
    rows += mostRows(Plan);
    await ask('ROLLBACK TO look');
    return ask(text, values);
  };
  /** The rows that the largest steps of a claim and of a look for the next due time read. */
  return async (filter: ClaimFilter): Promise<{ got: number; rows: number }> => {
    rows = 0;
    const claims = new Claims(namesOf(schema, ''), systemClock);
    await ask('BEGIN');
    const request = claimRequest(store, { ...filter, max: MAX });
    const got = await claims.claim(counting, request, false);
    await claims.nextDueAt(counting, filter);
    await ask('ROLLBACK');
    return { got: got.length, rows };
  };
}

withService('postgres', () => {
  test('beside a backlog that is not due', async () => {
    const [few, many] = [
      await filled([...backlog(FEW, NOT_DUE), ...LIVE]),
      await filled([...backlog(MANY, NOT_DUE), ...LIVE]),
    ];
    for (const [name, filter] of Object.entries(FILTERS)) {
      const [small, large] = [await few(filter), await many(filter)];
      expect(large.got, name).toBe(LIVE.length);
      expect(large.rows, name).toBeLessThanOrEqual(small.rows + MORE_ROWS);
    }
  });

  test('beside a backlog that is due and left out', async () => {
    const [few, many] = [
      await filled([...backlog(FEW, LONG_DUE), ...LIVE]),
      await filled([...backlog(MANY, LONG_DUE), ...LIVE]),
    ];
    for (const name of LEAVING_OUT) {
      const filter = FILTERS[name] as ClaimFilter;
      const [small, large] = [await few(filter), await many(filter)];
      expect(large.got, name).toBe(LIVE.length);
      expect(large.rows, name).toBeLessThanOrEqual(small.rows + MORE_ROWS);
    }
  });

  // Regression: with two routes, each look for the next due time went through every flow.
  test('where each that is not due has a destination of its own', async () => {
    const filter = FILTERS['two routes in one claim'] as ClaimFilter;
    const few = await filled([...backlog(FEW, NOT_DUE, true), ...LIVE]);
    const many = await filled([...backlog(MANY, NOT_DUE, true), ...LIVE]);
    const [small, large] = [await few(filter), await many(filter)];
    expect(large.got).toBe(LIVE.length);
    expect(large.rows).toBeLessThanOrEqual(small.rows + MORE_ROWS);
  });
});
