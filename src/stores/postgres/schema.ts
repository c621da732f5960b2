/**
 * schema — the tables of a store as SQL that a person can read and run, by version; and
 * bringing them up to date.
 *
 * What each step rewrites is kept small: envelope and inline body are in `contents`, written once
 * and removed with their entry, so a claim rewrites some 150 bytes and not the message.
 */

import { RespoolError } from '../../core/errors.ts';
import { checkNumber, PRIORITY_MAX } from '../../core/limits.ts';
import { ARCHIVED_KEY, WAITING_KEYS } from '../shared/sql-row.ts';
import { type QueryRequest, SCHEMA_BEGIN_SQL } from './connection.ts';
import { type Names, namesOf } from './options.ts';
import { blockingSql } from './order-keys.ts';

/** Which tables. */
export interface PostgresSchemaOptions {
  /** Default `respool`. */
  readonly schema?: string;
  /** What the names of the tables begin with; default nothing. */
  readonly tables?: string;
  /**
   * The version of the tables that are there, for SQL that brings them up to date; default 0, none.
   * It is the `value` of `version` in the table `meta`.
   */
  readonly from?: number;
}

/**
 * How `entries_flow` sees a state key. n.b. As an expression on purpose: before its first ANALYZE
 * the server takes every index for equally good, and would walk a whole backlog through
 * `entries_due`.
 */
export const FLOW_KEY_SQL = '(slot + 0)';

/** All priorities, as rows: `FROM ${PRIORITIES_SQL} AS p(priority)`. */
export const PRIORITIES_SQL: string = `generate_series(0, ${PRIORITY_MAX})`;

/** The condition of `entries_flow`: the keys in which entries wait for a claim in numbers. */
const WAITING_SQL = `${FLOW_KEY_SQL} IN (${WAITING_KEYS.join(', ')})`;

/**
 * How long a change of tables waits for a lock: anyone who comes behind it waits as well. Also in
 * docs/reference/stores/postgres.md.
 */
export const LOCK_WAIT = '5s';

/**
 * Rows come and go: a hundredth of a large table, or a thousand rows, is when to clean up. Also in
 * test/stores/postgres/schema.test.ts.
 */
const BUSY =
  'autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, ' +
  'autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05, ' +
  'autovacuum_vacuum_cost_delay = 1';

/** The SQL that brings the tables from one version to the next. */
export type SchemaStep = (names: Names) => string;

/**
 * The first one makes the tables. Released steps are frozen, and with them the state keys in the
 * conditions of their indexes (shared/sql-row.ts) and `blockingSql`.
 */
export const STEPS: readonly SchemaStep[] = [versionOne, versionTwo];

/** The version this program writes. */
export const SCHEMA_VERSION: number = STEPS.length;

/**
 * Everything that `open()` would run on an empty database, or on tables of the version `from`, as
 * SQL to read, to keep in your own migrations, or to run as a role that may create tables.
 */
export function postgresSchema(options: PostgresSchemaOptions = {}): string {
  const names = namesOf(options.schema ?? 'respool', options.tables ?? '');
  const from = checkNumber('from', options.from ?? 0, { min: 0, max: SCHEMA_VERSION - 1 });
  // Where tables are, a schema is: and a user who may change them may have no right to make one.
  const schema = from > 0 ? [] : [`CREATE SCHEMA IF NOT EXISTS ${names.quotedSchema};`];
  return [
    SCHEMA_BEGIN_SQL,
    `SET LOCAL lock_timeout = '${LOCK_WAIT}';`,
    `SELECT pg_advisory_xact_lock(hashtextextended('${names.lockKey}', 0));`,
    ...schema,
    migrationSql(names, from, STEPS),
    'COMMIT;\n',
  ].join('\n');
}

/** What brings the tables from a version to that after the last step. */
export function migrationSql(names: Names, from: number, steps: readonly SchemaStep[]): string {
  const texts = steps.slice(from).map((step) => step(names).trim());
  const { meta } = names.table;
  const version =
    `INSERT INTO ${meta} (key, value) VALUES ('version', ${steps.length})\n` +
    '  ON CONFLICT (key) DO UPDATE SET value = excluded.value;';
  return [...texts, version].join('\n');
}

