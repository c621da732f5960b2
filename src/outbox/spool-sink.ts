/**
 * spool-sink — a spool as the place where messages are sent on to.
 *
 * A message is enqueued under the id it has: what is sent again is a duplicate there, and
 * confirmed. One write for all of a send; when one of them is refused, each gets a write and an
 * answer of its own.
 */

import { isRespoolError, RespoolError, show } from '../core/errors.ts';
import { classify, type Failure, failure } from '../core/failure.ts';
import type { Parcel, Sink } from '../ports/sink.ts';
import type { Message } from '../spool/message.ts';

/** What is needed of a spool. */
export interface SinkSpool {
  enqueueMany(messages: readonly Message[]): Promise<unknown>;
}

/** How many are enqueued at once where each goes by itself. */
const SINGLES_MAX = 50;

/** Makes a sink of a spool; starting and stopping the spool is up to who made it. */
export function spoolSink(spool: SinkSpool): Sink {
  if (typeof (spool as Partial<SinkSpool> | undefined)?.enqueueMany !== 'function') {
    const text = `cannot make a sink of ${show(spool)}: allowed is what createSpool() returns`;
    throw new RespoolError('config.invalid', text);
  }
  const onTheirWay = new Set<Promise<unknown>>();
  let isClosed = false;
  return {
    name: 'spool',
    send(parcels) {
      if (isClosed) {
        const text = 'cannot send to the spool: the sink is closed';
        return Promise.reject(new RespoolError('engine.stopping', text));
      }
      const sending = sendAll(spool, parcels);
      onTheirWay.add(sending);
      return sending.finally(() => onTheirWay.delete(sending));
    },
    async close() {
      isClosed = true;
      await Promise.allSettled(onTheirWay);
    },
  };
}

type Answer = 'confirmed' | Failure;

async function sendAll(spool: SinkSpool, parcels: readonly Parcel[]): Promise<readonly Answer[]> {
  if (parcels.length === 0) return [];
  try {
    await spool.enqueueMany(parcels.map(messageOf));
    return parcels.map(() => 'confirmed');
  } catch (error) {
    const isOfOne = isAboutMessage(error) && parcels.length > 1;
    if (!isOfOne) return parcels.map(() => failureOf(error));
  }
  const answers: Answer[] = [];
  for (let at = 0; at < parcels.length; at += SINGLES_MAX) {
    const some = parcels.slice(at, at + SINGLES_MAX);
    answers.push(...(await Promise.all(some.map((parcel) => sendOne(spool, parcel)))));
  }
  return answers;
}

async function sendOne(spool: SinkSpool, parcel: Parcel): Promise<Answer> {
  try {
    await spool.enqueueMany([messageOf(parcel)]);
    return 'confirmed';
  } catch (error) {
    return failureOf(error);
  }
}

function messageOf({ id, topic, headers, body }: Parcel): Message {
  return { id, topic, headers, body };
}

/** Whether a message was refused for what it is, not the whole send. */
function isAboutMessage(error: unknown): boolean {
  return ['message.invalid', 'limit.exceeded', 'policy.unknown'].some(
    (code) => isRespoolError(error) && error.code === code,
  );
}

/** What the spool refuses now it refuses the next time, too. */
function failureOf(error: unknown): Failure {
  const { permanence, code, reason } = classify(error);
  return failure(isAboutMessage(error) ? 'permanent' : permanence, code, reason);
}
