/** What ends a subscription, and how it comes back. */

import { connect } from 'amqplib';
import { expect, onTestFinished, test } from 'vitest';
import { fixed, RetryableError } from 'respool';
import { type AmqpConnection, type AmqpMessage, createConnection, shared } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { consume, Hands, nextEvent, ownName, Tray } from '../ground.ts';
import { closeConnections, Gate } from './setup.ts';
import type { AmqpChannel } from '../amqp.ts';

withService('rabbitmq', (url) => {
  // Regression: the channel was still open, so nobody subscribed again.
  test('a consumer that was paused goes on, and settles what ran meanwhile', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const seen = new Tray<string>();
    const gate = new Gate();
    const consumer = await consume(
      { queue, topology: shared({ prefix: queue }) },
      async ({ id }) => {
        seen.add(id);
        if (id === 'first') await gate.opened;
      },
    );
    await hands.publish('', queue, 1, { messageId: 'first' });
    await seen.until(1);
    await consumer.pause();
    expect(consumer.isConnected).toBe(false);
    await hands.publish('', queue, 2, { messageId: 'second' });
    expect(await hands.depth(queue)).toBe(1);
    await consumer.resume();
    expect(await seen.until(2)).toEqual(['first', 'second']);
    const delivered = nextEvent(consumer, 'delivered', ({ id }) => id === 'first');
    gate.open();
    await delivered;
    await consumer.stop();
    expect(await hands.depth(queue)).toBe(0);
    expect(seen.items).toEqual(['first', 'second']);
  });

  // Regression: the consumer believed for ever that it had such a message in its hands.
  test('a message that was lost often is handled after pauses while it waits for a slot', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const seen = new Tray<string>();
    const gate = new Gate();
    const options = { topology: shared({ prefix: queue }), policy: fixed('50ms'), concurrency: 1 };
    const consumer = await consume({ queue, ...options }, async ({ id }) => {
      seen.add(id);
      if (id === 'first') await gate.opened;
    });
    await hands.publish('', queue, 1, { messageId: 'first' });
    await seen.until(1);
    const headers = { 'respool-lost': 9 };
    await hands.publish('', queue, 2, { messageId: 'second', headers });
    for (let pauses = 0; pauses < 3; pauses += 1) {
      await until(() => consumer.load.buffered === 1);
      await consumer.pause();
      await consumer.resume();
    }
    gate.open();
    expect(await seen.until(2)).toEqual(['first', 'second']);
  });

  test('a queue that was deleted is declared again and consumed', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const seen = new Tray<string>();
    const consumer = await consume({ queue, topology: shared({ prefix: queue }) }, ({ id }) =>
      seen.add(id),
    );
    const trouble = nextEvent(consumer, 'trouble', ({ doing }) => doing === 'consuming');
    await hands.channel.deleteQueue(queue);
    expect((await trouble).error.message).toContain(`"${queue}"`);
    await until(() => consumer.isConnected);
    await hands.publish('', queue, 1, { messageId: 'after' });
    expect(await seen.until(1)).toEqual(['after']);
    expect(hands.returned).toEqual([]);
  });

  test('what ran on a channel that the broker closed is settled nowhere, and handled again', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const { connection, channels } = await spiedConnection(url());
    const gates = [new Gate(), new Gate()];
    const runs = new Tray<string>();
    const consumer = await consume(
      { queue, connection, topology: shared({ prefix: queue }) },
      async ({ fence }) => {
        const gate = gates[runs.items.length];
        runs.add(fence);
        await gate?.opened;
      },
    );
    const stale = nextEvent(consumer, 'stale');
    const delivered = nextEvent(consumer, 'delivered');
    await hands.publish('', queue, 1, { messageId: 'm' });
    await runs.until(1);
    const trouble = nextEvent(consumer, 'trouble');
    const used = channels.find(({ isConsuming }) => isConsuming);
    // Nobody delivered this one: the broker closes the channel with a 406.
    used?.channel.ack({ fields: { deliveryTag: 9_999 } } as AmqpMessage);
    expect((await trouble).error.message).toContain('unknown delivery tag');
    const [first, second] = await runs.until(2);
    expect(second).not.toBe(first);
    const count = channels.length;
    gates[0]?.open();
    await stale;
    gates[1]?.open();
    await delivered;
    await consumer.stop();
    expect(channels.length).toBe(count);
    expect(await hands.depth(queue)).toBe(0);
    expect(runs.items).toHaveLength(2);
  });

  test('connections that an operator closes come back, and nothing is lost', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const name = ownName('connection');
    const own = createConnection({ url: url(), name });
    onTestFinished(() => own.close());
    const done = new Set<string>();
    const policy = fixed('50ms', { attempts: 100 });
    const consumer = await consume(
      { queue, connection: own, topology: shared({ prefix: queue }), policy, waits: [] },
      ({ id, attempt }) => {
        if (attempt === 1) throw new RetryableError('test.busy', 'again');
        done.add(id);
      },
    );
    const count = 300;
    for (let at = 0; at < count; at += 1) {
      await hands.publish('', queue, at, { messageId: `m${at}` });
      if (at === 150) expect(await closeConnections(name)).toBeGreaterThan(0);
    }
    await until(() => done.size === count);
    expect(consumer.isConnected).toBe(true);
  });
});

/** A connection whose channels the test can reach. */
async function spiedConnection(url: string) {
  const connection = (await connect(url)) as AmqpConnection;
  connection.on('error', () => undefined);
  onTestFinished(() => connection.close().catch(() => undefined));
  const channels: { channel: AmqpChannel; isConsuming: boolean }[] = [];
  const createChannel = connection.createChannel.bind(connection);
  connection.createChannel = async () => {
    const channel = await createChannel();
    const spied = { channel, isConsuming: false };
    channels.push(spied);
    const consumeIt = channel.consume.bind(channel);
    channel.consume = (...args) => {
      spied.isConsuming = true;
      return consumeIt(...args);
    };
    return channel;
  };
  return { connection, channels };
}

/** Looks until it is so: a consumer does not tell when it is back. */
async function until(isTrue: () => boolean): Promise<void> {
  await expect.poll(isTrue).toBe(true);
}
