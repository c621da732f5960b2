/** Consumers on a real broker, with names of their own, and everything taken away afterwards. */

import { randomBytes } from 'node:crypto';
import { connect } from 'amqplib';
import { onTestFinished } from 'vitest';
import type { SpoolEvent } from 'respool';
import {
  type AmqpConnection,
  type AmqpMessage,
  type Consumer,
  type ConsumerOptions,
  createConsumer,
  type Properties,
  type QueuePlan,
  type RabbitHandler,
  shared,
} from 'respool/rabbit';
import { service } from '../services/index.ts';
import type { AmqpConfirmChannel } from './amqp.ts';

/** A name nobody else has. */
export function ownName(base = 'q'): string {
  return `t-${base}-${randomBytes(4).toString('hex')}`;
}

/** A plain connection for the test's own hands. */
export class Hands {
  readonly connection: AmqpConnection;
  readonly channel: AmqpConfirmChannel;
  readonly returned: string[] = [];

  private constructor(connection: AmqpConnection, channel: AmqpConfirmChannel) {
    this.connection = connection;
    this.channel = channel;
    channel.on('return', (message: AmqpMessage) => {
      this.returned.push(message.properties.messageId ?? '');
    });
  }

  static async open(url?: string): Promise<Hands> {
    const connection = (await connect(url ?? (await service('rabbitmq')))) as AmqpConnection;
    connection.on('error', () => undefined);
    const hands = new Hands(connection, await connection.createConfirmChannel());
    onTestFinished(() => connection.close().catch(() => undefined));
    return hands;
  }

  publish(
    exchange: string,
    key: string,
    body: unknown,
    properties: Properties = {},
  ): Promise<void> {
    const content = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    return new Promise((resolve, reject) => {
      const options = { mandatory: true, persistent: true, ...properties };
      this.channel.publish(exchange, key, content, options, (error) => {
        if (error === null || error === undefined) resolve();
        else reject(new Error('not confirmed', { cause: error }));
      });
    });
  }

  /** Takes the next message of a queue, and acks it. */
  async take(queue: string): Promise<AmqpMessage> {
    const channel = await this.connection.createChannel();
    try {
      return await new Promise<AmqpMessage>((resolve, reject) => {
        channel.on('error', reject);
        void channel.prefetch(1).then(() =>
          channel.consume(queue, (message) => {
            if (message === null) reject(new Error(`queue ${queue} is gone`));
            else {
              channel.ack(message);
              resolve(message);
            }
          }),
        );
      });
    } finally {
      await channel.close();
    }
  }

  async depth(queue: string): Promise<number> {
    return (await this.channel.checkQueue(queue)).messageCount;
  }

  /** Deletes everything of a plan. */
  async remove(plan: QueuePlan): Promise<void> {
    const channel = await this.connection.createChannel();
    channel.on('error', () => undefined);
    for (const { name } of plan.topology.queues) await channel.deleteQueue(name);
    for (const { name } of plan.topology.exchanges) await channel.deleteExchange(name);
    await channel.close();
  }
}

/** A consumer that is stopped at the end of the test, and whose queues are deleted. */
export async function consume(
  options: Partial<ConsumerOptions> & { readonly queue: string },
  handler: RabbitHandler,
  { isStarted = true }: { readonly isStarted?: boolean } = {},
): Promise<Consumer> {
  const url =
    options.connection === undefined ? (options.url ?? (await service('rabbitmq'))) : undefined;
  // Names of its own, too: other tests must not lose theirs when these are deleted.
  const own = options.compat === undefined ? { topology: shared({ prefix: options.queue }) } : {};
  const place = url === undefined ? {} : { url };
  const consumer = createConsumer({ ...own, ...options, ...place }, handler);
  const hands = await Hands.open(
    typeof url === 'string' && options.tls === undefined ? url : undefined,
  );
  onTestFinished(async () => {
    await consumer.stop({ within: '1s' });
    await hands.remove(consumer.plan).catch(() => undefined);
  });
  if (isStarted) await consumer.start();
  return consumer;
}

/** Resolves with the first event that fits. */
export function nextEvent<K extends SpoolEvent['kind']>(
  consumer: Consumer,
  kind: K,
  fits: (event: Extract<SpoolEvent, { kind: K }>) => boolean = () => true,
): Promise<Extract<SpoolEvent, { kind: K }>> {
  return new Promise((resolve) => {
    const undo = consumer.on(kind, (event) => {
      if (!fits(event)) return;
      undo();
      resolve(event);
    });
  });
}

/** Collects what comes, and resolves when enough came. */
export class Tray<T> {
  readonly items: T[] = [];
  #watchers: (() => void)[] = [];

  add(item: T): void {
    this.items.push(item);
    for (const look of this.#watchers) look();
  }

  until(count: number): Promise<readonly T[]> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (this.items.length < count) return;
        this.#watchers = this.#watchers.filter((one) => one !== look);
        resolve(this.items);
      };
      this.#watchers.push(look);
      look();
    });
  }
}
