/**
 * options — the options of a SQLite store, with defaults and limits, and the place of its file.
 * Their texts (`type`, `about`) are printed in the reference: after a change run `npm run options`.
 */

import { chmod, mkdir, open, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Duration } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import { sqliteCode } from '../shared/client.ts';
import { checkLocalDisk } from '../shared/local-disk.ts';
import type { FileSettings } from './connection.ts';
import { storeError } from './errors.ts';
import { checkTables } from './schema.ts';

const SQLITE = {
  path: {
    kind: 'text',
    type: 'a folder or a file',
    required: true,
    about:
      'a folder, which gets `respool.db` (bodies: `bodies.db`), or a file: what does not exist ' +
      'yet is a file if it ends in `.db`, `.sqlite` or `.sqlite3`',
  },
  tables: {
    kind: 'text',
    type: '1 to 31 of `a-z 0-9 _`',
    about:
      'the prefix of the table names: then `path` is ' +
      '[your own database file](sqlite.md#in-your-own-database-file), which must exist, and ' +
      'nothing else in it is touched',
  },
  migrate: {
    kind: 'boolean',
    default: true,
    about:
      'false: no tables or triggers are created or changed, and `open()` refuses if that is ' +
      'needed; [due bounds](sqlite.md#due-bounds) are used if you have made them, and only the ' +
      'index by flow is added when a claim needs it',
  },
  switchToWal: {
    kind: 'boolean',
    default: false,
    about:
      'with `tables`: true switches a file without a write-ahead log to one, for all its users; ' +
      'false refuses such a file',
  },
  busyTimeout: {
    kind: 'duration',
    max: '1h',
    default: '10s',
    inUrl: true,
    about: 'how long a write waits for other processes before `store.unavailable`',
  },
  cacheBytes: {
    kind: 'bytes',
    min: '1 MiB',
    max: '16 GiB',
    default: '16 MiB',
    inUrl: true,
    about: 'memory for pages of the file; long reads have 4 MiB besides',
  },
  thread: {
    kind: 'choice',
    choices: [true, false, 'auto'],
    default: 'auto',
    inUrl: true,
    about:
      'where SQLite runs: `auto` in the calling thread, and from the first signs of a slow disk ' +
      'on in a worker thread; `true` in a worker thread from the start; `false` never',
  },
  synchronous: {
    kind: 'choice',
    choices: ['full', 'normal'],
    default: 'full',
    inUrl: true,
    about:
      '`full`: what is acknowledged survives a power cut; `normal`: only a kill of the process, ' +
      'and `traits.durability` says so',
  },
  autoCheckpointPages: {
    kind: 'number',
    min: 1,
    max: 1_000_000,
    default: 2_000,
    inUrl: true,
    about:
      'pages of 8 KiB in the log before a checkpoint; under load the log grows up to four times ' +
      'as long',
  },
} as const;

/** Every option of a SQLite store; `sqliteBodies` takes the same. */
export const SQLITE_OPTIONS: Readonly<Record<keyof SqliteOptions, Option>> = SQLITE;

/** How a SQLite store is made. */
export interface SqliteOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * A folder, which gets `respool.db` (bodies: `bodies.db`), or a file: what does not exist yet is
   * a file if it ends in `.db`, `.sqlite` or `.sqlite3`.
   */
  readonly path: string;
  /**
   * The prefix of the table names: then `path` is your own database file, which must exist, and
   * nothing else in it is touched.
   */
  readonly tables?: string;
  /**
   * False: no tables or triggers are created or changed, and `open()` refuses if that is needed;
   * due bounds are used if you have made them, and only the index by flow is added when a claim
   * needs it. Default true.
   */
  readonly migrate?: boolean;
  /**
   * With `tables`: true switches a file without a write-ahead log to one, for all its users; false
   * refuses such a file. Default false.
   */
  readonly switchToWal?: boolean;
  /**
   * How long a write waits for other processes before `store.unavailable`. Up to 1h; default 10s.
   */
  readonly busyTimeout?: Duration;
  /**
   * Memory for pages of the file; long reads have 4 MiB besides. 1 MiB to 16 GiB; default 16 MiB.
   */
  readonly cacheBytes?: number;
  /**
   * Where SQLite runs: `auto` in the calling thread, and from the first signs of a slow disk on in
   * a worker thread; `true` in a worker thread from the start; `false` never. Default `auto`.
   */
  readonly thread?: boolean | 'auto';
  /**
   * `full`: what is acknowledged survives a power cut; `normal`: only a kill of the process, and
   * `traits.durability` says so. Default `full`.
   */
  readonly synchronous?: 'full' | 'normal';
  /**
   * Pages of 8 KiB in the log before a checkpoint; under load the log grows up to four times as
   * long. 1 to 1,000,000; default 2,000.
   */
  readonly autoCheckpointPages?: number;
}

/** Options, checked, with defaults. */
export interface CheckedOptions {
  readonly path: string;
  readonly busyTimeoutMs: number;
  readonly thread: boolean | 'auto';
  readonly settings: Omit<FileSettings, 'path' | 'standstillMs'> & { readonly tables: string };
}

export function checkStoreOptions(what: string, options: SqliteOptions): CheckedOptions {
  const { busyTimeoutMs, thread, ...settings } = readOptions({ what }, options, SQLITE);
  if (typeof options.path !== 'string' || options.path === '' || options.path.includes('\0')) {
    throw new RespoolError('config.invalid', `cannot make ${what}: "path" names no folder or file`);
  }
  if (options.path === ':memory:') {
    throw new RespoolError(
      'config.invalid',
      `cannot make ${what} in ":memory:": nothing there lasts; use the memory store`,
    );
  }
  return {
    path: path.resolve(options.path),
    busyTimeoutMs,
    thread,
    settings: { tables: checkTables(options.tables), ...settings },
  };
}

/**
 * The files in a folder, also named in the text of `path`, in config/open/stores.ts and in
 * cli/commands/doctor/storage-checks.ts.
 */
export const ENTRY_FILE = 'respool.db';
export const BODY_FILE = 'bodies.db';

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
async function findFile(text: string): Promise<string> {
  const found = await stat(text).catch((error: unknown) => {
    if (sqliteCode(error) === 'ENOENT') return undefined;
    throw error;
  });
  if (found === undefined || found.isDirectory()) {
    const is = found === undefined ? 'it is not there' : 'it is a folder';
    throw new RespoolError(
      'config.invalid',
      `cannot open the store in "${text}": ${is}; with "tables" the path is a database file of ` +
        'yours, make it first',
    );
  }
  await checkLocalDisk(path.dirname(text));
  return text;
}

/** Where the file of a store is, without making anything. */
export async function filePathOf(text: string, defaultName: string): Promise<string> {
  return (await isFolderPath(text)) ? path.join(text, defaultName) : text;
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
async function syncFolders(folder: string, text: string | undefined): Promise<void> {
  const last = text === undefined ? folder : path.dirname(text);
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

async function isFolderPath(text: string): Promise<boolean> {
  try {
    return (await stat(text)).isDirectory();
  } catch (error) {
    if (sqliteCode(error) !== 'ENOENT') throw error;
    // As the text of `path` says.
    return !/\.(?:db|sqlite3?)$/.test(text);
  }
}
