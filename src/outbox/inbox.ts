/**
 * inbox — the table in which `once` stores the keys of work that is done, in PostgreSQL and in
 * SQLite: how it is created, how a key is inserted, and how expired keys are deleted.
 *
 * The tables belong to users' databases: a change of their columns needs a migration.
 */

import { RespoolError, show } from '../core/errors.ts';
import { checkNames } from '../core/limits.ts';
import type { Option } from '../core/option-table.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import type { Values } from '../stores/postgres/row.ts';
import { namesOf } from '../stores/postgres/options.ts';
import {
  type TxGuard,
  txGuardSql,
  txCheckSql,
  TX_CHECK_SQL,
} from '../stores/postgres/insert-within.ts';
import { SCHEMA_DEFAULT } from './options.ts';
import { isSqlite } from './tx.ts';
import { type TxClient, type TxPool, transaction } from './transaction.ts';

/** Where the keys are. */
export const INBOX_OPTIONS: Readonly<Record<keyof InboxPlace, Option>> = {
  schema: { kind: 'text', type: 'a name', default: SCHEMA_DEFAULT, about: 'PostgreSQL only' },
  table: {
    kind: 'text',
    type: 'a name',
    defaultText: '`inbox`, in SQLite `outbox_inbox`',
    about: 'where keys are remembered',
  },
};

/** Where the keys are. */
export interface InboxPlace {
  // Written by `npm run options`: edit the table of options instead.
  /** PostgreSQL only. Default `outbox`. */
  readonly schema?: string;
  /** Where keys are remembered. Default `inbox`, in SQLite `outbox_inbox`. */
  readonly table?: string;
}

/** A table whose name was checked, so that it can be put into SQL. */
export interface InboxTable {
  readonly schema: string;
  readonly table: string;
  /** Quoted, with its schema. */
  readonly sql: string;
}

const NAME = /^[a-z_][a-z0-9_]{0,47}$/;
/** How long to wait for a lock: as LOCK_WAIT of stores/postgres/schema.ts. */
const LOCK_WAIT = '5s';

/** How many expired keys one call of `once` deletes: more than it adds. */
const EXPIRED_PER_CALL = 2;
/** How many expired keys a relay deletes at a time. */
const EXPIRED_PER_ROUND = 1_000;
/**
 * How long after its expiry a key of PostgreSQL may be deleted, by calls with other keys and by
 * relays: calls lock the row until their transaction ends, and a caller with the same key should
 * not have to wait for that.
 */
const EXPIRED_GRACE = "interval '1 hour'";

/**
 * Creates the table of `once` if it does not exist: for consumers whose database has no outbox. In
 * PostgreSQL under a lock, so that several processes may try at once.
 *
 * @example
 * import { migrateInbox } from 'respool/outbox';
 * import pg from 'pg';
 * await migrateInbox(new pg.Pool({ connectionString: process.env['DATABASE_URL'] }));
 */
export function migrateInbox(pool: TxPool, place?: InboxPlace): Promise<void>;
export function migrateInbox(database: SqliteDatabase, place?: InboxPlace): void;
export function migrateInbox(
  place: TxPool | SqliteDatabase,
  options: InboxPlace = {},
): Promise<void> | void {
  if (!isSqlite(place)) return migratePostgres(place, options);
  checkPlace(options);
  place.exec(sqliteInboxSql(sqliteTable(options)));
  return undefined;
}

async function migratePostgres(pool: TxPool, options: InboxPlace): Promise<void> {
  checkPlace(options);
  const table = postgresTable(options);
  await transaction(pool, (tx) => makeTable(tx as TxClient, table));
}

function checkPlace(options: InboxPlace): void {
  checkNames('migrateInbox', options, Object.keys(INBOX_OPTIONS));
}

export function postgresTable({
  schema = SCHEMA_DEFAULT,
  table = 'inbox',
}: InboxPlace): InboxTable {
  const { quotedSchema } = namesOf(schema, '');
  return { schema, table, sql: `${quotedSchema}."${checkTable(table)}"` };
}

export function sqliteTable({ schema, table = 'outbox_inbox' }: InboxPlace): string {
  if (schema === undefined) return checkTable(table);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(schema)} as "schema" of an inbox in SQLite: it has none; give "table" only`,
  );
}

function checkTable(table: unknown): string {
  if (typeof table === 'string' && NAME.test(table)) return table;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(table)} as "table" of an inbox: allowed are 1 to 48 of a-z 0-9 _, not ` +
      'starting with a digit',
  );
}

/** The SQL that creates the table, to read, to keep, or to run as a role that may create tables. */
export function postgresInboxSql(table: InboxTable, hasSchema: boolean): string {
  return [
    'BEGIN;',
    `SET LOCAL lock_timeout = '${LOCK_WAIT}';`,
    `SELECT pg_advisory_xact_lock(hashtextextended('${lockKey(table)}', 0));`,
    ...(hasSchema ? [] : [`CREATE SCHEMA IF NOT EXISTS "${table.schema}";`]),
    tableSql(table),
    'COMMIT;\n',
  ].join('\n');
}

