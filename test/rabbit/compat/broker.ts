/** The real broker, in small steps. */

import { type Channel, type ConfirmChannel, connect, type ConsumeMessage } from 'amqplib';
import type { QueuePlan, Route, Topology } from 'respool/rabbit';
import type { HistoryWire } from '../../../src/rabbit/message-history.ts';
import { successorOf } from './messages.ts';

/** Two channels on one connection: theirs without confirms, ours with. */
export async function channels(url: string): Promise<{
  readonly theirs: Channel;
  readonly ours: ConfirmChannel;
  readonly close: () => Promise<void>;
  /** Another channel for ours, to be closed in the middle of something. */
  readonly another: () => Promise<Channel>;
  /** The broker's major version. */
  readonly major: number;
}> {
  const connection = await connect(url);
  const theirs = await connection.createChannel();
  const ours = await connection.createConfirmChannel();
  await theirs.prefetch(1);
  await ours.prefetch(1);
  const { version } = connection.connection.serverProperties;
  return {
    theirs,
    ours,
    close: () => connection.close(),
    another: () => connection.createChannel(),
    major: Number.parseInt(version, 10),
  };
}

export async function declareAll(channel: Channel, topology: Topology): Promise<void> {
  for (const { name, type, ...options } of topology.exchanges) {
    await channel.assertExchange(name, type, options);
  }
  for (const { name, role: _, ...options } of topology.queues) {
    await channel.assertQueue(name, options);
  }
  for (const { queue, exchange, key, arguments: args } of topology.bindings) {
    await channel.bindQueue(queue, exchange, key, args);
  }
}

export async function deleteAll(
  channel: Channel,
  topology: Topology,
  more: { readonly queues: readonly string[]; readonly exchanges: readonly string[] },
): Promise<void> {
  for (const name of [...topology.queues.map((queue) => queue.name), ...more.queues]) {
    await channel.deleteQueue(name);
  }
  for (const name of [...topology.exchanges.map((one) => one.name), ...more.exchanges]) {
    await channel.deleteExchange(name);
  }
}

/** The next message of a queue, and nothing more: the consumer is cancelled before it resolves. */
export async function takeOne(channel: Channel, queue: string): Promise<ConsumeMessage> {
  const { promise, resolve } = Promise.withResolvers<ConsumeMessage>();
  const { consumerTag } = await channel.consume(queue, (message) => {
    if (message !== null) resolve(message);
  });
  const message = await promise;
  await channel.cancel(consumerTag);
  return message;
}

/** What a consumer of ours does with a message that failed; resolves when that is safe. */
export async function failOurs(
  channel: ConfirmChannel,
  message: ConsumeMessage,
  {
    plan,
    wire,
    maxAttempts,
    delaysMs,
  }: {
    readonly plan: QueuePlan;
    readonly wire: HistoryWire;
    readonly maxAttempts: number;
    readonly delaysMs: readonly number[];
  },
): Promise<void> {
  const past = wire.read(message, plan.queue);
  const attempts = past.attempts + 1;
  const isLast = attempts >= maxAttempts;
  const delayMs = delaysMs[attempts - 1] ?? 0;
  const route: Route = isLast
    ? plan.dead
    : plan.wait({ delayMs, attempt: attempts, routingKey: past.routingKey });
  const properties = wire.write(
    message,
    successorOf(
      { ...past, attempts },
      {
        queue: plan.queue,
        routing: route.headers,
        ...(isLast
          ? { ending: { kind: 'dead', code: 'spent', reason: 'no attempts left', at: 1, by: 'us' } }
          : {}),
      },
    ),
  );
  await publishSafely(channel, route, message.content, properties as Record<string, unknown>);
  channel.ack(message);
}

async function publishSafely(
  channel: ConfirmChannel,
  { exchange, key }: Route,
  content: Buffer,
  properties: Record<string, unknown>,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onReturn = (): void => reject(new Error(`no queue for ${exchange} ${key}`));
  channel.once('return', onReturn);
  channel.publish(exchange, key, content, { ...properties, mandatory: true }, (error: unknown) => {
    if (error === null || error === undefined) resolve();
    else reject(new Error('not confirmed', { cause: error }));
  });
  await promise.finally(() => channel.off('return', onReturn));
}
