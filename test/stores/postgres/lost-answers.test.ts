/** lost-answers — a connection goes away and nobody knows whether the statement has happened. */

import { expect, test, vi } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { postgresBodies } from 'respool/stores/postgres';
import type { Entry } from 'respool';
import { withService } from '../../services/index.ts';
import { type Fault, faultyPool, loseAnswers } from './faulty-pool.ts';
import { atEnd, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { claimRequest, entryChange, steppedStatus } from '../requests.ts';

const INSERT = /INSERT INTO .*"entries"/s;
const CLAIM = /claimed_from = c\.slot/;
const CHANGE = /wanted AS/;
const REMOVE = /unwanted AS/;

async function setup(first: Entry[] = []) {
  const pool = await faultyPool();
  const schema = ownSchema();
  const store = await openStore({ pool, schema });
  if (first.length > 0) await store.insert(first);
  return { pool, store, schema };
}

withService('postgres', () => {
  test.each(['before', 'after'] as const)(
    'an insert whose connection is cut %s it happened is stored once and told as stored',
    async (fault) => {
      const { pool, store } = await setup();
      pool.plan = loseAnswers(INSERT, 2, fault);
      const entries = sampleEntries(3, 'm');
      expect(await store.insert(entries)).toEqual(['stored', 'stored', 'stored']);
      expect((await store.list({ limit: 10 })).entries).toHaveLength(3);
    },
  );

  test('an insert that is done again still tells a true duplicate', async () => {
    const { pool, store } = await setup([sampleEntry('a', { dedupeKey: 'k' })]);
    pool.plan = loseAnswers(INSERT, 1);
    const again = [sampleEntry('a', { headers: { n: '2' } }), sampleEntry('b', { dedupeKey: 'k' })];
    expect(await store.insert(again)).toEqual([{ duplicateOf: 'a' }, { duplicateOf: 'a' }]);
  });

  test('a claim whose answer was lost gives what it took', async () => {
    const { pool, store } = await setup(sampleEntries(5, 'm'));
    pool.plan = loseAnswers(CLAIM, 1);
    const taken = await store.claim(claimRequest(store, { max: 3 }));
    expect(taken.map(({ envelope }) => envelope.id)).toEqual(['m-00000', 'm-00001', 'm-00002']);
    expect(taken.every(({ status }) => status.revision === 2)).toBe(true);
    const rest = await store.claim(claimRequest(store));
    expect(rest).toHaveLength(2);
  });

  test('a change whose answer was lost is done once and told as done', async () => {
    const entry = sampleEntry('a');
    const { pool, store } = await setup([entry]);
    pool.plan = loseAnswers(CHANGE, 1);
    const status = steppedStatus(entry, { state: 'hold', dueAt: null });
    expect(await store.commit([entryChange(entry, status)])).toEqual(['done']);
    expect((await store.get('a'))?.status).toEqual(status);
  });

  test('of two changes of one revision whose answers were lost one is told as done', async () => {
    const entry = sampleEntry('a');
    const { pool, store } = await setup([entry]);
    pool.plan = loseAnswers(CHANGE, 1);
    const changes = ['first', 'second'].map((by) =>
      entryChange(entry, steppedStatus(entry, { notes: { by } })),
    );
    expect(await store.commit(changes)).toEqual(['done', 'stale']);
    expect((await store.get('a'))?.status.notes).toEqual({ by: 'first' });
  });

  test.each(['40P01', 'after', 'before'] as const)(
    'changes that build on each other are all told as done when the second meets %s',
    async (trouble) => {
      const entry = sampleEntry('a');
      const { pool, store } = await setup([entry]);
      const next = { ...entry, status: steppedStatus(entry, { notes: { by: 'first' } }) };
      const last = steppedStatus(next, { notes: { by: 'second' } });
      let changes = 0;
      pool.plan = (text): Fault => {
        if (!CHANGE.test(text)) return 'none';
        changes += 1;
        const fault = trouble === '40P01' ? { code: trouble } : trouble;
        return changes === 2 ? fault : 'none';
      };
      const both = [entryChange(entry, next.status), entryChange(next, last)];
      expect(await store.commit(both)).toEqual(['done', 'done']);
      expect((await store.get('a'))?.status).toEqual(last);
    },
  );

  test('a removal whose answer was lost is told as done', async () => {
    const entry = sampleEntry('a');
    const { pool, store } = await setup([entry]);
    pool.plan = loseAnswers(REMOVE, 1);
    expect(await store.commit([entryChange(entry, 'remove')])).toEqual(['done']);
    expect(await store.get('a')).toBeUndefined();
  });

  test('a removal that had no answer is told as done where another one was first, and stale where it had', async () => {
    const entries = sampleEntries(2, 'm');
    const { pool, store, schema } = await setup(entries);
    const other = await openStore({ schema });
    const removals = entries.map((entry) => entryChange(entry, 'remove'));
    expect(await other.commit(removals)).toEqual(['done', 'done']);
    expect(await store.commit(removals.slice(0, 1))).toEqual(['stale']);
    pool.plan = loseAnswers(REMOVE, 1, 'before');
    expect(await store.commit(removals.slice(1))).toEqual(['done']);
  });

  // Regression: a node that was stopped for longer than its lease told a delivery of another one as
  // its own.
  test.each([
    { lease: 'has ended', leaseMs: -1, answer: 'stale' },
    { lease: 'still runs', leaseMs: 60_000, answer: 'done' },
  ])('an entry that is gone was ours only where the lease $lease: $answer', async (one) => {
    const entry = sampleEntry('a');
    const { pool, store } = await setup([entry]);
    const leaseEndsAt = Date.now() + one.leaseMs;
    pool.plan = loseAnswers(REMOVE, 1);
    expect(await store.commit([{ ...entryChange(entry, 'remove'), leaseEndsAt }])).toEqual([
      one.answer,
    ]);
    expect(await store.get('a')).toBeUndefined();
  });

  test('a change that was stale stays so, also after a lost answer', async () => {
    const entry = sampleEntry('a', { revision: 4 });
    const { pool, store } = await setup([entry]);
    pool.plan = loseAnswers(CHANGE, 1);
    const late = entryChange(entry, steppedStatus(entry, { state: 'hold' }), { revision: 2 });
    expect(await store.commit([late])).toEqual(['stale']);
  });

  test('a record whose answer was lost is written once', async () => {
    const { pool, store } = await setup();
    pool.plan = loseAnswers(/"log_heads"|"maps" AS m/, 2);
    const sequence = await store.records.append('audit', { n: 1 });
    expect(await store.records.put('pause', 'k', 1, 0)).toBe('done');
    expect(await store.records.read('audit', 0, 10)).toEqual([{ sequence, record: { n: 1 } }]);
    expect((await store.records.get('pause', 'k'))?.revision).toBe(1);
  });

  test('a body whose answers were lost is there once and whole', async () => {
    const pool = await faultyPool();
    const bodies = postgresBodies({ pool, schema: ownSchema() });
    await bodies.open();
    atEnd(() => bodies.close());
    let turn = 0;
    // Every third statement that writes loses its answer.
    pool.plan = (text): Fault => {
      const writes = /INSERT|UPDATE/.test(text);
      turn += writes ? 1 : 0;
      return writes && turn % 3 === 0 ? 'after' : 'none';
    };
    const piece = new Uint8Array(200_000).fill(7);
    const pieces = async function* () {
      for (let n = 0; n < 5; n += 1) yield piece;
    };
    expect(await bodies.put('large', pieces())).toEqual({ size: 1_000_000 });
    const small = async function* () {
      yield Uint8Array.of(1);
    };
    for (let n = 0; n < 6; n += 1) {
      expect(await bodies.put(`small-${n}`, small())).toEqual({ size: 1 });
    }
    let size = 0;
    for await (const bytes of bodies.get('large')) size += bytes.byteLength;
    expect(size).toBe(1_000_000);
  });

  const PASSING = '40001 40P01 57P01 57P03 25006 53300 08006 55P03 25P03 25P04 40003'.split(' ');
  test.each(PASSING)('an insert that fails with %s is tried again', async (code) => {
    const { pool, store } = await setup();
    pool.plan = loseAnswers(INSERT, 1, { code });
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test.each([
    ['53100', 'store.full'],
    ['XX001', 'store.corrupt'],
    ['42501', 'config.invalid'],
    ['57014', 'store.unavailable'],
  ])(
    'an insert that fails with %s is told as %s, and nothing is tried again',
    async (code, told) => {
      const { pool, store } = await setup();
      pool.plan = loseAnswers(INSERT, 1, { code, message: 'no' });
      await expect(store.insert([sampleEntry('a')])).rejects.toMatchObject({ code: told });
      expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
    },
  );

  test('a connection that leads to a replica is never written to', async () => {
    const pool = await faultyPool();
    let asked = 0;
    pool.plan = (text): Fault => {
      if (!text.includes('pg_is_in_recovery')) return 'none';
      asked += 1;
      return asked <= 2 ? { rows: [[true]] } : 'none';
    };
    const store = await openStore({ pool });
    expect(asked).toBe(3);
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
    expect(pool.destroyed).toBeGreaterThanOrEqual(2);
  });

  test('a commit that stopped waiting for its standby is waited for again', async () => {
    const { pool, store } = await setup();
    const texts: string[] = [];
    const plan = loseAnswers(INSERT, 1, { notice: '01000' });
    pool.plan = (text) => {
      texts.push(text);
      return plan(text);
    };
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
    expect(texts.filter((text) => text.includes('pg_logical_emit_message'))).toHaveLength(1);
  });

  test('every connection that was taken is given back', async () => {
    const { pool, store } = await setup(sampleEntries(5, 'm'));
    pool.plan = (text) => (INSERT.test(text) ? { code: '23514' } : 'none');
    await store.insert([sampleEntry('z')]).catch(() => undefined);
    await store.claim(claimRequest(store));
    await store.close();
    expect(pool.released).toBe(pool.taken);
  });

  test('a server that ends all connections again and again loses and doubles nothing', async () => {
    const url = `${await serverUrl()}?application_name=respool_killed`;
    const store = await openStore({ url, connections: 4 });
    const killer = await openClient();
    const [stored, done]: [string[], string[]] = [[], []];
    const work = { isOver: false };
    let killed = 0;
    // After some progress each time: a slow machine gets no further between two moments.
    const progress = async () => {
      const from = stored.length + done.length;
      const isSo = () => work.isOver || stored.length + done.length >= from + 5;
      await vi.waitUntil(isSo, { timeout: 240_000, interval: 1 });
    };
    const kill = async () => {
      while (!work.isOver) {
        const ended = await killer.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE application_name = 'respool_killed' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 2`);
        killed += ended.rowCount ?? 0;
        await progress();
      }
    };
    const killing = kill();
    const produce = async (by: number) => {
      for (let n = 0; n < 40; n += 1) {
        const id = `p${by}-${n}`;
        expect(await store.insert([sampleEntry(id)])).toEqual(['stored']);
        stored.push(id);
      }
    };
    const consume = async () => {
      while (done.length < 160) {
        const taken = await store.claim(claimRequest(store, { max: 7 }));
        const results = await store.commit(taken.map((entry) => entryChange(entry, 'remove')));
        expect(results.every((result) => result === 'done')).toBe(true);
        done.push(...taken.map(({ envelope }) => envelope.id));
      }
    };
    await Promise.all([produce(1), produce(2), produce(3), produce(4), consume(), consume()]);
    work.isOver = true;
    await killing;
    expect(killed).toBeGreaterThan(3);
    expect(done.toSorted()).toEqual(stored.toSorted());
    expect(await store.tally('state', {})).toEqual([]);
  });
});
