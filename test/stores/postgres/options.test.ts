/** options — what may be said about a store, and what each of it does. */

import pg from 'pg';
import { describe, expect, test } from 'vitest';
import {
  postgres,
  postgresBodies,
  type PostgresOptions,
  postgresSchema,
} from 'respool/stores/postgres';
import { sampleEntry } from 'respool/testkit';
import type { PgPool } from '../../../src/stores/postgres/options.ts';
import { withService } from '../../services/index.ts';
import { holdTimers } from '../../time.ts';
import { atEnd, connect, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { claimRequest } from '../requests.ts';

const URL_OF_NOBODY = 'postgres://nobody:s3cret@127.0.0.1:1/none';

/** Names that would be something else in SQL. */
const STRANGE = [
  '',
  'a b',
  'A',
  'ä',
  '1a',
  'a"b',
  'a;b',
  "a'b",
  'a.b',
  'a--',
  'a/*',
  'a\0b',
  'a\nb',
  '"; DROP SCHEMA public; --',
  '$$',
  'a'.repeat(64),
];

/** How many statements wait for a lock of the table of entries. */
async function waitingFor(client: pg.Client, schema: string): Promise<number> {
  const sql = `SELECT count(*)::int AS n FROM pg_locks WHERE NOT granted
    AND relation = '"${schema}".entries'::regclass`;
  return Number((await client.query(sql)).rows[0].n);
}

function refused(options: Partial<PostgresOptions>): string {
  try {
    postgres({ url: URL_OF_NOBODY, ...options });
  } catch (error) {
    expect(error).toMatchObject({ code: 'config.invalid' });
    return (error as Error).message;
  }
  throw new Error(`${JSON.stringify(options)} was not refused`);
}

describe('what is refused', () => {
  test.each(STRANGE)('the schema name %j is refused', (schema) => {
    expect(refused({ schema })).toContain('"schema"');
    expect(() => postgresSchema({ schema })).toThrow('"schema"');
  });

  test.each(STRANGE.slice(1))('the beginning of table names %j is refused', (tables) => {
    expect(refused({ tables })).toContain('"tables"');
    expect(() => postgresSchema({ tables })).toThrow('"tables"');
  });

  test('a beginning of table names that leaves no room for the rest is refused', () => {
    expect(refused({ tables: 'a'.repeat(41) })).toContain('1 to 40');
  });

  test('neither pool nor URL, or both, is refused', () => {
    expect(() => postgres({})).toThrow('either "pool"');
    expect(refused({ pool: {} as PgPool })).toContain('either "pool"');
    expect(() => postgres({ pool: {} as PgPool })).toThrow('not a pg.Pool');
  });

  test('an option that does not exist is named', () => {
    expect(refused({ shema: 'x' } as never)).toContain('"shema"');
    expect(() => postgresBodies({ url: URL_OF_NOBODY, foo: 1 } as never)).toThrow('"foo"');
  });

  test.each([
    [{ connections: 0 }, 'connections'],
    [{ connections: 101 }, 'connections'],
    [{ connectTimeout: 0 }, 'connectTimeout'],
    [{ statementTimeout: '2h' }, 'statementTimeout'],
    [{ retryFor: 'soon' }, 'retryFor'],
    [{ migrate: 'no' as never }, 'migrate'],
    [{ listenUrl: 'nats://x' }, 'listenUrl'],
  ] as [Partial<PostgresOptions>, string][])('%j is refused', (options, name) => {
    expect(refused(options)).toContain(`"${name}"`);
  });

  test('a URL that is refused is never shown: it may hold a password', () => {
    const text = refused({ url: 'mysql://me:s3cret@host/db' });
    expect(text).toContain('"url"');
    expect(text).not.toContain('s3cret');
  });
});

test('a server that is not there is told after "retryFor", without the password', async () => {
  const store = postgres({ url: URL_OF_NOBODY, retryFor: '100ms' });
  const error = await store.open().catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: 'store.unavailable' });
  expect((error as Error).message).toContain('ECONNREFUSED');
  expect((error as Error).message).not.toContain('s3cret');
});

