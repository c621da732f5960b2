/**
 * publisher-setup — an exchange and a queue of one test, what arrived there, and a publisher.
 */
import { randomUUID } from 'node:crypto';
import { connect, type ChannelModel, type ConsumeMessage } from 'amqplib';
import { onTestFinished } from 'vitest';
import { createPublisher, type Publisher } from '../../src/rabbit/publisher.ts';
import type { PublisherOptions } from '../../src/rabbit/publisher-options.ts';

/** The broker's side of a test. */
export interface BrokerWorld {
  readonly url: string;
  /** A topic exchange; the queue takes everything that is published to `q.#`. */
  readonly exchange: string;
  readonly queue: string;
  readonly connection: ChannelModel;
  /** What arrived so far; waits until there are as many. */
  readonly arrived: (count: number) => Promise<readonly ConsumeMessage[]>;
  /** Everything that was consumed until now. */
  readonly messages: readonly ConsumeMessage[];
  readonly dispose: () => Promise<void>;
}

/** Declares an exchange and a queue, and consumes the queue. */
export async function brokerWorld(
  url: string,
  queueArguments: Readonly<Record<string, unknown>> = {},
): Promise<BrokerWorld> {
  const prefix = `publisher-${randomUUID().slice(0, 8)}`;
  const exchange = `${prefix}.exchange`;
  const queue = `${prefix}.queue`;
  const connection = await connect(url);
  connection.on('error', () => undefined);
  const channel = await connection.createChannel();
  channel.on('error', () => undefined);
  await channel.assertExchange(exchange, 'topic', { durable: true });
  await channel.assertQueue(queue, { durable: true, arguments: queueArguments });
  await channel.bindQueue(queue, exchange, 'q.#');
  const messages: ConsumeMessage[] = [];
  let listeners: (() => void)[] = [];
  await channel.consume(
    queue,
    (message) => {
      if (message === null) return;
      messages.push(message);
      for (const tell of listeners) tell();
    },
    { noAck: true },
  );
  const arrived = (count: number): Promise<readonly ConsumeMessage[]> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (messages.length < count) return;
        listeners = listeners.filter((one) => one !== look);
        resolve(messages);
      };
      listeners.push(look);
      look();
    });
  const dispose = async (): Promise<void> => {
    try {
      await channel.deleteQueue(queue);
      await channel.deleteExchange(exchange);
      await connection.close();
    } catch {
      // The broker of this test is gone, and everything with it.
    }
  };
  return { url, exchange, queue, connection, arrived, messages, dispose };
}

/** The broker's side and a publisher, both gone when the test is. */
export async function setup(
  url: string,
  options: PublisherOptions = {},
): Promise<BrokerWorld & { readonly publisher: Publisher }> {
  const world = await brokerWorld(url);
  onTestFinished(world.dispose);
  const choice = options.connection === undefined ? { url } : {};
  const publisher = createPublisher({ ...choice, exchange: world.exchange, ...options });
  onTestFinished(() => publisher.close());
  return { ...world, publisher };
}
