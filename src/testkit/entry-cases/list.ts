/**
 * list — every filter alone and combined, every order in both directions; a walk through the
 * pages misses nothing and repeats nothing, whatever happens meanwhile. Counts agree with lists.
 * docs/project/features.md quotes names of cases, with the half of the NATS suite that has them:
 * every second case, so one more in between moves those behind it.
 */

import assert from 'node:assert/strict';
import type { Entry, Status } from '../../core/entry.ts';
import { failure } from '../../core/failure.ts';
import { type State, STATES } from '../../core/state.ts';
import type {
  EntryQuery,
  EntryStore,
  ListOrder,
  ListQuery,
  TallyBy,
} from '../../ports/entry-store.ts';
import { sampleEntries, sampleEntry } from '../samples.ts';
import { seededDice } from '../virtual-time.ts';
import {
  assertRefused,
  claim,
  type EntryCase,
  entryChange,
  type EntryWorld,
  got,
  sampleIds,
  later,
  listEverything,
  listIds,
  put,
  stateCounts,
  steppedStatus,
} from './shared.ts';

const TIMEOUT = failure('transient', 'timeout', 'No answer from mx1 within 30 s');
const REFUSED = failure('permanent', 'smtp.550', 'no such user "x_y" 100%');

/** Seven entries that differ in everything a query can ask for. */
async function putSeven({ store }: EntryWorld): Promise<void> {
  await put(
    store,
    sampleEntry('a', { topic: 'mail.send', destination: 'mx1', headers: { tenant: 'acme' } }),
    sampleEntry('b', {
      topic: 'mail.send.now',
      destination: 'mx2',
      headers: { tenant: 'zeta', trace: '1' },
      enqueuedAt: later(10),
      updatedAt: later(10),
      dueAt: later(10),
    }),
    sampleEntry('c', {
      topic: 'mail',
      state: 'deferred',
      lastFailure: TIMEOUT,
      because: { code: 'timeout', text: 'waits', by: 'handler' },
      enqueuedAt: later(20),
      updatedAt: later(20),
      dueAt: later(20),
    }),
    sampleEntry('d', {
      topic: 'report',
      state: 'hold',
      dueAt: null,
      because: { code: 'operator.hold', text: 'Needs a Look', by: 'ada' },
      enqueuedAt: later(30),
      updatedAt: later(30),
    }),
    sampleEntry('e', {
      topic: 'report',
      state: 'bounce',
      lane: 'notice',
      ending: 'bounced',
      lastFailure: REFUSED,
      enqueuedAt: later(40),
      updatedAt: later(40),
      dueAt: later(40),
    }),
    sampleEntry('f', {
      topic: 'report',
      state: 'archived',
      ending: 'delivered',
      lastFailure: TIMEOUT,
      enqueuedAt: later(50),
      updatedAt: later(50),
      dueAt: later(50),
    }),
    sampleEntry('g', {
      topic: 'a.b',
      state: 'active',
      holder: 'x:1',
      claimedFrom: 'incoming',
      enqueuedAt: later(60),
      updatedAt: later(60),
      dueAt: later(60),
    }),
  );
}

type Asked = Omit<ListQuery, 'limit'>;

/** A case that asks queries of the seven and compares the ids. */
function asks(name: string, ...answers: readonly (readonly [Asked, string])[]): EntryCase {
  return {
    name,
    async run(world) {
      await putSeven(world);
      for (const [query, expected] of answers) {
        const found = (await listIds(world.store, query)).join('');
        assert.equal(found, expected, `wrong answer to ${JSON.stringify(query)}`);
      }
    },
  };
}

/** Conditions on what a sealed store cannot read. */
const SEARCHES: readonly EntryCase[] = [
  asks(
    'a list by header holds the entries that have it, or have it with this value',
    [{ header: { name: 'tenant' } }, 'ab'],
    [{ header: { name: 'tenant', value: 'zeta' } }, 'b'],
    [{ header: { name: 'trace', value: '2' } }, ''],
    [{ header: { name: 'toString' } }, ''],
    [{ header: { name: 'a.b' } }, ''],
  ),
  asks(
    'a list by text finds it in id, topic, reason and why, in any case',
    [{ text: 'NO ANSWER' }, 'cf'],
    [{ text: 'needs a look' }, 'd'],
    [{ text: 'mail.s' }, 'ab'],
    [{ text: 'g' }, 'g'],
    [{ text: 'nothing like it' }, ''],
  ),
  asks(
    'characters that are wildcards elsewhere are plain in a text',
    [{ text: '100%' }, 'e'],
    [{ text: 'x_y' }, 'e'],
    [{ text: '%' }, 'e'],
    [{ text: 'm_i' }, ''],
    [{ text: 'm.i' }, ''],
    [{ text: "'" }, ''],
  ),
  asks('header and text of a list hold together with its other conditions', [
    { topic: 'mail.#', destination: 'mx2', header: { name: 'trace' }, text: 'now' },
    'b',
  ]),
].map((entryCase) => ({ ...entryCase, needs: ['search'] }));

