/**
 * client — the only way to better-sqlite3, for the stores that keep or lock a file with it.
 *
 * Loaded when a store is opened, never at import: importing Respool loads no native code. Promise:
 * what is handed out runs on a Node it was built for and on a SQLite without the WAL-reset bug.
 */

import { RespoolError } from '../../core/errors.ts';

/** The part of a prepared statement that Respool uses. */
export interface SqliteStatement {
  run(...values: readonly unknown[]): { changes: number; lastInsertRowid: number | bigint };
  get(...values: readonly unknown[]): unknown;
  all(...values: readonly unknown[]): unknown[];
  iterate(...values: readonly unknown[]): IterableIterator<unknown>;
  /** Rows as arrays instead of objects. */
  raw(on?: boolean): this;
  /** The first column instead of the row. */
  pluck(on?: boolean): this;
}

/** The part of an open database that Respool uses; a user's own better-sqlite3 database fits. */
export interface SqliteDatabase {
  readonly open: boolean;
  readonly inTransaction: boolean;
  prepare(sql: string): SqliteStatement;
  exec(sql: string): unknown;
  pragma(sql: string, options?: { simple?: boolean }): unknown;
  close(): unknown;
}

/** How a file is opened. */
interface ClientOpenOptions {
  readonly readonly?: boolean;
  readonly fileMustExist?: boolean;
  /** How long a statement may stand still for another connection's lock, milliseconds. */
  readonly timeout?: number;
}

/** Opens a database file at once, in the calling thread. */
export type OpenDatabase = (path: string, options?: ClientOpenOptions) => SqliteDatabase;

/** The oldest Node that the package runs on. Also in `engines` of package.json. */
const NODE_MAJOR_MIN = 22;
/** The oldest SQLite without the WAL-reset bug. Also in docs/reference/sqlite.md. */
const SQLITE_VERSION_MIN = [3, 51, 3] as const;

let loaded: Promise<OpenDatabase> | undefined;

/** Loads the package once and checks what it stands on. */
export function loadSqlite(): Promise<OpenDatabase> {
  loaded ??= load();
  return loaded;
}

/** The `code` of an error of SQLite or of the file system, such as `SQLITE_BUSY`; otherwise ''. */
export function sqliteCode(error: unknown): string {
  const code = typeof error === 'object' && error !== null ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' ? code : '';
}

async function load(): Promise<OpenDatabase> {
  // n.b. Before the import: on an older Node the native part ends the process with SIGSEGV.
  checkNode(process.versions.node);
  const { default: Sqlite } = await import('better-sqlite3');
  const probe = new Sqlite(':memory:');
  try {
    checkSqlite(String(probe.prepare('SELECT sqlite_version()').pluck().get()));
  } finally {
    probe.close();
  }
  return (path, options) => new Sqlite(path, options);
}

/** Refuses a Node the package cannot run on. */
export function checkNode(version: string): void {
  if (Number(version.split('.')[0]) >= NODE_MAJOR_MIN) return;
  throw new RespoolError(
    'config.invalid',
    `cannot load better-sqlite3: it needs Node ${NODE_MAJOR_MIN} or newer, this is ${version}; ` +
      'use a newer Node',
  );
}

/** Refuses a SQLite in which two connections can lose each other's pages after a checkpoint. */
export function checkSqlite(version: string): void {
  const parts = version.split('.').map(Number);
  for (const [at, min] of SQLITE_VERSION_MIN.entries()) {
    const part = parts[at] ?? 0;
    if (part > min) return;
    if (part < min) {
      throw new RespoolError(
        'config.invalid',
        `cannot use SQLite ${version}: one before ${SQLITE_VERSION_MIN.join('.')} may damage ` +
          'a WAL database with several connections; install a newer better-sqlite3',
      );
    }
  }
}
