/**
 * spool-sink — a spool as a sink, so that a relay can send messages to it.
 *
 * A message is enqueued under its own id: if it is sent again, it is a duplicate there, and
 * confirmed. All messages of a send are one write; if one of them is refused, each gets a write and
 * an answer of its own.
 */

import { isRespoolError, RespoolError, show } from '../core/errors.ts';
import { classify, type Failure, failure } from '../core/failure.ts';
import { type Option, readOptions } from '../core/option-table.ts';
import type { OutgoingMessage, Sink } from '../ports/sink.ts';
import type { Message } from '../spool/message.ts';
import { InFlight } from '../system/wait.ts';

/** What is needed of a spool. */
export interface SinkSpool {
  enqueueMany(messages: readonly Message[]): Promise<unknown>;
}

const SPOOL_SINK = {
  keepOrder: {
    kind: 'boolean',
    default: true,
    about:
      'whether a `key` becomes the `orderKey` in the spool, which refuses it where its ' +
      '[store keeps no order](../how-to/keep-order.md#which-stores); `false`: messages lose it',
  },
} as const;

/** The options of a spool as a sink. */
export const SPOOL_SINK_OPTIONS: Readonly<Record<keyof SpoolSinkOptions, Option>> = SPOOL_SINK;

/** The options of a spool as a sink. */
export interface SpoolSinkOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Whether a `key` becomes the `orderKey` in the spool, which refuses it where its store keeps no
   * order; `false`: messages lose it. Default true.
   */
  readonly keepOrder?: boolean;
}

/** How many are enqueued at once if each gets a write of its own. */
const SINGLES_MAX = 50;

/** The store of the other spool cannot do what the message needs; others may go on. */
const UNORDERED = 'store.unordered';

/** Makes a sink of a spool; starting and stopping the spool is up to its owner. */
export function spoolSink(spool: SinkSpool, options: SpoolSinkOptions = {}): Sink {
  if (typeof (spool as Partial<SinkSpool> | undefined)?.enqueueMany !== 'function') {
    const text = `cannot make a sink of ${show(spool)}: allowed is what createSpool() returns`;
    throw new RespoolError('config.invalid', text);
  }
  const { keepOrder } = readOptions({ what: 'spoolSink' }, options, SPOOL_SINK);
  const inFlight = new InFlight();
  let isClosed = false;
  return {
    name: 'spool',
    send(messages) {
      if (isClosed) {
        const text = 'cannot send to the spool: the sink is closed';
        return Promise.reject(new RespoolError('engine.stopping', text));
      }
      return inFlight.track(sendAll(spool, keepOrder ? messages : messages.map(withoutOrder)));
    },
    async close() {
      isClosed = true;
      await inFlight.idle();
    },
  };
}

type Answer = 'confirmed' | Failure;

async function sendAll(
  spool: SinkSpool,
  messages: readonly OutgoingMessage[],
): Promise<readonly Answer[]> {
  if (messages.length === 0) return [];
  try {
    await spool.enqueueMany(messages.map(messageOf));
    return messages.map(() => 'confirmed');
  } catch (error) {
    const isOfOne = messages.some((message) => isAbout(message, error)) && messages.length > 1;
    if (!isOfOne) return messages.map((message) => failureOf(error, message));
  }
  const answers: Answer[] = [];
  // Messages of one order key must not overtake each other.
  const atOnce = messages.some(({ orderKey }) => orderKey !== undefined) ? 1 : SINGLES_MAX;
  for (let at = 0; at < messages.length; at += atOnce) {
    const some = messages.slice(at, at + atOnce);
    answers.push(...(await Promise.all(some.map((message) => sendOne(spool, message)))));
  }
  return answers;
}

async function sendOne(spool: SinkSpool, message: OutgoingMessage): Promise<Answer> {
  try {
    await spool.enqueueMany([messageOf(message)]);
    return 'confirmed';
  } catch (error) {
    return failureOf(error, message);
  }
}

function messageOf({ id, topic, headers, body, orderKey }: OutgoingMessage): Message {
  return { id, topic, headers, body, ...(orderKey === undefined ? {} : { orderKey }) };
}

function withoutOrder({ orderKey: _orderKey, ...message }: OutgoingMessage): OutgoingMessage {
  return message;
}

/** Whether the error is about this message, not about the whole send. */
function isAbout(message: OutgoingMessage, error: unknown): boolean {
  return isAboutMessage(error) || isUnordered(message, error);
}

function isAboutMessage(error: unknown): boolean {
  return ['message.invalid', 'limit.exceeded', 'policy.unknown'].some(
    (code) => isRespoolError(error) && error.code === code,
  );
}

/** A spool refuses an order key with `config.invalid` if its store keeps no order. */
function isUnordered({ orderKey }: OutgoingMessage, error: unknown): boolean {
  return orderKey !== undefined && isRespoolError(error, 'config.invalid');
}

/**
 * A message that the spool refuses now it will refuse again, so the failure is permanent. But an
 * order key needs another store there: that is transient, and later messages of the key wait.
 */
function failureOf(error: unknown, message: OutgoingMessage): Failure {
  const { permanence, code, reason } = classify(error);
  if (isUnordered(message, error)) {
    const advice = 'or make the sink with { keepOrder: false }';
    return failure('transient', UNORDERED, `${reason}; take one of these for the spool, ${advice}`);
  }
  return failure(isAboutMessage(error) ? 'permanent' : permanence, code, reason);
}
