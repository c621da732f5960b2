/** batch — what every kind of file knows: batches of operations in one transaction. Types only. */

/** Bytes beside an operation: some, none on purpose, or nothing said. */
export type Bytes = Uint8Array | null | undefined;

/** A batch, each operation with its bytes at the same place. */
export interface BatchRequest<Op> {
  readonly kind: 'batch';
  readonly ops: readonly Op[];
  readonly bytes: readonly Bytes[];
  /** Whether another batch follows at once, worth waiting for before the commit. */
  readonly isPart?: boolean;
}

/** What became of a batch. */
export interface BatchReply<Result> {
  readonly results: readonly Result[];
  /** Whether something was written that the disk may not have yet. */
  readonly isDirty: boolean;
  /** How many pages of the log are not in the file yet. */
  readonly unmovedPages: number;
}

/** Makes everything before it durable. */
export interface SyncOp {
  readonly kind: 'sync';
}

/** Moves the log into the file, as far as nobody is in the way. */
export interface MoveLogRequest {
  readonly kind: 'moveLog';
}

/** Batches that came while another was at work, and may share its transaction. */
export interface Joiner<Op> {
  /** Starts again with those that were taken before, since their transaction was rolled back. */
  rewind(): void;
  /** The next one, if there is one and it fits. */
  next(fits: (batch: BatchRequest<Op>) => boolean): BatchRequest<Op> | undefined;
}

/** An open file that answers requests, in the thread it was opened in. */
export interface OpenFile<Request> {
  /** With a joiner, a batch takes others along; their results follow its own. */
  handle(request: Request, joiner?: Joiner<never>): unknown;
  moveLog(): void;
  /** Moves the log into the file; called when the disk is full. */
  makeRoom(): void;
  close(): void;
}
