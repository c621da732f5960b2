/**
 * migrate — brings tables up to date, or refuses those that are newer or not ours.
 *
 * `open()` does it for a store; with tables in a file of the user's, the user does it through a
 * handle of their own, or with the SQL as text. Promise: all of it or nothing, and only tables that
 * are ours are looked at.
 */

import { RespoolError } from '../../core/errors.ts';
import { checkNames, checkNumber } from '../../core/limits.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import { checkTables, named, withNames } from './names.ts';
import { migrationSql, OUR_NAMES, SCHEMA_VERSION } from './schema.ts';

/** Which tables of a database. */
export interface SqliteSchemaOptions {
  /** What the names of the tables begin with, such as `outbox_`; default nothing. */
  readonly tables?: string;
}

/** Which tables, and what of them is there. */
export interface SqliteSqlOptions extends SqliteSchemaOptions {
  /**
   * The version of the tables that are there, for SQL that brings them up to date; default 0, none.
   * It is the `value` of `version` in the table `meta`.
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
 * Makes the tables, or brings them up to date, through a better-sqlite3 database of yours; in your
 * transaction, if there is one. Nothing else in the file is touched, its journal mode neither.
 */
export function migrateSqlite(database: SqliteDatabase, options: SqliteSchemaOptions = {}): void {
  const tables = tablesOf('migrateSqlite', options);
  migrate(withNames(database, tables), { where: fileOf(database), tables }, true);
}

/**
 * All the SQL that `migrateSqlite` runs on an empty database, or on tables of the version `from`:
 * to read, or for your own tool.
 */
export function sqliteSchema({ from = 0, ...options }: SqliteSqlOptions = {}): string {
  const tables = tablesOf('sqliteSchema', options);
  checkNumber('from', from, { min: 0, max: SCHEMA_VERSION - 1 });
  return `BEGIN IMMEDIATE;\n${named(migrationSql(from), tables)}\nCOMMIT;\n`;
}

/** The same for tables through a database that knows their names. */
export function migrate(database: SqliteDatabase, place: Place, mayChange: boolean): void {
  const present = versionOf(database, place);
  if (present === SCHEMA_VERSION) return;
  if (!mayChange) throw notUpToDate(place, present);
  inTransaction(database, () => {
    // Asked again inside: two processes may open a new file at the same time.
    const version = versionOf(database, place);
    if (version < SCHEMA_VERSION) database.exec(migrationSql(version));
  });
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

function tablesOf(what: string, options: SqliteSchemaOptions): string {
  checkNames(what, options, ['tables']);
  return checkTables(options.tables);
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
  if (names.length === 0) return 0;
  const isOurs = ['meta', 'entries'].every((name) => names.includes(place.tables + name));
  const found = isOurs
    ? database.prepare("SELECT value FROM {meta} WHERE key = 'version'").pluck().get()
    : undefined;
  if (typeof found !== 'number') throw notOurs(place, names);
  if (found <= SCHEMA_VERSION) return found;
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
