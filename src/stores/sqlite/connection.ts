/**
 * connection — one open connection to a Respool file, with its pragmas and its two kinds of commit.
 *
 * Synchronous; file.ts opens it, in whatever thread it runs. Promise: what `write(true, …)`
 * returned from is on the disk; what `write(false, …)` returned from survives the process, and the
 * disk has it after the next durable write.
 */

import { RespoolError } from '../../core/errors.ts';
import {
  type OpenDatabase,
  type SqliteDatabase,
  type SqliteStatement,
  sqliteCode,
} from '../shared/client.ts';
import { checkOwner, migrateSchema, TABLE_NAMES, withNames } from './schema.ts';

/** How a file is opened; plain data, so that it can go to a thread. */
export interface FileSettings {
  readonly path: string;
  /** What the names of our tables begin with, in a file of the user's; default: it is all ours. */
  readonly tables?: string;
  /** Whether tables may be made and changed; default true. */
  readonly migrate?: boolean;
  /** Whether a file of the user's may be given a write-ahead log; default false. */
  readonly switchToWal?: boolean;
  readonly cacheBytes: number;
  /** `normal`: no commit waits for the disk. */
  readonly synchronous: 'full' | 'normal';
  readonly autoCheckpointPages: number;
  /** How long one statement may stand still for another connection, milliseconds. */
  readonly standstillMs: number;
  /** Only for tests: the file may not grow past this. */
  readonly maxPages?: number;
  /** A disk error came before: it is looked through when it is opened. */
  readonly needsCheck?: boolean;
  /** Another connection of this store may have written what the disk does not have yet. */
  readonly startsDirty?: boolean;
  /** A second connection, for long reads. */
  readonly readsOnly?: boolean;
}

/** One connection. */
export interface Connection {
  readonly database: SqliteDatabase;
  /** Runs `work` in one transaction. `work` says with `wrote` whether it wrote anything. */
  write<T>(isDurable: boolean, work: () => T): T;
  /**
   * The smallest write there is, in a transaction: a durable commit of it takes along what was lazy
   * before. Does nothing, and returns false, when there is nothing to take along.
   */
  sync(): boolean;
  /** Whether it is for reads only. */
  readonly readsOnly: boolean;
  /** Whether tables may be made and changed. */
  readonly mayMigrate: boolean;
  /** Changes whenever another connection has written. */
  dataVersion(): number;
  /** Counts rows written in the present transaction; each `write` counts anew. */
  wrote(rows: number): void;
  /** Whether something was written that the disk may not have yet. */
  isDirty(): boolean;
  /** How many pages of the log are not in the file yet. */
  walPages(): number;
  /** Moves what it can of the log into the file; other connections go on meanwhile. */
  checkpoint(): void;
  /** Moves the log into the file, so that the log's own room can be written over. */
  makeRoom(): void;
  close(): void;
}

/** Size of a page. Also in the text of the option `autoCheckpointPages`. */
const PAGE_BYTES = 8_192;
/**
 * Maximum size of the log once it was moved, where the whole file is ours. Also in
 * docs/reference/sqlite.md.
 */
const JOURNAL_MAX_BYTES = 64 * 1024 * 1024;
/** After the disk was full once, the log is moved to the file when it has this many pages. */
const SHORT_LOG_PAGES = 250;
const SYNC_LEVELS = { full: 2, normal: 1 } as const;

/** Opens the file, creates or migrates its tables, and checks it when asked to. */
export function openConnection(
  openDatabase: OpenDatabase,
  settings: FileSettings,
  { check }: { readonly check: boolean },
): Connection {
  const { path, tables = '', standstillMs: timeout } = settings;
  const bare = openDatabase(path, { timeout, fileMustExist: tables !== '' });
  const database = withNames(bare, tables);
  try {
    // First: setting a write-ahead log would change a database of another program for good.
    checkOwner(database, { where: path, tables });
    setPragmas(database, settings);
    if (check) quickCheck(database, settings);
    migrateSchema(database, { where: path, tables }, { mayChange: settings.migrate ?? true });
    if (settings.readsOnly !== true) beginLogAnew(database, check);
    if (settings.readsOnly === true) database.pragma('query_only = ON');
    // After a disk error the contents of the disk are unknown.
    return createConnection({ bare, database }, settings, check || settings.startsDirty === true);
  } catch (error) {
    database.close();
    throw error;
  }
}

/** All of them but the mode of the journal hold for this connection alone. */
function setPragmas(database: SqliteDatabase, settings: FileSettings): void {
  if ((settings.tables ?? '') === '') {
    // Only for a new file. 8 KiB: 10 % less work per insert of 1 KiB than 4 KiB, the same per
    // claim.
    database.pragma(`page_size = ${PAGE_BYTES}`);
    database.pragma(`journal_size_limit = ${JOURNAL_MAX_BYTES}`);
  }
  needWal(database, settings);
  database.pragma(`cache_size = -${Math.ceil(settings.cacheBytes / 1024)}`);
  database.pragma(`wal_autocheckpoint = ${settings.autoCheckpointPages}`);
  database.pragma('trusted_schema = OFF');
  if (settings.maxPages !== undefined) database.pragma(`max_page_count = ${settings.maxPages}`);
}

