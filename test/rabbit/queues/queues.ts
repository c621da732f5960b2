/** queues — dead queues of one's own at the real broker, filled, read and removed again. */

import { onTestFinished } from 'vitest';
import type { AmqpConnection, AmqpMessage, Properties } from 'respool/rabbit';
import { service } from '../../services/index.ts';
import { Hands, ownName } from '../ground.ts';
import { connectAmqp, type Table } from '../amqp.ts';

/**
 * `own`: a quorum queue with the delivery limit that our own dead queues have. `foreign`: one
 * without, which from 4.0 to 4.2 drops what was given back more than 20 times; see foreign.ts.
 */
/** Own: quorum, with our limit; foreign: quorum, without a delivery limit. */
export type Kind = 'own' | 'foreign' | 'classic';
export const KINDS: readonly Kind[] = ['own', 'foreign', 'classic'];

/** So high that nobody looks so often: what our own dead queues have. */
export const OWN_LIMIT: Table = { 'x-delivery-limit': 1_000_000 };

const ARGUMENTS: Readonly<Record<Kind, Table>> = {
  own: { 'x-queue-type': 'quorum', ...OWN_LIMIT },
  foreign: { 'x-queue-type': 'quorum' },
  classic: { 'x-queue-type': 'classic' },
};

/** A connection as the product opens it, ended with the test. */
export async function openConnection(): Promise<AmqpConnection> {
  const connection = await connectAmqp(await service('rabbitmq'));
  connection.on('error', () => undefined);
  onTestFinished(async () => {
    try {
      await connection.close();
    } catch {
      // Ended by the test.
    }
  });
  return connection;
}

/** Queues of one test. */
export class DeadQueues {
  readonly hands: Hands;

  private constructor(hands: Hands) {
    this.hands = hands;
  }

  static async open(): Promise<DeadQueues> {
    return new DeadQueues(await Hands.open());
  }

  async declare(kind: Kind, more: Table = {}, name: string = ownName('dead')): Promise<string> {
    const { channel } = this.hands;
    this.removeLater(name);
    await channel.assertQueue(name, {
      durable: true,
      arguments: { ...ARGUMENTS[kind], ...more },
    });
    return name;
  }

  removeLater(name: string): void {
    onTestFinished(async () => {
      const channel = await this.hands.connection.createChannel();
      channel.on('error', () => undefined);
      await channel.deleteQueue(name);
      await channel.close();
    });
  }

  /** Publishes numbers, in their order. */
  async fill(
    queue: string,
    count: number,
    propertiesOf: (index: number) => Properties = () => ({}),
  ): Promise<void> {
    const all = Array.from({ length: count }, (_, index) =>
      this.hands.publish('', queue, index, { messageId: `m${index}`, ...propertiesOf(index) }),
    );
    await Promise.all(all);
  }

  /** Takes so many messages out for good, in the order they come. */
  async takeAll(queue: string, count: number): Promise<AmqpMessage[]> {
    const channel = await this.hands.connection.createChannel();
    const taken: AmqpMessage[] = [];
    await channel.prefetch(0);
    await new Promise<void>((resolve, reject) => {
      channel.on('error', reject);
      if (count === 0) resolve();
      else {
        void channel.consume(queue, (message) => {
          if (message === null) return;
          taken.push(message);
          // n.b. A quorum queue gives 2,000 at the most, also to who sets no bound. Not singly:
          // acks just before the end of a channel can be lost.
          if (taken.length % 1_000 === 0) channel.ack(message, true);
          if (taken.length === count) resolve();
        });
      }
    });
    const last = taken.at(-1);
    if (last !== undefined && count % 1_000 !== 0) channel.ack(last, true);
    await channel.close();
    return taken;
  }
}

/** What `fill` wrote into it. */
export function numberOf({ content }: AmqpMessage): number {
  return Number(content.toString());
}

export function range(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
