/** order — how the SQLite store lets what waits for its turn wait; what it promises is in the suite. */

import type Sqlite from 'better-sqlite3';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntry, type SampleParts } from 'respool/testkit';
import { memory } from 'respool/stores/memory';
import type { SqliteStore } from 'respool/stores/sqlite';
import type { Entry } from 'respool';
import { claimOf } from './requests.ts';
import { makeFolder, openFile, openStore } from './setup.ts';
import { entryChange, later, steppedStatus } from '../requests.ts';

const MINUTE = 60_000;
const HELD = { state: 'hold', dueAt: null } as const;

async function setup(): Promise<{ store: SqliteStore; database: Sqlite.Database }> {
  const file = path.join(await makeFolder(), 'x.db');
  const store = await openStore({ path: file });
  return { store, database: await openFile(file) };
}

function keyed(id: string, parts: SampleParts = {}): Entry {
  return sampleEntry(id, { orderKey: 'k', ...parts });
}

/** When each is due, and whether it waits for its turn. */
function waiting(database: Sqlite.Database): Record<string, string> {
  const rows = database.prepare('SELECT id, due_at, behind FROM entries').all() as {
    id: string;
    due_at: number | null;
    behind: number;
  }[];
  return Object.fromEntries(
    rows.map(({ id, due_at: dueAt, behind }) => [
      id,
      `${dueAt === null ? 'never' : dueAt - SAMPLE_AT}${behind === 1 ? ' behind' : ''}`,
    ]),
  );
}

async function claimed(store: SqliteStore, now = SAMPLE_AT, max = 10): Promise<string[]> {
  const taken = await store.claim(claimOf(store, { now, max }));
  return taken.map(({ envelope }) => envelope.id);
}

async function change(store: SqliteStore, id: string, to: SampleParts | 'remove'): Promise<void> {
  const entry = await store.get(id);
  expect(entry).toBeDefined();
  if (entry === undefined) return;
  const next = to === 'remove' ? to : steppedStatus(entry, to);
  expect(await store.commit([entryChange(entry, next)])).toEqual(['done']);
}

describe('one that is not the first of its key', () => {
  test.each<[string, SampleParts, number]>([
    ['incoming: in a minute', {}, MINUTE],
    [
      'active: when its lease is over',
      { state: 'active', holder: 'x:1', claimedFrom: 'incoming', dueAt: later(7_000) },
      7_000,
    ],
    ['deferred: when that is due', { state: 'deferred', dueAt: later(9_000) }, 9_000],
    ['deferred and due: in a minute', { state: 'deferred', dueAt: later(-9) }, MINUTE],
    ['held: in ten minutes', HELD, 10 * MINUTE],
  ])(
    'is put behind by its insert, and looked at again while the first is %s',
    async (_, parts, ms) => {
      const { store, database } = await setup();
      await store.insert([keyed('head', parts), keyed('next'), keyed('third')]);
      expect(waiting(database)).toMatchObject({
        next: `${ms} behind`,
        third: `${10 * MINUTE} behind`,
      });
    },
  );

  test('and comes due later is left as it is until a claim meets it', async () => {
    const { store, database } = await setup();
    await store.insert([keyed('head', HELD), keyed('a', { state: 'deferred', dueAt: later(50) })]);
    expect(waiting(database)['a']).toBe('50');
    expect(await claimed(store, later(40))).toEqual([]);
    expect(waiting(database)['a']).toBe('50');
    expect(await claimed(store, later(60))).toEqual([]);
    expect(waiting(database)['a']).toBe(`${60 + 10 * MINUTE} behind`);
  });

  test('is put behind again when its time comes and the first is still there', async () => {
    const { store, database } = await setup();
    await store.insert([keyed('head'), keyed('next')]);
    await store.claim(claimOf(store, { leaseMs: 5 * MINUTE }));
    expect(waiting(database)['next']).toBe(`${MINUTE} behind`);
    expect(await claimed(store, later(MINUTE))).toEqual([]);
    expect(waiting(database)['next']).toBe(`${5 * MINUTE} behind`);
  });

  test('keeps its revision and the time of its last write', async () => {
    const { store } = await setup();
    const next = keyed('next');
    await store.insert([keyed('head', HELD), next]);
    await claimed(store, later(11 * MINUTE));
    const { status } = (await store.get('next')) ?? next;
    expect(status.revision).toBe(next.status.revision);
    expect(status.updatedAt).toBe(next.status.updatedAt);
  });

  test('goes by itself when its time comes, should nobody have woken it', async () => {
    const { store, database } = await setup();
    await store.insert([keyed('head'), keyed('next')]);
    // As if a program that knows nothing of order had removed the first one.
    database.exec("DELETE FROM entries WHERE id = 'head'");
    expect(await claimed(store)).toEqual([]);
    expect(await store.nextDueAt(claimOf(store))).toBe(later(MINUTE));
    expect(await claimed(store, later(MINUTE))).toEqual(['next']);
  });

  test('is claimed without a mark of its waiting', async () => {
    const { store, database } = await setup();
    await store.insert([keyed('head'), keyed('next')]);
    await change(store, 'head', 'remove');
    expect(waiting(database)).toEqual({ next: '0' });
    expect(await claimed(store)).toEqual(['next']);
    expect(waiting(database)).toEqual({ next: `${MINUTE}` });
  });

  test('loses the mark when an operator moves it', async () => {
    const { store, database } = await setup();
    await store.insert([keyed('head'), keyed('next')]);
    await change(store, 'next', { state: 'deferred', dueAt: later(5) });
    expect(waiting(database)['next']).toBe('5');
  });
});

