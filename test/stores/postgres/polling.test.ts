/** polling — without LISTEN, a look finds what others wrote, whatever the store does itself. */

import { expect, test } from 'vitest';
import type { Clock, Entry } from 'respool';
import type { PostgresOptions, PostgresStore } from 'respool/stores/postgres';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { service, withService } from '../../services/index.ts';
import { entryChange, later, steppedStatus } from '../requests.ts';
import { systemClock } from '../../time.ts';
import { faultyPool, type FaultyPool } from './faulty-pool.ts';
import { openClient, openStore, ownSchema } from './setup.ts';

/** The pauses before looks, from the first to the longest. */
const LOOK_AFTER_MS: readonly number[] = [0, 50, 100, 200, 400, 800, 1_000];
const HELD = sampleEntry('held', { state: 'hold', dueAt: null });
/** Due before everything else, and claimed by nobody here. */
const OLDER = sampleEntry('older', { topic: 'paused', dueAt: later(-60_000) });

/** A clock on which a look begins only when the test says so. */
function heldLooks() {
  let next: { readonly ms: number; readonly call: () => void } | undefined;
  let planned: (() => void) | undefined;
  const after: Clock['after'] = (ms, call) => {
    if (!LOOK_AFTER_MS.includes(ms)) return systemClock.after(ms, call);
    next = { ms, call };
    planned?.();
    return () => undefined;
  };
  return {
    clock: { ...systemClock, after } satisfies Clock,
    /** Looks once; resolves with the pause before the next look, when that is planned. */
    look: (): Promise<number> =>
      new Promise((resolve) => {
        planned = () => resolve(next?.ms ?? Number.NaN);
        next?.call();
      }),
  };
}

/** A store that polls, watched, and another one that writes to the same tables. */
async function setup(options: Partial<PostgresOptions>, entries: readonly Entry[] = []) {
  const schema = ownSchema();
  const other = await openStore({ schema });
  await other.insert(entries);
  const { clock, look } = heldLooks();
  const store = await openStore({ schema, retryFor: '1ms', ...options }, { clock });
  let wakes = 0;
  store.watch?.(() => {
    wakes += 1;
  });
  let own = 0;
  /** A write of our own that changes what is due first. */
  const write = async (): Promise<void> => {
    own += 1;
    await store.insert([sampleEntry(`own-${own}`, { priority: 9, dueAt: later(-own) })]);
  };
  await look();
  return {
    store,
    other,
    look,
    write,
    /** How often the watch was called since the last time this was asked. */
    wakes: () => {
      const count = wakes;
      wakes = 0;
      return count;
    },
  };
}

async function retry(store: PostgresStore): Promise<void> {
  const to = steppedStatus(HELD, { state: 'incoming', dueAt: later(0) });
  expect(await store.commit([entryChange(HELD, to)])).toEqual(['done']);
}

/** Nothing passes the pool until it is mended. */
async function outage(pool: FaultyPool, work: () => Promise<unknown>): Promise<void> {
  pool.plan = () => 'before';
  await work();
  pool.plan = () => 'none';
}

withService('postgres', () => {
  const ways = {
    'a pool of the caller': async () => ({ pool: await faultyPool() }),
    'a pooler in transaction mode': async () => ({ url: await service('pgbouncer') }),
  };

  // Regression: while a store wrote between all its looks, it took every change for its own.
  test.each(Object.entries(ways))(
    'with %s the next look finds what another released',
    async (_, way) => {
      const { other, look, write, wakes } = await setup(await way(), [OLDER, HELD]);
      for (let round = 0; round < 8; round += 1) {
        await write();
        await look();
      }
      expect(wakes()).toBe(0);
      await write();
      await retry(other);
      await write();
      await look();
      expect(wakes()).toBe(1);
    },
  );

  // Regression: rows of an insert that failed counted as drawn, and hid as many rows of others.
  test('after an outage the next look finds what another inserts', async () => {
    const pool = await faultyPool();
    const { store, other, look, write, wakes } = await setup({ pool }, [OLDER]);
    await outage(pool, async () => {
      await expect(store.insert(sampleEntries(50, 'lost'))).rejects.toThrow('cannot insert');
    });
    await write();
    await look();
    wakes();
    await other.insert([sampleEntry('a')]);
    await write();
    await look();
    expect(wakes()).toBe(1);
  });

  test('looks go on while the server is away, and the first one after that wakes', async () => {
    const pool = await faultyPool();
    const { look, wakes } = await setup({ pool });
    await outage(pool, async () => {
      for (let round = 0; round < 3; round += 1) expect(await look()).toBeLessThanOrEqual(1_000);
    });
    expect(wakes()).toBe(0);
    await look();
    expect(wakes()).toBe(1);
  });

  test('its own writes neither postpone a look nor bring it forward', async () => {
    const { look, write } = await setup({ pool: await faultyPool() });
    const pauses: number[] = [];
    for (let round = 0; round < 7; round += 1) {
      await write();
      pauses.push(await look());
    }
    expect(pauses).toEqual([200, 400, 800, 1_000, 1_000, 1_000, 1_000]);
  });

  test('a message of a transaction is found when it is committed, after its number was seen', async () => {
    const { other, look, write, wakes } = await setup({ pool: await faultyPool() }, [OLDER]);
    const client = await openClient();
    await client.query('BEGIN');
    await other.insertWithin(client, [sampleEntry('a')]);
    await look();
    expect(wakes()).toBe(1);
    await client.query('COMMIT');
    await write();
    await look();
    expect(wakes()).toBe(1);
  });

  // It may have drawn its number or not, so nothing can be told for sure.
  test('while a write of its own is on its way, each look wakes it, and the pauses grow', async () => {
    const { store, other, look, wakes } = await setup({ pool: await faultyPool(), retryFor: '1m' });
    const client = await openClient();
    await client.query('BEGIN');
    await other.insertWithin(client, [sampleEntry('a')]);
    // Waits for the transaction that has the same id.
    const own = store.insert([sampleEntry('a')]);
    const { rows } = await client.query('SELECT pg_backend_pid() AS pid');
    const waits = 'SELECT 1 FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))';
    const others = await openClient();
    await expect.poll(async () => (await others.query(waits, [rows[0].pid])).rowCount).toBe(1);
    await look();
    expect(wakes()).toBe(1);
    const counts: [number, number][] = [];
    for (let round = 0; round < 7; round += 1) counts.push([await look(), wakes()]);
    expect(counts).toEqual([
      [100, 1],
      [200, 1],
      [400, 1],
      [800, 1],
      [1_000, 1],
      [1_000, 1],
      [1_000, 1],
    ]);
    await client.query('COMMIT');
    expect(await own).toEqual([{ duplicateOf: 'a' }]);
    await look();
    expect(wakes()).toBe(1);
  });

  test('a look is one statement, and the same while nothing is written', async () => {
    const pool = await faultyPool();
    const { look } = await setup({ pool });
    const texts: string[] = [];
    pool.plan = (text) => {
      texts.push(text);
      return 'none';
    };
    for (let round = 0; round < 5; round += 1) await look();
    expect(texts).toHaveLength(5);
    expect(new Set(texts).size).toBe(1);
  });
});
