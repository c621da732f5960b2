/**
 * protocol — what a store asks of its file, and what it gets back: entries (entry-store.ts), what
 * every kind of file knows, and bodies (body-store.ts). Plain data: it may cross from one thread to
 * another; bytes travel beside it (file-thread.ts). At the end, a tally as text, for both sides.
 */

import type { StoredBody } from '../../ports/body-store.ts';
import type {
  ClaimFilter,
  ClaimRequest,
  CorruptEntry,
  EntryQuery,
  KeyHead,
  ListQuery,
  TallyBy,
  TallyRow,
} from '../../ports/entry-store.ts';
import type { BrokenRow } from '../shared/sql-row.ts';
import type { EntryRow, EnvelopeColumns, NewColumns, StatusColumns } from './row.ts';

/** One entry to insert; its inline body travels with the batch. */
export interface InsertOp {
  readonly kind: 'insert';
  readonly id: string;
  readonly status: StatusColumns | NewColumns;
  readonly envelope: EnvelopeColumns;
}

/**
 * One guarded change; with an envelope, bytes: new ones, null: let go of them, undefined: they
 * stay.
 */
export interface ChangeOp {
  readonly kind: 'change';
  readonly id: string;
  readonly revision: number;
  readonly holder: string | null;
  readonly isDurable: boolean;
  /** Null: remove. */
  readonly status: StatusColumns | null;
  readonly envelope: EnvelopeColumns | null;
}

/** One claim. */
interface ClaimOp {
  readonly kind: 'claim';
  readonly request: ClaimRequest;
}

/** Puts a row that cannot be read into quarantine. */
export interface QuarantineOp {
  readonly kind: 'quarantine';
  readonly seq: number;
  readonly reason: string;
}

/** Ends the leases of a dead instance. */
export interface ExpireOp {
  readonly kind: 'expire';
  readonly instance: string;
  readonly now: number;
}

/** A write of the record store. */
export type RecordOp =
  | { readonly kind: 'append'; readonly of: string; readonly text: string }
  | { readonly kind: 'trim'; readonly of: string; readonly upTo: number }
  | {
      readonly kind: 'put';
      readonly of: string;
      readonly key: string;
      readonly text: string;
      readonly revision: number | undefined;
    }
  | { readonly kind: 'forget'; readonly of: string; readonly key: string };

/** What may stand in a batch. */
export type EntryOp = InsertOp | ChangeOp | ClaimOp | QuarantineOp | ExpireOp | SyncOp | RecordOp;

/** This one operation was refused; the others of its batch are through. */
export interface Refusal {
  readonly refused: string;
}

/**
 * What came of one operation. insert: null (stored) or the id it duplicates; change: whether it
 * was done, or a refusal; claim: rows; append: the sequence; put: whether it was done; expire: how
 * many.
 */
export type EntryResult = null | string | boolean | number | readonly EntryRow[] | Refusal;

/** A question to the file. */
export type EntryRequest =
  | BatchRequest<EntryOp>
  | { readonly kind: 'nextDueAt'; readonly filter: ClaimFilter }
  | { readonly kind: 'get'; readonly id: string }
  | { readonly kind: 'list'; readonly query: ListQuery; readonly mayBeLong: boolean }
  | {
      readonly kind: 'tally';
      readonly by: TallyBy;
      readonly query: EntryQuery;
      readonly mayBeLong: boolean;
    }
  | { readonly kind: 'keyHeads'; readonly max: number }
  | { readonly kind: 'dataVersion' }
  | { readonly kind: 'holdsAny'; readonly instance: string }
  | { readonly kind: 'readLog'; readonly of: string; readonly after: number; readonly max: number }
  | { readonly kind: 'readMap'; readonly of: string; readonly key?: string };

/** The answers, by kind. */
export interface EntryReplies {
  readonly batch: BatchReply<EntryResult>;
  readonly nextDueAt: number | null;
  readonly get: EntryReply | undefined;
  /** Null: it would take long, and was not to. */
  readonly list: ListReply | null;
  readonly tally: TallyText | null;
  readonly keyHeads: readonly KeyHead[];
  /** Another text whenever another connection has written, or this one is another. */
  readonly dataVersion: string;
  /** Whether an instance still has something active. */
  readonly holdsAny: boolean;
  readonly readLog: readonly { readonly sequence: number; readonly text: string }[];
  readonly readMap: readonly {
    readonly key: string;
    readonly text: string;
    readonly revision: number;
  }[];
}

