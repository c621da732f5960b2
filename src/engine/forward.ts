/**
 * forward — makes a handler that sends messages to a sink. Used by relays and by users.
 *
 * Deliveries that come at the same time are sent in one batch: while `sendsMax` sends (default 1)
 * are in flight, others queue up for the next. The answer of the sink is the outcome of the
 * delivery; without a clear answer the message is tried again, under the same id.
 */

import type { Headers } from '../core/entry.ts';
import { RespoolError, show } from '../core/errors.ts';
import { checkedFailure, classify, failure } from '../core/failure.ts';
import { HEADERS_MAX_BYTES } from '../core/limits.ts';
import { type Option, readOptions } from '../core/option-table.ts';
import { delivered, failed, type Outcome } from '../core/verdict.ts';
import type { Delivery, Handler } from '../ports/handler.ts';
import type { OutgoingMessage, Sink } from '../ports/sink.ts';
import { createBatchLine } from '../stores/shared/batching.ts';
import { withTraceHeaders } from './tracing.ts';

const FORWARD = {
  batchMax: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 100,
    about: 'maximum number of messages in one send',
  },
  sendsMax: {
    kind: 'number',
    min: 1,
    max: 100,
    default: 1,
    about: 'maximum number of sends in flight; 1 keeps the order in which deliveries began',
  },
  maxBytes: {
    kind: 'bytes',
    min: '1 bytes',
    max: '1 GiB',
    default: '16 MiB',
    about: 'the largest body that is sent; a larger one bounces',
  },
  topic: {
    kind: 'code',
    type: 'a function of the delivery',
    ts: '(delivery: Delivery) => string',
    defaultText: 'that of the message',
    about: 'the topic of what is sent',
  },
} as const;

/** Every option of `forward`. */
export const FORWARD_OPTIONS: Readonly<Record<keyof ForwardOptions, Option>> = FORWARD;

/** How messages are handed to a sink. */
export interface ForwardOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Maximum number of messages in one send. 1 to 10,000; default 100. */
  readonly batchMax?: number;
  /**
   * Maximum number of sends in flight; 1 keeps the order in which deliveries began. 1 to 100;
   * default 1.
   */
  readonly sendsMax?: number;
  /** The largest body that is sent; a larger one bounces. 1 byte to 1 GiB; default 16 MiB. */
  readonly maxBytes?: number;
  /** The topic of what is sent. Default that of the message. */
  readonly topic?: (delivery: Delivery) => string;
}

/** Makes a handler that delivers to this sink; closing the sink is up to its owner. */
export function forward(sink: Sink, options: ForwardOptions = {}): Handler {
  const { batchMax, sendsMax, maxBytes } = readOptions({ what: 'forward' }, options, FORWARD);
  if (typeof (sink as Partial<Sink> | undefined)?.send !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `cannot forward to ${show(sink)}: allowed is a sink, { name, send(parcels), close() }`,
    );
  }
  const { topic = topicOf } = options;
  const line = createBatchLine(
    async (waiting: readonly QueuedMessage[]) => {
      // Released while it was queued: the next holder would send it a second time.
      const messages = waiting.flatMap(({ message, signal }) => (signal.aborted ? [] : [message]));
      const answers = messages.length === 0 ? [] : await sink.send(messages);
      const outcomes = new Map(
        messages.map((message, at) => [message, outcomeOf(sink.name, message, answers[at])]),
      );
      return waiting.map(({ message, signal }) => outcomes.get(message) ?? abortedOutcome(signal));
    },
    { batchMax, inFlightMax: sendsMax },
  );
  return async (delivery) => {
    const {
      body: { size },
      enqueuedAt,
      orderKey,
    } = delivery.envelope;
    if (size > maxBytes) return tooLarge(sink.name, size, maxBytes);
    const message: OutgoingMessage = {
      id: delivery.id,
      topic: topic(delivery),
      headers: headersOf(delivery),
      body: await delivery.body({ maxBytes }),
      enqueuedAt,
      ...(orderKey === undefined ? {} : { orderKey }),
    };
    // Its time limit ended while the body was read: the next attempt would send it a second time.
    delivery.signal.throwIfAborted();
    return line.add([{ message, signal: delivery.signal }], ([outcome]) => outcome as Outcome);
  };
}

/** A message that is queued for a send; not sent if its delivery is aborted. */
interface QueuedMessage {
  readonly message: OutgoingMessage;
  readonly signal: AbortSignal;
}

/** The outcome of a message that was not sent because its delivery was aborted. */
function abortedOutcome({ reason }: AbortSignal): Outcome {
  return failed(classify(reason));
}

/** The headers of the message, with the trace context of this attempt if both fit. */
function headersOf({ headers, trace }: Delivery): Headers {
  return trace === undefined ? headers : withTraceHeaders(headers, trace, HEADERS_MAX_BYTES);
}

function topicOf(delivery: Delivery): string {
  return delivery.topic;
}

/** An unclear answer means "not known to have arrived": tried again, with the same id. */
function outcomeOf(name: string, { id }: OutgoingMessage, answer: unknown): Outcome {
  if (answer === 'confirmed') return delivered();
  const said = checkedFailure(answer);
  if (said !== null) return failed(said);
  const reason =
    `sink "${name}" answered ${show(answer)} for message "${id}": ` +
    "allowed is 'confirmed' or a failure";
  return failed(failure('transient', 'sink.answer', reason));
}

function tooLarge(name: string, size: number, maxBytes: number): Outcome {
  const reason =
    `the body has ${size} bytes, and sink "${name}" is given at most ${maxBytes}; ` +
    'raise "maxBytes" of forward if the other side takes more';
  return failed(failure('permanent', 'limit.exceeded', reason));
}
