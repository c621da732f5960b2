/** styles — names, arguments and roads of each style, without a broker. */

import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { custom, fixed, ladder, linear, noRetry } from 'respool';
import {
  mergeTopologies,
  perAttempt,
  perDelay,
  type QueuePlan,
  shared,
  type UserBinding,
} from 'respool/rabbit';
import { KINDS, orderOf, queueOf, STYLES } from './order.ts';
import { DAY_MS } from '../../time.ts';

const NAMES: Readonly<Record<string, { exchanges: string[]; queues: string[] }>> = {
  perAttempt: {
    exchanges: ['orders__dlx direct', 'orders__retry_exchange topic', 'orders__unrouted fanout'],
    queues: [
      'orders main',
      'orders.dlq dead',
      'orders.parked parked',
      'orders__retry.1 wait',
      'orders__retry.2 wait',
      'orders__retry.3 wait',
      'orders__unrouted unrouted',
    ],
  },
  'perDelay by queue': {
    exchanges: ['orders.return direct', 'orders.unrouted fanout'],
    queues: [
      'orders main',
      'orders.delay_250ms wait',
      'orders.delay_2s wait',
      'orders.dlq dead',
      'orders.parked parked',
      'orders.unrouted unrouted',
    ],
  },
  'perDelay by exchange': {
    exchanges: [
      'p.shop.delay_250ms fanout',
      'p.shop.delay_2s fanout',
      'p.shop.return direct',
      'p.shop.unrouted fanout',
    ],
    queues: [
      'orders main',
      'orders.dlq dead',
      'orders.parked parked',
      'p.shop.delay_250ms wait',
      'p.shop.delay_2s wait',
      'p.shop.unrouted unrouted',
    ],
  },
  shared: {
    exchanges: ['p.dlx direct', 'p.return headers', 'p.unrouted fanout', 'p.wait headers'],
    queues: [
      'orders main',
      'orders.dlq dead',
      'orders.parked parked',
      'p.unrouted unrouted',
      'p.wait.250ms wait',
      'p.wait.2s wait',
    ],
  },
};

function planOf(style: string, order: Parameters<typeof orderOf>[0] = {}): QueuePlan {
  return (STYLES[style] as (typeof STYLES)[string])('p').plan(orderOf(order));
}

const refusal = (code: string, text: RegExp): unknown =>
  expect.objectContaining({ code, message: expect.stringMatching(text) });

describe.each(KINDS)('%s, %s', (style, type) => {
  const isQuorum = type === 'quorum';
  const plan = planOf(style, { type });
  const { exchanges, queues, bindings } = plan.topology;

  test('has exactly the queues and exchanges of its table, all durable', () => {
    expect(exchanges.map((one) => `${one.name} ${one.type}`).toSorted()).toEqual(
      NAMES[style]?.exchanges,
    );
    expect(queues.map((one) => `${one.name} ${one.role}`).toSorted()).toEqual(NAMES[style]?.queues);
    expect([...queues, ...exchanges].every((one) => one.durable && !one.autoDelete)).toBe(true);
  });

  test('every queue says its type, and none expires', () => {
    for (const queue of queues) {
      expect(queue.arguments['x-queue-type']).toBe(type);
      expect(queue.arguments['x-delivery-limit']).toBe(isQuorum ? 1_000_000 : undefined);
      expect(queue.arguments['x-overflow']).toBe(isQuorum ? 'reject-publish' : undefined);
      expect(queue.arguments).not.toHaveProperty('x-expires');
    }
  });

  test('wait queues have a fixed TTL and lead to an exchange of ours with an alternate', () => {
    const waiting = queues.filter((queue) => queue.role === 'wait');
    expect(waiting.length).toBeGreaterThan(1);
    for (const queue of waiting) {
      expect([250, 2000]).toContain(queue.arguments['x-message-ttl']);
      expect(queue.arguments['x-dead-letter-strategy']).toBe(
        isQuorum ? 'at-least-once' : undefined,
      );
      expectWayOut(queue.arguments['x-dead-letter-exchange']);
    }
  });

  test('the main queue leads to the dead queue, where messages end', () => {
    const main = queueOf(plan.topology, 'orders').arguments;
    expectWayOut(main['x-dead-letter-exchange']);
    expect(main['x-dead-letter-routing-key']).toBe('orders.dlq');
    expect(main['x-dead-letter-strategy']).toBe(isQuorum ? 'at-least-once' : undefined);
    expect(bindings).toContainEqual({
      queue: 'orders.dlq',
      exchange: main['x-dead-letter-exchange'],
      key: 'orders.dlq',
      arguments: {},
    });
    for (const role of ['dead', 'parked', 'unrouted']) {
      const end = queues.find((queue) => queue.role === role);
      expect(end?.arguments).not.toHaveProperty('x-dead-letter-exchange');
      expect(end?.arguments).not.toHaveProperty('x-message-ttl');
    }
  });

  test('what does not wait is published straight to its queue', () => {
    expect(plan.again).toEqual({ exchange: '', key: 'orders' });
    expect(plan.dead).toEqual({ exchange: '', key: 'orders.dlq' });
    expect(plan.parked).toEqual({ exchange: '', key: 'orders.parked' });
    expect(plan.wait({ delayMs: 0, attempt: 1, routingKey: 'k' })).toEqual({
      exchange: '',
      key: 'orders',
      waitMs: 0,
    });
  });

  test('every binding leads from an exchange to a queue of the topology', () => {
    for (const binding of bindings) {
      expect(exchanges.map((one) => one.name)).toContain(binding.exchange);
      expect(queues.map((one) => one.name)).toContain(binding.queue);
    }
  });

  function expectWayOut(name: unknown): void {
    const target = exchanges.find((one) => one.name === name);
    const alternate = target?.arguments['alternate-exchange'];
    expect(exchanges.find((one) => one.name === alternate)?.type).toBe('fanout');
    expect(bindings.filter((one) => one.exchange === alternate)).toEqual([
      { queue: alternate, exchange: alternate, key: '', arguments: {} },
    ]);
  }
});