function needWal(database: SqliteDatabase, settings: FileSettings): void {
  const { path, tables = '', switchToWal = false } = settings;
  if (tables !== '' && !switchToWal) {
    const present = database.pragma('journal_mode', { simple: true });
    if (present === 'wal') return;
    throw new RespoolError(
      'config.invalid',
      `cannot use "${path}": its journal mode is "${String(present)}", and we need a write-ahead ` +
        'log; run PRAGMA journal_mode = WAL on it once, or set "switchToWal"',
    );
  }
  const mode = database.pragma('journal_mode = WAL', { simple: true });
  if (mode === 'wal') return;
  throw new RespoolError(
    'config.invalid',
    `cannot use "${path}": its file system allows no write-ahead log (journal_mode is ` +
      `${String(mode)}); choose a local disk`,
  );
}

function quickCheck(database: SqliteDatabase, { path, tables = '' }: FileSettings): void {
  // What else is in a file of the user's may need functions that only the user's program has.
  const which = tables === '' ? ['1'] : TABLE_NAMES.filter((name) => isThere(database, name));
  for (const one of which) {
    const found = database.pragma(`quick_check(${one})`, { simple: true });
    if (found === 'ok') continue;
    throw new RespoolError(
      'store.corrupt',
      `cannot continue with "${path}" after a disk error: the check found "${String(found)}"; ` +
        'restore the file from a backup',
    );
  }
}

/** The disk may have failed before our tables were made. */
function isThere(database: SqliteDatabase, table: string): boolean {
  return (
    database.prepare(`SELECT 1 FROM sqlite_schema WHERE name = '${table}'`).get() !== undefined
  );
}

/**
 * What a failed sync left of the log is in memory only, and may never get to the disk: a power cut
 * would take it, and everything written behind it. So nothing is written behind it. Not left to the
 * last to close the file, since others may have it open.
 */
function beginLogAnew(database: SqliteDatabase, isNeeded: boolean): void {
  try {
    const [row] = database.pragma('wal_checkpoint(TRUNCATE)') as { readonly busy: number }[];
    if (row?.busy !== 0) {
      throw Object.assign(new Error('its log is in use'), { code: 'SQLITE_BUSY' });
    }
  } catch (error) {
    // A process that met the error may be gone, so it is tried whenever the file is opened; then
    // others may be at work, or the disk may be full, and all is well.
    if (isNeeded || !/^SQLITE_(?:BUSY|LOCKED|FULL)/.test(sqliteCode(error))) throw error;
  }
}

function createConnection(
  { bare, database }: { readonly bare: SqliteDatabase; readonly database: SqliteDatabase },
  settings: FileSettings,
  startsDirty: boolean,
): Connection {
  const begin = database.prepare('BEGIN IMMEDIATE');
  const commit = database.prepare('COMMIT');
  const rollback = database.prepare('ROLLBACK');
  const version = database.prepare('PRAGMA data_version').pluck();
  const look = database.prepare('PRAGMA wal_checkpoint(NOOP)').raw();
  const touch = database.prepare("UPDATE {meta} SET value = value + 1 WHERE key = 'syncs'");
  const setLevel = createLevelSwitch(bare, settings);
  let rowsWritten = 0;
  let isDirty = startsDirty && settings.synchronous === 'full';

  return {
    database,
    write(isDurable, work) {
      setLevel(isDurable ? settings.synchronous : 'normal');
      rowsWritten = 0;
      begin.run();
      try {
        const result = work();
        commit.run();
        if (rowsWritten > 0) isDirty = !isDurable && settings.synchronous === 'full';
        return result;
      } catch (error) {
        undo(database, rollback);
        throw error;
      }
    },
    sync() {
      // A transaction that writes nothing is not synced either.
      if (!isDirty) return false;
      rowsWritten += touch.run().changes;
      return true;
    },
    readsOnly: settings.readsOnly === true,
    mayMigrate: settings.migrate ?? true,
    dataVersion: () => Number(version.get()),
    wrote(rows) {
      rowsWritten += rows;
    },
    isDirty: () => isDirty,
    walPages() {
      const [, pages = 0, moved = 0] = look.get() as number[];
      return pages - moved;
    },
    checkpoint() {
      database.pragma('wal_checkpoint(PASSIVE)');
    },
    makeRoom() {
      // From now on the log stays short: one that takes the last room cannot be moved any more.
      database.pragma(
        `wal_autocheckpoint = ${Math.min(settings.autoCheckpointPages, SHORT_LOG_PAGES)}`,
      );
      // Not TRUNCATE: on a full disk the room of the log is what messages can still move in.
      database.pragma('wal_checkpoint(RESTART)');
    },
    close() {
      database.close();
    },
  };
}

function undo(database: SqliteDatabase, rollback: SqliteStatement): void {
  // SQLite has already rolled back by itself after some errors, such as a full disk.
  if (!database.open || !database.inTransaction) return;
  rollback.run();
}

/**
 * n.b. The package is built with synchronous = NORMAL for WAL, with which a power cut may take back
 * commits; so the level is set, and read back once for each of its two values.
 */
function createLevelSwitch(
  database: SqliteDatabase,
  settings: FileSettings,
): (level: 'full' | 'normal') => void {
  function setLevel(level: 'full' | 'normal'): void {
    // Not a prepared statement: this pragma takes effect when it is compiled, not when it runs.
    database.pragma(`synchronous = ${level}`);
  }
  for (const level of ['normal', settings.synchronous] as const) {
    setLevel(level);
    if (database.pragma('synchronous', { simple: true }) === SYNC_LEVELS[level]) continue;
    throw new RespoolError(
      'config.invalid',
      `cannot open "${settings.path}": SQLite did not take synchronous = ${level}`,
    );
  }
  let present = settings.synchronous;
  return (level) => {
    if (level === present) return;
    setLevel(level);
    present = level;
  };
}
