/** store-operation — what a store did at its disk or server, told to who measures. */

/** One operation: a batch that was written, a claim, a body that was read. */
export interface StoreOperation {
  readonly store: 'entries' | 'bodies';
  /** Of a small fixed set: `insert`, `claim`, `commit`, `write`, `read`, `put`, `get`, `remove`. */
  readonly name: string;
  /** Entries, changes or bodies in it. */
  readonly items: number;
  readonly tookMs: number;
  /** False: it failed. */
  readonly isDone: boolean;
}

/** Hears of operations; must not throw. */
export type HearOperation = (operation: StoreOperation) => void;