/** Checks first: `IF NOT EXISTS` alone would need the right to create even if the table exists. */
async function makeTable(tx: TxClient, table: InboxTable): Promise<void> {
  await tx.query("SELECT set_config('lock_timeout', $1, true)", [LOCK_WAIT]);
  await tx.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [lockKey(table)]);
  const { rows } = await tx.query(
    `SELECT to_regclass($1) IS NOT NULL AS has_table,
      EXISTS (SELECT FROM pg_namespace WHERE nspname = $2) AS has_schema`,
    [table.sql, table.schema],
  );
  if (rows[0]?.['has_table'] === true) return;
  if (rows[0]?.['has_schema'] !== true) await tx.query(`CREATE SCHEMA "${table.schema}"`);
  await tx.query(tableSql(table));
}

function lockKey({ schema, table }: InboxTable): string {
  return `respool:${schema}.${table}`;
}

function tableSql({ table, sql }: InboxTable): string {
  return `CREATE TABLE IF NOT EXISTS ${sql} (
  scope text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  done_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (scope, key)
);
CREATE INDEX IF NOT EXISTS "${table}_expires_at" ON ${sql} (expires_at);`;
}

/** The table of an inbox in SQLite. */
export function sqliteInboxSql(table: string): string {
  return `CREATE TABLE IF NOT EXISTS "${table}" (
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  done_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS "${table}_expires_at" ON "${table}" (expires_at);
`;
}

/**
 * SQL that inserts a key: `taken` is 1 if the key is new or expired. It waits for a transaction
 * that has inserted the same key and has not ended. Inserts nothing if the guard does not hold.
 */
export function insertKeySql({ sql }: InboxTable, guard: TxGuard, { bind }: Values): string {
  const isOwn = txGuardSql(guard, bind);
  const [checkColumns, from] = guard === 'sure' ? ['', ''] : [`${TX_CHECK_SQL}, `, ' FROM proof p'];
  const others = `AND (scope, key) <> ($1::text, $2::text) AND ${isOwn}`;
  const expired = deleteExpiredSql(sql, EXPIRED_PER_CALL, others);
  return `WITH ${txCheckSql(guard)}forgotten AS (${expired}), taken AS (
  INSERT INTO ${sql} AS kept (scope, key, done_at, expires_at)
  SELECT $1::text, $2::text, clock_timestamp(),
    clock_timestamp() + $3::float8 * interval '1 millisecond' WHERE ${isOwn}
  ON CONFLICT (scope, key) DO UPDATE
    SET done_at = excluded.done_at, expires_at = excluded.expires_at
    WHERE kept.expires_at <= clock_timestamp()
  RETURNING 1
)
SELECT ${checkColumns}(SELECT count(*) FROM taken)::int4 AS taken${from}`;
}

/** n.b. now() and not clock_timestamp(): an index cannot be searched for a volatile value. */
function deleteExpiredSql(sql: string, max: number, and = ''): string {
  return `DELETE FROM ${sql} WHERE (scope, key) IN (
  SELECT scope, key FROM ${sql} WHERE expires_at < now() - ${EXPIRED_GRACE} ${and}
  ORDER BY expires_at LIMIT ${max} FOR UPDATE SKIP LOCKED)`;
}

/** Deletes a batch of expired keys; returns how many. */
export async function deleteExpiredKeys(client: TxClient, table: InboxTable): Promise<number> {
  const { rowCount } = await client.query(deleteExpiredSql(table.sql, EXPIRED_PER_ROUND));
  return rowCount ?? 0;
}

/** Deletes expired keys in SQLite, for `once` and for relays. */
export function deleteExpiredSqliteKeys(
  database: SqliteDatabase,
  table: string,
  now: number,
  max: number = EXPIRED_PER_ROUND,
): number {
  const { changes } = database
    .prepare(
      `DELETE FROM "${table}" WHERE (scope, key) IN
        (SELECT scope, key FROM "${table}" WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`,
    )
    .run(now, max);
  return changes;
}

/** Inserts a key in SQLite; true if it is new or expired. */
export function insertSqliteKey(
  database: SqliteDatabase,
  table: string,
  key: {
    readonly scope: string;
    readonly key: string;
    readonly now: number;
    readonly ttlMs: number;
  },
): boolean {
  deleteExpiredSqliteKeys(database, table, key.now, EXPIRED_PER_CALL);
  const { changes } = database
    .prepare(
      `INSERT INTO "${table}" (scope, key, done_at, expires_at) VALUES (?, ?, ?, ?)
      ON CONFLICT (scope, key) DO UPDATE
        SET done_at = excluded.done_at, expires_at = excluded.expires_at
        WHERE expires_at <= excluded.done_at`,
    )
    .run(key.scope, key.key, key.now, key.now + key.ttlMs);
  return changes > 0;
}
