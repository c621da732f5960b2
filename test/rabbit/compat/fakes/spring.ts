/** A Spring consumer with shared wait queues; past its last delay it rejects. */

import type { ConsumeMessage } from 'amqplib';
import type { Fake, FakeOptions } from './fake.ts';

const COUNT = 'x-message-retries';

export interface SpringNames {
  readonly waitExchange: string;
  readonly returnExchange: string;
  readonly waitQueuePrefix: string;
  readonly deadLetterExchange: string;
  readonly deadQueue: string;
}

export function fakeSpring(options: FakeOptions, names: SpringNames): Fake {
  const { queue, exchange, key, delaysMs } = options;
  const countOf = ({ properties }: ConsumeMessage): number =>
    Number(properties.headers?.[COUNT] ?? 0);
  return {
    async declare(channel) {
      await channel.assertExchange(names.returnExchange, 'headers', { durable: true });
      await channel.assertExchange(names.waitExchange, 'headers', { durable: true });
      for (const delayMs of new Set(delaysMs)) {
        const wait = `${names.waitQueuePrefix}${delayMs}`;
        const args = { 'x-message-ttl': delayMs, 'x-dead-letter-exchange': names.returnExchange };
        await channel.assertQueue(wait, { durable: true, arguments: args });
        await channel.bindQueue(wait, names.waitExchange, '', { 'wait-for': String(delayMs) });
      }
      await channel.assertExchange(names.deadLetterExchange, 'topic', { durable: true });
      await channel.assertQueue(names.deadQueue, { durable: true });
      await channel.bindQueue(names.deadQueue, names.deadLetterExchange, '#');
      await channel.assertExchange(exchange, 'topic', { durable: true });
      const args = { 'x-dead-letter-exchange': names.deadLetterExchange };
      await channel.assertQueue(queue, { durable: true, arguments: args });
      await channel.bindQueue(queue, names.returnExchange, '', { 'return-to': queue });
      await channel.bindQueue(queue, exchange, key);
    },
    attemptOf: (message) => countOf(message) + 1,
    fail(channel, message) {
      const retry = countOf(message);
      const delayMs = delaysMs[retry];
      if (delayMs === undefined) return channel.nack(message, false, false);
      const { headers, ...properties } = message.properties;
      channel.publish(names.waitExchange, message.fields.routingKey, message.content, {
        ...properties,
        headers: {
          ...headers,
          'return-to': queue,
          'wait-for': String(delayMs),
          [COUNT]: retry + 1,
        },
      });
      channel.ack(message);
    },
    publish(channel, id) {
      channel.publish(exchange, key, Buffer.from(JSON.stringify({ id })), {
        contentType: 'application/json',
        deliveryMode: 2,
        messageId: id,
        headers: { __TypeId__: 'shop.OrderCreated' },
      });
    },
  };
}