const FILTERS: readonly EntryCase[] = [
  ...SEARCHES,
  asks('a list without conditions holds every entry, by id', [{}, 'abcdefg']),
  asks(
    'a list by states holds the entries in one of them',
    [{ states: ['incoming'] }, 'ab'],
    [{ states: ['hold', 'bounce'] }, 'de'],
    [{ states: [...STATES] }, 'abcdefg'],
    [{ states: [] }, ''],
  ),
  asks(
    'a list by lane holds the entries of this lane',
    [{ lane: 'notice' }, 'e'],
    [{ lane: 'delivery' }, 'abcdfg'],
  ),
  asks(
    'a list by topic holds exactly this topic',
    [{ topic: 'report' }, 'def'],
    [{ topic: 'mail.send' }, 'a'],
    [{ topic: 'none' }, ''],
  ),
  asks(
    'a list by topic pattern holds what the pattern matches',
    [{ topic: 'mail.*' }, 'a'],
    [{ topic: 'mail.#' }, 'abc'],
    [{ topic: '#' }, 'abcdefg'],
    [{ topic: '*' }, 'cdef'],
    [{ topic: '*.*' }, 'ag'],
  ),
  asks(
    'a list by destination holds exactly this destination',
    [{ destination: 'mx1' }, 'a'],
    [{ destination: 'mx' }, ''],
  ),
  asks(
    'a list by several destinations holds those of each of them',
    [{ destination: ['mx2', 'mx1', 'mx1', 'none'] }, 'ab'],
    [{ destination: ['mx2', ''], topic: 'mail.#' }, 'b'],
    [{ destination: [] }, ''],
  ),
  asks(
    'a list by ids holds these that are there',
    [{ ids: ['e', 'a', 'nobody', 'e'] }, 'ae'],
    [{ ids: [] }, ''],
    [{ ids: ['a', 'd'], states: ['hold'] }, 'd'],
  ),
  asks(
    'a list by the beginning of ids holds those that begin with it',
    [{ idPrefix: 'a' }, 'a'],
    [{ idPrefix: 'nobody' }, ''],
    [{ idPrefix: 'd', states: ['hold'] }, 'd'],
    [{ idPrefix: 'd', states: ['incoming'] }, ''],
  ),
  {
    name: 'a list by the beginning of ids goes on page by page, in every order and both ways',
    run: async ({ store }) => {
      const ids = ['m-1', 'm-10', 'm-100', 'm-2', 'm', 'm_1', 'n', 'l-9', 'mz'];
      await put(store, ...ids.map((id) => sampleEntry(id)));
      const wanted = ids.filter((id) => id.startsWith('m-1')).toSorted();
      for (const order of ORDERS) {
        for (const descending of [false, true]) {
          const seen: string[] = [];
          let after: string | undefined;
          do {
            const query = { idPrefix: 'm-1', order, descending, limit: 2 };
            const page = await store.list(after === undefined ? query : { ...query, after });
            seen.push(...sampleIds(page.entries));
            after = page.next;
          } while (after !== undefined);
          assert.deepEqual(seen, descending ? wanted.toReversed() : wanted);
        }
      }
      assert.deepEqual(await listIds(store, { idPrefix: 'mz' }), ['mz']);
    },
  },
  asks(
    'a list by code finds it in the last failure and in why it is where it is',
    [{ code: 'timeout' }, 'cf'],
    [{ code: 'operator.hold' }, 'd'],
    [{ code: 'smtp.550' }, 'e'],
    [{ code: 'smtp' }, ''],
  ),
  asks(
    'a list by fingerprint holds the failures that are alike',
    [{ fingerprint: TIMEOUT.fingerprint }, 'cf'],
    [{ fingerprint: REFUSED.fingerprint }, 'e'],
    [{ fingerprint: 'none' }, ''],
  ),
  asks(
    'a list by time of enqueue leaves out the bounds themselves',
    [{ enqueuedBefore: later(10) }, 'a'],
    [{ enqueuedAfter: later(40) }, 'fg'],
    [{ enqueuedAfter: later(10), enqueuedBefore: later(40) }, 'cd'],
  ),
  asks(
    'a list by time of the last step leaves out the bounds themselves',
    [{ updatedBefore: later(20) }, 'ab'],
    [{ updatedAfter: later(50) }, 'g'],
    [{ updatedAfter: later(0), updatedBefore: later(30) }, 'bc'],
  ),
  asks(
    'a list by due time leaves out the bounds and what has no due time',
    [{ dueBefore: later(40) }, 'abc'],
    [{ dueAfter: later(0) }, 'bcefg'],
    [{ dueAfter: later(10), dueBefore: later(50) }, 'ce'],
  ),
  asks(
    'all conditions of a list hold together',
    [{ topic: 'report', code: 'timeout' }, 'f'],
    [
      { states: ['deferred', 'archived'], fingerprint: TIMEOUT.fingerprint, lane: 'delivery' },
      'cf',
    ],
    [{ states: ['hold'], lane: 'notice' }, ''],
  ),
];

