/**
 * body-store — the interface of a store for bodies that are too large to be stored inline.
 *
 * Bodies are read and written as streams. A ref is used once and never overwritten; it has 1 to 128
 * of 0-9 a-z _ -, and starts with a letter or digit. Public: stores of users implement it, and
 * `testkit/bodyStoreSuite` is the contract in full.
 *
 * Why: docs/decisions/0005-the-spool-computes-digests.md
 */

import type { Millis } from '../core/duration.ts';
import type { Durability } from './entry-store.ts';
import type { HearOperation } from './store-operation.ts';

/** A body the store holds. */
export interface StoredBody {
  readonly ref: string;
  readonly writtenAt: Millis;
}

/** How a message ended whose body was removed: kept as delivered without it, or removed with it. */
export type SettledAs = 'delivered' | 'removed';

/** Where bodies are kept. `testkit/bodyStoreSuite` is the contract in full. */
export interface BodyStore {
  readonly name: string;
  readonly traits: { readonly durability: Durability };
  open(): Promise<void>;
  /** Idempotent. */
  close(): Promise<void>;
  /**
   * Durable when it resolves. If the stream fails, or the process dies, nothing is visible under
   * ref.
   * A ref that exists is refused with `message.duplicate`.
   */
  put(ref: string, stream: AsyncIterable<Uint8Array>): Promise<{ readonly size: number }>;
  /**
   * Throws `body.missing` before the first byte when there is none. The reader may keep the parts.
   */
  get(ref: string): AsyncIterable<Uint8Array>;
  /**
   * A ref that is not there is no error. `settledAs` says that the messages of these bodies have
   * ended, and that this is durable; a store with `wasSettled` remembers it.
   */
  remove(refs: readonly string[], settledAs?: SettledAs): Promise<void>;
  /**
   * How the message of a removed body ended, as passed to `remove`; undefined: not known (any
   * more). For entry stores whose server may bring back an entry after its removal.
   */
  wasSettled?(ref: string): Promise<SettledAs | undefined>;
  /** Every body written before this time, in no order; also what a crash left half written. */
  refs(writtenBefore: Millis): AsyncIterable<StoredBody>;
  /** As for entries. */
  onOperation?(hear: HearOperation): () => void;
}
