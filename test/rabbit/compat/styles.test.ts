import { describe, expect, test } from 'vitest';
import { goqueue, outbox, type QueuePlanRequest, type QueuePlan, spring } from 'respool/rabbit';
import { custom, fixed, ladder, linear, noRetry } from 'respool';
import { compatOf } from '../../../src/rabbit/consume/options.ts';
import { orderOf, queueOf } from '../topology/order.ts';

const THREE: Partial<QueuePlanRequest> = { policy: ladder(['1s', '10s', '90s']) };

function argumentsOf(plan: QueuePlan, name: string): unknown {
  return queueOf(plan.topology, name).arguments;
}

function typesOf({ topology }: QueuePlan): Record<string, string> {
  return Object.fromEntries(topology.exchanges.map(({ name, type }) => [name, type]));
}

function bindingsOf({ topology }: QueuePlan): string[] {
  return topology.bindings.map(({ exchange, key, queue, arguments: args }) =>
    `${exchange} [${key}${Object.entries(args).flat().join('=')}] ${queue}`.trim(),
  );
}

describe('the queues of goqueue', () => {
  const plan = goqueue().style.plan(
    orderOf({ ...THREE, bindings: [{ exchange: 'shop', key: 'order.*' }] }),
  );

  test('are declared as its code declares them', () => {
    expect(queueOf(plan.topology, 'orders')).toMatchObject({ durable: true, arguments: {} });
    for (const level of [1, 2, 3]) {
      expect(argumentsOf(plan, `orders__retry.${level}`)).toEqual({
        'x-dead-letter-exchange': 'orders__retry_dlx',
      });
    }
    expect(typesOf(plan)).toEqual({
      shop: 'topic',
      orders__retry_exchange: 'topic',
      orders__retry_dlx: 'fanout',
      'orders.dlx': 'direct',
    });
    expect(bindingsOf(plan)).toEqual([
      'shop [order.*] orders',
      'orders__retry_dlx [] orders',
      'orders__retry_exchange [orders__retry.1] orders__retry.1',
      'orders__retry_exchange [orders__retry.2] orders__retry.2',
      'orders__retry_exchange [orders__retry.3] orders__retry.3',
      'orders__retry_exchange [orders__retry.4] orders.past-last-retry',
      'orders.dlx [orders.dlq] orders.dlq',
    ]);
    expect(plan).toMatchObject({ type: 'classic', dead: { exchange: '', key: 'orders.dlq' } });
  });

  test('have one delay for each level, which a message gets as its expiration', () => {
    const wait = (attempt: number, delayMs: number) =>
      plan.wait({ attempt, delayMs, routingKey: 'k' });
    const level = (at: number, waitMs: number) => ({
      exchange: 'orders__retry_exchange',
      key: `orders__retry.${at}`,
      headers: { 'respool-expiration': String(waitMs) },
      waitMs,
    });
    expect(wait(1, 1_000)).toEqual(level(1, 1_000));
    expect(wait(3, 90_000)).toEqual(level(3, 90_000));
    // A longer or shorter wait than the level's is that of another level, never another here.
    expect(wait(1, 1_001)).toEqual(level(2, 10_000));
    expect(wait(3, 5)).toEqual(level(1, 1_000));
    expect(wait(1, 1e9)).toEqual(level(3, 90_000));
    expect(wait(2, 0)).toEqual({ exchange: '', key: 'orders', waitMs: 0 });
  });

  test('of one delay go by the attempt', () => {
    const same = goqueue().style.plan(orderOf({ policy: fixed('2s', { attempts: 4 }) }));
    const keys = [1, 2, 3].map((attempt) => same.wait({ attempt, delayMs: 5, routingKey: '' }).key);
    expect(keys).toEqual(['orders__retry.1', 'orders__retry.2', 'orders__retry.3']);
  });

  test('are as many as its consumers have, and no policy may ask for more', () => {
    const { topology } = goqueue({ maxRetries: 5 }).style.plan(orderOf(THREE));
    expect(queueOf(topology, 'orders__retry.5').role).toBe('wait');
    expect(() => goqueue({ maxRetries: 2 }).style.plan(orderOf(THREE))).toThrow(
      /3 retries, but maxRetries is 2/,
    );
    const endless = linear({ first: '1s', attempts: 100 });
    expect(() => goqueue().style.plan(orderOf({ policy: endless }))).toThrow(/allowed are 64/);
    expect(() => goqueue({ maxRetries: -1 })).toThrow(/maxRetries/);
    expect(() => goqueue({ max: 3 } as object)).toThrow(/no option "max" of goqueue/);
  });

  test('are joined by queues of our own for other waits', () => {
    const more = goqueue().style.plan(orderOf({ ...THREE, extraWaitsMs: [10_000, 300_000] }));
    expect(more.wait({ attempt: 1, delayMs: 100_000, routingKey: '' })).toEqual({
      exchange: 'orders__retry_exchange',
      key: 'orders__retry.wait_300s',
      waitMs: 300_000,
    });
    expect(argumentsOf(more, 'orders__retry.wait_300s')).toMatchObject({
      'x-message-ttl': 300_000,
      'x-dead-letter-exchange': 'orders__retry_dlx',
      'x-dead-letter-strategy': 'at-least-once',
    });
    expect(more.waitsMs).toEqual([1_000, 10_000, 90_000, 300_000]);
  });

  test('know the rungs of a custom policy, and a policy without any', () => {
    const policy = custom('mine', ['1s', '5s'], { attempts: 4 });
    expect(goqueue().style.plan(orderOf({ policy })).waitsMs).toEqual([1_000, 5_000]);
    expect(goqueue().style.plan(orderOf({ policy: noRetry() })).waitsMs).toEqual([]);
  });

  test('get a dead-letter exchange by policy', () => {
    const definition = {
      'dead-letter-exchange': 'orders.dlx',
      'dead-letter-routing-key': 'orders.dlq',
    };
    expect(plan.topology.policies).toEqual([
      { name: 'respool.orders', pattern: '^orders$', definition, priority: 1 },
    ]);
    const quorum = orderOf({ queue: 'a.b', queueArguments: { 'x-queue-type': 'quorum' } });
    const safer = goqueue().style.plan(quorum);
    expect(safer.type).toBe('quorum');
    expect(safer.topology.policies[0]).toMatchObject({
      pattern: String.raw`^a\.b$`,
      definition: { 'dead-letter-strategy': 'at-least-once', overflow: 'reject-publish' },
    });
  });
});