describe.each(Object.keys(STYLES))('the waits of %s', (style) => {
  const spans = fc.array(fc.integer({ min: 0, max: 200_000_000 }), { maxLength: 12 });

  test('a wait is the shortest that is long enough, or the longest there is', () => {
    fc.assert(
      fc.property(
        spans,
        spans,
        fc.integer({ min: 1, max: 300_000_000 }),
        fc.nat({ max: 15 }),
        (delays, extraWaitsMs, delayMs, attempt) => {
          const plan = planOf(style, { policy: ladder(delays), extraWaitsMs });
          const wanted = [...new Set([...delays, ...extraWaitsMs])].filter((ms) => ms > 0);
          expect(plan.waitsMs).toEqual(wanted.toSorted((a, b) => a - b));
          fc.pre(wanted.length > 0);
          const { waitMs } = plan.wait({ delayMs, attempt, routingKey: 'k' });
          const enough = plan.waitsMs.filter((ms) => ms >= delayMs);
          expect(waitMs).toBe(enough[0] ?? plan.waitsMs.at(-1));
        },
      ),
    );
  });

  test('the road leads into a queue with exactly that TTL', () => {
    const plan = planOf(style, { extraWaitsMs: [60_000] });
    for (const delayMs of [1, 250, 251, 2000, 2001, 60_000, 99_999]) {
      const route = plan.wait({ delayMs, attempt: 1, routingKey: 'order.new' });
      const { topology } = plan;
      const into =
        route.exchange === ''
          ? [route.key]
          : topology.bindings.flatMap((one) => (leads(one) ? [one.queue] : []));
      expect(into).toHaveLength(1);
      const queue = queueOf(topology, into[0] as string);
      expect(queue.arguments['x-message-ttl']).toBe(route.waitMs);

      function leads(one: (typeof topology.bindings)[number]): boolean {
        if (one.exchange !== route.exchange) return false;
        const type = topology.exchanges.find((from) => from.name === one.exchange)?.type;
        if (type === 'fanout') return true;
        if (type === 'headers') return one.arguments['wait-for'] === route.headers?.['wait-for'];
        return one.key === route.key;
      }
    }
  });

  test('a policy without retries needs no wait queue, and waiting is refused', () => {
    const plan = planOf(style, { policy: noRetry() });
    expect(plan.waitsMs).toEqual([]);
    expect(plan.topology.queues.filter((queue) => queue.role === 'wait')).toEqual([]);
    expect(() => plan.wait({ delayMs: 5000, attempt: 0, routingKey: '' })).toThrow(
      refusal('config.invalid', /queue "orders" wait for 5s: it has no wait queue/),
    );
  });

  test('a custom policy gets its rungs', () => {
    const policy = custom('mine', ['1s', '5s', '0s'], { attempts: 500 });
    expect(planOf(style, { policy }).waitsMs).toEqual([1000, 5000]);
  });

  test('a delay that the broker cannot count is waited for in several rounds', () => {
    const plan = planOf(style, { policy: ladder(['100d', '200d']) });
    expect(plan.waitsMs).toEqual([49 * DAY_MS]);
    const { waitMs } = plan.wait({ delayMs: 100 * DAY_MS, attempt: 1, routingKey: '' });
    expect(waitMs).toBe(49 * DAY_MS);
  });

  test('64 delays are taken, 65 are refused with what to do', () => {
    const policy = (attempts: number) => linear({ first: '1s', attempts });
    expect(planOf(style, { policy: policy(65) }).waitsMs).toHaveLength(64);
    expect(() => planOf(style, { policy: policy(66) })).toThrow(
      refusal(
        'policy.invalid',
        /65 (different delays|retries), allowed are 64; use fewer attempts/,
      ),
    );
  });

  test('extra waits have a limit and are whole milliseconds', () => {
    const many = (count: number) => Array.from({ length: count }, (_, at) => 1000 + at);
    expect(planOf(style, { extraWaitsMs: many(64), policy: noRetry() }).waitsMs).toHaveLength(64);
    expect(() => planOf(style, { extraWaitsMs: many(65) })).toThrow(
      refusal('config.invalid', /65 extra wait queues .* allowed are 64/),
    );
    for (const bad of [-1, 1.5, Number.NaN]) {
      expect(() => planOf(style, { extraWaitsMs: [bad] })).toThrow(
        refusal('config.invalid', /whole milliseconds/),
      );
    }
  });
});

