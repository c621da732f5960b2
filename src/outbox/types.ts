/**
 * types — the public types of emits and relays, and the table of the options of a relay.
 *
 *   emit ─(your transaction)─▶ entries of a store ─relay: forward(sink)─▶ broker, spool, web
 *                                                        consumer ─once()─▶ effect, at most once
 */

import type { Duration, Millis } from '../core/duration.ts';
import type { Headers } from '../core/entry.ts';
import type { Option } from '../core/option-table.ts';
import type { Handler, Middleware } from '../ports/handler.ts';
import type { Sink } from '../ports/sink.ts';
import type { TlsOptions } from '../rabbit/connection/connection.ts';

/** What may be said about one message beside its routing key and body. */
export interface EmitOptions {
  readonly headers?: Headers;
  /** Not before this time: milliseconds since the epoch or a Date; a text such as `'5m'`: later. */
  readonly eta?: Millis | Date | Duration;
  /** Given up when it was not sent this long after the emit; default that of the outbox. */
  readonly expires?: Duration;
  /**
   * Messages of one key are sent one after the other, in the order of their emits. A
   * transaction locks what the key stands for first, so that two do not emit for it at once.
   */
  readonly key?: string;
  /** The name of a policy of the outbox; the relay looks it up among its own. */
  readonly policy?: string;
  /** The same key again is a duplicate, and emits nothing. */
  readonly dedupeKey?: string;
  /**
   * Your own id, 1 to 64 of `0-9 a-z _ -`; otherwise one is made. It is the message id on the
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
export interface EmitResult {
  /** For a duplicate, the first one's. */
  readonly id: string;
  readonly duplicate: boolean;
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

/** Patterns that one relay may have. */
export const RELAY_TOPICS_MAX = 100;

/** Every option of a relay; a configuration has the same, but for `middleware`. */
export const RELAY_OPTIONS: Readonly<Record<keyof RelayOptions, Option>> = {
  to: {
    kind: 'code',
    type: 'an exchange, a sink or a handler',
    ts: 'RelayTarget',
    required: true,
    about:
      '`{ amqp: url, exchange, tls }`: an exchange of RabbitMQ, confirmed and routed, with ' +
      '`tls: { ca, cert, key, … }` as for [connections](rabbit.md); a sink such as ' +
      '`spoolSink(spool)` or `rabbitSink(…)`; `{ deliver: handler }` such as `http({ url })`',
  },
  batch: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 100,
    about:
      'maximum messages in one send; to an exchange several sends are in flight at once, to a ' +
      'sink one',
  },
  concurrency: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 500,
    about:
      'maximum messages in flight, or sent and not yet recorded as sent; a crash may resend up ' +
      'to this many',
  },
  cleanUp: {
    kind: 'json',
    type: "`'at once'`, `'never'`, a duration, or `{ partition, keep }`",
    ts: 'CleanUp',
    schema: 'cleanUp',
    default: 'at once',
    about:
      'when sent messages are removed: at once, never, at an age such as `7d`, or with ' +
      '`{ partition: 1d, keep: 30d }` in partitions that are dropped as a whole (PostgreSQL). ' +
      'Messages with a `dedupeKey` or an `id` of your own stay for at least 24 hours, in state ' +
      '`archived`, so that duplicates are recognised',
  },
  topics: {
    kind: 'json',
    type: 'a pattern, or a list of up to 100',
    ts: 'string | readonly string[]',
    schema: 'texts',
    default: '#',
    about: 'only these routing keys',
  },
  expires: {
    kind: 'duration',
    min: '1ms',
    type: 'duration',
    defaultText: 'never',
    about: 'for messages without their own expiry, counted from their emit or their `eta`',
  },
  lease: {
    kind: 'duration',
    min: '1s',
    max: '1d',
    default: '60s',
    about: 'how long a claim lasts without a heartbeat',
  },
  poll: {
    kind: 'duration',
    min: '10ms',
    max: '1h',
    default: '30s',
    about:
      'how often due messages are polled even without a wake-up, as a fallback. New commits are ' +
      'noticed far sooner, see [`listenUrl`](outbox.md#options-of-createoutbox); only a late ' +
      'commit behind a due message that this relay does not take, such as one of a paused topic, ' +
      'may wait for this',
  },
  pauseAfter: {
    kind: 'duration',
    min: '1ms',
    max: '1h',
    default: '1s',
    about: 'the first pause after a target does not answer; doubles to 30s',
  },
  middleware: {
    kind: 'code',
    type: 'a list of functions',
    ts: 'readonly Middleware[]',
    about: 'wrappers around every send, as for [handlers](../how-to/middleware.md)',
  },
};

/** How messages are sent on. */
export interface RelayOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * `{ amqp: url, exchange, tls }`: an exchange of RabbitMQ, confirmed and routed, with `tls: { ca,
   * cert, key, … }` as for connections; a sink such as `spoolSink(spool)` or `rabbitSink(…)`; `{
   * deliver: handler }` such as `http({ url })`.
   */
  readonly to: RelayTarget;
  /**
   * Maximum messages in one send; to an exchange several sends are in flight at once, to a sink
   * one. 1 to 10,000; default 100.
   */
  readonly batch?: number;
  /**
   * Maximum messages in flight, or sent and not yet recorded as sent; a crash may resend up to this
   * many. 1 to 10,000; default 500.
   */
  readonly concurrency?: number;
  /**
   * When sent messages are removed: at once, never, at an age such as `7d`, or with `{ partition:
   * 1d, keep: 30d }` in partitions that are dropped as a whole (PostgreSQL). Messages with a
   * `dedupeKey` or an `id` of your own stay for at least 24 hours, in state `archived`, so that
   * duplicates are recognised. Default at once.
   */
  readonly cleanUp?: CleanUp;
  /** Only these routing keys. Default #. */
  readonly topics?: string | readonly string[];
  /**
   * For messages without their own expiry, counted from their emit or their `eta`. Default never.
   */
  readonly expires?: Duration;
  /** How long a claim lasts without a heartbeat. 1s to 1d; default 60s. */
  readonly lease?: Duration;
  /**
   * How often due messages are polled even without a wake-up, as a fallback. New commits are
   * noticed far sooner, see `listenUrl`; only a late commit behind a due message that this relay
   * does not take, such as one of a paused topic, may wait for this. 10ms to 1h; default 30s.
   */
  readonly poll?: Duration;
  /** The first pause after a target does not answer; doubles to 30s. 1ms to 1h; default 1s. */
  readonly pauseAfter?: Duration;
  /** Wrappers around every send, as for handlers. */
  readonly middleware?: readonly Middleware[];
}

const NAMES_MAX = 10;

/** Such as `a text`, or `an object with url, exchange`. */
export function describeType(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (typeof value === 'string') return 'a text';
  if (typeof value !== 'object') return `a ${typeof value}`;
  if (Array.isArray(value)) return 'a list';
  const names = Object.keys(value).slice(0, NAMES_MAX);
  return names.length === 0 ? 'an object' : `an object with ${names.join(', ')}`;
}
