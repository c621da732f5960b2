/** batch — what every kind of file knows: a batch of operations in one transaction. Types only. */

/** Bytes beside an operation: some, none on purpose, or nothing said. */
export type Bytes = Uint8Array | null | undefined;

/** A batch, each operation with its bytes at the same place. */
export interface BatchRequest<Op> {
  readonly kind: 'batch';
  readonly ops: readonly Op[];
  readonly bytes: readonly Bytes[];
}

/** What became of a batch. */
export interface BatchReply<Result> {
  readonly results: readonly Result[];
  /** Whether something was written that the disk may not have yet. */
  readonly isDirty: boolean;
}

/** Makes everything before it durable. */
export interface SyncOp {
  readonly kind: 'sync';
}

/** An open file that answers requests, in the thread it was opened in. */
export interface OpenFile<Request> {
  handle(request: Request): unknown;
  /** Moves the log into the file; called when the disk is full. */
  makeRoom(): void;
  close(): void;
}