const ORDERS: readonly ListOrder[] = ['id', 'dueAt', 'updatedAt', 'priority', 'attempts'];

const EXPECTED_ORDERS: Readonly<Record<ListOrder, string>> = {
  id: 'abcdef',
  dueAt: 'fcdeab',
  updatedAt: 'bcadef',
  priority: 'cfabde',
  attempts: 'abfcde',
};

const ORDER_CASES: readonly EntryCase[] = ORDERS.map((order) => ({
  name: `a list by ${order} goes up or down, ties by id`,
  async run({ store }) {
    await put(
      store,
      sampleEntry('a', { state: 'hold', dueAt: null, updatedAt: later(2) }),
      sampleEntry('b', { state: 'hold', dueAt: null, updatedAt: later(1) }),
      sampleEntry('c', { dueAt: later(5), updatedAt: later(1), priority: 0, attempts: 2 }),
      sampleEntry('d', { dueAt: later(5), updatedAt: later(2), priority: 9, attempts: 2 }),
      sampleEntry('e', { dueAt: later(7), updatedAt: later(3), priority: 9, attempts: 10 }),
      sampleEntry('f', { dueAt: later(0), updatedAt: later(4), priority: 4, attempts: 1 }),
    );
    const up = EXPECTED_ORDERS[order];
    const down = up.split('').reverse().join('');
    assert.equal((await listIds(store, { order })).join(''), up);
    assert.equal((await listIds(store, { order, descending: true })).join(''), down);
    assert.equal((await listIds(store, { order, limit: 1 })).join(''), up);
    assert.equal((await listIds(store, { order, limit: 4, descending: true })).join(''), down);
  },
}));

export const listCases: readonly EntryCase[] = [
  ...FILTERS,
  ...ORDER_CASES,
  {
    name: 'a list shows envelope and status as they are, without the inline bytes',
    async run({ store }) {
      const entry = sampleEntry('a', { headers: { h: 'é' }, dedupeKey: 'k', notes: { n: '1' } });
      await put(store, entry);
      const [found] = await listEverything(store);
      assert.ok(found !== undefined && !('inlineBody' in found));
      assert.deepEqual(found, { envelope: entry.envelope, status: entry.status });
    },
  },
  {
    name: 'a page holds at most as many as its limit',
    async run({ store }) {
      await put(store, ...sampleEntries(20, 'm'));
      const page = await store.list({ limit: 7 });
      assert.ok(page.entries.length <= 7 && page.next !== undefined);
      assert.equal((await store.list({ limit: 500 })).entries.length, 20);
    },
  },
  {
    name: 'the only page of a list has no next',
    async run({ store }) {
      await put(store, ...sampleEntries(3, 'm'));
      assert.equal('next' in (await store.list({ limit: 500 })), false);
      assert.deepEqual(await store.list({ limit: 1, topic: 'none' }), { entries: [], corrupt: [] });
    },
  },
  {
    name: 'a page limit below 1 or above 500 is refused',
    async run({ store }) {
      for (const limit of [501, 0, -1, 1.5, Number.NaN]) {
        await assertRefused(() => store.list({ limit }), 'limit.exceeded');
      }
    },
  },
  {
    name: 'a store that cannot search headers and texts refuses to, in lists and counts',
    needs: ['noSearch'],
    async run(world) {
      await putSeven(world);
      for (const query of [{ header: { name: 'tenant' } }, { text: 'mail' }, { text: '' }]) {
        await assertRefused(() => world.store.list({ ...query, limit: 1 }), 'config.invalid');
        await assertRefused(() => world.store.tally('state', query), 'config.invalid');
      }
    },
  },
  {
    name: 'a list follows an entry that was claimed',
    async run({ store }) {
      await put(store, ...sampleEntries(3, 'm'));
      const [taken] = sampleIds(await claim(store, { max: 1 }));
      assert.deepEqual(await listIds(store, { states: ['active'] }), [taken]);
      assert.equal((await listIds(store, { states: ['incoming'] })).length, 2);
      assert.deepEqual(await listIds(store, { order: 'attempts', descending: true, limit: 1 }), [
        'm-00000',
        'm-00002',
        'm-00001',
      ]);
    },
  },
];

