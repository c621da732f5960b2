/**
 * lifetime-lock — a lock that lives exactly as long as the process that took it.
 *
 * Stores call it to be alone on a folder, or to show that their instance is alive. The lock is a
 * POSIX lock on a file, held by an open SQLite transaction: the kernel lets go of it when the
 * process ends, in whatever way. Never judged by pid: in containers every process may be number 1.
 *
 * n.b. The process that holds the lock must not open its file with `fs`: closing any
 * descriptor of a file drops all POSIX locks of the process on it.
 * https://www.sqlite.org/howtocorrupt.html
 */

import { randomBytes } from 'node:crypto';
import { chmod, link, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import { loadSqlite, type OpenDatabase, type SqliteDatabase, sqliteCode } from './client.ts';
import { diskCode, diskError } from './disk-errors.ts';

/** A lock that is held. */
export interface LifetimeLock {
  readonly path: string;
  /** Leaves a word for others beside the lock, such as the owner's address. */
  note(text: string): Promise<void>;
  /**
   * Lets go of the lock and removes its file. Idempotent. With `keepFile` the file stays and tells
   * others that its holder is gone.
   */
  release(options?: { readonly keepFile?: boolean }): Promise<void>;
}

const TRIES_MAX = 10;

// A database without references is closed by the garbage collector, and its lock with it.
const held = new Set<SqliteDatabase>();

/** Takes the lock, or returns undefined when a living process (also this one) holds it. */
export async function takeLifetimeLock(path: string): Promise<LifetimeLock | undefined> {
  const openDatabase = await loadSqlite();
  for (let tried = 0; tried < TRIES_MAX; tried += 1) {
    const before = await identity(path);
    if (before === undefined) {
      const created = await createLocked(openDatabase, path);
      if (created !== undefined) return createLock(path, created);
      continue;
    }
    const database = lockFile(openDatabase, path);
    if (database === undefined) return undefined;
    // A holder removes the file before it lets go. Anyone who opened the old file in between has
    // locked a file that no longer has a name, so the lock counts only if the name still means that
    // file.
    if (before === (await identity(path))) return createLock(path, database);
    close(database);
  }
  throw new RespoolError(
    'store.unavailable',
    `cannot take the lock "${path}": its file was replaced ${TRIES_MAX} times meanwhile; try again`,
  );
}

/** What the owner of a lock left beside it; undefined when there is no word. */
export async function readLockNote(path: string): Promise<string | undefined> {
  try {
    return await readFile(notePath(path), 'utf8');
  } catch (error) {
    // No folder there either: then it cannot be locked.
    if (['ENOENT', 'ENOTDIR'].includes(sqliteCode(error))) return undefined;
    throw error;
  }
}

/** A draft of a lock, or the journal that earlier versions made beside one. */
const LEFTOVER_PATTERN = /^(?<draft>(?<lock>.+)\.[0-9a-f]{12}\.new)(?<journal>-journal)?$/;

/**
 * Removes what killed processes left of their locks in this folder, and nothing of the living;
 * `own` is a lock the caller holds.
 */
export async function clearLockLeftovers(folder: string, own?: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const { lock, draft, journal } = LEFTOVER_PATTERN.exec(name)?.groups ?? {};
    if (lock === undefined || draft === undefined) continue;
    try {
      // A live process has its draft locked.
      if (journal === undefined) await (await takeLifetimeLock(join(folder, name)))?.release();
      else if (!(await hasOwner(folder, draft, lock === own ? undefined : lock))) {
        await rm(join(folder, name), { force: true });
      }
    } catch {
      // A few harmless bytes stay behind; the next process tries again.
    }
  }
}

/** A live process has first the draft and then the lock, so they are checked in this order. */
async function hasOwner(folder: string, ...names: (string | undefined)[]): Promise<boolean> {
  for (const name of names) {
    if (name !== undefined && (await identity(join(folder, name))) !== undefined) return true;
  }
  return false;
}

/**
 * Makes the file under another name, locks it, and only then gives it its own: no process ever sees
 * the file of a living process unlocked. Undefined when another process was faster.
 */
async function createLocked(
  openDatabase: OpenDatabase,
  path: string,
): Promise<SqliteDatabase | undefined> {
  const draft = `${path}.${randomBytes(6).toString('hex')}.new`;
  const database = lockFile(openDatabase, draft, path);
  try {
    if (database === undefined) return undefined;
    await chmod(draft, 0o600);
    // Not a rename, which would replace a file that another process has made meanwhile.
    await link(draft, path);
    return database;
  } catch (error) {
    if (database !== undefined) close(database);
    if (sqliteCode(error) === 'EEXIST') return undefined;
    throw cannot(path, error);
  } finally {
    await rm(draft, { force: true });
  }
}

function lockFile(
  openDatabase: OpenDatabase,
  path: string,
  name: string = path,
): SqliteDatabase | undefined {
  let database: SqliteDatabase | undefined;
  try {
    database = openDatabase(path, { timeout: 0 });
    database.pragma('locking_mode = EXCLUSIVE');
    // In memory: a process that is killed could not remove its journal.
    database.pragma('journal_mode = MEMORY');
    // Nothing is ever written: an empty file can be locked, and an empty file cannot be damaged.
    database.exec('BEGIN EXCLUSIVE');
    held.add(database);
    return database;
  } catch (error) {
    database?.close();
    if (/^SQLITE_(?:BUSY|LOCKED)/.test(sqliteCode(error))) return undefined;
    throw cannot(name, error);
  }
}

function cannot(path: string, error: unknown): RespoolError {
  const code = diskCode(error, path);
  return diskError(`take the lock "${path}"`, { error, code, whenFree: 'and try again' });
}

function createLock(path: string, database: SqliteDatabase): LifetimeLock {
  let isReleased = false;
  return {
    path,
    async note(text) {
      // Written beside and renamed, so that a reader never sees half a word.
      const draft = `${notePath(path)}.draft`;
      try {
        await writeFile(draft, text, { mode: 0o600 });
        await rename(draft, notePath(path));
      } catch (error) {
        throw cannot(path, error);
      }
    },
    async release({ keepFile = false } = {}) {
      if (isReleased) return;
      isReleased = true;
      try {
        await rm(notePath(path), { force: true });
        if (!keepFile) await rm(path, { force: true });
      } finally {
        close(database);
      }
    },
  };
}

function close(database: SqliteDatabase): void {
  held.delete(database);
  database.close();
}

function notePath(path: string): string {
  return `${path}.owner`;
}

/** Which file a name means now; the time of birth tells a reused inode number apart. */
async function identity(path: string): Promise<string | undefined> {
  try {
    const { dev, ino, birthtimeNs } = await stat(path, { bigint: true });
    return `${dev}:${ino}:${birthtimeNs}`;
  } catch (error) {
    if (sqliteCode(error) === 'ENOENT') return undefined;
    throw cannot(path, error);
  }
}
