/**
 * errors — what an error of PostgreSQL, or of the way to it, means to us and to a caller.
 *
 *   again      40001 40P01 55P03       rolled back for certain; the same again may work
 *   lost       08… 57P0… 25006 53300   the connection is of no use; whether a statement that was
 *              53400 25P03 25P04 40003 sent has happened is not known
 *              and errors of the net
 *   full       53100                   rolled back; goes on when there is space again
 *   corrupt    XX001 XX002             the server says its files are damaged
 *   refused    28000 28P01 3D000       the role, the database, the schema or a privilege is wrong
 *              3F000 42501
 *   other                              everything else
 */

import { asError, type ErrorCode, RespoolError, textOf } from '../../core/errors.ts';

/** A kind of trouble. */
type StoreTrouble = 'again' | 'lost' | 'full' | 'corrupt' | 'refused' | 'other';

/** Thrown when we give up on a connection. */
export class LostConnection extends Error {
  override readonly name = 'LostConnection';
}

const AGAIN = new Set(['40001', '40P01', '55P03']);
const LOST = new Set([
  '57P01',
  '57P02',
  '57P03',
  '57P05',
  '25006',
  // The server ended a transaction that stood still or took too long, and its connection with it.
  '25P03',
  '25P04',
  '40003',
  '53300',
  '53400',
]);
const NET = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENOENT',
]);
const CORRUPT = new Set(['XX001', 'XX002']);
const REFUSED = new Set(['28000', '28P01', '3D000', '42501', '3F000']);
/** Errors of node-postgres that have a text but no code. */
const LOST_WORDS =
  /connection (?:terminated|ended|error)|not queryable|timeout exceeded|timeout ex/i;

export function troubleOf(error: unknown): StoreTrouble {
  const code = codeOf(error);
  if (error instanceof LostConnection) return 'lost';
  if (AGAIN.has(code)) return 'again';
  if (code.startsWith('08') || LOST.has(code) || NET.has(code)) return 'lost';
  if (code === '53100') return 'full';
  if (CORRUPT.has(code)) return 'corrupt';
  if (REFUSED.has(code)) return 'refused';
  if (code === '' && LOST_WORDS.test(textOf(error))) return 'lost';
  return 'other';
}

/** The SQLSTATE, or the code of the operating system; '' for none. */
export function codeOf(error: unknown): string {
  const code = typeof error === 'object' && error !== null ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' ? code : '';
}

const CODES: Readonly<Record<StoreTrouble, ErrorCode>> = {
  again: 'store.unavailable',
  lost: 'store.unavailable',
  full: 'store.full',
  corrupt: 'store.corrupt',
  refused: 'config.invalid',
  other: 'store.unavailable',
};

const ADVICE: Readonly<Record<StoreTrouble, string>> = {
  again: 'others keep it locked; it is worth another try',
  lost: 'the store continues when the server is there again; if it never was, check the URL',
  full: 'the server has no space left on its disk; the store continues when there is some',
  corrupt: 'restore the database from a backup',
  refused: 'check the URL, the role and its rights',
  other: 'see what the server says',
};

/** What the pool or `#take` of connection.ts says when no connection was free in time. */
const NO_CONNECTION = /there was no connection|timeout exceeded when trying to connect/;
const NO_CONNECTION_ADVICE =
  'the server does not answer, or all connections are at work for too long: then raise ' +
  '"connections" of the store, or "max" of your pool';

/** The error for the caller. n.b. It never contains the URL, which may hold a password. */
export function storeError(error: unknown, doing: string): Error {
  if (error instanceof RespoolError) return error;
  const trouble = troubleOf(error);
  const code = codeOf(error);
  const said = `${textOf(error)}${code === '' ? '' : ` (${code})`}`;
  const advice = NO_CONNECTION.test(said) ? NO_CONNECTION_ADVICE : ADVICE[trouble];
  return new RespoolError(CODES[trouble], `cannot ${doing}: ${said}; ${advice}`, {
    cause: asError(error),
  });
}