/** Entries that come in other orders than by id, with many ties. */
function mixed(count: number): Entry[] {
  return sampleEntries(count, 'm', (index) => ({
    priority: (index * 7) % 10,
    attempts: (index * 5) % 4,
    dueAt: index % 6 === 0 ? null : later((index * 11) % 23),
    updatedAt: later((index * 3) % 13),
    state: index % 6 === 0 ? 'hold' : 'incoming',
  }));
}

/** Walks a list, doing something between its pages; the ids in the order seen. */
async function walk(
  store: EntryStore,
  query: ListQuery,
  between: (page: number) => Promise<void>,
): Promise<readonly string[]> {
  const seen: string[] = [];
  let after: string | undefined;
  for (let page = 0; page < 1_000; page += 1) {
    const found = await store.list(after === undefined ? query : { ...query, after });
    seen.push(...sampleIds(found.entries));
    if (found.next === undefined) return seen;
    after = found.next;
    await between(page);
  }
  return assert.fail('the list did not end');
}

/** Each wanted id was seen once; others may have been seen as well. */
function assertOnce(listedIds: readonly string[], wantedIds: readonly string[]): void {
  const counts = new Map<string, number>();
  for (const id of listedIds) counts.set(id, (counts.get(id) ?? 0) + 1);
  for (const id of wantedIds) {
    assert.equal(counts.get(id) ?? 0, 1, `"${id}" was seen ${counts.get(id) ?? 0} times`);
  }
}

async function change(
  store: EntryStore,
  id: string,
  parts: Parameters<typeof steppedStatus>[1] | 'remove',
): Promise<void> {
  const entry = await got(store, id);
  const to = parts === 'remove' ? 'remove' : steppedStatus(entry, parts);
  assert.deepEqual(await store.commit([entryChange(entry, to)]), ['done']);
}

const WALKS: readonly EntryCase[] = ORDERS.flatMap((order) =>
  [false, true].map((descending) => ({
    name: `pages by ${order}, ${descending ? 'down' : 'up'}, are the whole list in its order`,
    async run({ store }: { readonly store: EntryStore }) {
      await put(store, ...mixed(53));
      const whole = await listIds(store, { order, descending });
      assert.equal(new Set(whole).size, 53);
      for (const limit of [1, 7, 52, 53]) {
        assert.deepEqual(await listIds(store, { order, descending, limit }), whole);
      }
    },
  })),
);

const CHANGING: readonly EntryCase[] = ORDERS.map((order) => ({
  name: `pages by ${order} show each untouched entry once while others come, go and move`,
  async run({ store }) {
    const entries = mixed(60);
    await put(store, ...entries);
    const touched = sampleIds(entries).filter((_, index) => index % 3 === 0);
    const untouched = sampleIds(entries).filter((_, index) => index % 3 !== 0);
    const seen = await walk(store, { order, limit: 6 }, async (page) => {
      const id = touched[page];
      if (id !== undefined && page % 2 === 0) await change(store, id, 'remove');
      else if (id !== undefined) {
        await change(store, id, { attempts: 9, dueAt: later(1e6), updatedAt: later(1e6) });
      }
      await put(store, sampleEntry(`a-${page}`), sampleEntry(`z-${page}`, { priority: 0 }));
    });
    assertOnce(seen, untouched);
  },
}));

