/**
 * disk-errors — what an error of the file system or of SQLite means, for the operator.
 *
 * The error itself, or the code we found, follows in brackets for readers who know it.
 */

import { accessSync, constants, existsSync, statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { RespoolError, textOf } from '../../core/errors.ts';
import { sqliteCode } from './client.ts';

/** What is wrong, and what to do. */
type Words = readonly [pattern: RegExp, wrong: string, todo: string];

const WORDS: readonly Words[] = [
  [/^EROFS$/, 'the file system is read-only', 'mount it for writing, or choose another path'],
  [
    /^(?:EACCES|EPERM|SQLITE_PERM|SQLITE_AUTH)$/,
    'this user has no permission for that',
    'give the file and its folder to the user of this process, or choose another path',
  ],
  [
    /^SQLITE_READONLY/,
    'the file is read-only',
    'give the file and its folder to the user of this process, or choose another path',
  ],
  [
    /^(?:ENOENT|SQLITE_CANTOPEN)/,
    'its folder is not there, or a file in it cannot be made',
    'check the path',
  ],
  [/^(?:ENOTDIR|EEXIST)$/, 'a file is where a folder should be', 'choose another path'],
  [/^EISDIR$/, 'a folder is where a file should be', 'choose another path'],
  [/^E[MN]FILE$/, 'too many files are open', 'raise the limit of open files'],
  [/^(?:EIO$|SQLITE_IOERR)/, 'the disk reported an error', 'check the disk'],
];

/** SQLite keeps to itself what the system said; these may mean many things. */
const VAGUE_PATTERN = /^SQLITE_(?:READONLY|CANTOPEN|IOERR_SHM)/;

/** Node says so whenever a folder with those above it cannot be made, also on a read-only disk. */
const NOT_MADE_PATTERN = /^ENOENT: .*, mkdir /;

/** With less than that, SQLite cannot even open a file. */
const ROOM_MIN_BYTES: number = 64 * 1024;

/** The code of an error; for a vague one that of the system, if a look around finds it. */
export function diskCode(error: unknown, path: string | undefined): string {
  const code = sqliteCode(error);
  const isVague = VAGUE_PATTERN.test(code) || NOT_MADE_PATTERN.test(textOf(error));
  return isVague && path !== undefined ? lookAt(path) || code : code;
}

/** Whether a code means that there is no room. */
export function isFullCode(code: string): boolean {
  return /^(?:SQLITE_FULL|SQLITE_TOOBIG|ENOSPC|EDQUOT)/.test(code);
}

/** The error for callers, when `doing` failed with what the code says. */
export function diskError(
  doing: string,
  { error, code, whenFree }: { error: unknown; code: string; whenFree: string },
): RespoolError {
  // What we found out ourselves is better than what was said.
  const said = code === sqliteCode(error) ? textOf(error) : code;
  if (isFullCode(code)) {
    const text = `cannot ${doing}: there is no space left (${said}); free some space; ${whenFree}`;
    return new RespoolError('store.full', text, { cause: error });
  }
  const [, wrong, todo] = WORDS.find(([pattern]) => pattern.test(code)) ?? [];
  const because = wrong === undefined ? said : `${wrong} (${said})`;
  const help = todo ?? 'check the disk and its permissions';
  return new RespoolError('store.unavailable', `cannot ${doing}: ${because}; ${help}`, {
    cause: error,
  });
}

/** n.b. Opens nothing: to close a file again would drop the locks SQLite has on it. */
function lookAt(path: string): string {
  const folder = nearestFolder(path);
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
    const { bavail, bsize, files, ffree } = statfsSync(folder);
    if (bavail * bsize < ROOM_MIN_BYTES || (files > 0 && ffree === 0)) return 'ENOSPC';
    if (existsSync(path)) accessSync(path, constants.R_OK | constants.W_OK);
    return '';
  } catch (error) {
    return sqliteCode(error);
  }
}

/** The lowest folder above a path that is there. */
function nearestFolder(path: string): string {
  const folder = dirname(path);
  return folder === path || existsSync(folder) ? folder : nearestFolder(folder);
}
