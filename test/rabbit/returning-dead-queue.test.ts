/** A dead queue with a time to live that leads back to the main queue, as others declare it. */

import { expect, onTestFinished, test } from 'vitest';
import { ladder } from 'respool';
import { createConsumer, shared } from 'respool/rabbit';
import { withService } from '../services/index.ts';
import { Hands, ownName, Tray } from './ground.ts';

withService('rabbitmq', (url) => {
  test('what it brings back is consumed, waits and ends as everything else', async () => {
    const hands = await Hands.open();
    const queue = ownName();
    const returning = `${queue}.returning`;
    const seen = new Tray<{ attempt: number; deaths: boolean }>();
    const consumer = createConsumer(
      {
        url: url(),
        queue,
        topology: shared({ prefix: queue }),
        policy: ladder([50]),
        waits: [],
        queueOptions: {
          arguments: { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': returning },
        },
      },
      ({ attempt, message }) => {
        seen.add({ attempt, deaths: message.properties.headers?.['x-death'] !== undefined });
        throw new Error('not now');
      },
    );
    const main = consumer.plan.topology.queues.find(({ name }) => name === queue);
    await hands.channel.assertQueue(returning, {
      durable: true,
      arguments: {
        'x-queue-type': 'quorum',
        'x-message-ttl': 100,
        'x-dead-letter-exchange': '',
        'x-dead-letter-routing-key': queue,
      },
    });
    await hands.channel.assertQueue(queue, { durable: true, arguments: main?.arguments ?? {} });
    onTestFinished(async () => {
      await consumer.stop();
      await hands.remove(consumer.plan);
      await hands.channel.deleteQueue(returning);
    });
    // Somebody else rejects it first.
    const other = await hands.connection.createChannel();
    const rejected = new Tray<number>();
    const { consumerTag } = await other.consume(queue, (message) => {
      if (message === null) return;
      other.nack(message, false, false);
      rejected.add(1);
    });
    await hands.publish('', queue, {}, { messageId: 'm' });
    await rejected.until(1);
    await other.cancel(consumerTag);
    await consumer.start();
    const dead = await hands.take(consumer.plan.dead.key);
    expect(dead.properties.messageId).toBe('m');
    expect(dead.properties.headers).toMatchObject({ 'respool-attempts': 2 });
    // It came with the broker's list of deaths; a copy of that would make some releases drop it.
    expect(seen.items[0]).toEqual({ attempt: 1, deaths: true });
    expect(dead.properties.headers).not.toHaveProperty('x-death');
    expect(seen.items).toHaveLength(2);
  });
});
