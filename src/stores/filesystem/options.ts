/**
 * options — what may be said about a filesystem store, with defaults and limits.
 */

import path from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import { CLOCK_OPTION, type Option, readOptions } from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import type { SyncMode } from './disk-protocol.ts';

const PATH = {
  kind: 'text',
  type: 'a folder',
  required: true,
  about: 'the folder; created if it does not exist',
} as const;

const SYNC = {
  kind: 'choice',
  choices: ['full', 'batch', 'none'],
  ts: 'SyncMode',
  default: 'batch',
  inUrl: true,
  about:
    'when writes are on the disk itself: `batch` before every answer, with one flush for ' +
    'concurrent calls; `full` before every answer, with a flush for each; `none` when the ' +
    'operating system decides, so that a power cut may cost what was accepted shortly before',
} as const;

const FILESYSTEM = {
  path: PATH,
  // `batch` promises what `full` does: the answer comes after the fsync. It only lets calls share
  // it.
  sync: SYNC,
  spareFiles: {
    kind: 'number',
    min: 0,
    max: 10_000,
    default: 4_096,
    inUrl: true,
    about:
      'files of removed messages that are kept to be overwritten, which makes writing several ' +
      'times faster; they hold the bytes of those messages until then, or until the store is ' +
      'closed; with 0 the file of a removed message is removed with it',
  },
  clock: CLOCK_OPTION,
} as const;

const BODIES = { path: PATH, sync: SYNC } as const;

/** Every option of `filesystem()`. */
export const FILESYSTEM_OPTIONS: Readonly<Record<keyof FilesystemOptions, Option>> = FILESYSTEM;

/** Every option of `filesystemBodies()`. */
export const FILESYSTEM_BODY_OPTIONS: Readonly<Record<keyof FilesystemBodiesOptions, Option>> =
  BODIES;

/** How to keep entries as files. */
export interface FilesystemOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The folder; created if it does not exist. */
  readonly path: string;
  /**
   * When writes are on the disk itself: `batch` before every answer, with one flush for concurrent
   * calls; `full` before every answer, with a flush for each; `none` when the operating system
   * decides, so that a power cut may cost what was accepted shortly before. Default `batch`.
   */
  readonly sync?: SyncMode;
  /**
   * Files of removed messages that are kept to be overwritten, which makes writing several times
   * faster; they hold the bytes of those messages until then, or until the store is closed; with 0
   * the file of a removed message is removed with it. 0 to 10,000; default 4,096.
   */
  readonly spareFiles?: number;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
}

/** How to keep bodies as files. */
export interface FilesystemBodiesOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The folder; created if it does not exist. */
  readonly path: string;
  /**
   * When writes are on the disk itself: `batch` before every answer, with one flush for concurrent
   * calls; `full` before every answer, with a flush for each; `none` when the operating system
   * decides, so that a power cut may cost what was accepted shortly before. Default `batch`.
   */
  readonly sync?: SyncMode;
}

/** Options of an entry store, checked, with defaults. */
export interface CheckedOptions {
  readonly path: string;
  readonly sync: SyncMode;
  readonly spareFiles: number;
}

export function checkOptions(options: FilesystemOptions): CheckedOptions {
  const values = readOptions({ what: 'filesystem' }, options, FILESYSTEM);
  return { path: folderOf(options, 'entries'), ...values };
}

export function checkBodyOptions(
  options: FilesystemBodiesOptions,
): Pick<CheckedOptions, 'path' | 'sync'> {
  const values = readOptions({ what: 'filesystemBodies' }, options, BODIES);
  return { path: folderOf(options, 'bodies'), ...values };
}

function folderOf({ path: folder }: { readonly path: string }, what: string): string {
  if (typeof folder === 'string' && folder !== '') return path.resolve(folder);
  throw new RespoolError('config.invalid', `cannot keep ${what} as files: "path" is missing`);
}
