/**
 * once — a handler's own write, done once however often the message comes.
 *
 * Called by a user's handler with the user's better-sqlite3 database. The key and the work share
 * one transaction: either both are there, or neither. Synchronous, as the package is.
 */

import { type Duration, durationMs } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { checkKey } from '../../core/limits.ts';
import { systemClock } from '../../system/clock.ts';
import type { SqliteDatabase } from '../shared/client.ts';

/** What `once` may be told beside its work. */
export interface SqliteOnceOptions {
  /** Keys of different scopes do not see each other; default `''`. */
  readonly scope?: string;
  /** How long a key is remembered; default `'14d'`. */
  readonly ttl?: Duration;
  /** Milliseconds since the epoch; default: the machine's clock. */
  readonly now?: () => number;
}

const TTL_DEFAULT: Duration = '14d';

/** How many keys that are over one call forgets, so that no call pays for all of them. */
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
  { scope = '', ttl = TTL_DEFAULT, now = () => systemClock.now() }: SqliteOnceOptions = {},
): Result {
  checkKey('once key', key);
  if (scope !== '') checkKey('once scope', scope);
  const ttlMs = durationMs(ttl, 'ttl', { minMs: 1 });
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
