/** diagnose — every line of the doctor about PostgreSQL, seen to change with the server. */
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { diagnosePostgres, examineWaiting } from '../../../src/stores/postgres/diagnose.ts';
import type { PostgresOptions } from 'respool/stores/postgres';
import { checkStoreOptions } from '../../../src/stores/postgres/options.ts';
import type { StoreFinding } from '../../../src/stores/shared/finding.ts';
import { privateServer, service, withService } from '../../services/index.ts';
import { atEnd, connect, newSchema, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { systemClock } from '../../time.ts';

type Parts = Parameters<typeof diagnosePostgres>[1];

async function findings(
  options: PostgresOptions,
  parts?: Parts,
): Promise<Readonly<Record<string, StoreFinding>>> {
  const { findings: found } = await diagnosePostgres(options, parts);
  return Object.fromEntries(found.map((finding) => [finding.id, finding]));
}

/** A pool whose server answers this to the statements that hold these words. */
async function poolThatSays(words: string, rows: unknown[][]): Promise<pg.Pool> {
  const pool = new pg.Pool({ connectionString: await serverUrl(), max: 1 });
  atEnd(() => pool.end());
  pool.on('connect', (client) => {
    const query = client.query.bind(client) as (given: unknown) => unknown;
    client.query = ((given: { readonly text?: string }) =>
      given.text?.includes(words) === true ? Promise.resolve({ rows }) : query(given)) as never;
  });
  return pool;
}

describe('a server', () => {
  test('without our tables is looked at, and nothing is made there', async () => {
    const schema = ownSchema();
    const diagnosis = await diagnosePostgres({ url: await serverUrl(), schema });
    expect(diagnosis).toMatchObject({ durability: 'power-loss', isThere: false });
    const client = await openClient();
    const { rows } = await client.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [schema]);
    expect(rows).toEqual([]);
  });

  test('in good order has nothing unsafe', async () => {
    const schema = ownSchema();
    await openStore({ schema });
    const url = await serverUrl();
    const found = await findings({ url, schema, listenUrl: url });
    const levels = Object.values(found).map(({ id, level }) => `${id}: ${level}`);
    expect(levels).toEqual(
      expect.arrayContaining([
        'version: ok',
        'primary: ok',
        'synchronous-commit: ok',
        'fsync: ok',
        'full-page-writes: ok',
        'standbys: ok',
        'connections: ok',
        'waiting: ok',
        'pooler: ok',
        'listen: ok',
        'tables: ok',
        'dead-rows: ok',
      ]),
    );
  });

  test('that is a replica is unsafe', async () => {
    const pool = await poolThatSays('pg_is_in_recovery()', [['17.0', true, 1]]);
    expect((await findings({ pool }))['primary']).toMatchObject({ level: 'unsafe' });
  });

  test('that does not wait for its disk is unsafe', async () => {
    const pool = await poolThatSays("current_setting('fsync')", [['on', 'off', 'on', '', 'UTF8']]);
    const { durability, findings: found } = await diagnosePostgres({ pool });
    expect(durability).toBe('server');
    expect(found.find(({ id }) => id === 'fsync')).toMatchObject({ level: 'unsafe' });
  });

  test('whose clock is not ours is worth a note', async () => {
    const options = { url: await serverUrl() };
    expect((await findings(options))['clock']).toMatchObject({ level: 'ok' });
    const clock = Object.create(systemClock, {
      now: { value: () => systemClock.now() - 3_600_000 },
    }) as typeof systemClock;
    const { text, level } = (await findings(options, { clock }))['clock'] ?? {};
    expect(level).toBe('note');
    expect(text).toMatch(/^its clock and ours are 3(?:599|60\d) s apart/);
  });

  test('that is nearly out of connections is worth a note', async () => {
    const pool = await poolThatSays('max_connections', [[90, 100]]);
    expect((await findings({ pool }))['connections']).toMatchObject({
      level: 'note',
      text: '90 of 100 connections are taken',
    });
  });

  test('whose stores have every connection at work is worth a note', async () => {
    const words = "FILTER (WHERE state <> 'idle')";
    const url = `${await serverUrl()}?application_name=respool`;
    const own = await findings({ url, connections: 1 });
    expect(own['waiting']?.text).toMatch(/^\d+ of \d+ connections of stores are at work now/);
    const ask = async (open: number, working: number) => {
      const asked: string[] = [];
      const says = async (text: string) => {
        asked.push(text);
        return [[open, working]];
      };
      const found = await examineWaiting(
        says,
        checkStoreOptions('the store', { url, connections: 4 }),
      );
      expect(asked.join()).toContain(words);
      return found;
    };
    expect(await ask(4, 4)).toMatchObject({
      level: 'note',
      todo: expect.stringContaining('raise "connections"'),
    });
    expect(await ask(8, 8)).toMatchObject({ level: 'note' });
    expect(await ask(4, 3)).toMatchObject({ level: 'ok' });
    // Its pool may still open more.
    expect(await ask(3, 3)).toMatchObject({ level: 'ok' });
  });

  test('whose pool has calls that wait for a connection says how many', async () => {
    const pool = new pg.Pool({ connectionString: await serverUrl(), max: 1 });
    atEnd(() => pool.end());
    expect((await findings({ pool }))['waiting']).toMatchObject({ level: 'ok' });
    const client = await pool.connect();
    const looking = findings({ pool });
    const calls = [1, 2].map(async () => (await pool.connect()).release());
    client.release();
    expect((await looking)['waiting']).toMatchObject({
      level: 'note',
      text: '2 calls wait for a connection of the pool',
      todo: 'raise "max" of the pool',
    });
    await Promise.all(calls);
  });

  test('with a prepared transaction or a slot that is forgotten is unsafe', async () => {
    const prepared = await poolThatSays('pg_prepared_xacts', [['old', 4_000]]);
    expect((await findings({ pool: prepared }))['prepared']?.todo).toContain("PREPARED 'old'");
    const slots = await poolThatSays('pg_replication_slots', [['gone', false, 2_000_000]]);
    expect((await findings({ pool: slots }))['slots']?.text).toContain('"gone" (not read)');
  });

  test('that a role does not wait for has its commits turned on by the store', async () => {
    const url = new URL(await serverUrl());
    url.searchParams.set('options', '-c synchronous_commit=off');
    const diagnosis = await diagnosePostgres({ url: url.href });
    expect(diagnosis.findings.find(({ id }) => id === 'synchronous-commit')?.level).toBe('note');
    expect(diagnosis.durability).toBe('power-loss');
  });

  test('that cannot be reached is told without the password', async () => {
    const url = 'postgres://me:c4nary-password@127.0.0.1:1/db';
    const error = await diagnosePostgres({ url }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'store.unavailable' });
    expect(String(error)).not.toContain('c4nary');
  });
});