describe('the next of a key is let go', () => {
  test('when the first is damaged and put into quarantine', async () => {
    const { store, database } = await setup();
    await store.insert([keyed('head'), keyed('next'), keyed('third')]);
    database.exec(`UPDATE contents SET envelope = 'x'
      WHERE seq = (SELECT seq FROM entries WHERE id = 'head')`);
    expect(await claimed(store)).toEqual([]);
    expect(await claimed(store)).toEqual(['next']);
  });

  test('when the first gets another key', async () => {
    const { store } = await setup();
    await store.insert([keyed('head', HELD), keyed('next')]);
    const head = await store.get('head');
    if (head === undefined) throw new Error('it is there');
    const envelope = { ...head.envelope, orderKey: 'other' };
    const moved = entryChange(head, steppedStatus(head), { envelope });
    expect(await store.commit([moved])).toEqual(['done']);
    expect(await claimed(store)).toEqual(['next']);
    await store.insert([keyed('after', { orderKey: 'other' })]);
    expect(await claimed(store)).toEqual([]);
  });

  test('in the transaction that ends the first, lazily or not', async () => {
    const { store } = await setup();
    await store.insert([keyed('head'), keyed('next')]);
    const [head] = await store.claim(claimOf(store));
    if (head === undefined) throw new Error('it is due');
    const [, taken] = await Promise.all([
      store.commit([entryChange(head, 'remove')], { durable: false }),
      store.claim(claimOf(store)),
    ]);
    expect(taken.map(({ envelope }) => envelope.id)).toEqual(['next']);
  });
});

describe('a claim', () => {
  test('passes over many keys whose first ones are not to be had', async () => {
    const { store } = await setup();
    const keys = Array.from({ length: 300 }, (_, at) => `k${at}`);
    const heads = keys.map((orderKey) => keyed(`h-${orderKey}`, { orderKey, ...HELD }));
    const parts = { state: 'deferred', dueAt: later(5), priority: 0 } as const;
    const nexts = keys.map((orderKey) => keyed(`n-${orderKey}`, { orderKey, ...parts }));
    await store.insert([...heads, ...nexts, sampleEntry('free')]);
    expect(await claimed(store, later(10), 1)).toEqual(['free']);
  });

  test('tells of no due time for what only waits, before any claim has met it', async () => {
    const { store } = await setup();
    const parts = { state: 'deferred', dueAt: later(5) } as const;
    const crowd = Array.from({ length: 90 }, (_, at) => keyed(`c${at}`, parts));
    await store.insert([keyed('head', HELD), ...crowd, sampleEntry('free', { dueAt: later(70) })]);
    expect(await store.nextDueAt(claimOf(store))).toBe(later(70));
    expect(await store.nextDueAt(claimOf(store, { ids: ['c1', 'free'] }))).toBe(later(70));
    expect(await store.nextDueAt(claimOf(store, { ids: ['c1'] }))).toBeNull();
  });

  test('by topics keeps the order of keys over all topics', async () => {
    const { store } = await setup();
    const crowd = Array.from({ length: 700 }, (_, at) => sampleEntry(`c${at}`, { topic: 'crowd' }));
    await store.insert([...crowd, keyed('a', { topic: 'crowd' }), keyed('b', { topic: 'mail' })]);
    await store.insert([sampleEntry('z', { topic: 'mail' })]);
    const topics = [{ pattern: 'mail', take: true }];
    const taken = await store.claim(claimOf(store, { topics }));
    expect(taken.map(({ envelope }) => envelope.id)).toEqual(['z']);
    await change(store, 'a', 'remove');
    const [next] = await store.claim(claimOf(store, { topics }));
    expect(next?.envelope.id).toBe('b');
  });

  test('notices a key that another connection brought', async () => {
    const { store, database } = await setup();
    const other = await openStore({ path: database.name });
    // Both have seen a file without keys.
    for (const each of [store, other]) expect(await claimed(each)).toEqual([]);
    await other.insert([
      keyed('head', HELD),
      keyed('next', { state: 'deferred', dueAt: later(1) }),
    ]);
    expect(await claimed(store, later(1))).toEqual([]);
  });
});

test('a number of heads beyond its limits is refused in the words of the other stores', async () => {
  const { store } = await setup();
  const other = memory();
  await other.open();
  for (const max of [0, 501]) {
    const [mine, theirs] = await Promise.allSettled([store.keyHeads(max), other.keyHeads?.(max)]);
    expect(mine).toMatchObject({ status: 'rejected', reason: { code: 'limit.exceeded' } });
    expect(mine).toEqual(theirs);
  }
});
