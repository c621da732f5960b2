/** control — what a handler can decide, and what it is told, on a real broker. */

import { describe, expect, test } from 'vitest';
import { custom, fixed, ladder, RetryableError } from 'respool';
import { type ConsumerOptions, perAttempt, type RabbitHandler, shared } from 'respool/rabbit';
import { withService } from '../services/index.ts';
import { consume, Hands, nextEvent, ownName, Tray } from './ground.ts';

async function setup(handler: RabbitHandler, options: Partial<ConsumerOptions> = {}) {
  const queue = ownName();
  const hands = await Hands.open();
  const consumer = await consume(
    { queue, topology: shared({ prefix: queue }), policy: ladder([50, 50]), waits: [], ...options },
    handler,
  );
  const { dead, parked } = consumer.plan;
  return { queue, hands, consumer, dead: dead.key, parked: parked.key };
}

withService('rabbitmq', () => {
  describe('in its handler a message', () => {
    test('is done once it is acked, whatever happens afterwards', async () => {
      const { queue, hands, consumer } = await setup((delivery) => {
        delivery.ack();
        throw new Error('too late to matter');
      });
      const done = nextEvent(consumer, 'delivered');
      await hands.publish('', queue, {});
      expect((await done).attempt).toBe(1);
      await consumer.stop();
      expect(await hands.depth(queue)).toBe(0);
    });

    test('given back goes to the end of the queue at no cost', async () => {
      const seen = new Tray<string>();
      const { queue, hands } = await setup(
        (delivery) => {
          seen.add(`${delivery.id} ${delivery.attempt}`);
          return seen.items.length === 1 ? delivery.nack() : delivery.ack();
        },
        { concurrency: 1, prefetch: 1 },
      );
      await hands.publish('', queue, {}, { messageId: 'a' });
      await hands.publish('', queue, {}, { messageId: 'b' });
      expect((await seen.until(3)).toSorted()).toEqual(['a 1', 'a 1', 'b 1']);
    });

    test('is retried after the delay of a function, until its attempts are over', async () => {
      const at: number[] = [];
      const asked: number[] = [];
      const { queue, hands, dead } = await setup(
        (delivery) => {
          at.push(performance.now());
          return delivery.retry((attempt) => {
            asked.push(attempt);
            return attempt * 120;
          }, 'try later');
        },
        { waits: [120, 240] },
      );
      await hands.publish('', queue, {});
      const { headers } = (await hands.take(dead)).properties;
      expect(asked).toEqual([1, 2, 3]);
      expect((at[1] ?? 0) - (at[0] ?? 0)).toBeGreaterThanOrEqual(120);
      expect((at[2] ?? 0) - (at[1] ?? 0)).toBeGreaterThanOrEqual(240);
      expect(headers).toMatchObject({ 'respool-code': 'handler.retry', 'respool-attempts': 3 });
    });

    test('goes to the dead or the parked queue when the handler says so', async () => {
      const { queue, hands, dead, parked } = await setup((delivery) =>
        delivery.id === 'd' ? delivery.deadLetter('no such order') : delivery.hold('look at it'),
      );
      await hands.publish('', queue, {}, { messageId: 'd' });
      await hands.publish('', queue, {}, { messageId: 'h' });
      expect((await hands.take(dead)).properties).toMatchObject({
        messageId: 'd',
        headers: { 'respool-ended-reason': 'no such order', 'respool-attempts': 1 },
      });
      expect((await hands.take(parked)).properties).toMatchObject({
        messageId: 'h',
        headers: { 'respool-ended-reason': 'look at it' },
      });
    });

    test('keeps its notes, its last failure and its origin from attempt to attempt', async () => {
      const seen: unknown[] = [];
      const exchange = ownName('ex');
      const { hands, dead } = await setup(
        (delivery) => {
          const { notes, lastFailure, exchange: from, routingKey, topic, queue: at } = delivery;
          seen.push({ notes, code: lastFailure?.code, from, routingKey, topic, at });
          delivery.note(`n${delivery.attempt}`, 'ü');
          throw new RetryableError('later', 'not now');
        },
        { bindings: [{ exchange, key: 'a.#' }] },
      );
      await hands.publish(exchange, 'a.b.c', {});
      const { headers = {} } = (await hands.take(dead)).properties;
      const queue = String(headers['respool-queue']);
      const origin = { from: exchange, routingKey: 'a.b.c', topic: 'a.b.c', at: queue };
      expect(seen).toEqual([
        { notes: {}, code: undefined, ...origin },
        { notes: { n1: 'ü' }, code: 'later', ...origin },
        { notes: { n1: 'ü', n2: 'ü' }, code: 'later', ...origin },
      ]);
      expect(JSON.parse(String(headers['respool-notes']))).toEqual({ n1: 'ü', n2: 'ü', n3: 'ü' });
    });
  });

  test('a handler is told queue, key, raw message, attempt and the ids of an outbox', async () => {
    const seen = new Tray<object>();
    const { queue, hands } = await setup((delivery) => {
      const { attempt, routingKey, trackingIds, redelivered, message } = delivery;
      const { correlationId } = message.properties;
      seen.add({
        at: delivery.queue,
        attempt,
        routingKey,
        trackingIds,
        redelivered,
        correlationId,
      });
    });
    const headers = { 'x-outbox-tracking-ids': '["a","b"]' };
    await hands.publish('', queue, {}, { headers, correlationId: 'c' });
    await hands.publish('', queue, {}, { headers: { 'x-outbox-tracking-ids': ['c'] } });
    await hands.publish('', queue, {}, { headers: { 'x-outbox-tracking-ids': 7 } });
    const base = { at: queue, attempt: 1, routingKey: queue, redelivered: false };
    expect(await seen.until(3)).toEqual([
      { ...base, trackingIds: ['a', 'b'], correlationId: 'c' },
      { ...base, trackingIds: ['c'], correlationId: undefined },
      { ...base, trackingIds: [], correlationId: undefined },
    ]);
  });

  describe('a body', () => {
    test('that is not JSON goes to the dead queue as invalid when the handler asks for JSON', async () => {
      const { queue, hands, dead } = await setup(async (delivery) => {
        await delivery.json();
      });
      await hands.publish('', queue, Buffer.from('{"half'));
      expect((await hands.take(dead)).properties.headers).toMatchObject({
        'respool-ended-code': 'body.invalid',
        'respool-attempts': 1,
      });
    });

    // Regression: the handler's own changes went to the wait queue and came back.
    test('that a handler writes into is retried as it was', async () => {
      const seen = new Tray<string>();
      const { queue, hands, dead } = await setup(async (delivery) => {
        const body = await delivery.body();
        seen.add(Buffer.from(body).toString());
        body.fill(0);
        for await (const part of delivery.stream()) part.fill(0);
        throw new Error('no');
      });
      await hands.publish('', queue, { a: 1 });
      expect((await hands.take(dead)).content.toString()).toBe('{"a":1}');
      expect(seen.items).toEqual(['{"a":1}', '{"a":1}', '{"a":1}']);
    });

    test('is decoded by its content type, with decoders of the user', async () => {
      const seen = new Tray<unknown>();
      const csv = {
        contentType: 'text/csv',
        encode: () => Buffer.alloc(0),
        decode: (bytes: Uint8Array) => Buffer.from(bytes).toString().split(','),
      };
      const { queue, hands, dead } = await setup(
        async (delivery) => seen.add(await delivery.value()),
        { decoders: [csv] },
      );
      await hands.publish('', queue, Buffer.from('a,b'), { contentType: 'text/csv' });
      await hands.publish('', queue, { a: 1 }, { contentType: 'application/json' });
      await hands.publish('', queue, Buffer.from('x'), { contentType: 'text/plain' });
      expect((await seen.until(3)).map((one) => JSON.stringify(one)).toSorted()).toEqual([
        '"x"',
        '["a","b"]',
        '{"a":1}',
      ]);
      await hands.publish('', queue, Buffer.from('?'), { contentType: 'application/x-odd' });
      expect((await hands.take(dead)).properties.headers).toMatchObject({
        'respool-ended-code': 'body.invalid',
      });
    });

    test('that does not fit the schema goes to the dead queue, and one that fits is what it made', async () => {
      const seen = new Tray<unknown>();
      const schema = {
        '~standard': {
          version: 1,
          vendor: 'test',
          validate: (value: unknown) =>
            typeof value === 'object' && value !== null && 'n' in value
              ? { value: { n: Number(value.n) } }
              : { issues: [{ message: 'n is missing' }] },
        },
      } as const;
      const { queue, hands, dead } = await setup(
        async (delivery) => seen.add(await delivery.json()),
        { schema },
      );
      await hands.publish('', queue, { n: '7' });
      await hands.publish('', queue, {});
      expect(await seen.until(1)).toEqual([{ n: 7 }]);
      expect((await hands.take(dead)).properties.headers).toMatchObject({
        'respool-ended-code': 'body.invalid',
        'respool-ended-reason': expect.stringContaining('n is missing'),
      });
    });
  });

  describe('a wait', () => {
    test('that no queue is long enough for is waited in several rounds, never too short', async () => {
      const at: number[] = [];
      const { queue, hands, dead } = await setup(
        () => {
          at.push(performance.now());
          throw new RetryableError('busy', 'come back', { retryAfter: 330 });
        },
        { policy: ladder([100]), waits: [] },
      );
      await hands.publish('', queue, {});
      const { headers } = (await hands.take(dead)).properties;
      expect(at).toHaveLength(2);
      expect((at[1] ?? 0) - (at[0] ?? 0)).toBeGreaterThanOrEqual(330);
      expect(headers).toMatchObject({ 'respool-attempts': 2 });
      expect(headers).not.toHaveProperty('respool-rest-ms');
    });

    test.each([
      ['shared', (queue: string) => shared({ prefix: queue })],
      ['perAttempt', () => perAttempt()],
    ])('of a custom policy is rounded up to one of its rungs with %s', async (_, topology) => {
      const at: number[] = [];
      const queue = ownName();
      const { hands, dead } = await setup(
        () => {
          at.push(performance.now());
          throw new Error('no');
        },
        {
          queue,
          topology: topology(queue),
          policy: custom('own', [100, 200], { attempts: 2 }),
          backoffs: { own: () => 110 },
        },
      );
      await hands.publish('', queue, {});
      await hands.take(dead);
      expect((at[1] ?? 0) - (at[0] ?? 0)).toBeGreaterThanOrEqual(200);
    });

    test('is that of the policy which the message asks for by name', async () => {
      const { queue, hands, consumer, dead } = await setup(
        () => {
          throw new Error('no');
        },
        { policies: { quick: fixed(60, { attempts: 2 }), once: ladder([]) } },
      );
      const unknown = nextEvent(consumer, 'policy-unknown');
      await hands.publish('', queue, {}, { headers: { 'respool-policy': 'quick' } });
      expect((await hands.take(dead)).properties.headers).toMatchObject({ 'respool-attempts': 2 });
      await hands.publish('', queue, {}, { headers: { 'x-retry-policy': 'once' } });
      expect((await hands.take(dead)).properties.headers).toMatchObject({ 'respool-attempts': 1 });
      await hands.publish('', queue, {}, { headers: { 'respool-policy': 'nobody' } });
      expect((await unknown).policy).toBe('nobody');
      expect((await hands.take(dead)).properties.headers).toMatchObject({ 'respool-attempts': 3 });
    });

    // Regression: whole seconds, or a clock that is behind, let it expire before its first attempt.
    test.each([
      ['a moment', '1300', 0],
      ['a publisher whose clock is behind', '1000', 3_600],
    ])('leaves an attempt to a message that is good for %s', async (_, expiration, behindS) => {
      const seen = new Tray<number>();
      const { queue, hands, dead } = await setup(
        ({ attempt }) => {
          seen.add(attempt);
          throw new Error('no');
        },
        { policy: fixed(50, { attempts: 100 }) },
      );
      const timestamp = Math.floor(Date.now() / 1_000) - behindS;
      await hands.publish('', queue, {}, { expiration, timestamp });
      const { headers } = (await hands.take(dead)).properties;
      expect(headers).toMatchObject({ 'respool-ended-code': 'expired' });
      expect(seen.items.length).toBeGreaterThan(0);
      expect(seen.items.length).toBeLessThan(30);
    });

    test('does not outlast the expiry of the message, which is taken off its copies', async () => {
      const { queue, hands, dead } = await setup(
        () => {
          throw new Error('no');
        },
        { policy: fixed(100, { attempts: 100 }) },
      );
      const timestamp = Math.floor(Date.now() / 1_000);
      await hands.publish('', queue, {}, { expiration: '1500', timestamp });
      const { headers, expiration } = (await hands.take(dead)).properties;
      expect(expiration).toBeUndefined();
      expect(headers).toMatchObject({
        'respool-ended-code': 'expired',
        'respool-expires-after-ms': 1_500,
      });
      const attempts = Number(headers?.['respool-attempts']);
      expect(attempts).toBeGreaterThan(0);
      expect(attempts).toBeLessThan(16);
    });
  });
});
