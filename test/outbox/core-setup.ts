/** What the tests of emit, once and transactions share: outboxes in schemas and files of their own. */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Sqlite from 'better-sqlite3';
import pg from 'pg';
import type { Entry } from 'respool';
import { createOutbox, type Outbox, type OutboxBase, type SqliteOutbox } from 'respool/outbox';
import { atEnd, dropFileSchemas, newSchema, serverUrl } from '../stores/postgres/setup.ts';

export { atEnd, ownSchema, serverUrl } from '../stores/postgres/setup.ts';

/** A pool that is ended after the test. */
export async function openPool(config: pg.PoolConfig = {}): Promise<pg.Pool> {
  const pool = new pg.Pool({ connectionString: await serverUrl(), max: 8, ...config });
  pool.on('error', () => undefined);
  atEnd(() => pool.end());
  return pool;
}

interface PostgresBundle {
  readonly pool: pg.Pool;
  readonly schema: string;
  readonly outbox: Outbox<pg.PoolClient>;
  /** All messages, in the order of their emits. */
  readonly entries: () => Promise<Entry[]>;
}

dropFileSchemas();
/** Made once for each file: making and dropping tables takes longer than most tests. */
let shared: Promise<string> | undefined;

async function makeShared(): Promise<string> {
  const schema = newSchema();
  const pool = new pg.Pool({ connectionString: await serverUrl(), max: 1 });
  await createOutbox({ pool, schema }).migrate();
  await pool.query(`CREATE TABLE "${schema}".orders (id int PRIMARY KEY)`);
  await pool.end();
  return schema;
}

/**
 * An outbox without messages, beside a table `orders (id int primary key)` of the user's. The
 * tables are those of the test before, emptied, unless it says that it spoils them.
 */
export async function openOutbox(
  options: OutboxBase & { readonly listenUrl?: string } = {},
  { spoils = false }: { readonly spoils?: boolean } = {},
): Promise<PostgresBundle> {
  shared ??= makeShared();
  const schema = await shared;
  if (spoils) shared = undefined;
  const pool = await openPool();
  for (const table of ['entries', 'contents', 'inbox', 'orders']) {
    await pool.query(`DELETE FROM "${schema}".${table}`);
  }
  const outbox = createOutbox({ pool, schema, ...options });
  atEnd(() => outbox.close());
  return { pool, schema, outbox, entries: () => entriesOf(outbox) };
}

/** All messages of an outbox, the oldest first, with their bodies as text. */
async function entriesOf(outbox: Outbox<pg.PoolClient> | SqliteOutbox): Promise<Entry[]> {
  const entries: Entry[] = [];
  for await (const entry of outbox.spool.list({ order: 'id' })) entries.push(entry);
  return entries;
}

/** The body of a message. */
export async function bodyOf({ spool }: Pick<Outbox, 'spool'>, id: string): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of await spool.body(id)) parts.push(part);
  return Buffer.concat(parts);
}

/** A file of its own. */
export async function openDatabase(): Promise<Sqlite.Database> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-outbox-'));
  const database = new Sqlite(path.join(folder, 'shop.db'));
  database.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY)');
  atEnd(async () => {
    database.close();
    await rm(folder, { recursive: true });
  });
  return database;
}

interface SqliteBundle {
  readonly database: Sqlite.Database;
  readonly outbox: SqliteOutbox<Sqlite.Database>;
  readonly entries: () => Promise<Entry[]>;
}

/** An outbox in a file with a table of orders. */
export async function openSqliteOutbox(
  options: OutboxBase & { readonly tables?: string } = {},
): Promise<SqliteBundle> {
  const database = await openDatabase();
  const outbox = createOutbox({ database, ...options });
  outbox.migrate();
  atEnd(() => outbox.close());
  return { database, outbox, entries: () => entriesOf(outbox) };
}

/** The ids of orders, for what stayed of a transaction. */
export async function ordersIn(pool: pg.Pool, schema: string): Promise<number[]> {
  const { rows } = await pool.query<{ id: number }>(
    `SELECT id FROM "${schema}".orders ORDER BY id`,
  );
  return rows.map(({ id }) => id);
}
