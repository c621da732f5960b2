/**
 * names — the names of our tables and indexes in SQL: written `{entries}`, and given the prefix of
 * their store on the way to SQLite. Every statement of this room goes through `withNames`.
 *
 * A prefix is checked once and holds nothing that SQL could read as anything but a part of a name.
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { SqliteDatabase, SqliteStatement } from '../shared/client.ts';

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
export function named(sql: string, tables: string): string {
  return sql.replace(NAME, (_, name: string) => tables + name);
}

/** The names that a text speaks of, without a prefix. */
export function namesIn(sql: string): string[] {
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