export const pageCases: readonly EntryCase[] = [
  ...WALKS,
  ...CHANGING,
  {
    name: 'pages by id never show an entry twice, even when it moves',
    async run({ store }) {
      const entries = mixed(40);
      await put(store, ...entries);
      const seen = await walk(store, { limit: 5 }, async (page) => {
        const moving = sampleIds(entries)[page * 3];
        if (moving !== undefined) {
          await change(store, moving, { state: 'deferred', updatedAt: later(1e6 + page) });
        }
      });
      assertOnce(seen, sampleIds(entries));
      assert.equal(seen.length, 40);
    },
  },
  {
    name: 'pages of a filtered list hold what fits and nothing else',
    async run({ store }) {
      await put(store, ...mixed(60));
      const query = { states: ['hold' as const], order: 'updatedAt' as const };
      const pages = await listIds(store, { ...query, limit: 2 });
      assert.equal(pages.length, 10);
      assert.deepEqual(pages, await listIds(store, query));
    },
  },
  {
    name: 'a page whose place was removed goes on where it was',
    async run({ store }) {
      const ids = sampleIds(mixed(10));
      await put(store, ...mixed(10));
      const first = await store.list({ limit: 4 });
      const seen = sampleIds(first.entries);
      for (const id of seen) await change(store, id, 'remove');
      const rest = await listIds(store, { limit: 4, after: first.next ?? '' });
      assert.deepEqual([...seen, ...rest], ids);
    },
  },
  {
    name: 'a place in a list that no list ever gave is refused',
    async run({ store }) {
      await put(store, ...sampleEntries(5, 'm'));
      for (const after of ['nonsense', '%%%', '{}', 'e30', 'W10', 'bnVsbA', "' or 1=1 --"]) {
        await assertRefused(() => store.list({ limit: 2, after }), 'config.invalid');
      }
    },
  },
  {
    name: 'a place in a list of another order is refused',
    async run({ store }) {
      await put(store, ...sampleEntries(5, 'm'));
      const { next } = await store.list({ limit: 2, order: 'dueAt' });
      assert.ok(next !== undefined);
      const after = next;
      await assertRefused(
        () => store.list({ limit: 2, order: 'priority', after }),
        'config.invalid',
      );
      await assertRefused(
        () => store.list({ limit: 2, order: 'dueAt', descending: true, after }),
        'config.invalid',
      );
    },
  },
];

// Counts agree with lists, always.

const KEYS: Readonly<Record<TallyBy, (entry: Entry) => string | undefined>> = {
  state: ({ status }) => status.state,
  topic: ({ envelope }) => envelope.topic,
  destination: ({ envelope }) => envelope.destination,
  fingerprint: ({ status }) => status.lastFailure?.fingerprint,
};

/** Counts by listing and compares; entries without the property are in no row. */
async function assertTallied(
  store: EntryStore,
  by: TallyBy,
  query: EntryQuery = {},
): Promise<void> {
  const counts = new Map<string, { count: number; oldestAt: number }>();
  for (const entry of await listEverything(store, query)) {
    const key = KEYS[by](entry);
    if (key === undefined) continue;
    const { enqueuedAt } = entry.envelope;
    const row = counts.get(key) ?? { count: 0, oldestAt: enqueuedAt };
    counts.set(key, { count: row.count + 1, oldestAt: Math.min(row.oldestAt, enqueuedAt) });
  }
  const rows = await store.tally(by, query);
  const what = `by ${by} of ${JSON.stringify(query)}`;
  const found = rows.map(({ key, count }) => `${key} ${count}`).sort();
  const expected = [...counts].map(([key, { count }]) => `${key} ${count}`).sort();
  assert.deepEqual(found, expected, what);
  for (const { key, oldestAt } of rows) {
    // A store that does not know it cheaply returns null; any other value must be right.
    if (oldestAt !== null) assert.equal(oldestAt, counts.get(key)?.oldestAt, `oldest ${what}`);
  }
}

const FAILURES = [
  failure('transient', 'timeout', 'no answer within 30 s'),
  failure('transient', 'timeout', 'no answer within 45 s'),
  failure('permanent', 'smtp.550', 'no such user'),
];

