/** consumer — the verdicts of an engine, carried out at a real broker. */

import { memory, memoryBodies } from 'respool/stores/memory';
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { createSpool, type Handler, held, ladder, PermanentError, RetryableError } from 'respool';
import {
  createConsumer,
  perAttempt,
  perDelay,
  type QueueType,
  type RabbitDelivery,
  shared,
  type TopologyStyle,
} from 'respool/rabbit';
import { withService } from '../services/index.ts';
import { consume, Hands, ownName, Tray } from './ground.ts';

interface Seen {
  readonly id: string;
  readonly attempt: number;
  readonly at: number;
  readonly exchange: string;
  readonly routingKey: string;
}

const STYLES: readonly (readonly [string, (name: string) => TopologyStyle])[] = [
  ['shared', (name) => shared({ prefix: name })],
  ['perDelay by queue', () => perDelay()],
  ['perDelay by exchange', (name) => perDelay({ by: 'exchange', exchange: `${name}-ex` })],
  ['perAttempt', () => perAttempt()],
];
const TYPES: readonly QueueType[] = ['quorum', 'classic'];

withService('rabbitmq', (url) => {
  const cases = STYLES.flatMap(([name, make]) => TYPES.map((type) => [name, type, make] as const));

  test.each(cases)(
    'with %s and %s queues a message waits as its policy says and ends in the dead queue',
    async (_, type, make) => {
      const queue = ownName();
      const hands = await Hands.open();
      const seen = new Tray<Seen>();
      const delaysMs = [100, 250];
      const exchange = `${queue}-shop`;
      const consumer = await consume(
        {
          queue,
          type,
          topology: make(queue),
          bindings: [{ exchange, key: 'order.*' }],
          policy: ladder(delaysMs),
          waits: [],
        },
        ({ id, attempt, exchange: from, routingKey }) => {
          seen.add({ id, attempt, at: performance.now(), exchange: from, routingKey });
          throw new RetryableError('shop.closed', `closed, attempt ${attempt}`);
        },
      );
      await hands.publish(exchange, 'order.created', { a: 1 }, { messageId: 'm1' });
      const dead = await hands.take(consumer.plan.dead.key);
      expect(seen.items.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
      const waits = seen.items.slice(1).map(({ at }, index) => at - (seen.items[index]?.at ?? 0));
      for (const [index, waitMs] of waits.entries()) {
        expect(waitMs).toBeGreaterThanOrEqual(delaysMs[index] ?? 0);
      }
      for (const one of seen.items) {
        expect(one).toMatchObject({ id: 'm1', exchange, routingKey: 'order.created' });
      }
      expect(dead.properties.messageId).toBe('m1');
      expect(dead.content.toString()).toBe('{"a":1}');
      expect(dead.properties.headers).toMatchObject({
        'respool-attempts': 3,
        'respool-code': 'shop.closed',
        'respool-reason': 'closed, attempt 3',
        'respool-exchange': exchange,
        'respool-routing-key': 'order.created',
        'respool-queue': queue,
        'respool-ended': 'dead',
        'respool-ended-code': 'shop.closed',
      });
      const { headers = {} } = dead.properties;
      expect(Number(headers['respool-last-failed-at'])).toBeGreaterThan(
        Number(headers['respool-first-failed-at']),
      );
      expect(await hands.depth(queue)).toBe(0);
    },
  );

  test.each(cases)(
    'with %s and %s queues a long wait holds back no shorter one, and none is early',
    async (_, type, make) => {
      const queue = ownName();
      const hands = await Hands.open();
      const failedAt = new Map<string, number>();
      const waited = new Tray<readonly [string, number]>();
      const options = { queue, type, topology: make(queue), policy: ladder([100, 800]) };
      await consume({ ...options, waits: [] }, (delivery) => {
        const { id, attempt } = delivery;
        const now = performance.now();
        if (attempt > 1) return waited.add([id, now - (failedAt.get(id) ?? 0)]);
        failedAt.set(id, now);
        return delivery.retry(id === 'short' ? 100 : 800);
      });
      for (const messageId of ['long', 'short']) await hands.publish('', queue, 1, { messageId });
      const [first, second] = await waited.until(2);
      expect([first?.[0], second?.[0]]).toEqual(['short', 'long']);
      expect(first?.[1]).toBeGreaterThanOrEqual(100);
      expect(second?.[1]).toBeGreaterThanOrEqual(800);
    },
  );

  test.each(cases)(
    'with %s and %s queues messages that failed one after the other come back so',
    async (_, type, make) => {
      const queue = ownName();
      const hands = await Hands.open();
      const retried = new Tray<string>();
      const options = { queue, type, topology: make(queue), policy: ladder([100]), waits: [] };
      await consume({ ...options, concurrency: 1 }, ({ id, attempt }) => {
        if (attempt === 1) throw new RetryableError('shop.closed', 'closed');
        retried.add(id);
      });
      const ids = Array.from({ length: 20 }, (__, at) => `m${at}`);
      await Promise.all(ids.map((messageId) => hands.publish('', queue, 1, { messageId })));
      expect(await retried.until(ids.length)).toEqual(ids);
    },
  );

  test('a handler of a spool runs unchanged on a queue', async () => {
    const seen = new Tray<string>();
    const handler: Handler<{ readonly orderId: number }> = async (delivery) => {
      const { orderId } = await delivery.json();
      seen.add(`${delivery.topic} ${orderId} ${delivery.attempt}`);
      if (delivery.attempt === 1) throw new RetryableError('shop.closed', 'closed');
    };
    const policy = ladder([50]);
    await using spool = createSpool({ entries: memory(), bodies: memoryBodies() });
    spool.handle('order.created', handler, { policy });
    await spool.start();
    await spool.enqueue({ topic: 'order.created', body: { orderId: 1 } });
    await seen.until(2);
    const queue = ownName();
    const exchange = `${queue}-shop`;
    const consumer = createConsumer(
      {
        url: url(),
        queue,
        topology: shared({ prefix: queue }),
        bindings: [{ exchange, key: 'order.*' }],
        policy,
      },
      handler,
    );
    const hands = await Hands.open();
    await consumer.start();
    await hands.publish(exchange, 'order.created', { orderId: 1 });
    const [one, two, ...atTheQueue] = await seen.until(4);
    await consumer.stop();
    await hands.remove(consumer.plan);
    expect(atTheQueue).toEqual([one, two]);
  });

  test('what a handler gets is typed, by the schema if there is one', async () => {
    const options = { url: url(), queue: ownName() };
    await using plain = createConsumer(options, (delivery) => {
      expectTypeOf(delivery).toEqualTypeOf<RabbitDelivery>();
    });
    const schema = z.object({ orderId: z.number() });
    await using fitted = createConsumer({ ...options, schema }, async (delivery) => {
      expectTypeOf(await delivery.json()).toEqualTypeOf<{ orderId: number }>();
    });
    expect(plain.queue).toBe(fitted.queue);
  });

  describe('a verdict', () => {
    async function setup(handler: Parameters<typeof consume>[1]) {
      const queue = ownName();
      const hands = await Hands.open();
      const options = { queue, topology: shared({ prefix: queue }), policy: ladder([50]) };
      const consumer = await consume({ ...options, waits: [] }, handler);
      return { queue, hands, consumer };
    }

    test('of a final failure goes to the dead queue after one attempt', async () => {
      const { queue, hands, consumer } = await setup(() => {
        throw new PermanentError('order.unknown', 'no such order');
      });
      await hands.publish('', queue, {});
      const dead = await hands.take(consumer.plan.dead.key);
      expect(dead.properties.headers).toMatchObject({
        'respool-attempts': 1,
        'respool-permanence': 'permanent',
        'respool-ended-code': 'order.unknown',
      });
    });

    test('to hold goes to the parked queue', async () => {
      const { queue, hands, consumer } = await setup(() => held('who is this?'));
      await hands.publish('', queue, {});
      const parked = await hands.take(consumer.plan.parked.key);
      expect(parked.properties.headers).toMatchObject({
        'respool-ended': 'parked',
        'respool-ended-reason': 'who is this?',
      });
    });

    test('keeps every property and typed header', async () => {
      const { queue, hands, consumer } = await setup(() => {
        throw new RetryableError('later', 'later');
      });
      const properties = {
        contentType: 'text/x-own',
        contentEncoding: 'x-none',
        priority: 3,
        correlationId: 'c1',
        replyTo: 'r1',
        messageId: 'm1',
        timestamp: 1_700_000_000,
        type: 't1',
        appId: 'a1',
        headers: {
          text: 'ä',
          int: 7,
          big: 2 ** 40,
          float: 1.5,
          yes: true,
          none: null,
          list: [1, 'a'],
          table: { deep: { deeper: 1 } },
          bytes: Buffer.from([1, 2]),
          time: { '!': 'timestamp', value: 1_700_000_000 },
        },
      };
      await hands.publish('', queue, Buffer.from([0, 255]), properties);
      const dead = await hands.take(consumer.plan.dead.key);
      const { headers, ...rest } = properties;
      expect(dead.properties).toMatchObject({ ...rest, deliveryMode: 2 });
      expect(dead.properties.headers).toMatchObject(headers);
      expect([...dead.content]).toEqual([0, 255]);
    });
  });
});
