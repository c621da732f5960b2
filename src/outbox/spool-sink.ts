/**
 * spool-sink — a spool as the place where messages are sent on to.
 *
 * A message is enqueued under the id it has: what is sent again is a duplicate there, and
 * confirmed. One write for all of a send; when one of them is refused, each gets a write and an
 * answer of its own.
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
  /**
   * Whether a `key` becomes the `orderKey` in the spool, which refuses it where its store keeps no
   * order; `false`: messages lose it. Default true.
   */
  readonly keepOrder?: boolean;
}

/** How many are enqueued at once where each goes by itself. */
const SINGLES_MAX = 50;

/** The store of the other spool cannot do what the message needs; others may go on. */
const UNORDERED = 'store.unordered';

/** Makes a sink of a spool; starting and stopping the spool is up to who made it. */
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
    send(parcels) {
      if (isClosed) {
        const text = 'cannot send to the spool: the sink is closed';
        return Promise.reject(new RespoolError('engine.stopping', text));
      }
      return inFlight.track(sendAll(spool, keepOrder ? parcels : parcels.map(withoutOrder)));
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
  parcels: readonly OutgoingMessage[],
): Promise<readonly Answer[]> {
  if (parcels.length === 0) return [];
  try {
    await spool.enqueueMany(parcels.map(messageOf));
    return parcels.map(() => 'confirmed');
  } catch (error) {
    const isOfOne = parcels.some((parcel) => isAbout(parcel, error)) && parcels.length > 1;
    if (!isOfOne) return parcels.map((parcel) => failureOf(error, parcel));
  }
  const answers: Answer[] = [];
  // Those of one key must not pass each other.
  const atOnce = parcels.some(({ orderKey }) => orderKey !== undefined) ? 1 : SINGLES_MAX;
  for (let at = 0; at < parcels.length; at += atOnce) {
    const some = parcels.slice(at, at + atOnce);
    answers.push(...(await Promise.all(some.map((parcel) => sendOne(spool, parcel)))));
  }
  return answers;
}

async function sendOne(spool: SinkSpool, parcel: OutgoingMessage): Promise<Answer> {
  try {
    await spool.enqueueMany([messageOf(parcel)]);
    return 'confirmed';
  } catch (error) {
    return failureOf(error, parcel);
  }
}

function messageOf({ id, topic, headers, body, orderKey }: OutgoingMessage): Message {
  return { id, topic, headers, body, ...(orderKey === undefined ? {} : { orderKey }) };
}

function withoutOrder({ orderKey: _orderKey, ...parcel }: OutgoingMessage): OutgoingMessage {
  return parcel;
}

/** Whether a message was refused for what it is, not the whole send. */
function isAbout(parcel: OutgoingMessage, error: unknown): boolean {
  return isAboutMessage(error) || isUnordered(parcel, error);
}

function isAboutMessage(error: unknown): boolean {
  return ['message.invalid', 'limit.exceeded', 'policy.unknown'].some(
    (code) => isRespoolError(error) && error.code === code,
  );
}

/** A spool says `config.invalid` to an order key that its store cannot keep. */
function isUnordered({ orderKey }: OutgoingMessage, error: unknown): boolean {
  return orderKey !== undefined && isRespoolError(error, 'config.invalid');
}

/**
 * What the spool refuses now it refuses the next time, too; but an order that it does not keep is
 * fixed over there, and those behind it in the key wait until then.
 */
function failureOf(error: unknown, parcel: OutgoingMessage): Failure {
  const { permanence, code, reason } = classify(error);
  if (isUnordered(parcel, error)) {
    const advice = 'or make the sink with { keepOrder: false }';
    return failure('transient', UNORDERED, `${reason}; take one of these for the spool, ${advice}`);
  }
  return failure(isAboutMessage(error) ? 'permanent' : permanence, code, reason);
}