describe('perAttempt', () => {
  const plan = perAttempt().plan(
    orderOf({ policy: ladder(['2s', '0s', '2s', '5s']), extraWaitsMs: [5000, 60_000] }),
  );

  test('has a queue for each attempt that waits, and one for each other wait', () => {
    const waiting = plan.topology.queues.filter((queue) => queue.role === 'wait');
    expect(waiting.map((queue) => [queue.name, queue.arguments['x-message-ttl']])).toEqual([
      ['orders__retry.1', 2000],
      ['orders__retry.3', 2000],
      ['orders__retry.4', 5000],
      ['orders__retry.wait_60s', 60_000],
    ]);
  });

  test.each([
    { attempt: 1, delayMs: 2000, key: 'orders__retry.1' },
    { attempt: 3, delayMs: 2000, key: 'orders__retry.3' },
    { attempt: 3, delayMs: 1500, key: 'orders__retry.3' },
    { attempt: 3, delayMs: 2001, key: 'orders__retry.4' },
    { attempt: 4, delayMs: 100, key: 'orders__retry.1' },
    { attempt: 0, delayMs: 5001, key: 'orders__retry.wait_60s' },
    { attempt: 9, delayMs: 90_000, key: 'orders__retry.wait_60s' },
  ])('attempt $attempt waits $delayMs ms in $key', ({ attempt, delayMs, key }) => {
    const route = plan.wait({ attempt, delayMs, routingKey: 'order.new' });
    expect(route).toMatchObject({ exchange: 'orders__retry_exchange', key });
  });

  test('counts its queues by attempts, since each needs one', () => {
    const order = orderOf({ policy: fixed('5s', { attempts: 66 }) });
    expect(() => perAttempt().plan(order)).toThrow(
      refusal('policy.invalid', /65 retries, allowed are 64; .* shared\(\) or perDelay\(\)/),
    );
    expect(shared().plan(order).waitsMs).toEqual([5000]);
  });
});

