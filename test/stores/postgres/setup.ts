/** What the tests of the PostgreSQL store share: schemas of their own, stores that are closed. */

import pg from 'pg';
import { afterEach } from 'vitest';
import { type PostgresOptions, type PostgresStore, postgres } from '../../../src/stores/postgres/index.ts';
import type { PostgresParts } from '../../../src/stores/postgres/entry-store.ts';

const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

/** Runs after the test, the last one first. */
export function atEnd(end: () => Promise<unknown>): void {
  endings.push(end);
}

/** The server that the tests use. */
export async function serverUrl(): Promise<string> {
  return 'postgres://postgres@127.0.0.1:55432/postgres';
}

let schemas = 0;

/** A name that no other test uses, of this or another process. */
export function newSchema(): string {
  schemas += 1;
  return `t${process.pid}_${schemas}_${Math.random().toString(36).slice(2, 8)}`;
}

/** A plain connection. */
export async function connect(url?: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url ?? (await serverUrl()) });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/** A plain connection, closed after the test. */
export async function openClient(): Promise<pg.Client> {
  const client = await connect();
  atEnd(() => client.end());
  return client;
}

export async function dropSchema(schema: string): Promise<void> {
  const client = await connect();
  await client.query('SET client_min_messages = warning');
  await client.query(`DROP SCHEMA IF EXISTS "${schema}" CASCADE`);
  await client.end();
}

/** A schema name; what is made under it goes after the test. */
export function ownSchema(): string {
  const schema = newSchema();
  atEnd(() => dropSchema(schema));
  return schema;
}

/** An opened store in a schema of its own, both gone after the test. */
export async function openStore(
  options: Partial<PostgresOptions> = {},
  parts: Partial<PostgresParts> = {},
): Promise<PostgresStore> {
  const place = options.pool === undefined ? { url: await serverUrl() } : {};
  const schema = options.schema ?? ownSchema();
  const store = postgres({ ...place, schema, ...options }, parts);
  await store.open();
  atEnd(() => store.close());
  return store;
}
