/**
 * schema — the tables of a Respool file, and the SQL that makes new ones of older ones.
 *
 * Entry store and body store use the same kind of file. The version is a row of `meta`; every
 * change of the tables is one more migration at the end of the list, never an edit of one that was
 * published. Names are written `{entries}` and prefixed by `withNames`.
 *
 * Also here: the parts that flow-looks.ts adds on demand, and whose database it is.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber } from '../../core/limits.ts';
import { checkBoolean } from '../../core/option-table.ts';
import type { SqliteDatabase, SqliteStatement } from '../shared/client.ts';
import {
  ACTIVE_KEYS,
  ARCHIVED_KEY,
  BLOCKING_KEYS,
  STATE_KEY_COUNT,
  type StateKey,
  WAITING_KEYS,
} from '../shared/sql-row.ts';

// The names of our tables and indexes in SQL: written `{entries}`, and given the prefix of
// their store on the way to SQLite. Every statement of this folder goes through `withNames`.
//
// A prefix is checked once and holds nothing that SQL could read as anything but a part of a name.

const PREFIX = /^[a-z][a-z0-9_]{0,30}$/;
/** Names that begin so belong to SQLite itself. */
const RESERVED = 'sqlite_';
const NAME = /\{(\w+)\}/g;

/** Refuses a prefix that could not begin the name of a table. */
export function checkTables(tables: unknown = ''): string {
  const isName = typeof tables === 'string' && (tables === '' || PREFIX.test(tables));
  if (isName && !tables.startsWith(RESERVED)) return tables;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(tables)} as "tables" of the SQLite store: allowed are 1 to 31 of ` +
      `a-z 0-9 _, starting with a letter and not with "${RESERVED}", such as "outbox_"`,
  );
}

/** The same text with the names that the tables of a store have. */
function named(sql: string, tables: string): string {
  return sql.replace(NAME, (_, name: string) => tables + name);
}

/** The names that a text speaks of, without a prefix. */
function namesIn(sql: string): string[] {
  return [...new Set([...sql.matchAll(NAME)].map(([, name = '']) => name))];
}

/** The same database for statements that say `{entries}`. */
export function withNames(database: SqliteDatabase, tables: string): SqliteDatabase {
  return {
    get open() {
      return database.open;
    },
    get inTransaction() {
      return database.inTransaction;
    },
    prepare: (sql) => plainNumbers(database.prepare(named(sql, tables))),
    exec: (sql) => database.exec(named(sql, tables)),
    pragma: (sql, options) => database.pragma(named(sql, tables), options),
    close: () => database.close(),
  };
}

/** A handle of the user's may be set to give whole numbers as bigint; ours are all small enough. */
function plainNumbers(statement: SqliteStatement): SqliteStatement {
  const { safeIntegers } = statement as { safeIntegers?: (on: boolean) => unknown };
  safeIntegers?.call(statement, false);
  return statement;
}

// The tables.

/** The state keys that a claim may ask for: of each `ClaimableState`, in both lanes. */
export const CLAIMED_KEYS: readonly StateKey[] = [0, 1, 2, 3, 4, 5, 8, 9];

/** The condition of `entries_by_flow`, word for word. */
export const WAITING_SQL: string = `slot IN (${WAITING_KEYS.join(', ')})`;

/**
 * Made by the first look that needs it (flow-looks.ts) and kept from then on: it costs an insert 2
 * to 5 µs, 1.14 times the CPU time of one that comes alone and 1.4 to 1.5 times in batches, and a
 * store whose handlers take every topic never needs it. (2026-11-18, 10 topics, 30,000 waiting,
 * with and without it interleaved)
 *
 * The index of earlier programs had no id: all that were due at the same millisecond had to be
 * sorted by each claim. The new one has the same name, since statements of an earlier program that
 * still runs on the file name it, and fail when there is none.
 */
export const FLOW_INDEX_SQL: string = `DROP INDEX IF EXISTS {entries_by_flow};
  CREATE INDEX {entries_by_flow} ON {entries} (flow, slot, due_at, id) WHERE ${WAITING_SQL}`;

const FLOW_INDEX_COLUMNS = 4;

/** Whether the file has the index by flow, with all its columns. */
export function flowIndexIn(database: SqliteDatabase): PartState {
  const sql = "SELECT count(*) FROM pragma_index_info('{entries_by_flow}')";
  return database.prepare(sql).pluck().get() === FLOW_INDEX_COLUMNS ? 'made' : 'absent';
}

/** What a flow has waiting and due at some time, the first one first. */
export const firstOfFlowSql = (columns: string, flow: string, slot: string): string =>
  `SELECT ${columns} FROM {entries} INDEXED BY {entries_by_flow}
  WHERE flow = ${flow} AND slot = ${slot} AND ${WAITING_SQL} AND due_at <= ${FOREVER}
  ORDER BY due_at, id LIMIT 1`;

/** No entry has a later due time. */
const FOREVER = Number.MAX_SAFE_INTEGER;

const LOWER_BOUND_SQL = `ON {entries}
  WHEN NEW.${WAITING_SQL} AND NEW.due_at IS NOT NULL BEGIN
    INSERT INTO {due_bounds} (flow, slot, priority, due_at, id)
    VALUES (NEW.flow, NEW.slot, NEW.priority, NEW.due_at, NEW.id)
    ON CONFLICT (flow, slot) DO UPDATE SET due_at = excluded.due_at, id = excluded.id
    WHERE (excluded.due_at, excluded.id) < (due_at, id);
  END`;

/**
 * For each flow and waiting slot a lower bound of the due time and id of its entries: none of them
 * comes before it, and where there is no row there are none. Triggers lower a bound with whatever
 * statement of whatever program writes an entry; the look that finds it too early raises it.
 *
 * Made by the first look that needs it (flow-looks.ts), or by the user who makes the tables, and
 * kept from then on. It costs an insert and a deferral 2 to 4 µs each, a claim 1 µs. (2026-11-19,
 * SQLite alone, 1,000 and 60,000 flows, with and without it interleaved)
 *
 * Numbers of flows are used again, so the bounds of one go with it.
 */
const DUE_BOUNDS_SQL = `CREATE TABLE {due_bounds} (
  flow INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  due_at INTEGER NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (flow, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX {due_bounds_in_order} ON {due_bounds} (slot, priority, due_at, id);
CREATE TRIGGER {due_bounds_insert} AFTER INSERT ${LOWER_BOUND_SQL};
CREATE TRIGGER {due_bounds_update} AFTER UPDATE OF slot, due_at, flow, priority ${LOWER_BOUND_SQL};
CREATE TRIGGER {due_bounds_remove} AFTER DELETE ON {flows} BEGIN
  DELETE FROM {due_bounds} WHERE flow = OLD.flow;
END;
INSERT INTO {due_bounds} (flow, slot, priority, due_at, id)
  SELECT f.flow, s.value, f.priority, e.due_at, e.id
  FROM {flows} f CROSS JOIN json_each('[${WAITING_KEYS.join(', ')}]') s CROSS JOIN {entries} e
  ON e.seq = (${firstOfFlowSql('seq', 'f.flow', 's.value')})`;

const DUE_BOUNDS_NAMES: readonly string[] = namesIn(DUE_BOUNDS_SQL).filter((name) =>
  name.startsWith('due_bounds'),
);
const DUE_BOUNDS_COLUMNS = 'flow slot priority due_at id';

/** Removes what is left of bounds, such as a table whose triggers were dropped with `entries`. */
const DROP_DUE_BOUNDS_SQL = `DROP TRIGGER IF EXISTS {due_bounds_insert};
DROP TRIGGER IF EXISTS {due_bounds_update};
DROP TRIGGER IF EXISTS {due_bounds_remove};
DROP TABLE IF EXISTS {due_bounds};`;

/** For the state 'absent'. */
export const DUE_BOUNDS_ANEW_SQL: string = `${DROP_DUE_BOUNDS_SQL}\n${DUE_BOUNDS_SQL}`;

/**
 * Whether the file has the bounds with all that keeps them; 'absent' also where some of that is
 * left, 'taken' where something that is not ours has one of their names.
 */
export function dueBoundsIn(database: SqliteDatabase): PartState {
  const names = DUE_BOUNDS_NAMES.map((name) => `'{${name}}'`).join(', ');
  const tables = "'{due_bounds}', '{entries}', '{flows}'";
  const sql = `SELECT lower(tbl_name) IN (${tables}) FROM sqlite_schema
    WHERE lower(name) IN (${names})`;
  const found = database.prepare(sql).pluck().all();
  if (found.includes(0)) return 'taken';
  if (found.length === DUE_BOUNDS_NAMES.length) return 'made';
  const columns = "SELECT name FROM pragma_table_info('{due_bounds}')";
  const present = database.prepare(columns).pluck().all().join(' ');
  return present === '' || present === DUE_BOUNDS_COLUMNS ? 'absent' : 'taken';
}

/** Whether a part of the tables that is made on demand is there, or may be made. */
export type PartState = 'made' | 'absent' | 'taken';

/**
 * A bound limit. n.b. With a bare `LIMIT ?` SQLite plans the statement again for every
 * value: 7.4 µs per probe against 0.7 µs. (SQLite 3.53.4, 2026-11-15)
 */
export const BOUND_LIMIT = '? + 0';

/** The condition of `entries_by_key`, word for word. */
export const KEYED_SQL: string = `order_key IS NOT NULL AND slot IN (${BLOCKING_KEYS.join(', ')})`;

/** The conditions of `entries_due` and of `entries_ended`, word for word. */
export const OPEN_SQL: string = `slot < ${ARCHIVED_KEY}`;
export const ENDED_SQL: string = `slot >= ${ARCHIVED_KEY}`;

/** Active entries of both lanes, through `entries_due`. */
export const ACTIVE_SQL: string = `slot IN (${ACTIVE_KEYS.join(', ')}) AND ${OPEN_SQL}`;

/** The columns of `flows` that count entries by state key. */
export const COUNT_COLUMNS: readonly string[] = Array.from(
  { length: STATE_KEY_COUNT },
  (_, slot) => `n${slot}`,
);

/**
 * What each step rewrites is kept small: the envelope and the inline body are in `contents`, so a
 * claim of fifty messages dirties a few pages and not fifty. The columns are the fields of `Status`
 * in core/entry.ts; `memory` has those without a column (`memoryText` of shared/sql-row.ts). Of
 * `meta`, connection.ts counts `syncs` and topic-flows.ts `flow_epoch`.
 *
 * n.b. SQLite uses a partial index only if its condition stands in the query word for word.
 */
const VERSION_1 = `
CREATE TABLE {entries} (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  slot INTEGER NOT NULL,
  flow INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  due_at INTEGER,
  revision INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  notices INTEGER NOT NULL,
  lost INTEGER NOT NULL,
  postponed INTEGER NOT NULL,
  replays INTEGER NOT NULL,
  holder TEXT,
  claimed_from INTEGER,
  enqueued_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  dedupe_key TEXT,
  fingerprint TEXT,
  memory TEXT
) STRICT;
CREATE UNIQUE INDEX {entries_id} ON {entries} (id);
CREATE UNIQUE INDEX {entries_dedupe} ON {entries} (dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX {entries_due} ON {entries} (slot, priority, due_at, id) WHERE ${OPEN_SQL};
CREATE INDEX {entries_ended} ON {entries} (due_at, id) WHERE ${ENDED_SQL};
CREATE TABLE {contents} (seq INTEGER PRIMARY KEY, envelope TEXT NOT NULL, body BLOB) STRICT;
CREATE TABLE {flows} (
  flow INTEGER PRIMARY KEY,
  topic TEXT NOT NULL,
  destination TEXT NOT NULL,
  priority INTEGER NOT NULL,
  ${COUNT_COLUMNS.map((column) => `${column} INTEGER NOT NULL DEFAULT 0`).join(',\n  ')},
  UNIQUE (topic, destination, priority)
) STRICT;
CREATE TABLE {quarantine} (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT,
  reason TEXT NOT NULL,
  row TEXT NOT NULL,
  envelope TEXT,
  body BLOB
) STRICT;
CREATE TABLE {log_heads} (kind TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE {logs} (
  kind TEXT NOT NULL, sequence INTEGER NOT NULL, record TEXT NOT NULL,
  PRIMARY KEY (kind, sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE {maps} (
  kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, revision INTEGER NOT NULL,
  PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE {bodies} (
  ref TEXT PRIMARY KEY,
  size INTEGER NOT NULL,
  written_at INTEGER NOT NULL,
  complete INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE {chunks} (
  ref TEXT NOT NULL, at INTEGER NOT NULL, bytes BLOB NOT NULL,
  UNIQUE (ref, at)
) STRICT;
INSERT INTO {meta} (key, value) VALUES ('syncs', 0), ('flow_epoch', 0);
`;

/**
 * Order keys. `behind` is 1 while an entry waits for its turn: `due_at` is then the time of the
 * next check if no commit wakes it before. An entry without a key pays two bytes, and 1 to 2 % of
 * each step.
 * (2026-11-16, against the tables before, interleaved)
 */
const VERSION_2 = `
ALTER TABLE {entries} ADD COLUMN order_key TEXT;
ALTER TABLE {entries} ADD COLUMN behind INTEGER NOT NULL DEFAULT 0;
CREATE INDEX {entries_by_key} ON {entries} (order_key) WHERE ${KEYED_SQL};
`;

const VERSION_0 = `
CREATE TABLE {meta} (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO {meta} (key, value) VALUES ('version', 0);
`;

const MIGRATIONS: readonly string[] = [VERSION_1, VERSION_2];

/** The version this program writes. */
export const SCHEMA_VERSION: number = MIGRATIONS.length;

const OUR_SQL = [VERSION_0, ...MIGRATIONS, FLOW_INDEX_SQL, DUE_BOUNDS_SQL].join('\n');
/** Every name we use in a file. */
const OUR_NAMES: readonly string[] = namesIn(OUR_SQL);
/** Our tables, written `{entries}`. */
export const TABLE_NAMES: readonly string[] = Array.from(
  OUR_SQL.matchAll(/CREATE TABLE (\{\w+\})/g),
  ([, name = '']) => name,
);

/** What brings the tables from a version to that after the last step; names as `{entries}`. */
function migrationSql(from: number): string {
  const steps = [...(from === 0 ? [VERSION_0] : []), ...MIGRATIONS.slice(from)];
  const version = `UPDATE {meta} SET value = ${SCHEMA_VERSION} WHERE key = 'version';`;
  return [...steps.map((step) => step.trim()), version].join('\n');
}

// Brings tables up to date, or refuses those that are newer or not ours.
//
// `open()` does it for a store; with tables in a file of the user's, the user does it through a
// handle of their own, or with the SQL as text. Promise: all of it or nothing, and only tables that
// are ours are looked at.

/** Which tables of a database. */
export interface SqliteSchemaOptions {
  /** What the names of the tables begin with, such as `outbox_`; default nothing. */
  readonly tables?: string;
  /**
   * True: also the table of due bounds with its triggers, and the index by flow. A store with
   * `migrate: false` uses them if they are there; others make them when they need them. Default
   * false.
   */
  readonly dueBounds?: boolean;
}

/** Which tables, and what of them is there. */
export interface SqliteSqlOptions extends SqliteSchemaOptions {
  /**
   * The version of the tables that are there, for SQL that brings them up to date; default 0, none.
   * It is the `value` of `version` in the table `meta`. With `dueBounds` also the present version.
   */
  readonly from?: number;
}

/** Whose tables. */
interface Place {
  /** The file, in words for an error. */
  readonly where: string;
  /** What the names of the tables begin with; '' when the whole file is ours. */
  readonly tables: string;
}

/**
 * Makes the tables, or brings them up to date, through your own better-sqlite3 database; in your
 * transaction, if there is one. Nothing else in the file is touched, its journal mode neither.
 */
export function migrateSqlite(database: SqliteDatabase, options: SqliteSchemaOptions = {}): void {
  const { tables, dueBounds } = checkSchemaOptions('migrateSqlite', options);
  const place = { where: fileOf(database), tables };
  migrateSchema(withNames(database, tables), place, { mayChange: true, dueBounds });
}

/**
 * All the SQL that `migrateSqlite` runs on an empty database, or on tables of the version `from`:
 * to read, or for your own tool.
 *
 * @example
 * import { sqliteSchema } from 'respool/stores/sqlite';
 * console.log(sqliteSchema()); // CREATE TABLE …, for a migration tool
 */
export function sqliteSchema({ from = 0, ...options }: SqliteSqlOptions = {}): string {
  const { tables, dueBounds } = checkSchemaOptions('sqliteSchema', options);
  checkNumber('from', from, { min: 0, max: dueBounds ? SCHEMA_VERSION : SCHEMA_VERSION - 1 });
  const steps = [
    ...(from < SCHEMA_VERSION ? [migrationSql(from)] : []),
    ...(dueBounds ? [`${FLOW_INDEX_SQL};`, `${DUE_BOUNDS_SQL};`] : []),
  ];
  return `BEGIN IMMEDIATE;\n${named(steps.join('\n'), tables)}\nCOMMIT;\n`;
}

/** As `migrateSqlite`, through a database of `withNames`; refuses unless `mayChange`. */
export function migrateSchema(
  database: SqliteDatabase,
  place: Place,
  { mayChange, dueBounds = false }: { readonly mayChange: boolean; readonly dueBounds?: boolean },
): void {
  const present = versionOf(database, place);
  const isMade = present === SCHEMA_VERSION;
  if (isMade && (!dueBounds || dueBoundsIn(database) === 'made')) return;
  if (!mayChange) throw notUpToDate(place, present);
  inTransaction(database, () => {
    // Asked again inside: two processes may open a new file at the same time.
    const version = versionOf(database, place);
    // The bounds of tables that are gone.
    if (version === 0) database.exec(DROP_DUE_BOUNDS_SQL);
    if (version < SCHEMA_VERSION) database.exec(migrationSql(version));
    if (dueBounds) makeDueBounds(database, place);
  });
}

function makeDueBounds(database: SqliteDatabase, { where, tables }: Place): void {
  const state = dueBoundsIn(database);
  if (state === 'made') return;
  if (state === 'taken') {
    throw new RespoolError(
      'config.invalid',
      `cannot make due bounds in "${where}": "${tables}due_bounds", or a name that begins so, is ` +
        'there and not ours; rename it',
    );
  }
  if (flowIndexIn(database) !== 'made') database.exec(FLOW_INDEX_SQL);
  database.exec(DUE_BOUNDS_ANEW_SQL);
}

/** Refuses a database of another program, or of a newer Respool; a new file passes. */
export function checkOwner(database: SqliteDatabase, place: Place): void {
  versionOf(database, place);
}

/** Refuses tables that are not there, or not those that this program knows. */
export function checkVersion(database: SqliteDatabase, place: Place): void {
  const present = versionOf(database, place);
  if (present !== SCHEMA_VERSION) throw notUpToDate(place, present);
}

/** What a database calls its file. */
export function fileOf(database: SqliteDatabase): string {
  const name: unknown = Reflect.get(database, 'name');
  return typeof name === 'string' ? name : 'your database';
}

function checkSchemaOptions(what: string, options: SqliteSchemaOptions) {
  checkNames(what, options, ['tables', 'dueBounds']);
  const { tables, dueBounds = false } = options;
  return { tables: checkTables(tables), dueBounds: checkBoolean('dueBounds', dueBounds) };
}

function notUpToDate({ where, tables }: Place, present: number): RespoolError {
  const prefix = tables === '' ? '' : `, { tables: "${tables}" }`;
  const is = present === 0 ? 'are not there' : `are of version ${present}`;
  return new RespoolError(
    'store.version',
    `cannot use "${where}": the tables "${tables}entries" and others ${is}, needed is version ` +
      `${SCHEMA_VERSION}; call migrateSqlite(database${prefix}) on it once`,
  );
}

/** Immediate, since two may want the same; or a savepoint in a transaction that is there. */
function inTransaction(database: SqliteDatabase, work: () => void): void {
  const isNested = database.inTransaction;
  database.exec(isNested ? 'SAVEPOINT respool_migrate' : 'BEGIN IMMEDIATE');
  try {
    work();
    database.exec(isNested ? 'RELEASE respool_migrate' : 'COMMIT');
  } catch (error) {
    if (database.inTransaction) {
      database.exec(isNested ? 'ROLLBACK TO respool_migrate; RELEASE respool_migrate' : 'ROLLBACK');
    }
    throw error;
  }
}

/** 0: nothing of ours is there yet. */
function versionOf(database: SqliteDatabase, place: Place): number {
  const names = namesOf(database, place);
  const isRest = names.every((name) =>
    DUE_BOUNDS_NAMES.some((bounds) => name === place.tables + bounds),
  );
  if (names.length === 0 || (isRest && dueBoundsIn(database) !== 'taken')) return 0;
  const isOurs = ['meta', 'entries'].every((name) => names.includes(place.tables + name));
  const found = isOurs
    ? database.prepare("SELECT value FROM {meta} WHERE key = 'version'").pluck().get()
    : undefined;
  if (typeof found !== 'number') throw notOurs(place, names);
  if (found <= SCHEMA_VERSION) return found;
  // outbox/table-errors.ts looks for "newer".
  throw new RespoolError(
    'store.version',
    `cannot open "${place.where}": it was written by a newer Respool (format ${found}, this ` +
      `program knows up to ${SCHEMA_VERSION}); use the newer Respool`,
  );
}

/** Of all tables when the file is ours as a whole, else those that have one of our names. */
function namesOf(database: SqliteDatabase, { tables }: Place): unknown[] {
  if (tables === '') {
    return database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").pluck().all();
  }
  const ours = JSON.stringify(OUR_NAMES.map((name) => tables + name));
  return database
    .prepare(
      'SELECT lower(name) FROM sqlite_schema ' +
        'WHERE lower(name) IN (SELECT value FROM json_each(?))',
    )
    .pluck()
    .all(ours);
}

function notOurs({ where, tables }: Place, names: readonly unknown[]): RespoolError {
  const what =
    tables === ''
      ? 'it is not a Respool store but a database of another program; name the folder or file ' +
        'of a store, or give "tables", a beginning for the names of our tables in it'
      : `"${String(names[0])}" is there and not ours; choose another "tables"`;
  return new RespoolError('config.invalid', `cannot open "${where}": ${what}`);
}
