/**
 * options — what may be said about a SQLite store, with defaults and limits, and where its file
 * lies.
 */

import { chmod, mkdir, open, stat } from 'node:fs/promises';
import path from 'node:path';
import { type Duration, durationMs, HOUR_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import { sqliteCode } from '../shared/client.ts';
import { checkLocalDisk } from '../shared/local-disk.ts';
import type { FileSettings } from './connection.ts';
import { storeError } from './errors.ts';
import { checkTables } from './names.ts';

/** How a SQLite store is made. */
export interface SqliteOptions {
  /**
   * A folder, which gets a file `respool.db` (bodies: `bodies.db`), or a file: what is not there
   * yet is taken for a file if it ends in `.db`, `.sqlite` or `.sqlite3`. Folders are made, for the
   * owner only.
   */
  readonly path: string;
  /**
   * What the names of the tables begin with, such as `outbox_`, 1 to 31 of `a-z 0-9 _`: then `path`
   * is your own database file, which has to be there, and nothing else in it is touched. Default
   * nothing: the file is the store's alone.
   */
  readonly tables?: string;
  /** Whether `open()` may make and change tables; default true. False: it refuses to need it. */
  readonly migrate?: boolean;
  /**
   * With `tables`, whether a file without a write-ahead log may be given one, for good and for all
   * who use it; default false: such a file is refused.
   */
  readonly switchToWal?: boolean;
  /** How long a write waits for other processes before `store.unavailable`; default `'10s'`. */
  readonly busyTimeout?: Duration;
  /** Memory for pages of the file; default 32 MiB. */
  readonly cacheBytes?: number;
  /**
   * Where the work is done. `auto` (default): in the caller's thread while that is quick, and from
   * the first signs of a slow disk on in a thread of its own, so that the event loop goes on. True:
   * in a thread from the start. False: never.
   */
  readonly thread?: boolean | 'auto';
  /**
   * `full` (default): what is acknowledged survives a power cut. `normal`: it survives the process,
   * and `traits.durability` says so.
   */
  readonly synchronous?: 'full' | 'normal';
  /** How many pages of 8 KiB the log may hold before they are moved to the file; default 2,000. */
  readonly autoCheckpointPages?: number;
}

/** Options, checked, with defaults. */
export interface CheckedOptions {
  readonly path: string;
  readonly busyTimeoutMs: number;
  readonly thread: boolean | 'auto';
  readonly settings: Omit<FileSettings, 'path' | 'standstillMs'> & { readonly tables: string };
}

const NAMES = [
  'path',
  'tables',
  'migrate',
  'switchToWal',
  'busyTimeout',
  'cacheBytes',
  'thread',
  'synchronous',
  'autoCheckpointPages',
] as const satisfies readonly (keyof SqliteOptions)[];

const MIB = 1024 * 1024;
const CACHE_MIN_BYTES: number = MIB;
const CACHE_MAX_BYTES: number = 16 * 1024 * MIB;
const CACHE_DEFAULT_BYTES: number = 32 * MIB;
const CHECKPOINT_DEFAULT_PAGES = 2_000;
const CHECKPOINT_MAX_PAGES = 1_000_000;

export function checkOptions(what: string, options: SqliteOptions): CheckedOptions {
  checkNames(what, options, NAMES);
  const { thread = 'auto', synchronous = 'full' } = options;
  const { migrate = true, switchToWal = false } = options;
  if (typeof options.path !== 'string' || options.path === '' || options.path.includes('\0')) {
    throw new RespoolError('config.invalid', `cannot make ${what}: "path" names no folder or file`);
  }
  if (options.path === ':memory:') {
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what} in ":memory:": nothing there lasts; use the memory store`,
    );
  }
  if (typeof thread !== 'boolean' && thread !== 'auto') {
    const allowed = '"thread" is true, false or "auto"';
    throw new RespoolError('config.invalid', `cannot make ${what}: ${allowed}`);
  }
  for (const [name, value] of Object.entries({ migrate, switchToWal })) {
    if (typeof value === 'boolean') continue;
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what}: "${name}" is neither true nor false`,
    );
  }
  return {
    path: path.resolve(options.path),
    busyTimeoutMs: durationMs(options.busyTimeout ?? '10s', 'busyTimeout', { maxMs: HOUR_MS }),
    thread,
    settings: {
      tables: checkTables(options.tables),
      migrate,
      switchToWal,
      cacheBytes: checkNumber('cacheBytes', options.cacheBytes ?? CACHE_DEFAULT_BYTES, {
        min: CACHE_MIN_BYTES,
        max: CACHE_MAX_BYTES,
      }),
      synchronous: checkOneOf('synchronous', synchronous, ['full', 'normal']),
      autoCheckpointPages: checkNumber(
        'autoCheckpointPages',
        options.autoCheckpointPages ?? CHECKPOINT_DEFAULT_PAGES,
        { min: 1, max: CHECKPOINT_MAX_PAGES },
      ),
    },
  };
}

/** Finds or makes the place of the file; refuses file systems on which SQLite cannot lock. */
export async function prepareFile(
  { path: given, settings: { tables } }: CheckedOptions,
  defaultName: string,
): Promise<string> {
  try {
    if (tables !== '') return await findFile(given);
    const isFolder = await isFolderPath(given);
    const folder = isFolder ? given : path.dirname(given);
    const made = await mkdir(folder, { recursive: true, mode: 0o700 });
    // The mask of the process may have taken more than we did.
    if (made !== undefined) await chmod(folder, 0o700);
    await checkLocalDisk(folder);
    const file = await filePathOf(given, defaultName);
    await createPrivate(file);
    await syncFolders(folder, made);
    return file;
  } catch (error) {
    const doing = `open the store in "${given}"`;
    throw storeError(error, { doing, path: given, whenFree: 'and open it again' });
  }
}

/** A file of the user's: neither made nor given other rights. */
async function findFile(given: string): Promise<string> {
  const found = await stat(given).catch((error: unknown) => {
    if (sqliteCode(error) === 'ENOENT') return undefined;
    throw error;
  });
  if (found === undefined || found.isDirectory()) {
    const is = found === undefined ? 'it is not there' : 'it is a folder';
    throw new RespoolError(
      'config.invalid',
      `cannot open the store in "${given}": ${is}; with "tables" the path is a database file of ` +
        'yours, make it first',
    );
  }
  await checkLocalDisk(path.dirname(given));
  return given;
}

/** Where the file of a store is, without making anything. */
export async function filePathOf(given: string, defaultName: string): Promise<string> {
  return (await isFolderPath(given)) ? path.join(given, defaultName) : given;
}

/** SQLite would let everybody read what it makes; its log and index take over these rights. */
async function createPrivate(file: string): Promise<void> {
  try {
    await (await open(file, 'wx', 0o600)).close();
  } catch (error) {
    if (sqliteCode(error) !== 'EEXIST') throw error;
  }
}

/** A folder that a power cut may take back would take everything in it along. */
async function syncFolders(folder: string, made: string | undefined): Promise<void> {
  const last = made === undefined ? folder : path.dirname(made);
  for (let present = folder; ; present = path.dirname(present)) {
    const handle = await open(present, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
    if (present === last || present === path.dirname(present)) return;
  }
}

async function isFolderPath(given: string): Promise<boolean> {
  try {
    return (await stat(given)).isDirectory();
  } catch (error) {
    if (sqliteCode(error) !== 'ENOENT') throw error;
    return !/\.(?:db|sqlite3?)$/.test(given);
  }
}
