/** order — one key, several connections: what happens between a snapshot and a lock. */

import assert from 'node:assert/strict';
import type pg from 'pg';
import { expect, test } from 'vitest';
import type { Entry, EntryStore } from 'respool';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntry } from 'respool/testkit';
import { Claims } from '../../../src/stores/postgres/claim.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import {
  assertNext,
  assertNothingDue,
  keyedEntry,
  moveTo,
} from '../../../src/testkit/entry-cases/order.ts';
import { withService } from '../../services/index.ts';
import { asking, openClient, openStore, ownSchema } from './setup.ts';
import { MINUTE_MS, systemClock } from '../../time.ts';
import {
  DELIVERY,
  claimIds,
  claimOne,
  claimRequest,
  entryChange,
  got,
  later,
} from '../requests.ts';

const HELD = { state: 'hold', dueAt: null } as const;

/** A store, and plain connections to its tables. */
async function setup() {
  const schema = ownSchema();
  const store = await openStore({ schema });
  const [one, two] = [await openClient(), await openClient()];
  const isBehind = async (id: string): Promise<boolean> => {
    const sql = `SELECT behind FROM "${schema}".entries WHERE id = $1`;
    return (await two.query(sql, [id])).rows[0].behind;
  };
  return { schema, store, one, two, isBehind };
}

/** Resolves when a statement over these tables waits for a lock. */
async function somebodyWaits(client: pg.Client, schema: string): Promise<void> {
  for (;;) {
    const { rows } = await client.query(
      `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1`,
      [`%${schema}%`],
    );
    if (rows.length > 0) return;
  }
}

/** The first of a key in the hands of a holder, and the next. */
async function firstTaken(store: EntryStore) {
  await store.insert([keyedEntry('a'), keyedEntry('b')]);
  const entry = await claimOne(store, { ids: ['a'] });
  return entryChange(entry, 'remove');
}

async function insertedAs(store: EntryStore, id: string): Promise<Entry> {
  await store.insert([sampleEntry(id, HELD)]);
  return got(store, id);
}