test('full_page_writes, autovacuum and a missing standby are told with their remedy', async () => {
  await using server = await privateServer('postgres');
  const client = await connect(server.url);
  for (const setting of [
    'full_page_writes = off',
    'autovacuum = off',
    "synchronous_standby_names = 'nobody'",
  ]) {
    await client.query(`ALTER SYSTEM SET ${setting}`);
  }
  await client.query('SELECT pg_reload_conf()');
  await client.end();
  // A new connection begins with the new settings.
  await expect
    .poll(async () => (await findings({ url: server.url }))['standbys']?.level)
    .toBe('note');
  const { durability, findings: found } = await diagnosePostgres({ url: server.url });
  expect(durability).toBe('server');
  const dangers = found.filter(({ level }) => level === 'unsafe');
  expect(dangers.map(({ id }) => id).toSorted()).toEqual(['autovacuum', 'full-page-writes']);
  expect(dangers.every(({ todo = '' }) => todo.startsWith('ALTER SYSTEM SET'))).toBe(true);
});

describe('tables', () => {
  test('without autovacuum are unsafe, one by one', async () => {
    const schema = ownSchema();
    await openStore({ schema });
    const client = await openClient();
    await client.query(`ALTER TABLE "${schema}"."entries" SET (autovacuum_enabled = false)`);
    const found = await findings({ url: await serverUrl(), schema });
    expect(found['autovacuum']).toMatchObject({
      level: 'unsafe',
      todo: `ALTER TABLE "${schema}"."entries" RESET (autovacuum_enabled)`,
    });
  });

  test('of another version are told', async () => {
    const schema = ownSchema();
    await openStore({ schema });
    const client = await openClient();
    const set = `UPDATE "${schema}".meta SET value = $1 WHERE key = 'version'`;
    await client.query(set, [999]);
    const options = { url: await serverUrl(), schema };
    expect((await findings(options))['tables']).toMatchObject({ level: 'unsafe' });
    await client.query(set, [0]);
    expect((await findings(options))['tables']).toMatchObject({ level: 'note' });
  });

  test('with more dead rows than living ones are worth a note', async () => {
    const pool = await poolThatSays('n_dead_tup', [['"s"."entries"', 10, 50_000, false]]);
    const schema = ownSchema();
    await openStore({ schema });
    expect((await findings({ pool, schema }))['dead-rows']).toMatchObject({
      level: 'note',
      text: '50,000 dead rows beside 10 living ones',
    });
  });
});