function mixedFacts(count: number): Entry[] {
  return sampleEntries(count, 'm', (index) => {
    // One of four has none.
    const lastFailure = FAILURES[index % (FAILURES.length + 1)];
    return {
      state: STATES[index % 6] ?? 'incoming',
      topic: ['mail.send', 'mail.bulk', 'report', 'ünïcode'][index % 4] ?? '',
      enqueuedAt: later((index * 17) % 101),
      updatedAt: later(index),
      ...(index % 3 === 0 ? {} : { destination: `mx${index % 3}` }),
      ...(lastFailure === undefined ? {} : { lastFailure }),
    };
  });
}

const BYS: readonly TallyBy[] = ['state', 'topic', 'destination', 'fingerprint'];

const PLAIN: readonly EntryCase[] = BYS.map((by) => ({
  name: `a count by ${by} agrees with a list`,
  async run({ store }) {
    await put(store, ...mixedFacts(100));
    await assertTallied(store, by);
  },
}));

const FILTERED: readonly EntryCase[] = BYS.map((by) => ({
  name: `a count by ${by} with conditions agrees with a list with the same conditions`,
  async run({ store }) {
    await put(store, ...mixedFacts(100));
    const queries: readonly EntryQuery[] = [
      { states: ['deferred', 'hold'] },
      { topic: 'mail.*' },
      { destination: 'mx1' },
      { destination: ['mx2', 'none', 'mx1'], states: ['hold', 'incoming'] },
      { code: 'timeout', updatedAfter: later(40) },
      { enqueuedBefore: later(50), lane: 'delivery' },
      { ids: ['m-00001', 'm-00007', 'm-00099'] },
      { topic: 'none' },
    ];
    for (const query of queries) await assertTallied(store, by, query);
  },
}));

const SEARCHED: readonly EntryCase[] = BYS.map((by) => ({
  name: `a count by ${by} of a text agrees with a list of the same text`,
  needs: ['search'],
  async run({ store }) {
    await put(store, ...mixedFacts(100));
    await assertTallied(store, by, { text: 'user' });
  },
}));

/** One random step of one entry, or its removal. */
function randomStep(entry: Entry, random: () => number): Status | 'remove' {
  if (random() < 0.2) return 'remove';
  const state: State = STATES[Math.floor(random() * 6)] ?? 'hold';
  const holder = state === 'active' ? { holder: 'x:1', claimedFrom: 'incoming' as const } : {};
  const lane = state === 'bounce' ? 'notice' : 'delivery';
  const dueAt = state === 'hold' ? null : later(Math.floor(random() * 100));
  return steppedStatus(entry, { state, lane, dueAt, ...holder });
}

export const tallyCases: readonly EntryCase[] = [
  ...PLAIN,
  ...FILTERED,
  ...SEARCHED,
  {
    name: 'an empty store counts nothing',
    async run({ store }) {
      for (const by of BYS) assert.deepEqual(await store.tally(by, {}), []);
    },
  },
  {
    name: 'counts are right after many random operations',
    async run({ store }) {
      const dice = seededDice(20_260_101);
      const random = () => dice.random();
      for (let round = 0; round < 15; round += 1) {
        const topic = `t${round % 3}`;
        await put(
          store,
          ...sampleEntries(10, `r${round}`, { topic, destination: `d${round % 2}` }),
        );
        await claim(store, { max: 4, now: later(Math.floor(random() * 200)) });
        const some = (await listEverything(store)).filter(() => random() < 0.4);
        const changes = some.map((entry) => entryChange(entry, randomStep(entry, random)));
        const results = await store.commit(changes, { durable: random() < 0.5 });
        assert.ok(results.every((result) => result === 'done'));
      }
      for (const by of BYS) await assertTallied(store, by);
    },
  },
  {
    name: 'duplicates and stale changes are not counted',
    async run({ store }) {
      const entry = sampleEntry('a', { dedupeKey: 'k' });
      await put(store, entry);
      await store.insert([sampleEntry('a'), sampleEntry('b', { dedupeKey: 'k' })]);
      await store.commit([
        entryChange(entry, steppedStatus(entry, { state: 'hold' }), { revision: 9 }),
        entryChange(sampleEntry('nobody'), 'remove'),
      ]);
      assert.deepEqual(await stateCounts(store), { incoming: 1 });
    },
  },
];