/** Everything that is said to an entry file, and its answers. */
export interface EntryTalk {
  readonly op: EntryOp;
  readonly result: EntryResult;
  readonly request: EntryRequest;
  readonly replies: EntryReplies;
}

/** An entry's row, or what is in quarantine under its id. */
export type EntryReply = EntryRow | CorruptEntry;

/** A page of rows, without bodies. */
export interface ListReply {
  readonly rows: readonly EntryRow[];
  /** What is in quarantine; on the first page only. */
  readonly corrupt: readonly CorruptEntry[];
  /** What the scan met that cannot be read. */
  readonly broken: readonly BrokenRow[];
  readonly next?: string;
}

// What every kind of file knows: batches of operations in one transaction.

/** Bytes beside an operation: some, none on purpose, or nothing said. */
export type SharedBytes = Uint8Array | null | undefined;

/** A batch, each operation with its bytes at the same place. */
export interface BatchRequest<Op> {
  readonly kind: 'batch';
  readonly ops: readonly Op[];
  readonly bytes: readonly SharedBytes[];
  /** Whether another batch follows at once, worth waiting for before the commit. */
  readonly isPart?: boolean;
}

/** What became of a batch. */
export interface BatchReply<Result> {
  readonly results: readonly Result[];
  /** Whether something was written that the disk may not have yet. */
  readonly isDirty: boolean;
  /** How many pages of the log are not in the file yet. */
  readonly walPages: number;
}

/** Makes everything before it durable. */
export interface SyncOp {
  readonly kind: 'sync';
}

/** Entries, or bodies. */
export type FileKind = 'entries' | 'bodies';

/** Any request that a kind of file knows, or an operation of a batch. */
export interface FileRequest {
  readonly kind: string;
}

/** Moves the log into the file, as far as no other connection is in the way. */
export interface CheckpointRequest {
  readonly kind: 'moveLog';
}

/** Batches that came while another was at work, and may share its transaction. */
export interface BatchJoiner<Op> {
  /** Starts again with those that were taken before, since their transaction was rolled back. */
  rewind(): void;
  /** The next one, if there is one and it fits. */
  next(fits: (batch: BatchRequest<Op>) => boolean): BatchRequest<Op> | undefined;
}

// What body-store.ts asks of its file.

/**
 * A step of writing a body; a chunk travels with the batch. One operation and not three: if the ref
 * is taken, nothing of this step may reach another body.
 */
export interface WriteOp {
  readonly kind: 'write';
  readonly ref: string;
  readonly now: number;
  readonly isFirst: boolean;
  /** Where the chunk begins. */
  readonly at: number;
  /** The size of the whole, with its last step. */
  readonly size: number | null;
}

/** A step of writing or removing a body. */
export type BodyOp = WriteOp | { readonly kind: 'remove'; readonly ref: string } | SyncOp;

/** A question about bodies. */
export type BodyRequest =
  | BatchRequest<BodyOp>
  | { readonly kind: 'size'; readonly ref: string }
  | { readonly kind: 'read'; readonly ref: string; readonly at: number }
  | {
      readonly kind: 'refs';
      readonly writtenBefore: number;
      readonly after: string;
      readonly max: number;
    };

/** The answers, by kind. */
interface BodyReplies {
  readonly batch: BatchReply<boolean>;
  /** The size of a complete body; null when there is none. */
  readonly size: number | null;
  readonly read: Uint8Array | null;
  readonly refs: readonly StoredBody[];
}

/** The same for a body file. The result of an operation: whether it found what it needs. */
export interface BodyTalk {
  readonly op: BodyOp;
  readonly result: boolean;
  readonly request: BodyRequest;
  readonly replies: BodyReplies;
}

// A tally as text: copied from one thread to another at once, and not row by row.

/** Rows of a tally as JSON arrays. */
export type TallyText = string;

export function tallyText(rows: readonly TallyRow[]): TallyText {
  return JSON.stringify(
    rows.map(({ key, count, oldestAt, approximate }) => [key, count, oldestAt, approximate]),
  );
}

export function tallyRows(text: TallyText): TallyRow[] {
  const rows = JSON.parse(text) as [string, number, number | null, (true | null)?][];
  return rows.map(([key, count, oldestAt, approximate]) =>
    approximate === true ? { key, count, oldestAt, approximate } : { key, count, oldestAt },
  );
}
