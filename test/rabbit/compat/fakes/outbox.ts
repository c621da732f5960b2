/** A worker of the Python outbox; its counter is text in a header that belongs to the broker. */

import type { ConsumeMessage } from 'amqplib';
import type { Fake, FakeOptions } from './fake.ts';

const COUNT = 'x-delivery-count';

/** `exchange` is their `exchange_name`; delays are below a second here, `50ms` in names. */
export function fakeOutbox({ queue, exchange, key, delaysMs }: FakeOptions): Fake {
  const delayName = (delayMs: number): string => `${exchange}.delay_${delayMs}ms`;
  const attemptOf = ({ properties }: ConsumeMessage): number =>
    Number.parseInt(String(properties.headers?.[COUNT] ?? '1'), 10);
  return {
    async declare(channel) {
      await channel.assertExchange(exchange, 'topic', { durable: true });
      await channel.assertExchange(`${exchange}.dlx`, 'direct', { durable: true });
      for (const delayMs of new Set(delaysMs)) {
        const name = delayName(delayMs);
        await channel.assertExchange(name, 'fanout', { durable: true });
        await channel.assertQueue(name, {
          durable: true,
          arguments: {
            'x-message-ttl': delayMs,
            'x-dead-letter-exchange': '',
            'x-queue-type': 'quorum',
          },
        });
        await channel.bindQueue(name, name, name);
      }
      const dead = { durable: true, arguments: { 'x-queue-type': 'quorum' } };
      await channel.assertQueue(`${queue}.dlq`, dead);
      await channel.bindQueue(`${queue}.dlq`, `${exchange}.dlx`, queue);
      await channel.assertQueue(queue, {
        durable: true,
        arguments: {
          'x-dead-letter-exchange': `${exchange}.dlx`,
          'x-dead-letter-routing-key': queue,
          'x-queue-type': 'quorum',
        },
      });
      await channel.bindQueue(queue, exchange, key);
    },
    attemptOf,
    fail(channel, message) {
      const attempt = attemptOf(message);
      const delayMs = delaysMs[attempt - 1];
      if (delayMs === undefined) return channel.nack(message, false, false);
      channel.publish(delayName(delayMs), queue, message.content, {
        contentType: message.properties.contentType as string,
        headers: {
          'x-original-routing-key': message.fields.routingKey,
          ...message.properties.headers,
          [COUNT]: String(attempt + 1),
        },
      });
      channel.ack(message);
    },
    publish(channel, id) {
      channel.publish(exchange, key, Buffer.from(JSON.stringify({ id })), {
        deliveryMode: 2,
        headers: { 'x-outbox-tracking-ids': '["a"]' },
      });
    },
  };
}
