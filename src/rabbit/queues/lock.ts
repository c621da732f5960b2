/**
 * lock — one at a time works through a dead queue: an exclusive queue at the broker, which goes
 * with the connection that declared it. Nothing is left behind by a process that is killed.
 *
 * Taken by queue-letters.ts and sweep-queue.ts, not by drain.ts; also by `respool dlq restore`,
 * under names of its own (`restore.<queue>`): a sweep may go on beside it.
 *
 * Why: docs/decisions/0033-the-dead-queue-lock-is-an-exclusive-queue.md
 */

import { createHash } from 'node:crypto';
import {
  type AmqpConnection,
  closeChannel,
  openChannel,
  refusalCode,
  SHORT_MAX_BYTES,
} from '../connection/amqp.ts';
import { explainRefusal } from '../topology/explain.ts';

/**
 * All versions at one broker must agree on it. Also in docs/reference/dead-letters.md and
 * docs/how-to/sweep-dead-queues.md.
 */
const PREFIX = 'respool.lock.';
/** AMQP's code for: resource locked. */
const LOCKED = 405;

/** A queue that is ours to work through. */
export interface QueueLock {
  readonly queue: string;
  /** Lets others in; may be called again. */
  release(): Promise<void>;
}

/** n.b. Anyone who declares an exclusive queue may do so again: the broker sees one connection. */
const held = new WeakMap<AmqpConnection, Set<string>>();

/** Takes the lock of a queue, on the connection that will consume; does not wait. */
export async function lockQueue(
  connection: AmqpConnection,
  queue: string,
): Promise<QueueLock | 'elsewhere'> {
  const names = held.get(connection) ?? new Set<string>();
  held.set(connection, names);
  const name = lockName(queue);
  if (names.has(name)) return 'elsewhere';
  names.add(name);
  try {
    if (await declare(connection, name)) {
      return { queue, release: once(() => release(connection, name, names)) };
    }
  } catch (error) {
    names.delete(name);
    throw error;
  }
  names.delete(name);
  return 'elsewhere';
}

/** Whether a queue is such a lock. */
export function isLockName(queue: string): boolean {
  return queue.startsWith(PREFIX);
}

/** The name of the lock of a queue; a hash of it where it would be too long. */
export function lockName(queue: string): string {
  const name = PREFIX + queue;
  if (Buffer.byteLength(name) <= SHORT_MAX_BYTES) return name;
  return `${PREFIX}sha256.${createHash('sha256').update(queue).digest('hex')}`;
}

async function declare(connection: AmqpConnection, name: string): Promise<boolean> {
  const channel = await openChannel(connection);
  try {
    await channel.assertQueue(name, { exclusive: true, autoDelete: true, durable: false });
  } catch (error) {
    if (refusalCode(error) === LOCKED) return false;
    // n.b. A queue is only worked on under its lock.
    throw explainRefusal(error, { act: 'declare', what: 'queue', name, instead: '' });
  }
  await closeChannel(channel);
  return true;
}

async function release(
  connection: AmqpConnection,
  name: string,
  names: Set<string>,
): Promise<void> {
  try {
    const channel = await openChannel(connection);
    await channel.deleteQueue(name);
    await closeChannel(channel);
  } catch {
    // The connection is gone, and the lock with it.
  } finally {
    names.delete(name);
  }
}

function once(work: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | undefined;
  return () => {
    done ??= work();
    return done;
  };
}