withService('postgres', () => {
  test('a name that is a word of SQL is a name like any other', async () => {
    const store = await openStore({ schema: ownSchema(), tables: 'select_' });
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
    expect(await store.claim(claimRequest(store))).toHaveLength(1);
  });

  test('stores with different beginnings of table names in one schema do not see each other', async () => {
    const schema = ownSchema();
    const one = await openStore({ schema, tables: 'one_' });
    const two = await openStore({ schema, tables: 'two_' });
    await one.insert([sampleEntry('a')]);
    expect(await two.get('a')).toBeUndefined();
    expect(await two.insert([sampleEntry('a')])).toEqual(['stored']);
    const client = await openClient();
    const found = await client.query(
      "SELECT count(*)::int AS n FROM pg_tables WHERE schemaname = $1 AND tablename LIKE 'one\\_%'",
      [schema],
    );
    expect(found.rows[0].n).toBe(13);
  });

  test('a pool that was given is used, and stays open with its listeners as they were', async () => {
    const pool = new pg.Pool({ connectionString: await serverUrl(), max: 2 });
    atEnd(() => pool.end());
    const schema = ownSchema();
    // The types say it too: a pool of the package fits as it is.
    const entries = postgres({ pool, schema });
    const bodies = postgresBodies({ pool, schema });
    await entries.open();
    await bodies.open();
    await Promise.all(['a', 'b', 'c'].map((id) => entries.insert([sampleEntry(id)])));
    expect(pool.totalCount).toBeGreaterThan(0);
    expect(pool.totalCount).toBeLessThanOrEqual(2);
    await entries.close();
    await bodies.close();
    expect(pool.listenerCount('error')).toBe(0);
    expect(pool.listenerCount('connect')).toBe(0);
    expect((await pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });

  test('a pool of its own has at most "connections", and none is left after closing', async () => {
    const name = `respool_count_${process.pid}`;
    const url = `${await serverUrl()}?application_name=${name}`;
    const store = await openStore({ url, connections: 3 });
    const client = await openClient();
    const count = async () => {
      const sql = 'SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1';
      return Number((await client.query(sql, [name])).rows[0].n);
    };
    await Promise.all(Array.from({ length: 20 }, () => store.claim(claimRequest(store))));
    expect(await count()).toBe(3);
    await store.close();
    await expect.poll(count).toBe(0);
  });

  test('"connectTimeout" ends the wait for a pool that has nothing to give', async () => {
    const pool = new pg.Pool({ connectionString: await serverUrl(), max: 1 });
    atEnd(() => pool.end());
    const { clock, count, release } = holdTimers(77_000);
    const store = await openStore({ pool, connectTimeout: '77s', retryFor: '1ms' }, { clock });
    const taken = await pool.connect();
    const got = store.get('a').catch((thrown: unknown) => String(thrown));
    await expect.poll(count).toBe(1);
    release();
    const error = await got;
    expect(error).toContain('there was no connection within 77000 ms');
    expect(error).toContain('raise "connections" of the store, or "max" of your pool');
    taken.release();
    // The wait that was given up gets its connection later, and gives it back.
    expect(await store.get('a')).toBeUndefined();
  });

  test('"statementTimeout" gives up a connection that does not answer', async () => {
    const schema = ownSchema();
    await (await openStore({ schema })).insert([sampleEntry('a')]);
    const { clock, count, release } = holdTimers(77_000);
    const options = { schema, statementTimeout: '77s', retryFor: '1ms' } as const;
    const store = await openStore(options, { clock });
    const blocker = await connect();
    await blocker.query('BEGIN');
    await blocker.query(`LOCK TABLE "${schema}".entries`);
    const got = store.get('a').catch((thrown: unknown) => String(thrown));
    await expect.poll(() => waitingFor(blocker, schema)).toBeGreaterThan(0);
    expect(count()).toBe(1);
    release();
    expect(await got).toContain('did not answer within 77000 ms');
    await blocker.query('ROLLBACK');
    await blocker.end();
    const idOf = async () => (await store.get('a').catch(() => undefined))?.envelope.id;
    await expect.poll(idOf).toBe('a');
  });

  test('"retryFor" bridges a server that is away for less', async () => {
    const schema = ownSchema();
    await openStore({ schema });
    const { clock, release } = holdTimers(77_000);
    const options = { schema, statementTimeout: '77s', retryFor: '4m' } as const;
    const store = await openStore(options, { clock });
    const blocker = await connect();
    await blocker.query('BEGIN');
    await blocker.query(`LOCK TABLE "${schema}".entries`);
    const inserted = store.insert([sampleEntry('a')]);
    await expect.poll(() => waitingFor(blocker, schema)).toBe(1);
    release();
    await expect.poll(() => waitingFor(blocker, schema)).toBe(2);
    await blocker.query('ROLLBACK');
    await blocker.end();
    expect(await inserted).toEqual(['stored']);
  });

  test('a database of another encoding is refused', async () => {
    const client = await openClient();
    const name = `latin_${process.pid}`;
    await client.query(`CREATE DATABASE ${name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`);
    atEnd(() => client.query(`DROP DATABASE ${name} WITH (FORCE)`));
    const url = new URL(await serverUrl());
    url.pathname = `/${name}`;
    const store = postgres({ url: url.href });
    await expect(store.open()).rejects.toThrow('LATIN1');
  });

  test('a role without the right to create is told so', async () => {
    const client = await openClient();
    const role = `poor_${process.pid}`;
    await client.query(`CREATE ROLE ${role} LOGIN`);
    atEnd(() => client.query(`DROP ROLE ${role}`));
    const url = new URL(await serverUrl());
    url.username = role;
    const store = postgres({ url: url.href, schema: ownSchema() });
    await expect(store.open()).rejects.toMatchObject({ code: 'config.invalid' });
  });
});