describe('the queues of spring', () => {
  const names = {
    waitExchange: 'w',
    returnExchange: 'r',
    waitQueuePrefix: 'w-',
    deadLetterExchange: 'd',
  };
  const plan = spring(names).style.plan(orderOf(THREE));

  test('are declared as its code declares them', () => {
    expect(argumentsOf(plan, 'orders')).toEqual({ 'x-dead-letter-exchange': 'd' });
    expect(argumentsOf(plan, 'w-10000')).toEqual({
      'x-message-ttl': 10_000,
      'x-dead-letter-exchange': 'r',
    });
    expect(typesOf(plan)).toEqual({ w: 'headers', r: 'headers' });
    expect(bindingsOf(plan)).toEqual([
      'w [wait-for=1000] w-1000',
      'w [wait-for=10000] w-10000',
      'w [wait-for=90000] w-90000',
      'r [return-to=orders] orders',
    ]);
    expect(plan.wait({ delayMs: 2_000, attempt: 1, routingKey: 'order.created' })).toEqual({
      exchange: 'w',
      key: 'order.created',
      headers: { 'wait-for': '10000', 'return-to': 'orders' },
      waitMs: 10_000,
    });
  });

  test('have names of their own by default, and no dead-letter exchange where there is none', () => {
    const plain = compatOf('spring').style.plan(orderOf(THREE));
    expect(Object.keys(typesOf(plain))).toEqual(['wait', 'return']);
    expect(argumentsOf(plain, 'orders')).toEqual({ 'x-dead-letter-exchange': 'dead-letter' });
    expect(queueOf(plain.topology, 'wait.1000').role).toBe('wait');
    const without = spring({ deadLetterExchange: false }).style.plan(orderOf(THREE));
    expect(argumentsOf(without, 'orders')).toEqual({});
  });

  test('end in a dead queue of ours, or in theirs, which is not declared', () => {
    expect(plan.dead).toEqual({ exchange: '', key: 'orders.dlq' });
    expect(queueOf(plan.topology, 'orders.dlq').role).toBe('dead');
    const theirs = spring({ ...names, deadQueue: 'graveyard' }).style.plan(orderOf(THREE));
    expect(theirs.dead).toEqual({ exchange: '', key: 'graveyard' });
    expect(theirs.topology.queues.filter(({ role }) => role === 'dead')).toEqual([]);
  });

  test('get policies only where they are quorum queues', () => {
    expect(plan).toMatchObject({ type: 'classic', topology: { policies: [] } });
    const args = { 'x-queue-type': 'quorum' };
    const quorum = spring({ ...names, waitArguments: args }).style.plan(
      orderOf({ ...THREE, queueArguments: args }),
    );
    expect(argumentsOf(quorum, 'w-1000')).toMatchObject(args);
    expect(quorum.type).toBe('quorum');
    expect(quorum.topology.policies.map(({ pattern }) => pattern)).toEqual([
      String.raw`^w-\d+$`,
      '^orders$',
    ]);
  });

  test('have names that a broker takes', () => {
    for (const name of ['waitExchange', 'returnExchange', 'waitQueuePrefix', 'deadQueue']) {
      expect(() => spring({ [name]: '' })).toThrow(name);
    }
    expect(() => spring({ deadLetterExchange: 'amq.x' })).toThrow('deadLetterExchange');
    expect(() => spring({ wait: 'w' } as object)).toThrow(/no option "wait" of spring/);
  });
});

