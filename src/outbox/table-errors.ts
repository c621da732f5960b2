/**
 * table-errors — recognises errors of PostgreSQL and SQLite, through whatever library they come:
 * missing or older tables of an outbox, which get an error with advice; and server codes.
 */

import { isRespoolError, RespoolError } from '../core/errors.ts';
import type { EntryStore } from '../ports/entry-store.ts';

/** PostgreSQL's codes for: no such table, no such schema, no such column. */
const CODES: ReadonlySet<unknown> = new Set(['42P01', '3F000', '42703']);
/** SQLite's text for the same. */
const TEXT = /no such (?:table|column)|has no column named/;
/** What to do where an outbox has no tables. */
export const MIGRATE_ADVICE = 'run outbox.migrate() or `respool outbox init`';
/** In the error text of stores (schema.ts of postgres and sqlite) for tables of a later version. */
const NEWER = /newer/;

/** What the error for missing tables says. */
export interface MissingTables {
  /** Where they were looked for: another schema is easily named by mistake. */
  readonly place: string;
  readonly advice: string;
}

/**
 * An error with advice, if tables are missing; any other error is returned as it is: it concerns
 * the caller's own transaction, and the caller may know its code.
 */
export function explainMissingTables(
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

/** Whether an error means that tables are missing or too old. */
export function areTablesMissing(error: unknown): boolean {
  return isServerError(error, isMissing) || isOutdated(error);
}

/** The store, with the same advice in the error of its `open()`. */
export function withTableAdvice(store: EntryStore, name: string, lack: MissingTables): EntryStore {
  return {
    ...store,
    async open() {
      try {
        await store.open();
      } catch (error) {
        throw explainMissingTables(error, `open ${name}`, lack);
      }
    },
  };
}

/** Whether the tables of a store are too old; newer ones need a newer program, not this advice. */
function isOutdated(error: unknown): boolean {
  return isRespoolError(error, 'store.version') && !NEWER.test(error.message);
}

function isMissing({ code, message }: Readonly<Record<string, unknown>>): boolean {
  if (CODES.has(code)) return true;
  return code === 'SQLITE_ERROR' && typeof message === 'string' && TEXT.test(message);
}

// Codes of server errors, through whatever library they come.
/** Libraries wrap the error of the server in one of their own, sometimes twice. */
const DEPTH_MAX = 5;

/** There is no transaction to do it in. */
export const NO_TRANSACTION = '25P01';
/** A concurrent transaction changed the same rows. */
export const SERIALIZATION_FAILURE = '40001';

/** Whether the server failed a statement with this code. */
export function hasCode(error: unknown, code: string): boolean {
  return isServerError(error, (message) => message['code'] === code);
}

/** Whether an error, or one that it wraps, matches. */
function isServerError(
  error: unknown,
  matches: (byName: Readonly<Record<string, unknown>>) => boolean,
  depth: number = DEPTH_MAX,
): boolean {
  if (typeof error !== 'object' || error === null || depth === 0) return false;
  const said = error as Readonly<Record<string, unknown>>;
  if (matches(said)) return true;
  return (
    isServerError(said['cause'], matches, depth - 1) ||
    isServerError(said['meta'], matches, depth - 1)
  );
}
