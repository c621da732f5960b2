/**
 * body-protocol — what body-store.ts asks of its file. Plain data: it may cross a thread border.
 */

import type { StoredBody } from '../../ports/body-store.ts';
import type { BatchReply, BatchRequest, SyncOp } from './batch.ts';

/**
 * A step of writing a body; a chunk travels with the batch. One operation and not three: if the ref
 * is taken, nothing of this step may reach the body of somebody else.
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
export interface BodyReplies {
  readonly batch: BatchReply<boolean>;
  /** The size of a complete body; null when there is none. */
  readonly size: number | null;
  readonly read: Uint8Array | null;
  readonly refs: readonly StoredBody[];
}

/** The whole talk with a body file. The result of an operation: whether it found what it needs. */
export interface BodyTalk {
  readonly op: BodyOp;
  readonly result: boolean;
  readonly request: BodyRequest;
  readonly replies: BodyReplies;
}
