/** store-operation — one operation of a store at its disk or server, as reported to metrics. */

/**
 * The name of an operation. On entries: `insert`, `claim`, `commit`; `heartbeat` for commits that
 * only extend leases, where a store writes these separately; `read` (one entry, a list, a count,
 * the next due time) and `write` (records, a flush, quarantine). On bodies: `put`, `get`, `remove`.
 */
export type StoreOperationName =
  | 'insert'
  | 'claim'
  | 'commit'
  | 'heartbeat'
  | 'read'
  | 'write'
  | 'put'
  | 'get'
  | 'remove';

/**
 * One operation: a batch that was written, a claim, a body that was read. If inserts, claims and
 * commits are written to the disk together, each is reported with the time of the whole batch.
 */
export interface StoreOperation {
  readonly store: 'entries' | 'bodies';
  readonly name: StoreOperationName;
  /**
   * Number of entries, changes, records or bodies; for a claim or a read the number found, so 0 if
   * it failed.
   */
  readonly items: number;
  /** For `put` and `get` it includes the time of the body's stream or reader. */
  readonly tookMs: number;
  /** False: it failed or was refused. */
  readonly isDone: boolean;
}

/** A listener for operations; must not throw. */
export type HearOperation = (operation: StoreOperation) => void;
