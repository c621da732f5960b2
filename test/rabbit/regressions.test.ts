/** regressions — ways that lost, doubled or held up messages, each closed. */

import { describe, expect, onTestFinished, test } from 'vitest';
import { type Clock, isRespoolError, ladder, PermanentError } from 'respool';
import {
  type ConsumerOptions,
  createConnection,
  createConsumer,
  perAttempt,
  type RabbitHandler,
  shared,
} from 'respool/rabbit';
import { ConfirmPublisher } from '../../src/rabbit/publish/confirm-publisher.ts';
import { withService } from '../services/index.ts';
import { consume, Hands, nextEvent, ownName, Tray } from './ground.ts';
import { freshUser } from './admin/management/setup.ts';
import { systemClock } from '../time.ts';

withService('rabbitmq', (url) => {
  async function setup(handler: RabbitHandler, options: Partial<ConsumerOptions> = {}) {
    const queue = options.queue ?? ownName();
    const hands = await Hands.open();
    const topology = shared({ prefix: queue });
    const base = { queue, topology, policy: ladder([50]), waits: [] };
    const consumer = await consume({ ...base, ...options }, handler);
    return { queue, hands, consumer };
  }

  const later: RabbitHandler = () => {
    throw new Error('not now');
  };

  test('of messages that look alike the one that no queue takes is told, and no other', async () => {
    const hands = await Hands.open();
    const exchange = ownName('ex');
    const queue = ownName();
    await hands.channel.assertExchange(exchange, 'headers', { durable: true });
    await hands.channel.assertQueue(queue, { durable: true });
    await hands.channel.bindQueue(queue, exchange, '', { 'x-match': 'all', road: 'yes' });
    const connection = createConnection({ url: url() });
    onTestFinished(async () => {
      await connection.close();
      await hands.channel.deleteQueue(queue);
      await hands.channel.deleteExchange(exchange);
    });
    const publisher = new ConfirmPublisher(connection.publishing, systemClock);
    const send = (road: string): Promise<string> =>
      publisher
        .send({
          exchange,
          key: 'same',
          content: Buffer.from(road),
          properties: { messageId: 'same', headers: { road } },
        })
        .then(
          () => 'routed',
          (error: unknown) => (isRespoolError(error) ? error.code : 'other'),
        );
    const roads = Array.from({ length: 40 }, (_, at) => (at % 2 === 0 ? 'yes' : 'no'));
    const answers = await Promise.all(roads.map(send));
    expect(answers).toEqual(roads.map((road) => (road === 'yes' ? 'routed' : 'broker.unroutable')));
    expect(await hands.depth(queue)).toBe(20);
  });

  describe('a message', () => {
    test('whose headers cannot be written again goes to the dead queue as it came', async () => {
      const { queue, hands, consumer } = await setup(later);
      const big = 'x'.repeat(65_000);
      await hands.publish('', queue, { a: 1 }, { messageId: 'm', headers: { big } });
      const dead = await hands.take(consumer.plan.dead.key);
      expect(dead.properties.messageId).toBe('m');
      expect(dead.properties.headers?.['big']).toBe(big);
      expect(dead.content.toString()).toBe('{"a":1}');
    });

    test('that names a routing key nobody can write keeps the one it came with', async () => {
      const keys = new Tray<string>();
      const { queue, hands, consumer } = await setup(({ routingKey }) => {
        keys.add(routingKey);
        throw new Error('not now');
      });
      const headers = { 'respool-routing-key': 'k'.repeat(300), 'respool-attempts': 0 };
      await hands.publish('', queue, {}, { headers });
      await hands.take(consumer.plan.dead.key);
      expect(keys.items).toEqual([queue, queue]);
    });

    test('that claims an endless wait still expires', async () => {
      const { queue, hands, consumer } = await setup(later);
      const headers = {
        'respool-rest-ms': 9e15,
        'respool-first-at': 1_000,
        'respool-expires-after-ms': 1,
      };
      await hands.publish('', queue, {}, { headers });
      const dead = await hands.take(consumer.plan.dead.key);
      expect(dead.properties.headers).toMatchObject({ 'respool-ended-code': 'expired' });
    });

    test('that was acked stays so although its handler hangs afterwards', async () => {
      const { queue, hands, consumer } = await setup(
        async (delivery) => {
          delivery.ack();
          await new Promise(() => undefined);
        },
        { timeout: 50 },
      );
      const done = nextEvent(consumer, 'delivered');
      await hands.publish('', queue, {});
      expect((await done).attempt).toBe(1);
      await consumer.stop({ within: 0 });
      expect(await hands.depth(queue)).toBe(0);
      expect(await hands.depth(consumer.plan.dead.key)).toBe(0);
    });
  });

  test('a queue that is deleted with its last consumer survives a pause', async () => {
    const seen = new Tray<string>();
    const { queue, hands, consumer } = await setup(({ id }) => seen.add(id), {
      type: 'classic',
      queueOptions: { autoDelete: true },
    });
    await consumer.pause();
    await hands.publish('', queue, {}, { messageId: 'm' });
    expect(hands.returned).toEqual([]);
    expect(seen.items).toEqual([]);
    await consumer.resume();
    expect(await seen.until(1)).toEqual(['m']);
  });

  test('a full classic queue does not keep its redelivered messages from their handler', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const options = {
      queue,
      type: 'classic',
      queueOptions: { arguments: { 'x-max-length': 2, 'x-overflow': 'reject-publish' } },
    } as const;
    const seen = new Tray<string>();
    const { consumer } = await setup(({ id }) => seen.add(id), { ...options, prefetch: 2 });
    await consumer.pause();
    const thief = await hands.connection.createChannel();
    await thief.prefetch(2);
    const stolen = new Tray<string>();
    await thief.consume(queue, (message) => stolen.add(message?.properties.messageId ?? ''));
    for (const messageId of ['a', 'b']) await hands.publish('', queue, {}, { messageId });
    await stolen.until(2);
    for (const messageId of ['c', 'd']) await hands.publish('', queue, {}, { messageId });
    await thief.close();
    await consumer.resume();
    expect((await seen.until(4)).toSorted()).toEqual(['a', 'b', 'c', 'd']);
  });

  test('a stop while it starts ends it, on a connection that goes on', async () => {
    const connection = createConnection({ url: url() });
    onTestFinished(() => connection.close());
    const hands = await Hands.open();
    const queue = ownName();
    const seen = new Tray<string>();
    const topology = shared({ prefix: queue });
    const options = { connection, queue, topology, policy: ladder([50]), waits: [] };
    const consumer = createConsumer(options, ({ id }) => seen.add(id));
    onTestFinished(() => hands.remove(consumer.plan));
    const starting = consumer.start().catch((error: unknown) => error);
    await consumer.stop({ within: 0 });
    expect(isRespoolError(await starting, 'engine.stopping')).toBe(true);
    expect(consumer.isConnected).toBe(false);
    expect((await hands.channel.checkQueue(queue)).consumerCount).toBe(0);
    // It can begin again.
    await consumer.start();
    await hands.publish('', queue, {}, { messageId: 'm' });
    expect(await seen.until(1)).toEqual(['m']);
    await consumer.stop();
  });

  test('a start that fails leaves no connection behind', async () => {
    const hands = await Hands.open();
    const queue = ownName();
    await hands.channel.assertQueue(queue, { durable: true, arguments: { 'x-max-length': 1 } });
    onTestFinished(() => hands.channel.deleteQueue(queue).then(() => undefined));
    const consumer = createConsumer({ url: url(), queue }, () => undefined);
    onTestFinished(() => hands.remove(consumer.plan).catch(() => undefined));
    await expect(consumer.start()).rejects.toThrow(/cannot declare the queue/);
    expect(consumer.isConnected).toBe(false);
    await consumer.stop();
  });

  /** A minute goes by in a moment, and everything is looked at. */
  function hasty(): { clock: Clock; looks: Tray<number> } {
    const looks = new Tray<number>();
    const after: Clock['after'] = (ms, call) => {
      if (ms !== 60_000) return systemClock.after(ms, call);
      return systemClock.after(50, () => {
        call();
        looks.add(1);
      });
    };
    const monotonic = (): number => systemClock.monotonic() * 10_000;
    return { clock: { ...systemClock, after, monotonic }, looks };
  }

  test('a way back that was taken away is laid anew before anybody misses it', async () => {
    const { clock, looks } = hasty();
    const { consumer, hands } = await setup(later, { clock });
    const back = `${consumer.queue}.return`;
    await hands.channel.deleteExchange(back);
    await looks.until(looks.items.length + 4);
    const looker = await Hands.open();
    await looker.channel.checkExchange(back);
  });

  test('a delivery that waits for a slot until the broker would end it is given back', async () => {
    const { clock, looks } = hasty();
    const seen = new Tray<boolean>();
    const { queue, hands } = await setup(
      async ({ redelivered }) => {
        seen.add(redelivered);
        if (seen.items.length === 1) await looks.until(looks.items.length + 4);
      },
      { clock, concurrency: 1, prefetch: 2, timeout: '25m' },
    );
    await hands.publish('', queue, {});
    await hands.publish('', queue, {});
    expect(await seen.until(2)).toEqual([false, true]);
  });

  test('an exchange that may not be written to holds up no other road', async () => {
    const queue = ownName();
    const made = await setup(() => undefined, { queue, topology: perAttempt() });
    await made.consumer.stop();
    await using user = await freshUser({
      read: '.*',
      write: '^(amq\\.default)$',
      configure: '',
    });
    const own = new URL(url());
    own.username = user.name;
    own.password = user.password;
    const { hands, consumer } = await setup(
      ({ id }) => {
        if (id === 'forbidden') throw new Error('not now');
        throw new PermanentError('no', 'no');
      },
      { queue, topology: perAttempt(), url: own.href, declare: 'none' },
    );
    const trouble = nextEvent(consumer, 'trouble', ({ error }) => /permission/.test(error.message));
    await hands.publish('', queue, {}, { messageId: 'forbidden' });
    await trouble;
    for (let at = 0; at < 20; at += 1) await hands.publish('', queue, {}, { messageId: `m${at}` });
    for (let at = 0; at < 20; at += 1) await hands.take(consumer.plan.dead.key);
    expect(await hands.depth(consumer.plan.dead.key)).toBe(0);
  });
});
