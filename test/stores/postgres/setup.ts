/** What the tests of the PostgreSQL store share: schemas of their own, stores that are closed. */

import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach } from 'vitest';
import { postgres, type PostgresOptions, type PostgresStore } from 'respool/stores/postgres';
import { type QueryRequest, rowsOf, TYPES } from '../../../src/stores/postgres/connection.ts';
import { namesOf, type PgQueryable } from '../../../src/stores/postgres/options.ts';
import type { PostgresParts } from '../../../src/stores/postgres/entry-store.ts';
import { service } from '../../services/index.ts';

const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

/** Runs after the test, the last one first. */
export function atEnd(end: () => Promise<unknown>): void {
  endings.push(end);
}

/** The server that the tests use. */
export function serverUrl(): Promise<string> {
  return service('postgres');
}

const made = new Set<string>();

/** A name that no other test uses, of this or another process. */
export function newSchema(): string {
  const schema = `t_${randomUUID().replaceAll('-', '')}`;
  made.add(schema);
  return schema;
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

/** Asks as a store does, over a plain connection. */
export function asking(client: PgQueryable): QueryRequest {
  return async (text, values) => {
    const query = { text, rowMode: 'array' as const, types: TYPES };
    return rowsOf(
      await client.query(values === undefined ? query : { ...query, values: [...values] }),
    );
  };
}

/** Leaves the numbers of a table that was large, and empty when it was cleaned up. */
export async function misjudge(client: pg.Client, schema: string): Promise<void> {
  const entries = `'"${schema}".entries'::regclass`;
  await client.query(
    `UPDATE pg_class SET relpages = 1000, reltuples = 10 WHERE oid = ${entries}
       OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = ${entries})`,
  );
}

async function dropSchema(schema: string): Promise<void> {
  const client = await connect();
  await client.query('SET client_min_messages = warning');
  await client.query(`DROP SCHEMA IF EXISTS "${schema}" CASCADE`);
  await client.end();
}

/** Drops every schema of this file when it ends. */
export function dropFileSchemas(): void {
  afterAll(async () => {
    for (const schema of made) await dropSchema(schema);
  });
}

/** The channel of the notifications of a schema. */
export function channelOf(schema: string): string {
  return namesOf(schema, '').channel;
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
