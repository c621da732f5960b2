/**
 * sqlite-transaction — the same in a database of better-sqlite3: synchronous from end to end.
 */

import { RespoolError } from '../core/errors.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';

/**
 * One transaction, or a savepoint in that of the caller; undone as a whole when `work` throws.
 * `doing` begins the error, as `do "a" once`.
 */
export function within<T>(database: SqliteDatabase, doing: string, work: () => T): T {
  const isNested = database.inTransaction;
  // Immediate: what is found at the start must still be so at the first write.
  database.exec(isNested ? 'SAVEPOINT respool_outbox' : 'BEGIN IMMEDIATE');
  try {
    const value = work();
    refusePromise(value, doing);
    database.exec(isNested ? 'RELEASE respool_outbox' : 'COMMIT');
    return value;
  } catch (error) {
    // SQLite itself rolls back after some errors, as on a full disk.
    if (database.inTransaction) {
      const undo = 'ROLLBACK TO respool_outbox; RELEASE respool_outbox';
      database.exec(isNested ? undo : 'ROLLBACK');
    }
    throw error;
  }
}

/** A promise would settle after the transaction: its work would be done twice, or half. */
export function refusePromise(value: unknown, doing: string): void {
  const isPromise = typeof value === 'object' && value !== null && 'then' in value;
  if (!isPromise || typeof value.then !== 'function') return;
  // Nobody waits for it: should it fail, that must not end the process.
  Promise.resolve(value).catch(() => undefined);
  throw new RespoolError(
    'config.invalid',
    `cannot ${doing}: its function returned a promise, and better-sqlite3 is synchronous; do ` +
      'what is asynchronous before',
  );
}
