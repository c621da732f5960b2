/** dlq-queue-ground — a dead queue at the real broker, and the queue that its messages came from. */
import { expect } from 'vitest';
import type { Replay } from 'respool/dead-letters';
import type { AmqpMessage, Properties } from 'respool/rabbit';
import { OWN_LIMIT } from '../rabbit/queues/queues.ts';
import { type RabbitShell, rabbitShell } from './rabbit-broker.ts';

export interface DeadQueue extends RabbitShell {
  readonly main: string;
  readonly dead: string;
  /** Puts messages into a dead queue, in order. */
  readonly die: (ids: readonly string[], more?: Dying) => Promise<void>;
  /** Declares a queue of the test. */
  readonly declare: (queue: string, options?: object) => Promise<void>;
  /** Declares the main queue; what is rejected there is dead again. */
  readonly declareLoop: () => Promise<void>;
  /** Rejects everything that comes into the main queue. */
  readonly rejectAll: () => Promise<void>;
  /** Takes everything out of a queue, in its order. */
  readonly drain: (queue: string) => Promise<AmqpMessage[]>;
  /** Their ids. */
  readonly idsIn: (queue: string) => Promise<string[]>;
  /** A replay as it is on record now. */
  readonly shown: (id: string) => Promise<Replay>;
}

export interface Dying {
  readonly into?: string;
  /** The queue it came from; '' for nobody knows. */
  readonly from?: string;
  readonly body?: string;
}

export async function deadQueue({
  type = 'quorum',
  config = {},
}: {
  readonly type?: 'quorum' | 'classic';
  readonly config?: object;
} = {}): Promise<DeadQueue> {
  const shell = await rabbitShell();
  await shell.configure(config);
  const main = `${shell.prefix}-orders`;
  const dead = `${main}.dlq`;
  const declare: DeadQueue['declare'] = async (queue, options = {}) => {
    await shell.channel.assertQueue(queue, { durable: true, ...options });
  };
  const limit = type === 'quorum' ? OWN_LIMIT : {};
  await declare(dead, { arguments: { 'x-queue-type': type, ...limit } });
  const drain: DeadQueue['drain'] = async (queue) => {
    const count = await shell.depth(queue);
    const messages: AmqpMessage[] = [];
    if (count === 0) return messages;
    const tag = `drain-${queue}`;
    await new Promise<void>((resolve, reject) => {
      const onMessage = (message: AmqpMessage | null): void => {
        if (message === null) return reject(new Error(`queue ${queue} is gone`));
        messages.push(message);
        shell.channel.ack(message);
        if (messages.length === count) resolve();
      };
      shell.channel.consume(queue, onMessage, { consumerTag: tag }).catch(reject);
    });
    await shell.channel.cancel(tag);
    return messages;
  };
  return {
    ...shell,
    main,
    dead,
    declare,
    declareLoop: () =>
      declare(main, {
        arguments: { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': dead },
      }),
    rejectAll: async () => {
      await shell.channel.consume(main, (message) => {
        if (message !== null) shell.channel.nack(message, false, false);
      });
    },
    drain,
    idsIn: async (queue) =>
      (await drain(queue)).map(({ properties }) => properties.messageId ?? ''),
    die: async (ids, { into = dead, from = main, body = '{"n":1}' } = {}) => {
      const headers: Properties['headers'] = {
        ...(from === '' ? {} : { 'respool-queue': from }),
        'respool-code': 'http.503',
        'respool-reason': 'no room',
      };
      // One channel keeps the order in which they are published.
      await Promise.all(ids.map((id) => shell.put(into, [body], { messageId: id, headers })));
    },
    shown: async (id) => {
      const ran = await shell.cli(['dlq', 'replays', 'show', id, '--json']);
      expect(ran.stderr).toBe('');
      return ran.objects()[0] as unknown as Replay;
    },
  };
}

/** `m-0000`, `m-0001`, … */
export function names(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `m-${String(at).padStart(4, '0')}`);
}