withService('postgres', () => {
  test('a commit that waited for a claim lets go what that has just put behind', async () => {
    const { schema, store, one, two, isBehind } = await setup();
    const removal = await firstTaken(store);
    await one.query('BEGIN');
    const claims = new Claims(namesOf(schema, ''), systemClock);
    expect(await claims.claim(asking(one), claimRequest(store), false)).toEqual([]);
    const removed = store.commit([removal]);
    await somebodyWaits(two, schema);
    expect(await isBehind('b')).toBe(false);
    await one.query('COMMIT');
    expect(await removed).toEqual(['done']);
    await assertNext(store, 'b');
  });

  test('what came and was put behind after the snapshot of a commit is let go by it', async () => {
    const { schema, store, one, two, isBehind } = await setup();
    await store.insert([keyedEntry('a')]);
    const removal = entryChange(await claimOne(store), 'remove');
    await one.query('BEGIN');
    await one.query(`SELECT 1 FROM "${schema}".entries WHERE id = 'a' FOR SHARE`);
    const removed = store.commit([removal]);
    await somebodyWaits(two, schema);
    const other = await openStore({ schema });
    await other.insert([keyedEntry('b')]);
    expect(await claimIds(other)).toEqual([]);
    expect(await isBehind('b')).toBe(true);
    await one.query('COMMIT');
    expect(await removed).toEqual(['done']);
    await assertNext(store, 'b');
  });

  test('while the one ahead is locked by somebody, what waits is neither taken nor moved', async () => {
    const { schema, store, one, isBehind } = await setup();
    await firstTaken(store);
    await one.query('BEGIN');
    await one.query(`SELECT 1 FROM "${schema}".entries WHERE id = 'a' FOR UPDATE`);
    await assertNothingDue(store);
    expect(await isBehind('b')).toBe(false);
    await one.query('ROLLBACK');
    await assertNothingDue(store);
    expect(await isBehind('b')).toBe(true);
  });

  test('what nobody let go, as after a crash, is found when its time has come', async () => {
    const { schema, store, one } = await setup();
    await firstTaken(store);
    await assertNothingDue(store);
    await one.query(`DELETE FROM "${schema}".entries WHERE id = 'a'`);
    await assertNothingDue(store, later(SAMPLE_LEASE_MS - 1));
    expect(await store.nextDueAt(DELIVERY)).toBe(later(SAMPLE_LEASE_MS));
    await assertNext(store, 'b', later(SAMPLE_LEASE_MS));
  });

  test('after the clock was set back, what a commit lets go is due at once', async () => {
    const { store } = await setup();
    await assertNothingDue(store, later(60 * MINUTE_MS));
    const removal = await firstTaken(store);
    await assertNothingDue(store);
    expect(await store.commit([removal])).toEqual(['done']);
    await assertNext(store, 'b');
  });

  test('it is so also if nothing was claimed since the clock was set back', async () => {
    const { store } = await setup();
    const now = async (): Promise<number> => Math.ceil(Number(await store.now?.()));
    const before = (await now()) + 60 * MINUTE_MS;
    await store.insert([keyedEntry('a'), keyedEntry('b')]);
    const entry = await claimOne(store, { ids: ['a'], now: before });
    await assertNothingDue(store, before);
    expect(await store.commit([entryChange(entry, 'remove')])).toEqual(['done']);
    await assertNext(store, 'b', await now());
  });

  test('of two that are inserted at once the first goes first, also if it commits late', async () => {
    const { store, one } = await setup();
    await one.query('BEGIN');
    await store.insertWithin(one, [keyedEntry('z')]);
    await store.insert([keyedEntry('a')]);
    await one.query('COMMIT');
    await assertNext(store, 'z');
    await assertNothingDue(store);
  });

  test('one that commits after a later one was taken is not kept waiting by it', async () => {
    const { store, one } = await setup();
    await one.query('BEGIN');
    await store.insertWithin(one, [keyedEntry('z')]);
    await store.insert([keyedEntry('a'), keyedEntry('b')]);
    await assertNext(store, 'a');
    await one.query('COMMIT');
    await assertNext(store, 'z');
    await moveTo(store, 'a', 'remove');
    await assertNothingDue(store);
    await moveTo(store, 'z', 'remove');
    await assertNext(store, 'b');
  });

  test('a store that was opened before there were keys keeps their order all the same', async () => {
    const schema = ownSchema();
    const stores = await Promise.all([1, 2, 3].map(() => openStore({ schema })));
    const [writing, claiming, operating] = stores;
    assert.ok(writing !== undefined && claiming !== undefined && operating !== undefined);
    await writing.insert([keyedEntry('c'), keyedEntry('b'), keyedEntry('a', { priority: 0 })]);
    expect(await claimIds(claiming)).toEqual(['c']);
    await assertNothingDue(claiming);
    // This one has never met a key before it ends one.
    await moveTo(operating, 'c', 'remove');
    await assertNext(claiming, 'b');
  });

  test('looking for what is due next, a store of before there were keys finds out', async () => {
    const schema = ownSchema();
    const early = await openStore({ schema });
    const late = await openStore({ schema });
    await late.insert([keyedEntry('b', HELD), keyedEntry('a')]);
    expect(await early.nextDueAt(DELIVERY)).toBe(null);
  });

  test('another process without "listenUrl" is told when the next of a key may go', async () => {
    const { schema, store } = await setup();
    // Due all the time, at the top: what others make due is not seen there.
    await store.insert([sampleEntry('paused', { priority: 0, dueAt: later(-9) })]);
    const removal = await firstTaken(store);
    await claimIds(store, { ids: ['b'] });
    const other = await openStore({ schema });
    const woken = new Promise<void>((resolve) => other.watch?.(resolve));
    await store.commit([removal]);
    await woken;
    expect(await claimIds(other, { ids: ['b'] })).toEqual(['b']);
  });

  test('one whose turn is far away is looked at again later than the next one', async () => {
    const { store } = await setup();
    await store.insert([keyedEntry('a'), keyedEntry('b'), keyedEntry('c'), keyedEntry('d')]);
    await store.insert([
      keyedEntry('x', { ...HELD, orderKey: 'x' }),
      keyedEntry('y', { orderKey: 'x' }),
    ]);
    expect(await claimIds(store)).toEqual(['a']);
    const dueIn = async (id: string) => ((await got(store, id)).status.dueAt ?? 0) - SAMPLE_AT;
    const all = await Promise.all(['a', 'b', 'c', 'd', 'y'].map(dueIn));
    const [next, far] = [MINUTE_MS, 10 * MINUTE_MS];
    expect(all).toEqual([SAMPLE_LEASE_MS, next, far, far, far]);
  });

  test('past those that wait, what may go is taken by priority and due time', async () => {
    const { store } = await setup();
    const soon = { dueAt: later(-9), priority: 1 };
    await store.insert([keyedEntry('a', HELD), keyedEntry('b', soon), keyedEntry('c', soon)]);
    await store.insert([
      sampleEntry('y', { priority: 1, dueAt: later(-2) }),
      sampleEntry('x', { priority: 1, dueAt: later(-3), state: 'deferred' }),
      sampleEntry('w', { priority: 2, dueAt: later(-9), state: 'deferred' }),
    ]);
    expect(await claimIds(store, { max: 2 })).toEqual(['x', 'y']);
    expect(await claimIds(store, { max: 2 })).toEqual(['w']);
  });

  test('after many commits without a key, one with a key lets the next go', async () => {
    const { store } = await setup();
    await store.insert([keyedEntry('a'), keyedEntry('b', { priority: 0 })]);
    const taken = await claimOne(store);
    await assertNothingDue(store);
    for (let at = 0; at < 20; at += 1) {
      await store.insert([sampleEntry(`m${at}`)]);
      await moveTo(store, `m${at}`, 'remove');
    }
    const { status } = taken;
    const extended = { ...status, revision: status.revision + 1, dueAt: later(500_000) };
    expect(await store.commit([entryChange(taken, extended)], { durable: false })).toEqual([
      'done',
    ]);
    expect(await store.commit([entryChange(taken, 'remove')])).toEqual(['stale']);
    for (let at = 0; at < 20; at += 1) {
      await store.insert([sampleEntry(`n${at}`)]);
      await moveTo(store, `n${at}`, 'remove');
    }
    const mixed = [
      entryChange(taken, 'remove', { revision: extended.revision }),
      entryChange(await insertedAs(store, 'z'), 'remove'),
    ];
    expect(await store.commit(mixed)).toEqual(['done', 'done']);
    await assertNext(store, 'b');
  });

  test('a write that leaves one as it is leaves it waiting for its turn', async () => {
    const { store, isBehind } = await setup();
    const removal = await firstTaken(store);
    await assertNothingDue(store);
    await moveTo(store, 'b', { policy: 'other' });
    expect(await isBehind('b')).toBe(true);
    await store.commit([removal]);
    await assertNext(store, 'b');
  });

  test('a damaged first of a key that is put aside lets the next one go', async () => {
    const { schema, store, one } = await setup();
    await store.insert([keyedEntry('a'), keyedEntry('b')]);
    await one.query(`UPDATE "${schema}".contents SET envelope = '{' WHERE seq =
      (SELECT seq FROM "${schema}".entries WHERE id = 'a')`);
    expect(await claimIds(store)).toEqual([]);
    await assertNext(store, 'b');
  });

  test('messages without a key leave no trace of order', async () => {
    const { schema, store, one } = await setup();
    await store.insert([sampleEntry('a', { dedupeKey: 'k' }), sampleEntry('b')]);
    await one.query('BEGIN');
    await store.insertWithin(one, [sampleEntry('c')]);
    await one.query('COMMIT');
    const called = async () =>
      (await one.query(`SELECT is_called FROM "${schema}".turns`)).rows[0].is_called;
    expect(await called()).toBe(false);
    expect(await claimIds(store)).toEqual(['a', 'b', 'c']);
    await one.query('BEGIN');
    await store.insertWithin(one, [keyedEntry('d')]);
    await one.query('COMMIT');
    expect(await called()).toBe(true);
  });
});
