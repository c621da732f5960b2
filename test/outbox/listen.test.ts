/** listen: a handler on what an outbox sends, tried again after a list of delays (R132, R156). */
import { listen, Reject, withTracking, tracking, trackingIds, transaction } from 'respool/outbox';
import type { ListenOptions } from 'respool/outbox';
import { PermanentError } from 'respool';
import { createConsumer, perDelay, type Consumer, type RabbitHandler } from 'respool/rabbit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { Hands, ownName, Tray } from '../rabbit/ground.ts';
import { withService } from '../services/index.ts';
import { ground, told } from './relay-ground.ts';

withService('rabbitmq', (url) => {
  /** A listener on an exchange of its own, gone after the test. */
  async function listening(
    key: string,
    options: Partial<ListenOptions>,
    handler: RabbitHandler,
  ): Promise<{ consumer: Consumer; hands: Hands; exchange: string; queue: string }> {
    const exchange = options.exchange ?? ownName('shop');
    const queue = options.queue ?? ownName('billing');
    const consumer = listen(key, { url: url(), exchange, queue, ...options }, handler);
    const hands = await Hands.open(url());
    onTestFinished(async () => {
      await consumer.stop({ within: '1s' });
      await hands.remove(consumer.plan).catch(() => undefined);
    });
    await consumer.start();
    return { consumer, hands, exchange, queue };
  }

  /** Waits for what lies in the dead queue. */
  const dead = (hands: Hands, queue: string) => hands.take(`${queue}.dlq`);

  describe('listen', () => {
    test('hears what fits its key, under its own routing key also when it is tried again', async () => {
      const tray = new Tray<string>();
      const { hands, exchange } = await listening(
        'order.*',
        { retryDelays: ['100ms', '100ms'] },
        async (delivery) => {
          tray.add(
            `${delivery.topic} ${delivery.attempt} ${JSON.stringify(await delivery.json())}`,
          );
          if (delivery.attempt < 3) throw new Error('not yet');
        },
      );
      await hands.publish(exchange, 'order.new', { a: 1 }, { messageId: 'm1' });
      expect(await tray.until(3)).toEqual([
        'order.new 1 {"a":1}',
        'order.new 2 {"a":1}',
        'order.new 3 {"a":1}',
      ]);
      await hands.publish(exchange, 'bill.new', {}, { messageId: 'm2' });
      expect(hands.returned).toEqual(['m2']);
    });

    test('hears several keys', async () => {
      const tray = new Tray<string>();
      const exchange = ownName('shop');
      const queue = ownName('billing');
      const consumer = listen(['a', 'b'], { url: url(), exchange, queue }, ({ topic }) => {
        tray.add(topic);
      });
      const hands = await Hands.open(url());
      onTestFinished(async () => {
        await consumer.stop({ within: '1s' });
        await hands.remove(consumer.plan);
      });
      await consumer.start();
      await hands.publish(exchange, 'a', {});
      await hands.publish(exchange, 'b', {});
      expect((await tray.until(2)).toSorted()).toEqual(['a', 'b']);
    });

    test('gives up after one attempt more than there are delays', async () => {
      let attempts = 0;
      const { hands, exchange, queue } = await listening('#', { retryDelays: ['50ms'] }, () => {
        attempts += 1;
        throw new Error('never');
      });
      await hands.publish(exchange, 'x', { a: 1 }, { messageId: 'm1' });
      const message = await dead(hands, queue);
      expect(message.properties.messageId).toBe('m1');
      expect(attempts).toBe(2);
    });

    test('without delays the first failure leads to the dead queue', async () => {
      let attempts = 0;
      const { hands, exchange, queue } = await listening('#', { retryDelays: [] }, () => {
        attempts += 1;
        throw new Error('once is enough');
      });
      await hands.publish(exchange, 'x', {});
      await dead(hands, queue);
      expect(attempts).toBe(1);
    });

    test("with '0' it is tried again at once, counted", async () => {
      let attempts = 0;
      const { hands, exchange, queue } = await listening('#', { retryDelays: ['0', '0'] }, () => {
        attempts += 1;
        throw new Error('no');
      });
      await hands.publish(exchange, 'x', {});
      await dead(hands, queue);
      expect(attempts).toBe(3);
    });

    test('Reject leads to the dead queue at once, whatever delays are left', async () => {
      let attempts = 0;
      const { hands, exchange, queue } = await listening('#', {}, () => {
        attempts += 1;
        throw new Reject('no such order');
      });
      await hands.publish(exchange, 'x', {});
      const { properties } = await dead(hands, queue);
      expect(JSON.stringify(properties.headers)).toContain('no such order');
      expect(attempts).toBe(1);
      const reject = new Reject('no', { code: 'order.unknown', cause: 'x' });
      expect(reject).toBeInstanceOf(PermanentError);
      expect(reject).toMatchObject({ name: 'Reject', code: 'order.unknown', cause: 'x' });
      expect(new Reject('no').code).toBe('rejected');
    });

    test('a body that does not fit its schema leads to the dead queue, unseen', async () => {
      const tray = new Tray<number>();
      const { hands, exchange, queue } = await listening(
        '#',
        { schema: z.object({ n: z.coerce.number() }) },
        async (delivery) => tray.add(((await delivery.json()) as { n: number }).n),
      );
      await hands.publish(exchange, 'x', { n: 'many' }, { contentType: 'application/json' });
      await dead(hands, queue);
      await hands.publish(exchange, 'x', { n: '7' }, { contentType: 'application/json' });
      expect(await tray.until(1)).toEqual([7]);
    });

    test('makes queues for its delays, 1s 10s 1m 5m unless told otherwise', async () => {
      const { consumer, queue } = await listening('#', {}, () => undefined);
      const waits = consumer.plan.topology.queues
        .filter(({ role }) => role === 'wait')
        .map(({ name }) => name.replace(queue, ''));
      expect(waits).toEqual(
        expect.arrayContaining(['.delay_1s', '.delay_10s', '.delay_60s', '.delay_300s']),
      );
    });

    test("with compat 'outbox' it shares the queues of that system, by the name of the exchange", async () => {
      const tray = new Tray<string>();
      const exchange = ownName('shop');
      const { consumer, hands, queue } = await listening(
        'order.*',
        { compat: 'outbox', exchange, retryDelays: ['200ms'] },
        (delivery) => {
          tray.add(`${delivery.topic} ${delivery.attempt}`);
          if (delivery.attempt === 1) throw new Error('again');
        },
      );
      const names = consumer.plan.topology.queues.map(({ name }) => name);
      expect(names).toEqual(expect.arrayContaining([`${exchange}.delay_200ms`, `${queue}.dlq`]));
      await hands.publish(exchange, 'order.new', {});
      expect(await tray.until(2)).toEqual(['order.new 1', 'order.new 2']);
    });

    test('uses an exchange that is there already as it is', async () => {
      const exchange = ownName('direct');
      const hands = await Hands.open(url());
      await hands.channel.assertExchange(exchange, 'direct');
      onTestFinished(() => hands.channel.deleteExchange(exchange).then(() => undefined));
      const tray = new Tray<string>();
      await listening('k', { exchange, exchangeType: false }, ({ topic }) => tray.add(topic));
      await hands.publish(exchange, 'k', {});
      expect(await tray.until(1)).toEqual(['k']);
    });

    test.each<[string, unknown[], RegExp]>([
      ['no key', ['', { exchange: 'x' }, () => undefined], /binding key/],
      ['an empty list of keys', [[], { exchange: 'x' }, () => undefined], /binding key/],
      ['no options', ['a', undefined, () => undefined], /cannot listen with/],
      ['no exchange', ['a', { queue: 'q', url: 'amqp://x' }, () => undefined], /"exchange"/],
      ['no handler', ['a', { queue: 'q', exchange: 'x', url: 'amqp://x' }], /a handler/],
      [
        'an unknown option',
        ['a', { queue: 'q', exchange: 'x', url: 'amqp://x', prefetsh: 1 }, () => undefined],
        /prefetsh/,
      ],
      [
        'options of consumers that it makes itself',
        ['a', { queue: 'q', exchange: 'x', url: 'amqp://x', policy: {} }, () => undefined],
        /no option "policy" of listen: give "retryDelays"; createConsumer\(\)/,
      ],
      [
        'a topology',
        ['a', { queue: 'q', exchange: 'x', url: 'amqp://x', topology: {} }, () => undefined],
        /no option "topology" of listen: it is perDelay\(\), or that of "compat"/,
      ],
      [
        'bindings',
        ['a', { queue: 'q', exchange: 'x', url: 'amqp://x', bindings: [] }, () => undefined],
        /no option "bindings" of listen: .*"exchangeType"/,
      ],
      [
        'a misspelt option, with those that listen has',
        ['a', { queue: 'q', exchange: 'x', url: 'amqp://x', retry_delays: [] }, () => undefined],
        /no option "retry_delays" of listen: known are url, .*exchange, exchangeType.*retryDelays/,
      ],
      ['an address alone', ['a', 'amqp://u:pass@x', () => undefined], /cannot listen with a text:/],
      [
        'delays that are none',
        ['a', { queue: 'q', exchange: 'x', url: 'amqp://x', retryDelays: ['soon'] }, () => 1],
        /delays\[0\]/,
      ],
    ])('refuses %s', (_, args, text) => {
      expect(() => Reflect.apply(listen, undefined, args) as unknown).toThrow(text);
    });
  });

  withService('postgres', () => {
    test('what was sent before anybody listened is not lost: it waits in the outbox', async () => {
      const { outbox } = await ground();
      const exchange = ownName('shop');
      const { id } = await outbox.transaction((tx) =>
        outbox.emit(tx, 'order.process', { orderId: 1 }, { key: 'customer-7' }),
      );
      // There is not even an exchange.
      await using relay = outbox.relay({ to: { amqp: url(), exchange } });
      const deferred = told(relay, 'deferred');
      await relay.start();
      expect(await deferred).toMatchObject([{ id, because: { code: 'broker.unroutable' } }]);
      const tray = new Tray<string>();
      await listening('order.*', { exchange }, async (delivery) => {
        tray.add(`${delivery.id} ${JSON.stringify(await delivery.json())}`);
      });
      expect(await tray.until(1)).toEqual([`${id} {"orderId":1}`]);
    });

    test('what a handler emits carries on the chain of its message, from the first emit on', async () => {
      const { outbox, pool, broker, relay } = await ground();
      const { exchange } = broker;
      const seen = new Tray<{ topic: string; ids: readonly string[] }>();
      await listening('q.#', { exchange, exchangeType: false }, async (delivery) => {
        seen.add({ topic: delivery.topic, ids: trackingIds() });
        if (delivery.topic === 'q.second') return;
        await transaction(pool, async (tx) => outbox.emit(tx, 'q.second', {}));
        await outbox.wake();
      });
      const one = relay();
      await one.start();
      const { id } = await tracking(['request-1'], () =>
        outbox.transaction((tx) => outbox.emit(tx, 'q.first', {})),
      );
      const [first, second] = await seen.until(2);
      expect(first).toEqual({ topic: 'q.first', ids: ['request-1', id] });
      expect(second?.ids.slice(0, 2)).toEqual(['request-1', id]);
      expect(second?.ids).toHaveLength(3);
      await one.stop();
    });

    test('a plain consumer hands the chain on with a middleware', async () => {
      const queue = ownName('billing');
      const seen = new Tray<readonly string[]>();
      const options = { url: url(), queue, topology: perDelay(), middleware: [withTracking] };
      const consumer = createConsumer(options, () => seen.add(trackingIds()));
      const hands = await Hands.open(url());
      onTestFinished(async () => {
        await consumer.stop({ within: '1s' });
        await hands.remove(consumer.plan);
      });
      await consumer.start();
      const headers = { 'x-outbox-tracking-ids': '["request-1","a"]' };
      await hands.publish('', queue, {}, { headers });
      expect(await seen.until(1)).toEqual([['request-1', 'a']]);
    });
  });
});
