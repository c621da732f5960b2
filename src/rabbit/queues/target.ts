/**
 * target — the queue that takes what is given up for good: made if it is not there, or required.
 *
 * Promise: one that is there is used as it is, whatever its arguments; it is never changed.
 */

import { RespoolError } from '../../core/errors.ts';
import { type AmqpConnection, closeChannel } from '../connection/amqp.ts';
import { openChannel, passiveQueues } from '../admin/inspect-broker.ts';
import { explainRefusal, inFull } from '../topology/explain.ts';

/** Drops nothing: neither after many looks, nor when it is full. */
const TARGET = {
  durable: true,
  arguments: {
    'x-queue-type': 'quorum',
    'x-delivery-limit': 1_000_000,
    'x-overflow': 'reject-publish',
  },
} as const;

/** Declares a durable quorum queue unless there is a queue of this name. */
export async function ensureTarget(
  connection: AmqpConnection,
  queue: string,
): Promise<'there' | 'created'> {
  if (await isThere(connection, queue)) return 'there';
  const channel = await openChannel(connection);
  try {
    await channel.assertQueue(queue, TARGET);
  } catch (error) {
    const instead = 'declare it yourself';
    throw explainRefusal(error, { act: 'declare', what: 'queue', name: queue, instead });
  }
  await closeChannel(channel);
  return 'created';
}

/** Refuses when there is no such queue. */
export async function requireTarget(connection: AmqpConnection, queue: string): Promise<void> {
  if (await isThere(connection, queue)) return;
  throw new RespoolError(
    'topology.mismatch',
    `cannot move messages to the queue ${inFull(queue)}: there is no such queue, and it is not ` +
      'to be made; declare it, or let it be created',
  );
}

/** Whether there is a queue of this name. */
export async function isThere(connection: AmqpConnection, queue: string): Promise<boolean> {
  const answer = (await passiveQueues(connection, [queue])).get(queue);
  if (answer === undefined || !('problem' in answer)) return answer?.found !== undefined;
  throw new RespoolError(
    'topology.mismatch',
    `cannot look at the queue ${inFull(queue)}: ${answer.problem}`,
  );
}
