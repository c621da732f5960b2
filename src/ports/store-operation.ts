/** store-operation — what a store did at its disk or server, for measurements. */

/**
 * What an operation was. Those of entries: `insert`, `claim`, `commit`; `heartbeat`, where changes
 * that only keep entries for longer go apart; `read` (one, a list, a count, the next due time) and
 * `write` (records, a flush, what is put aside). Those of bodies: `put`, `get`, `remove`.
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
 * One operation: a batch that was written, a claim, a body that was read. Where inserts, claims and
 * commits go to the disk together, each of them is reported, with the time of the whole batch.
 */
export interface StoreOperation {
  readonly store: 'entries' | 'bodies';
  readonly name: StoreOperationName;
  /**
   * Entries, changes, records or bodies in it; of a claim or a read those that were found, so none
   * where it failed.
   */
  readonly items: number;
  /** With the time a body's stream or reader took: of `put` and `get`. */
  readonly tookMs: number;
  /** False: it failed or was refused. */
  readonly isDone: boolean;
}

/** Hears of operations; must not throw. */
export type HearOperation = (operation: StoreOperation) => void;