describe('the queues of outbox', () => {
  const plan = outbox({ exchange: 'shop' }).style.plan(orderOf(THREE));

  test('are declared as its code declares them', () => {
    expect(argumentsOf(plan, 'orders')).toEqual({
      'x-dead-letter-exchange': 'shop.dlx',
      'x-dead-letter-routing-key': 'orders',
      'x-queue-type': 'quorum',
    });
    expect(argumentsOf(plan, 'orders.dlq')).toEqual({ 'x-queue-type': 'quorum' });
    expect(argumentsOf(plan, 'shop.delay_1m30s')).toEqual({
      'x-message-ttl': 90_000,
      'x-dead-letter-exchange': '',
      'x-queue-type': 'quorum',
    });
    expect(typesOf(plan)).toEqual({
      shop: 'topic',
      'shop.dlx': 'direct',
      'shop.delay_1s': 'fanout',
      'shop.delay_10s': 'fanout',
      'shop.delay_1m30s': 'fanout',
    });
    expect(bindingsOf(plan)).toContain('shop.dlx [orders] orders.dlq');
    expect(plan.wait({ delayMs: 1, attempt: 1, routingKey: 'k' })).toEqual({
      exchange: 'shop.delay_1s',
      key: 'orders',
      waitMs: 1_000,
    });
    expect(plan).toMatchObject({ type: 'quorum', dead: { exchange: '', key: 'orders.dlq' } });
  });

  test.each([
    [60_000, '1m'],
    [90_061_001, '1d1h1m1s1ms'],
    [300_000, '5m'],
    [86_400_000, '1d'],
  ])('of %d ms are named %s', (waitMs, label) => {
    const { topology } = outbox().style.plan(orderOf({ policy: ladder([waitMs]) }));
    expect(queueOf(topology, `outbox.delay_${label}`).arguments).toMatchObject({
      'x-message-ttl': waitMs,
    });
  });

  test('get their safety by policies', () => {
    const safe = { 'dead-letter-strategy': 'at-least-once', overflow: 'reject-publish' };
    expect(plan.topology.policies).toMatchObject([
      { name: 'respool.shop.delay', pattern: String.raw`^shop\.delay_`, definition: safe },
      { name: 'respool.orders', pattern: '^orders$', definition: safe },
      { pattern: String.raw`^orders\.dlq$`, definition: { 'delivery-limit': 1_000_000 } },
    ]);
  });

  test('have the name of an exchange', () => {
    expect(() => outbox({ exchange: '' })).toThrow(/"exchange"/);
    expect(() => outbox({ exchanges: 'x' } as object)).toThrow(/no option "exchanges" of outbox/);
  });
});

describe.each(['goqueue', 'spring', 'outbox'] as const)('compat %s', (name) => {
  test('is found by its name, and says what stays unsafe', () => {
    const compat = compatOf(name);
    expect(compat).toMatchObject({ name, style: { name }, wire: { name } });
    expect(compatOf(compat)).toBe(compat);
    for (const sentence of compat.unsafe) expect(sentence).toMatch(/^[A-Z].*\.$/);
    expect(compat.unsafe.length).toBeGreaterThan(3);
  });

  test('keeps a parked queue, and what the user wants of the main queue', () => {
    const plan = compatOf(name).style.plan(
      orderOf({ durable: false, queueArguments: { 'x-max-length': 7 } }),
    );
    const main = queueOf(plan.topology, 'orders');
    expect(main).toMatchObject({ durable: false, arguments: { 'x-max-length': 7 } });
    expect(plan.parked).toEqual({ exchange: '', key: 'orders.parked' });
    expect(queueOf(plan.topology, 'orders.parked').role).toBe('parked');
  });
});

test('there is no compat of another name', () => {
  expect(() => compatOf('celery' as 'spring')).toThrow(/compat/);
});
