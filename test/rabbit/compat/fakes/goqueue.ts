/**
 * A GoQueue consumer: level queues without TTL, a per-message expiration, the original lost past
 * the last level. Only its tenfold delays are left out, for the sake of the time.
 */

import type { ConsumeMessage } from 'amqplib';
import type { Fake, FakeOptions } from './fake.ts';

const COUNT = 'goqueue-retry-count';

export function fakeGoqueue({ queue, exchange, key, delaysMs }: FakeOptions): Fake {
  const into = `${queue}__retry_exchange`;
  const back = `${queue}__retry_dlx`;
  const level = (retry: number): string => `${queue}__retry.${retry}`;
  const countOf = ({ properties }: ConsumeMessage): number =>
    Number.parseInt(String(properties.headers?.[COUNT] ?? 0), 10) || 0;
  return {
    async declare(channel) {
      await channel.assertExchange(exchange, 'topic', { durable: true });
      await channel.assertQueue(queue, { durable: true });
      await channel.bindQueue(queue, exchange, key);
      await channel.assertExchange(into, 'topic', { durable: true });
      await channel.assertExchange(back, 'fanout', { durable: true });
      await channel.bindQueue(queue, back, '');
      for (let retry = 1; retry <= delaysMs.length; retry += 1) {
        const args = { 'x-dead-letter-exchange': back };
        await channel.assertQueue(level(retry), { durable: true, arguments: args });
        await channel.bindQueue(level(retry), into, level(retry));
      }
    },
    attemptOf: (message) => countOf(message) + 1,
    fail(channel, message) {
      if (countOf(message) > delaysMs.length) return channel.nack(message, false, false);
      const retries = countOf(message) + 1;
      const envelope = JSON.parse(String(message.content)) as { topic: string; action: string };
      const headers = {
        ...message.properties.headers,
        'goqueue-original-topic-name': envelope.topic || message.fields.exchange,
        'goqueue-original-action-name': envelope.action || message.fields.routingKey,
        [COUNT]: retries,
      };
      channel.publish(into, level(retries), message.content, {
        headers,
        contentType: message.properties.contentType as string,
        appId: `${queue}-consumer`,
        expiration: String(delaysMs[retries - 1] ?? delaysMs.at(-1)),
      });
      channel.ack(message);
    },
    publish(channel, id) {
      const body = {
        id,
        action: key,
        topic: exchange,
        data: { id },
        timestamp: '2026-03-04T05:06:07Z',
      };
      channel.publish(exchange, key, Buffer.from(JSON.stringify(body)), {
        headers: { 'goqueue-message-id': id, [COUNT]: 0 },
        contentType: 'application/json',
      });
    },
  };
}
