/**
 * errors — what an error of SQLite means to a caller, and its way across a thread border.
 *
 *   SQLITE_FULL           store.full         rolled back; goes on when there is space again
 *   SQLITE_BUSY           store.unavailable  tried again by file-client.ts until busyTimeout
 *   SQLITE_IOERR          store.unavailable  never acknowledged; the file is reopened and checked
 *   SQLITE_CORRUPT        store.corrupt
 *   SQLITE_NOTADB         store.corrupt      while it opens: most likely not a store at all
 */

import { type ErrorCode, RespoolError, textOf } from '../../core/errors.ts';
import { sqliteCode } from '../shared/client.ts';
import { diskCode, diskError, isFullCode } from '../shared/disk-errors.ts';

/** An error as plain data. */
export interface PlainError {
  /** Absent for a bug. */
  readonly code?: ErrorCode;
  readonly message: string;
  readonly cause?: string;
  /** Another connection held the lock: nothing was done, and trying again may help. */
  readonly isBusy?: true;
}

const BUSY = new WeakSet<Error>();

/** Another connection held the lock. */
export function isBusyError(error: unknown): boolean {
  return error instanceof Error && BUSY.has(error);
}

/** The disk said no in the middle of something: what this connection believes cannot be trusted. */
export function isDiskError(error: unknown): boolean {
  return /^SQLITE_(?:IOERR|CANTOPEN|PROTOCOL)/.test(sqliteCode(error));
}

/** There is no room; the transaction was rolled back. */
export function isFullError(error: unknown): boolean {
  return sqliteCode(error).startsWith('SQLITE_FULL');
}

/** What was tried, and with which file. */
export interface AttemptedWork {
  readonly doing: string;
  readonly path: string;
  /** What comes of it when there is room again; default: the store goes on. */
  readonly whenFree?: string;
}

/** Turns what SQLite or the file system threw into the error a caller sees. */
export function storeError(error: unknown, { doing, path, whenFree }: AttemptedWork): Error {
  if (error instanceof RespoolError) return error;
  const code = diskCode(error, path);
  const because = `cannot ${doing}: ${textOf(error)}`;
  // As `#attempted` of file.ts says it.
  if (code.startsWith('SQLITE_NOTADB') && doing.startsWith('open ')) {
    const text =
      `cannot ${doing}: it is not a Respool store, nor any SQLite database; name the folder or ` +
      'file of a store. If it was one, its first page is damaged: restore it from a backup';
    return wrapped('store.corrupt', text, error);
  }
  if (/^SQLITE_(?:CORRUPT|NOTADB)/.test(code)) {
    return wrapped('store.corrupt', `${because}; restore the file from a backup`, error);
  }
  if (/^SQLITE_(?:BUSY|LOCKED)/.test(code)) {
    const busy = wrapped('store.unavailable', `${because}; another process keeps it locked`, error);
    BUSY.add(busy);
    return busy;
  }
  if (isFullCode(code) || DISK_PATTERN.test(code)) {
    const after = whenFree ?? 'the store continues by itself';
    return diskError(doing, { error, code, whenFree: after });
  }
  return error instanceof Error ? error : new Error(because);
}

const DISK_PATTERN = /^SQLITE_(?:IOERR|CANTOPEN|READONLY|PERM|PROTOCOL|NOLFS|NOMEM|AUTH)|^E[A-Z]+$/;

/** An error as data, for the other thread. */
export function plainError(error: unknown): PlainError {
  if (!(error instanceof RespoolError)) {
    return { message: error instanceof Error ? (error.stack ?? error.message) : textOf(error) };
  }
  return {
    code: error.code,
    message: error.message,
    ...(error.cause === undefined ? {} : { cause: textOf(error.cause) }),
    ...(isBusyError(error) ? { isBusy: true } : {}),
  };
}

/** The error that was sent. */
export function errorOf({ code, message, cause, isBusy }: PlainError): Error {
  if (code === undefined) return new Error(message);
  const error = wrapped(code, message, cause === undefined ? undefined : new Error(cause));
  if (isBusy === true) BUSY.add(error);
  return error;
}

function wrapped(code: ErrorCode, message: string, cause: unknown): RespoolError {
  return new RespoolError(code, message, cause === undefined ? undefined : { cause });
}
