/** tally — counts agree with lists, always. */

import assert from 'node:assert/strict';
import type { Entry, Status } from '../../core/entry.ts';
import { failure } from '../../core/failure.ts';
import { type State, STATES } from '../../core/state.ts';
import type { EntryQuery, EntryStore, TallyBy } from '../../ports/entry-store.ts';
import { sampleEntries, sampleEntry } from '../samples.ts';
import { seededDice } from '../virtual-time.ts';
import {
  entryChange,
  claim,
  type EntryCase,
  later,
  listEverything,
  put,
  stateCounts,
  steppedStatus,
} from './shared.ts';

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

function mixed(count: number): Entry[] {
  return sampleEntries(count, 'm', (index) => {
    const lastFailure = FAILURES[index % 4];
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
    await put(store, ...mixed(100));
    await assertTallied(store, by);
  },
}));

const FILTERED: readonly EntryCase[] = BYS.map((by) => ({
  name: `a count by ${by} with conditions agrees with a list with the same conditions`,
  async run({ store }) {
    await put(store, ...mixed(100));
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
    await put(store, ...mixed(100));
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