function versionOne(names: Names): string {
  return [entryTables(names), recordTables(names), bodyTables(names)].join('\n');
}

/** Order keys, and what was sent. n.b. A column with a constant default rewrites no row. */
function versionTwo({ table, turns, index }: Names): string {
  return `
ALTER TABLE ${table.entries}
  ADD COLUMN order_key text COLLATE "C",
  ADD COLUMN behind boolean NOT NULL DEFAULT false;
CREATE INDEX ${index('entries_order')} ON ${table.entries} (order_key, seq)
  WHERE order_key IS NOT NULL AND ${blockingSql('')};
-- Drawn from by every insert with an order key; untouched where there never was one.
CREATE SEQUENCE ${turns};
ALTER SEQUENCE ${turns} OWNED BY ${table.entries}.order_key;
-- What was delivered, for stores with the option "sent"; its other parts are made as time goes by.
CREATE TABLE ${table.sent} (
  sent_at bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  envelope text NOT NULL,
  body bytea
) PARTITION BY RANGE (sent_at);
CREATE INDEX ${index('sent_order')} ON ${table.sent} (sent_at, id);
CREATE INDEX ${index('sent_id')} ON ${table.sent} (id);
CREATE TABLE ${table.sent_default} PARTITION OF ${table.sent} DEFAULT;
`;
}

function entryTables({ table, sequence, index }: Names): string {
  return `
CREATE TABLE ${table.meta} (key text COLLATE "C" PRIMARY KEY, value bigint NOT NULL);
CREATE SEQUENCE ${sequence};
CREATE TABLE ${table.entries} (
  seq bigint NOT NULL DEFAULT nextval('${sequence}'),
  due_at bigint,
  enqueued_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  revision integer NOT NULL,
  attempts integer NOT NULL,
  notices integer NOT NULL,
  lost integer NOT NULL,
  postponed integer NOT NULL,
  replays integer NOT NULL,
  slot smallint NOT NULL,
  priority smallint NOT NULL,
  claimed_from smallint,
  id text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  destination text COLLATE "C" NOT NULL,
  holder text COLLATE "C" NOT NULL,
  dedupe_key text COLLATE "C",
  fingerprint text COLLATE "C",
  memory text,
  CONSTRAINT ${index('entries_pkey')} PRIMARY KEY (id) WITH (fillfactor = 45)
) WITH (fillfactor = 80, ${BUSY});
ALTER SEQUENCE ${sequence} OWNED BY ${table.entries}.seq;
CREATE UNIQUE INDEX ${index('entries_dedupe')} ON ${table.entries} (dedupe_key)
  WHERE dedupe_key IS NOT NULL;
CREATE INDEX ${index('entries_due')} ON ${table.entries} (slot, priority, due_at, id)
  WHERE slot < ${ARCHIVED_KEY};
CREATE INDEX ${index('entries_flow')}
  ON ${table.entries} (${FLOW_KEY_SQL}, topic, destination, priority, due_at, id)
  WHERE ${WAITING_SQL};
CREATE INDEX ${index('entries_ended')} ON ${table.entries} (due_at, id)
  WHERE slot >= ${ARCHIVED_KEY};
CREATE TABLE ${table.contents} (
  seq bigint NOT NULL,
  envelope text NOT NULL,
  body bytea,
  CONSTRAINT ${index('contents_pkey')} PRIMARY KEY (seq)
) WITH (${BUSY});
ALTER TABLE ${table.contents} ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE ${table.quarantine} (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C",
  reason text NOT NULL,
  entry text NOT NULL,
  envelope text,
  body bytea
);
-- What a batch of inserts leaves behind until its answer has come.
CREATE TABLE ${table.receipts} (
  node text COLLATE "C" NOT NULL,
  number bigint NOT NULL,
  written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  refused text,
  CONSTRAINT ${index('receipts_pkey')} PRIMARY KEY (node, number)
) WITH (${BUSY});
-- Emptied by the server itself when it comes back from a crash: how a flush knows of one.
CREATE UNLOGGED TABLE ${table.crashes} (one boolean PRIMARY KEY CHECK (one), mark text NOT NULL);
`;
}

