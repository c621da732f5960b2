/** look-cost — a look for work reads as many rows beside a large backlog as beside a small one. */

import { expect, test } from 'vitest';
import type { ClaimFilter, Entry } from 'respool';
import { sampleEntries } from 'respool/testkit';
import { Claims } from '../../../src/stores/postgres/claim.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import type { QueryRequest } from '../../../src/stores/postgres/connection.ts';
import { withService } from '../../services/index.ts';
import { backlog, FILTERS, LEAVING_OUT, LONG_DUE, NOT_DUE } from '../look-samples.ts';
import { mostRows, type Node, pagesRead } from './plan.ts';
import { asking, openClient, openStore, ownSchema } from './setup.ts';
import { systemClock } from '../../time.ts';
import { claimRequest, DELIVERY } from '../requests.ts';

const FEW = 500;
const MANY = 10_000;
const LEFT_OUT = 500;
const FLOWS = 2_000;
const MANY_OUT = 9_000;
const FULL = Array.from({ length: 50 }, (_, at) => `full${at}`);
const BATCH = 2_000;
const MAX = 10;
const LIVE = sampleEntries(3, 'live', { topic: 'live' });
/** A step may read a few rows more where an index has another level or another page. */
const MORE_ROWS = 20;

/** A schema with these entries, and what looks for work read in it. */
async function filled(entries: readonly Entry[], warmUp = 0) {
  const schema = ownSchema();
  const store = await openStore({ schema });
  const client = await openClient();
  for (let at = 0; at < entries.length; at += BATCH) {
    await store.insert(entries.slice(at, at + BATCH));
  }
  const ask = asking(client);
  await ask(`VACUUM ANALYZE "${schema}".entries`);
  let rows = 0;
  let pages = 0;
  const texts: string[] = [];
  /** Explains each look before it is made; a claim is then taken back with the rest. */
  const counting: QueryRequest = async (text, values) => {
    texts.push(text);
    const explained = text.replace('WITH RECURSIVE', 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) $&');
    if (explained === text) return ask(text, values);
    await ask('SAVEPOINT look');
    const [[plan] = []] = await ask(explained, values);
    const [{ Plan }] = JSON.parse(plan as string) as readonly [{ readonly Plan: Node }];
    rows += mostRows(Plan);
    pages += pagesRead(Plan);
    await ask('ROLLBACK TO look');
    return ask(text, values);
  };
  /**
   * The rows that the largest steps of a claim and of a look for the next due time read, and the
   * pages of all steps.
   */
  return async (filter: ClaimFilter) => {
    const claims = new Claims(namesOf(schema, ''), systemClock);
    let got: readonly unknown[] = [];
    for (let look = 0; look <= warmUp; look += 1) {
      rows = 0;
      pages = 0;
      texts.splice(0);
      await ask('BEGIN');
      const request = claimRequest(store, { ...filter, max: MAX });
      got = await claims.claim(counting, request, false);
      await claims.nextDueAt(counting, filter);
      await ask('ROLLBACK');
    }
    return { got: got.length, rows, pages, texts: [...texts] };
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

  // Regression: behind due messages that are left out, each look went through every flow.
  test.each([0, LIVE.length])(
    'where also some are due and left out, and %i others',
    async (due) => {
      const out = sampleEntries(LEFT_OUT, 'out', {
        topic: 'out',
        destination: 'full',
        dueAt: LONG_DUE,
      });
      const rest = [...out, ...LIVE.slice(0, due)];
      // The first look learns how many flows there are.
      const few = await filled([...backlog(MANY / 4, NOT_DUE, true), ...rest], 1);
      const many = await filled([...backlog(MANY, NOT_DUE, true), ...rest], 1);
      const topics = [
        { pattern: 'out', take: false },
        { pattern: '#', take: true },
      ];
      for (const part of [{ topics }, { exceptDestinations: ['full'] }]) {
        const filter: ClaimFilter = { lane: 'delivery', states: ['deferred', 'incoming'], ...part };
        const [small, large] = [await few(filter), await many(filter)];
        expect(large.got).toBe(due);
        expect(large.rows).toBeLessThanOrEqual(small.rows + MORE_ROWS);
      }
    },
  );

  // Regression: each claim and look walked through every flow, with two searches for each.
  test.each([0, LIVE.length])(
    'where more are due and left out than flows wait, and %i others',
    async (due) => {
      const out = sampleEntries(MANY_OUT, 'out', (at) => ({
        topic: 'out',
        destination: `full${at % FULL.length}`,
        dueAt: LONG_DUE,
      }));
      const rest = [...out, ...LIVE.slice(0, due)];
      const few = await filled([...backlog(FLOWS / 4, NOT_DUE, true), ...rest], 2);
      const many = await filled([...backlog(FLOWS, NOT_DUE, true), ...rest], 2);
      const filter: ClaimFilter = {
        lane: 'delivery',
        states: ['deferred', 'incoming'],
        exceptDestinations: FULL,
      };
      const [small, large] = [await few(filter), await many(filter)];
      expect(large.got).toBe(due);
      expect(large.rows).toBeLessThanOrEqual(small.rows + MORE_ROWS);
      // Of those that are not due, pages of the index are read, and no row.
      expect(large.pages - small.pages).toBeLessThan((FLOWS - FLOWS / 4) / 10);
    },
  );

  // Regression: a claim of other states than the look, or with other full destinations than the
  // last one, knew nothing of the flows, and walked through all of them.
  test('where full destinations change, each claim reads as little as the last', async () => {
    const out = sampleEntries(LEFT_OUT, 'out', (at) => ({
      topic: 'out',
      destination: `full${at % FULL.length}`,
      dueAt: LONG_DUE,
    }));
    const entries = [...backlog(MANY, NOT_DUE, true), ...out, ...LIVE];
    const look = await filled(entries);
    const filter: ClaimFilter = { lane: 'delivery', states: ['incoming'] };
    for (const more of ['other', 'another']) {
      const { got, rows } = await look({ ...filter, exceptDestinations: [...FULL, more] });
      expect(got).toBe(LIVE.length);
      expect(rows).toBeLessThanOrEqual(4 * LEFT_OUT);
    }
  });

  // Regression: each claim and look failed (42P01).
  test('finds what is due with an index that was renamed', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const out = sampleEntries(LEFT_OUT, 'out', { destination: 'full', dueAt: LONG_DUE });
    await store.insert([...out, ...LIVE]);
    const ask = asking(await openClient());
    await ask(`ALTER INDEX "${schema}".entries_flow RENAME TO other`);
    const filter: ClaimFilter = { ...DELIVERY, exceptDestinations: ['full'] };
    const found = await store.claim(claimRequest(store, filter));
    expect(found).toHaveLength(LIVE.length);
  });

  // Regression: a claim beside 500 full destinations was a text of 124 kB.
  test('names each full destination once in a statement', async () => {
    const out = sampleEntries(LEFT_OUT, 'out', (at) => ({
      topic: 'out',
      destination: `full${at % FULL.length}`,
      dueAt: LONG_DUE,
    }));
    const look = await filled([...backlog(FEW, NOT_DUE, true), ...out, ...LIVE]);
    const { texts } = await look({ ...DELIVERY, exceptDestinations: FULL });
    expect(texts.length).toBeGreaterThan(2);
    for (const text of texts) expect(text.split('full17,')).toHaveLength(2);
  });

  // 150 flows are few: each is searched. Of 300, up to 800 due rows are passed over, or else only
  // the flows with something due are searched.
  test.each([
    { flows: 150, out: 100, isKeyed: false },
    { flows: 300, out: 100, isKeyed: true },
    { flows: 150, out: 1_500, isKeyed: false },
    { flows: 150, out: 1_500, isKeyed: true },
    { flows: 300, out: 1_500, isKeyed: false },
    { flows: 300, out: 1_500, isKeyed: true },
  ])(
    'finds what a search for each finds, of $flows flows past $out, keyed: $isKeyed',
    async (parts) => {
      const { flows, out, isKeyed } = parts;
      const schema = ownSchema();
      const store = await openStore({ schema });
      const spread = sampleEntries(20, 'm', (at) => ({
        topic: `t${at % 3}`,
        destination: `d${at % 7}`,
        priority: at % 2 === 0 ? 5 : 2,
        dueAt: LONG_DUE + ((at * 37) % 11),
        ...(isKeyed && at % 5 < 2 ? { orderKey: `k${at % 5}` } : {}),
      }));
      const leftOut = (priority: number): Entry[] =>
        sampleEntries(out, `out-${priority}`, {
          topic: 'out',
          destination: 'full',
          priority,
          dueAt: LONG_DUE,
        });
      const waiting = backlog(flows, NOT_DUE, true);
      for (const batch of [waiting, leftOut(2), leftOut(5), spread]) await store.insert(batch);
      const ask = asking(await openClient());
      const filter: ClaimFilter = {
        lane: 'delivery',
        states: ['deferred', 'incoming'],
        exceptDestinations: ['full'],
      };
      const look = async (claims: Claims, max: number, more: Partial<ClaimFilter> = {}) => {
        await ask('BEGIN');
        const next = await claims.nextDueAt(ask, { ...filter, ...more });
        const request = claimRequest(store, { ...filter, ...more, max });
        const rows = await claims.claim(ask, request, false);
        await ask('ROLLBACK');
        return { next, ids: rows.map(([, id]) => id) };
      };
      const idsOf = (entries: readonly Entry[]) => entries.map(({ envelope }) => envelope.id);
      for (const max of [1, 3, 10, 50]) {
        const claims = new Claims(namesOf(schema, ''), systemClock);
        const byId = await look(claims, max, { ids: idsOf([...spread, ...waiting]) });
        expect(byId.ids.length).toBeGreaterThan(0);
        for (let again = 0; again < 4; again += 1) expect(await look(claims, max)).toEqual(byId);
      }
      // Nothing but what is left out is due.
      await ask(`DELETE FROM "${schema}".entries WHERE id LIKE 'm%'`);
      const claims = new Claims(namesOf(schema, ''), systemClock);
      const none = { next: NOT_DUE, ids: [] };
      for (let again = 0; again < 4; again += 1) expect(await look(claims, 10)).toEqual(none);
    },
  );
});
