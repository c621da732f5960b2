/**
 * table-errors — distinguishes a database without our tables, or with older ones, from
 * everything else that can go wrong in a transaction of the caller's.
 */

import { isRespoolError, RespoolError } from '../core/errors.ts';
import type { EntryStore } from '../ports/entry-store.ts';

/** No such table, no such schema, no such column: as PostgreSQL says it. */
const CODES: ReadonlySet<unknown> = new Set(['42P01', '3F000', '42703']);
/** As SQLite says it. */
const TEXT = /no such (?:table|column)|has no column named/;
/** As stores say it of tables that were made by a later version. */
const NEWER = /newer/;

/** What is said of tables that are missing. */
export interface MissingTables {
  /** Where they were looked for: another schema is easily named by mistake. */
  readonly place: string;
  readonly advice: string;
}

/**
 * The error with what to do, where tables are missing; any other as it is: it is about the caller's
 * own transaction, and the caller may know its code.
 */
export function explainMissing(
  error: unknown,
  doing: string,
  { place, advice }: MissingTables,
): unknown {
  if (!areTablesMissing(error)) return error;
  return new RespoolError(
    'store.version',
    `cannot ${doing}: its tables (${place}) are not there, or older than this program; ${advice}`,
    { cause: error },
  );
}

/** Whether that is what is wrong. */
export function areTablesMissing(error: unknown): boolean {
  return isServerError(error, isMissing) || isOutdated(error);
}

/** The store, which says the same when it is opened without its tables. */
export function withAdvice(store: EntryStore, name: string, lack: MissingTables): EntryStore {
  return {
    ...store,
    async open() {
      try {
        await store.open();
      } catch (error) {
        throw explainMissing(error, `open ${name}`, lack);
      }
    },
  };
}

/** What a store says; tables that are newer need a newer program, and no advice of ours. */
function isOutdated(error: unknown): boolean {
  return isRespoolError(error, 'store.version') && !NEWER.test(error.message);
}

function isMissing({ code, message }: Readonly<Record<string, unknown>>): boolean {
  if (CODES.has(code)) return true;
  return code === 'SQLITE_ERROR' && typeof message === 'string' && TEXT.test(message);
}

// What a database said was wrong, through whatever library it comes.

/** Libraries put the error of the server into one of their own, and that perhaps into another. */
const DEPTH_MAX = 5;

/** There is no transaction to do it in. */
export const NO_TRANSACTION = '25P01';
/** A concurrent transaction, invisible to this one, changed the same rows. */
export const COLLISION = '40001';

/** Whether the server failed a statement with this code. */
export function hasCode(error: unknown, code: string): boolean {
  return isServerError(error, (message) => message['code'] === code);
}

/** Whether an error, or one of those that it holds, is such a one. */
function isServerError(
  error: unknown,
  isSuch: (byName: Readonly<Record<string, unknown>>) => boolean,
  depth: number = DEPTH_MAX,
): boolean {
  if (typeof error !== 'object' || error === null || depth === 0) return false;
  const said = error as Readonly<Record<string, unknown>>;
  if (isSuch(said)) return true;
  return (
    isServerError(said['cause'], isSuch, depth - 1) ||
    isServerError(said['meta'], isSuch, depth - 1)
  );
}