function recordTables({ table }: Names): string {
  return `
CREATE TABLE ${table.log_heads} (kind text COLLATE "C" PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE ${table.logs} (
  kind text COLLATE "C" NOT NULL,
  sequence bigint NOT NULL,
  token text NOT NULL,
  record text NOT NULL,
  PRIMARY KEY (kind, sequence)
);
CREATE TABLE ${table.maps} (
  kind text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  value text NOT NULL,
  revision integer NOT NULL,
  token text NOT NULL,
  PRIMARY KEY (kind, key)
);`;
}

function bodyTables({ table }: Names): string {
  return `
CREATE TABLE ${table.bodies} (
  ref text COLLATE "C" PRIMARY KEY,
  token text NOT NULL,
  size bigint NOT NULL,
  written_at bigint NOT NULL,
  complete boolean NOT NULL
) WITH (fillfactor = 80, ${BUSY});
CREATE TABLE ${table.chunks} (
  ref text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  bytes bytea NOT NULL,
  PRIMARY KEY (ref, at)
) WITH (${BUSY});
ALTER TABLE ${table.chunks} ALTER COLUMN bytes SET STORAGE EXTERNAL;`;
}

// Brings the tables up to date, or refuses those that are newer or not allowed to change.
//
// Two openers may race: a lock that ends with its transaction lets one of them work, and the other
// finds it done. pgbouncer-safe, as everything here.

/** What a migration goes by; others than the real ones are for tests. */
interface MigrationOptions {
  readonly steps?: readonly SchemaStep[];
  /** How long to wait for a lock, as PostgreSQL reads it. */
  readonly lockWait?: string;
}

export async function migrateSchema(
  ask: QueryRequest,
  names: Names,
  mayChange: boolean,
  { steps = STEPS, lockWait = LOCK_WAIT }: MigrationOptions = {},
): Promise<void> {
  const version = await versionOf(ask, names, steps);
  if (version === steps.length) return;
  if (!mayChange) {
    const from = version === 0 ? '' : `{ from: ${version} }`;
    throw new RespoolError(
      'store.version',
      `cannot open schema "${names.schema}": its tables are of version ${version}, needed is ` +
        `${steps.length}, and "migrate" is false; run the SQL of postgresSchema(${from})`,
    );
  }
  await ask(SCHEMA_BEGIN_SQL);
  await ask("SELECT set_config('lock_timeout', $1, true)", [lockWait]);
  await ask('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [names.lockKey]);
  await makeSchema(ask, names);
  // Asked again: another opener may have been first.
  const present = await versionOf(ask, names, steps);
  if (present < steps.length) await ask(migrationSql(names, present, steps));
  await ask('COMMIT');
}

/** Not "if not exists": that needs the right to create even where nothing is to be done. */
async function makeSchema(ask: QueryRequest, names: Names): Promise<void> {
  const found = await ask('SELECT 1 FROM pg_namespace WHERE nspname = $1', [names.schema]);
  if (found.length === 0) await ask(`CREATE SCHEMA ${names.quotedSchema}`);
}

async function versionOf(
  ask: QueryRequest,
  names: Names,
  steps: readonly SchemaStep[],
): Promise<number> {
  const [[meta, entries] = []] = await ask(
    'SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL',
    [names.table.meta, names.table.entries],
  );
  if (meta !== true && entries !== true) return 0;
  const rows =
    meta === true && entries === true
      ? await ask(`SELECT value FROM ${names.table.meta} WHERE key = 'version'`)
      : [];
  const version = rows[0]?.[0];
  if (typeof version !== 'number') {
    throw new RespoolError(
      'config.invalid',
      `cannot open schema "${names.schema}": it has tables of something else under our names; ` +
        'choose another "schema" or "tables"',
    );
  }
  if (version <= steps.length) return version;
  // outbox/table-errors.ts looks for "newer".
  throw new RespoolError(
    'store.version',
    `cannot open schema "${names.schema}": it was written by a newer Respool (format ${version}, ` +
      `this program knows up to ${steps.length}); use the newer Respool`,
  );
}
