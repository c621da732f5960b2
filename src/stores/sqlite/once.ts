/**
 * once — a handler's own write, done once however often the message comes.
 *
 * Called by a user's handler with the user's better-sqlite3 database. The key and the work share
 * one transaction: either both are there, or neither. Synchronous, as the package is.
 */

import type { Duration } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { checkKey } from '../../core/limits.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import { systemClock } from '../../system/clock.ts';
import type { SqliteDatabase } from '../shared/client.ts';

const ONCE = {
  scope: {
    kind: 'text',
    type: 'text',
    defaultText: "`''`",
    about: 'keys of different scopes are independent',
  },
  ttl: { kind: 'duration', min: '1ms', default: '14d', about: 'how long a key is remembered' },
  now: {
    kind: 'code',
    type: 'a function',
    ts: '() => number',
    defaultText: 'the system clock',
    about: 'milliseconds since the epoch',
  },
} as const;

/** Every option of `once`. */
export const SQLITE_ONCE_OPTIONS: Readonly<Record<keyof SqliteOnceOptions, Option>> = ONCE;

/** What `once` takes beside its work. */
export interface SqliteOnceOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Keys of different scopes are independent. Default `''`. */
  readonly scope?: string;
  /** How long a key is remembered. At least 1ms; default 14d. */
  readonly ttl?: Duration;
  /** Milliseconds since the epoch. Default the system clock. */
  readonly now?: () => number;
}

/**
 * How many keys that are over one call forgets, so that no call pays for all of them.
 * test/stores/sqlite/once.test.ts needs 75 or more.
 */
const FORGET_MAX = 100;

/**
 * Runs `work` in a transaction and remembers `key` in it; a second call with the same key runs
 * nothing and returns what the first one returned, as JSON keeps it. If `work` throws, nothing has
 * happened.
 */
export function once<Database extends SqliteDatabase, Result>(
  database: Database,
  key: string,
  work: (database: Database) => Result,
  options: SqliteOnceOptions = {},
): Result {
  checkKey('once key', key);
  const { scope = '', now = () => systemClock.now() } = options;
  if (scope !== '') checkKey('once scope', scope);
  const { ttlMs } = readOptions({ what: 'once' }, options, ONCE);
  return within(database, () => {
    createTable(database);
    const startedAt = now();
    forget(database, startedAt);
    const stored = remembered(database, scope, key, startedAt);
    if (stored !== undefined) return JSON.parse(stored) as Result;
    const result = work(database);
    refusePromise(result, key);
    database
      .prepare(
        `INSERT INTO respool_once (scope, key, result, forget_at) VALUES (?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET result = excluded.result, forget_at = excluded.forget_at`,
      )
      .run(scope, key, JSON.stringify(result) ?? 'null', startedAt + ttlMs);
    return result;
  });
}

/** One transaction, or a savepoint in the caller's; undone as a whole when `work` throws. */
function within<Result>(database: SqliteDatabase, work: () => Result): Result {
  const isNested = database.inTransaction;
  // Immediate: two processes with the same key must not both find it missing.
  database.exec(isNested ? 'SAVEPOINT respool_once' : 'BEGIN IMMEDIATE');
  try {
    const result = work();
    database.exec(isNested ? 'RELEASE respool_once' : 'COMMIT');
    return result;
  } catch (error) {
    if (!database.inTransaction) throw error;
    database.exec(isNested ? 'ROLLBACK TO respool_once; RELEASE respool_once' : 'ROLLBACK');
    throw error;
  }
}

function createTable(database: SqliteDatabase): void {
  database.exec(
    `CREATE TABLE IF NOT EXISTS respool_once (
      scope TEXT NOT NULL, key TEXT NOT NULL, result TEXT NOT NULL, forget_at INTEGER NOT NULL,
      PRIMARY KEY (scope, key)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS respool_once_forget ON respool_once (forget_at)`,
  );
}

function forget(database: SqliteDatabase, now: number): void {
  database
    .prepare(
      `DELETE FROM respool_once WHERE (scope, key) IN
        (SELECT scope, key FROM respool_once WHERE forget_at <= ? ORDER BY forget_at LIMIT ?)`,
    )
    .run(now, FORGET_MAX);
}

function remembered(
  database: SqliteDatabase,
  scope: string,
  key: string,
  now: number,
): string | undefined {
  return database
    .prepare('SELECT result FROM respool_once WHERE scope = ? AND key = ? AND forget_at > ?')
    .pluck()
    .get(scope, key, now) as string | undefined;
}

/** A promise would settle after the transaction: its work would be done twice, or half. */
function refusePromise(result: unknown, key: string): void {
  const isPromise =
    typeof result === 'object' &&
    result !== null &&
    'then' in result &&
    typeof result.then === 'function';
  if (!isPromise) return;
  throw new RespoolError(
    'config.invalid',
    `cannot do "${key}" once: its work returned a promise, and SQLite is synchronous; ` +
      'do what is asynchronous before',
  );
}
