/** polling — without LISTEN, a look finds what others wrote, whatever the store does itself. */

import { expect, test } from 'vitest';
import type { Clock, Entry } from 'respool';
import { postgres, type PostgresOptions, type PostgresStore } from 'respool/stores/postgres';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { service, withService } from '../../services/index.ts';
import { claimOne, entryChange, later, steppedStatus } from '../requests.ts';
import { systemClock } from '../../time.ts';
import { faultyPool, type FaultyPool } from './faulty-pool.ts';
import { atEnd, connect, openClient, openStore, ownSchema } from './setup.ts';

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
async function setup(
  options: Partial<PostgresOptions>,
  entries: readonly Entry[] = [],
  otherOptions: Partial<PostgresOptions> = {},
) {
  const { schema = ownSchema() } = options;
  const other = await openStore({ schema, ...otherOptions });
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
    schema,
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

/** An insert of entries. */
const INSERT = /INSERT INTO "\w+"\."entries"/;

/**
 * Keeps back the answers of statements. The result begins some work, and resolves when its
 * statement is done at the server, with what lets the answer through.
 */
function keepAnswers(pool: FaultyPool, match: RegExp) {
  let onDone: (answer: () => void) => void = () => undefined;
  pool.plan = (text) =>
    match.test(text) ? { answerAfter: () => new Promise<void>((go) => onDone(go)) } : 'none';
  return async (work: () => Promise<unknown>): Promise<() => Promise<unknown>> => {
    const done = new Promise<() => void>((resolve) => {
      onDone = resolve;
    });
    const result = work();
    const answer = await done;
    return () => {
      answer();
      return result;
    };
  };
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
  test('while a write of its own is on its way, every tenth look wakes it', async () => {
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
    const pauses = new Set<number>();
    const counts: number[] = [];
    for (let round = 0; round < 20; round += 1) {
      pauses.add(await look());
      counts.push(wakes());
    }
    expect([...pauses]).toEqual([50]);
    expect(counts.join('')).toBe('00000000010000000001');
    await client.query('COMMIT');
    expect(await own).toEqual([{ duplicateOf: 'a' }]);
    await look();
    expect(wakes()).toBe(1);
  });

  // Regression: each transaction that was open at a look and had ended at the next one was news.
  test('its own writes that overlap every second look wake nothing', async () => {
    const pool = await faultyPool();
    const { look, write, wakes } = await setup({ pool }, [OLDER]);
    const begin = keepAnswers(pool, INSERT);
    for (let round = 0; round < 10; round += 1) {
      const finish = await begin(write);
      await look();
      await finish();
      await look();
    }
    expect(wakes()).toBe(0);
  });

  test('its own writes that overlap each look wake at every tenth', async () => {
    const pool = await faultyPool();
    const { look, write, wakes } = await setup({ pool }, [OLDER]);
    const begin = keepAnswers(pool, INSERT);
    const counts: number[] = [];
    let finish = await begin(write);
    for (let round = 0; round < 20; round += 1) {
      await look();
      counts.push(wakes());
      const next = await begin(write);
      await finish();
      finish = next;
    }
    await finish();
    expect(counts.join('')).toBe('00000000010000000001');
  });

  test('its own writers wake nothing in nine looks', async () => {
    const schema = ownSchema();
    const pool = await faultyPool();
    const store = await openStore({ schema, pool });
    let looks = 0;
    pool.plan = (text) => {
      if (text.includes('is_called THEN last_value')) looks += 1;
      return 'none';
    };
    let wakes = 0;
    store.watch?.(() => {
      wakes += 1;
    });
    const isLooking = (): boolean => looks < 9;
    const writeAll = async (writer: number): Promise<void> => {
      for (let n = 0; isLooking(); n += 1) await store.insert([sampleEntry(`${writer}-${n}`)]);
    };
    await Promise.all([1, 2, 3, 4].map(writeAll));
    expect(wakes).toBe(0);
  });

  const foreign: Record<string, (other: PostgresStore) => Promise<unknown>> = {
    inserts: (other) => other.insert([sampleEntry('a')]),
    releases: retry,
  };
  test.each(Object.entries(foreign))(
    'what another %s is found within ten looks that its own writes overlap',
    async (_, change) => {
      const pool = await faultyPool();
      const { other, look, write, wakes } = await setup({ pool }, [OLDER, HELD]);
      const begin = keepAnswers(pool, INSERT);
      let finish = await begin(write);
      const overlapped = async (): Promise<void> => {
        await look();
        const next = await begin(write);
        await finish();
        finish = next;
      };
      for (let round = 0; round < 3; round += 1) await overlapped();
      await change(other);
      for (let round = 0; round < 10; round += 1) await overlapped();
      await finish();
      expect(wakes()).toBeGreaterThanOrEqual(1);
    },
  );

  // The number is drawn while nothing can be told, and proved later; then it is waited for.
  test('a late commit of another is found, whose number its own writes hid', async () => {
    const pool = await faultyPool();
    const { other, look, write, wakes } = await setup({ pool }, [OLDER]);
    const begin = keepAnswers(pool, INSERT);
    const client = await openClient();
    await client.query('BEGIN');
    const finish = await begin(write);
    await other.insertWithin(client, [sampleEntry('a')]);
    await look();
    await finish();
    const again = await begin(write);
    await look();
    await again();
    pool.plan = () => 'none';
    await look();
    wakes();
    await write();
    await look();
    expect(wakes()).toBe(0);
    await client.query('COMMIT');
    await write();
    await look();
    expect(wakes()).toBe(1);
  });

  test('a transaction is waited for that is prepared and committed later', async () => {
    const { other, look, write, wakes } = await setup({ pool: await faultyPool() }, [OLDER]);
    const client = await openClient();
    const name = ownSchema();
    await client.query('BEGIN');
    await other.insertWithin(client, [sampleEntry('a')]);
    await look();
    await client.query(`PREPARE TRANSACTION '${name}'`);
    await look();
    wakes();
    await write();
    await look();
    expect(wakes()).toBe(0);
    await client.query(`COMMIT PREPARED '${name}'`);
    await look();
    expect(wakes()).toBe(1);
  });

  // Regression: a copy of a database has tables of the same numbers.
  test('transactions of another database are none of its own', async () => {
    const [one, two] = [`${ownSchema()}_one`, `${ownSchema()}_two`];
    const admin = await openClient();
    await admin.query(`CREATE DATABASE ${one}`);
    atEnd(() => admin.query(`DROP DATABASE ${one} WITH (FORCE)`));
    const urlOf = async (database: string): Promise<string> =>
      Object.assign(new URL(await service('postgres')), { pathname: `/${database}` }).href;
    const schema = 'respool';
    const made = postgres({ schema, url: await urlOf(one) });
    await made.open();
    await made.close();
    await admin.query(`CREATE DATABASE ${two} TEMPLATE ${one}`);
    atEnd(() => admin.query(`DROP DATABASE ${two} WITH (FORCE)`));
    const copy = await openStore({ schema, url: await urlOf(two) });
    const client = await connect(await urlOf(two));
    await client.query('BEGIN');
    await copy.insertWithin(client, [sampleEntry('a')]);
    const pool = await faultyPool(await urlOf(one));
    const { other, look, wakes } = await setup({ schema, pool }, [], { url: await urlOf(one) });
    await other.insert([sampleEntry('a')]);
    await look();
    expect(wakes()).toBe(1);
    await client.end();
    await look();
    expect(wakes()).toBe(0);
  });

  test('the release of a message behind its key is its own before it is answered', async () => {
    const pool = await faultyPool();
    const keyed = ['k-1', 'k-2'].map((id) => sampleEntry(id, { orderKey: 'k' }));
    const { store, schema, look, wakes } = await setup({ pool }, keyed);
    const first = await claimOne(store);
    const client = await openClient();
    const RELEASE = /nextval.*count\(\*\)/s;
    const begin = keepAnswers(pool, RELEASE);
    const { plan } = pool;
    pool.plan = (text, values) => {
      if (!text.includes('ended AS')) return plan(text, values);
      // As a claim does that saw the first one just before it ended.
      const behind = `UPDATE "${schema}".entries SET behind = true WHERE id = 'k-2'`;
      return { answerAfter: () => client.query(behind) };
    };
    const finish = await begin(() => store.commit([entryChange(first, 'remove')]));
    await look();
    await finish();
    await look();
    expect(wakes()).toBe(0);
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
