/**
 * types — what an outbox takes and gives: the words that its parts share.
 *
 *   emit ─(your transaction)─▶ entries of a store ─relay: forward(sink)─▶ broker, spool, web
 *                                                        consumer ─once()─▶ effect, at most once
 */

import type { Duration, Millis } from '../core/duration.ts';
import type { Headers } from '../core/entry.ts';
import type { BackoffFunction, RetryPolicy } from '../core/policy.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Handler, Middleware } from '../ports/handler.ts';
import type { Logger } from '../ports/logger.ts';
import type { Sink } from '../ports/sink.ts';
import type { Tracer } from '../ports/tracer.ts';
import type { TlsOptions } from '../rabbit/connection/client.ts';
import type { Codec } from '../rabbit/publish/codecs.ts';

/** What may be said about one message beside its routing key and body. */
export interface EmitOptions {
  readonly headers?: Headers;
  /** Not before this time: milliseconds since the epoch or a Date; a text such as `'5m'`: later. */
  readonly eta?: Millis | Date | Duration;
  /** Given up when it was not sent this long after the emit; default that of the outbox. */
  readonly expires?: Duration;
  /**
   * Messages of one key are sent one after the other, in the order of their emits. Whoever writes
   * for a key locks what it stands for first, so that two do not emit for it at once.
   */
  readonly key?: string;
  /** The name of a policy of the outbox; the relay looks it up among its own. */
  readonly policy?: string;
  /** The same key again is a duplicate, and emits nothing. */
  readonly dedupeKey?: string;
  /**
   * An id of yours, 1 to 64 of `0-9 a-z _ -`; otherwise one is made. It is the message id on the
   * wire, and the same again is a duplicate until 24 hours after it was sent.
   */
  readonly id?: string;
}

/** One of many. */
export interface EmitMessage extends EmitOptions {
  readonly routingKey: string;
  readonly body?: unknown;
}

/** What became of an emit: it counts when your transaction commits. */
export interface Emitted {
  /** For a duplicate, the first one's. */
  readonly id: string;
  readonly duplicate: boolean;
}

/** What every outbox takes. */
export interface OutboxBase {
  /** For messages that do not say; default: they never expire. */
  readonly expires?: Duration;
  /** Policies by name; `default` serves every message that names none. */
  readonly policies?: Readonly<Record<string, RetryPolicy>>;
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
  /** The largest body, in bytes; default 1 MiB. */
  readonly maxBytes?: number;
  /**
   * For values under a `content-type` header of their own, as msgpack; JSON needs none, and texts
   * and bytes go as they are.
   */
  readonly encoders?: readonly Codec[];
  readonly logger?: Logger;
  /** Writes spans, as `await openTelemetry()` of `respool/observe` does; default none. */
  readonly tracing?: Tracer;
  readonly clock?: Clock;
  readonly dice?: Dice;
}

/**
 * What becomes of a message that was sent: `'at once'` removes it (default), `'never'` keeps it for
 * good, an age as `'7d'` keeps it for so long. In PostgreSQL also a table with one part for each so
 * long, dropped as a whole.
 */
export type CleanUp = Duration | { readonly partition: Duration; readonly keep: Duration };

/** Where a relay sends to. */
export type RelayTarget =
  /** An exchange of RabbitMQ, confirmed and routed. */
  | { readonly amqp: string; readonly exchange: string; readonly tls?: TlsOptions }
  /** Your own sink, or `rabbitSink(…)`, `spoolSink(…)`. */
  | Sink
  /** A route, such as `http({ url })` of `respool/deliver`. */
  | { readonly deliver: Handler };

/** How messages are sent on. */
export interface RelayOptions {
  readonly to: RelayTarget;
  /** The most messages in one send, 1 to 10,000; default 100. */
  readonly batch?: number;
  /** Messages on their way at once, 1 to 10,000; default 500. */
  readonly concurrency?: number;
  /** Default `'at once'`. */
  readonly cleanUp?: CleanUp;
  /** Only these routing keys; default `'#'`, all. */
  readonly topics?: string | readonly string[];
  /** For messages that do not say when they expire, from their emit or their eta on. */
  readonly expires?: Duration;
  /** How long a claim lasts without a heartbeat; default 60s. */
  readonly lease?: Duration;
  /**
   * How often due messages are asked for even when nothing calls, as a safety net; default 30s. New
   * commits are noticed within a second without it.
   */
  readonly poll?: Duration;
  /** How long a dead target is left alone before it is tried again; default 1s, doubling to 30s. */
  readonly pauseAfter?: Duration;
  readonly middleware?: readonly Middleware[];
}