describe('perDelay', () => {
  test('by exchange takes the one exchange of the bindings', () => {
    const style = perDelay({ by: 'exchange' });
    const bindings = [{ exchange: 'shop', key: 'a' }, { exchange: 'shop' }];
    const plan = style.plan(orderOf({ bindings }));
    expect(plan.wait({ delayMs: 1, attempt: 1, routingKey: 'a' })).toEqual({
      exchange: 'shop.delay_250ms',
      key: 'orders',
      waitMs: 250,
    });
    expect(() => style.plan(orderOf())).toThrow(refusal('config.invalid', /have none/));
    const two = [...bindings, { exchange: 'mail' }];
    expect(() => style.plan(orderOf({ bindings: two }))).toThrow(
      refusal('config.invalid', /have "shop", "mail", exactly one is needed/),
    );
  });

  test('refuses options that do not go together', () => {
    expect(() => perDelay({ exchange: 'shop' })).toThrow(refusal('config.invalid', /by queue/));
    expect(() => perDelay({ by: 'day' as 'queue' })).toThrow(
      refusal('config.invalid', /queue \| exchange/),
    );
    expect(() => perDelay({ for: 1 } as object)).toThrow(
      refusal('config.invalid', /no option "for"/),
    );
  });
});

describe('shared', () => {
  test('keeps the routing key and routes by headers', () => {
    const plan = shared().plan(orderOf());
    expect(plan.wait({ delayMs: 300, attempt: 1, routingKey: 'order.new' })).toEqual({
      exchange: 'respool.wait',
      key: 'order.new',
      headers: { 'wait-for': '2s', 'return-to': 'orders' },
      waitMs: 2000,
    });
    const wait = queueOf(plan.topology, 'respool.wait.2s');
    expect(wait.arguments).not.toHaveProperty('x-dead-letter-routing-key');
    expect(plan.topology.bindings).toContainEqual({
      queue: 'orders',
      exchange: 'respool.return',
      key: '',
      arguments: { 'x-match': 'all', 'return-to': 'orders' },
    });
  });

  test('refuses a prefix that is no name', () => {
    for (const prefix of ['', 'amq.mine', 'a\nb']) {
      expect(() => shared({ prefix })).toThrow(refusal('config.invalid', /as "prefix"/));
    }
    expect(() => shared({ prefiks: 'a' } as object)).toThrow(refusal('config.invalid', /prefiks/));
  });
});

describe('the main queue', () => {
  test('is bound to the exchanges of the user, which are declared unless they are there', () => {
    const { topology } = shared().plan(
      orderOf({
        bindings: [
          { exchange: 'shop' },
          { exchange: 'shop', key: 'order.*' },
          { exchange: 'mail', type: 'headers', key: '', arguments: { kind: 'bill' } },
          { exchange: 'old', type: false, key: 'x' },
          { exchange: 'amq.topic', key: 'y' },
        ],
      }),
    );
    const names = topology.exchanges.map((one) => `${one.name} ${one.type}`);
    expect(names.slice(0, 2)).toEqual(['shop topic', 'mail headers']);
    expect(names.join()).not.toMatch(/old|amq/);
    const bound = topology.bindings.filter((one) => one.queue === 'orders').slice(0, 5);
    expect(bound.map((one) => [one.exchange, one.key, one.arguments])).toEqual([
      ['shop', '#', {}],
      ['shop', 'order.*', {}],
      ['mail', '', { kind: 'bill' }],
      ['old', 'x', {}],
      ['amq.topic', 'y', {}],
    ]);
  });

  test('takes arguments and options of the user', () => {
    const { topology } = shared().plan(
      orderOf({
        type: 'classic',
        durable: false,
        exclusive: true,
        autoDelete: true,
        queueArguments: { 'x-max-priority': 5 },
      }),
    );
    expect(queueOf(topology, 'orders')).toMatchObject({
      durable: false,
      exclusive: true,
      autoDelete: true,
      arguments: { 'x-max-priority': 5, 'x-queue-type': 'classic' },
    });
    expect(queueOf(topology, 'orders.dlq').durable).toBe(true);
  });

  test.each([
    [{ 'x-queue-type': 'classic' }, /x-queue-type: "classic": use the option type/],
    [{ 'x-delivery-limit': -1 }, /x-delivery-limit: -1/],
    [{ 'x-overflow': 'drop-head' }, /only reject-publish goes with/],
  ])('refuses %j', (queueArguments, text) => {
    expect(() => shared().plan(orderOf({ queueArguments }))).toThrow(
      refusal('config.invalid', text),
    );
  });

  test.each([{ durable: false }, { exclusive: true }, { autoDelete: true }])(
    'of type quorum cannot be %j',
    (options) => {
      expect(() => shared().plan(orderOf(options))).toThrow(
        refusal('config.invalid', /must be durable, not exclusive and not autoDelete/),
      );
    },
  );

  test('may drop its oldest where the user says that messages may be dropped', () => {
    const queueArguments = { 'x-overflow': 'drop-head', 'x-dead-letter-strategy': 'at-most-once' };
    const { topology } = shared().plan(orderOf({ queueArguments }));
    expect(queueOf(topology, 'orders').arguments).toMatchObject(queueArguments);
  });
});

