/**
 * sink — the interface to where messages are forwarded: an exchange of a broker, another spool. The
 * counterpart of a Source; called by outbox relays and by `forward()`.
 */

import type { Failure } from '../core/failure.ts';
import type { Headers } from '../core/entry.ts';

/** A message on its way to a sink. */
export interface OutgoingMessage {
  /** The same on every try, so that the other side can deduplicate by it. */
  readonly id: string;
  readonly topic: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** When it was enqueued or emitted, in milliseconds since the epoch. */
  readonly enqueuedAt: number;
  /** Messages with the same key are sent one after the other; none: it has no order. */
  readonly orderKey?: string;
}

/** Sends messages on, and says which of them the other side has. */
export interface Sink {
  readonly name: string;
  /**
   * Sends messages, in the order of the list as far as the other side keeps order. One answer for
   * each: 'confirmed' only when the other side has stored it; if it may have arrived, a transient
   * failure. Never throws for a single message.
   */
  send(parcels: readonly OutgoingMessage[]): Promise<readonly ('confirmed' | Failure)[]>;
  /**
   * Calls back whenever the other side can be reached again, until the returned function is called.
   * A sink that does not notice this leaves it out, and is retried after a pause instead.
   */
  onBack?(call: () => void): () => void;
  /** Waits for sends in flight, and closes what the sink opened itself. */
  close(): Promise<void>;
}
