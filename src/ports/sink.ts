/**
 * sink — where messages are forwarded to: a queue of a broker, another spool. The counterpart of a
 * Source; used by an outbox relay and a publisher's fallback.
 */

import type { Failure } from '../core/failure.ts';
import type { Headers } from '../core/entry.ts';

/** A message on its way to a sink. */
export interface OutgoingMessage {
  /** The same on every try: what the other side can deduplicate by. */
  readonly id: string;
  readonly topic: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** Since when it is on its way, in milliseconds since the epoch. */
  readonly enqueuedAt: number;
  /** Of those with one key, each is sent after the one before it; none: it has no order. */
  readonly orderKey?: string;
}

/** Takes messages over. */
export interface Sink {
  readonly name: string;
  /**
   * Sends them, in order of the list as far as the other side keeps order. One answer each:
   * 'confirmed' only when the other side has it safely; a failure that may have got through is
   * transient. Never throws for a single message.
   */
  send(parcels: readonly OutgoingMessage[]): Promise<readonly ('confirmed' | Failure)[]>;
  /**
   * Calls whenever the other side can be reached again, until what it returns is called; a sink
   * that does not know has none, and is retried after a pause instead.
   */
  onBack?(call: () => void): () => void;
  /** Waits for what is on its way, and lets go of what was opened here. */
  close(): Promise<void>;
}