test('a transaction that is left open is told with its process, its program and how to end it', async () => {
  const client = new pg.Client({
    connectionString: await serverUrl(),
    application_name: 'a careless report',
  });
  await client.connect();
  atEnd(() => client.end());
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const pid = rows[0]?.pid ?? 0;
  const of = async (unsafeSeconds: number): Promise<StoreFinding | undefined> => {
    const spans = { noteSeconds: 0, unsafeSeconds };
    const { findings: all } = await diagnosePostgres({ url: await serverUrl() }, { spans });
    return all.find(({ text }) => text.includes(`process ${pid} `));
  };
  expect(await of(3_600)).toMatchObject({ id: 'oldest-xmin', level: 'note' });
  const found = await of(0);
  expect(found).toMatchObject({ level: 'unsafe' });
  expect(found?.text).toContain('"a careless report"');
  expect(found?.text).toContain('idle in transaction');
  expect(found?.todo).toContain(`pg_terminate_backend(${pid})`);
  await client.query('ROLLBACK');
  expect(await of(0)).toBeUndefined();
});

test('a transaction of another database counts once it has written', async () => {
  const name = newSchema();
  const owner = await openClient();
  await owner.query(`CREATE DATABASE "${name}"`);
  atEnd(() => owner.query(`DROP DATABASE "${name}" WITH (FORCE)`));
  const url = new URL(await serverUrl());
  url.pathname = `/${name}`;
  const client = await connect(url.href);
  atEnd(() => client.end());
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const isTold = async (): Promise<boolean> => {
    const spans = { noteSeconds: 0, unsafeSeconds: 60 };
    const { findings: all } = await diagnosePostgres({ url: await serverUrl() }, { spans });
    return all.some(({ text }) => text.includes(`process ${rows[0]?.pid} `));
  };
  // Its snapshot keeps nothing of ours.
  expect(await isTold()).toBe(false);
  await client.query('SELECT pg_current_xact_id()');
  expect(await isTold()).toBe(true);
});

withService('pgbouncer', (url) => {
  test('pgbouncer is seen, and a listenUrl through it is unsafe', async () => {
    const through = await findings({ url: url() });
    expect(through['pooler']).toMatchObject({ level: 'note' });
    expect(through['pooler']?.todo).toContain('listenUrl');
    expect(through['listen']).toMatchObject({ level: 'note' });
    const direct = await service('postgres');
    const listening = await findings({ url: url(), listenUrl: direct });
    expect(listening['pooler']).toMatchObject({ level: 'ok' });
    expect(listening['listen']).toMatchObject({ level: 'ok' });
    const deaf = await findings({ url: url(), listenUrl: url() });
    expect(deaf['listen']).toMatchObject({ level: 'unsafe' });
  });
});

test('a listenUrl that leads nowhere is unsafe, and shows no password', async () => {
  const listenUrl = 'postgres://me:c4nary-password@127.0.0.1:1/db';
  const found = await findings({ url: await serverUrl(), listenUrl });
  expect(found['listen']).toMatchObject({ level: 'unsafe' });
  expect(JSON.stringify(found)).not.toContain('c4nary');
});