describe('names', () => {
  test.each([
    ['', /a string that is not empty/],
    [7, /a string that is not empty/],
    ['amq.orders', /belong to the broker/],
    ['a\r\nb', /no control characters/],
    ['a\ud800', /UTF-8/],
    ['é'.repeat(128), /at most 255 bytes, this one has 256/],
  ])('%j is no queue', (queue, text) => {
    expect(() => shared().plan(orderOf({ queue: queue as string }))).toThrow(
      refusal('config.invalid', text),
    );
  });

  test('count with what we add to them', () => {
    const longest = (suffix: string) => 'q'.repeat(255 - suffix.length);
    const queue = longest('__retry_exchange');
    expect(perAttempt().plan(orderOf({ queue })).queue).toBe(queue);
    expect(() => perAttempt().plan(orderOf({ queue: `${queue}q` }))).toThrow(
      refusal('config.invalid', /"q+__retry_exchange" belongs to it.*this one has 256/),
    );
  });

  test('routing keys have the same limit', () => {
    const bindings = [{ exchange: 'shop', key: 'k'.repeat(256) }];
    expect(() => shared().plan(orderOf({ bindings }))).toThrow(
      refusal('config.invalid', /it has 256 bytes, allowed are 255/),
    );
  });

  test.each([
    [{ exchange: '' }, /"bindings\[0\].exchange": a name is/],
    [{}, /"bindings\[0\].exchange": a name is/],
    [{ exchange: 'shop', type: 'x-odd' }, /"bindings\[0\].type": allowed is direct \| topic/],
  ])('%j is no binding', (binding, text) => {
    const bindings = [binding as UserBinding];
    expect(() => shared().plan(orderOf({ bindings }))).toThrow(refusal('config.invalid', text));
  });
});

describe('several queues', () => {
  const of = (queue: string, more = {}) => shared().plan(orderOf({ queue, ...more }));

  test('have what they share once', () => {
    const both = mergeTopologies([of('a'), of('b').topology, of('a')]);
    expect(both.queues.map((queue) => queue.name)).toEqual([
      'a',
      'a.dlq',
      'a.parked',
      'respool.unrouted',
      'respool.wait.250ms',
      'respool.wait.2s',
      'b',
      'b.dlq',
      'b.parked',
    ]);
    expect(both.exchanges).toHaveLength(4);
    // Two of the shared wait queues, one of the unrouted, two for each queue.
    expect(both.bindings).toHaveLength(2 + 1 + 2 * 2);
  });

  test('that differ in what they share are refused with both values', () => {
    expect(() => mergeTopologies([of('a'), of('b', { type: 'classic' })])).toThrow(
      refusal('topology.mismatch', /"respool.unrouted": x-queue-type is "quorum" and "classic"/),
    );
    const bindings = (type: 'topic' | 'fanout') => [{ exchange: 'shop', type }];
    expect(() =>
      mergeTopologies([
        of('a', { bindings: bindings('topic') }),
        of('b', { bindings: bindings('fanout') }),
      ]),
    ).toThrow(refusal('topology.mismatch', /exchange "shop": type is "topic" and "fanout"/));
  });

  test('do not differ by the order of their arguments, and do by a missing one', () => {
    const empty = { exchanges: [], queues: [], bindings: [] };
    const policy = (definition: object) => ({
      ...empty,
      policies: [{ name: 'p', pattern: '^q$', priority: 0, definition: { ...definition } }],
    });
    const merged = mergeTopologies([policy({ a: 1, b: 2 }), policy({ b: 2, a: 1 })]);
    expect(merged.policies).toHaveLength(1);
    expect(() => mergeTopologies([policy({ a: 1 }), policy({ b: 2 })])).toThrow(
      refusal('topology.mismatch', /policy "p": a is 1 and not set, b is not set and 2/),
    );
  });
});
