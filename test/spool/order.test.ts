/** Order keys: messages of one key one at a time, in the order they were enqueued. */
import { fixed, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { codeOf, failing, makeGate, MINUTE, SECOND, setup } from './setup.ts';
import { internalsOf } from '../../src/spool/internals.ts';

const KEYED = { topic: 'a', orderKey: 'customer-7' } as const;

describe('messages of one order key', () => {
  test('are delivered one at a time, in the order they were enqueued', async () => {
    const { spool, clock } = await setup({ concurrency: 10 });
    const gate = makeGate();
    spool.handle('#', gate.handler);
    const first = await spool.enqueue({ ...KEYED, priority: 9 });
    const many = await spool.enqueueMany([
      { ...KEYED, topic: 'b', priority: 0 },
      { ...KEYED, body: new Uint8Array(200_000) },
    ]);
    const ids = [first.id, ...many.map(({ id }) => id)];
    for (const [at, id] of ids.entries()) {
      await clock.settle();
      expect(gate.began).toEqual(ids.slice(0, at + 1));
      gate.open(id);
    }
    await clock.settle();
    expect(gate.mostRunning).toBe(1);
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0 });
  });

  test('follow each other at once, without a tick of the clock', async () => {
    const { spool, clock } = await setup();
    const began: number[] = [];
    spool.handle('a', () => void began.push(clock.now()));
    const startedAt = clock.now();
    for (let at = 0; at < 20; at += 1) await spool.enqueue(KEYED);
    await clock.settle();
    expect(began).toEqual(Array.from({ length: 20 }, () => startedAt));
  });

  test('do not keep those of other keys, and those without one, waiting', async () => {
    const { spool, clock } = await setup({ concurrency: 10 });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    const ids: string[] = [];
    for (const orderKey of ['k', 'k', 'l', undefined, undefined]) {
      const message = orderKey === undefined ? { topic: 'a' } : { topic: 'a', orderKey };
      ids.push((await spool.enqueue(message)).id);
    }
    await clock.settle();
    expect(gate.began.toSorted()).toEqual(ids.filter((_, at) => at !== 1).toSorted());
  });

  test('wait while the first of them waits for its next attempt', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1m') } });
    const log: string[] = [];
    const { handler } = failing(2);
    spool.handle('a', async (delivery) => {
      log.push(`${delivery.id} ${delivery.attempt}`);
      await handler(delivery);
    });
    await spool.enqueue({ ...KEYED, id: 'one' });
    await spool.enqueue({ ...KEYED, id: 'two' });
    await clock.settle();
    await clock.advance(MINUTE - 1);
    expect(log).toEqual(['one 1']);
    await clock.advance(MINUTE + 1);
    expect(log).toEqual(['one 1', 'one 2', 'one 3', 'two 1']);
  });

  test('go on when the first of them bounces', async () => {
    const { spool, clock } = await setup();
    const delivered: string[] = [];
    spool.handle('a', ({ id }) => {
      if (id === 'one') throw new PermanentError('no', 'never');
      delivered.push(id);
    });
    await spool.enqueueMany([
      { ...KEYED, id: 'one' },
      { ...KEYED, id: 'two' },
    ]);
    await clock.settle();
    expect(delivered).toEqual(['two']);
  });

  test('wait for a held one until an operator skips it, and then go at once', async () => {
    const { spool, clock } = await setup();
    const delivered: string[] = [];
    spool.handle('a', ({ id }) => void delivered.push(id));
    await spool.enqueue({ ...KEYED, id: 'one', delay: '10s' });
    await spool.operator({ by: 'ops' }).hold(['one']);
    for (const id of ['two', 'three', 'four']) await spool.enqueue({ ...KEYED, id });
    await clock.advance(10 * MINUTE);
    expect(delivered).toEqual([]);
    await spool.operator({ by: 'ops' }).hold(['three']);
    await spool.operator({ by: 'ops' }).bounce(['one']);
    await clock.settle();
    expect(delivered).toEqual(['two']);
    await spool.operator({ by: 'ops' }).remove(['three'], { hard: true });
    await clock.settle();
    expect(delivered).toEqual(['two', 'four']);
  });

  test('are taken over from a process that is gone before the next of them is tried', async () => {
    const world = await setup({ lease: '10s' });
    world.spool.handle('a', () => new Promise<void>(() => undefined));
    await world.spool.enqueue({ ...KEYED, id: 'one' });
    await world.spool.enqueue({ ...KEYED, id: 'two' });
    await world.clock.settle();
    world.store.faults.plan = () => 'before';
    const other = await setup({ with: world, policies: { default: fixed('5s') } });
    const began: string[] = [];
    other.spool.handle('a', ({ id }) => void began.push(id));
    await other.clock.advance(9 * SECOND);
    expect(began).toEqual([]);
    await other.clock.advance(10 * SECOND);
    expect(began).toEqual(['one', 'two']);
  });
});

describe('an order key', () => {
  test('keeps a message from being handed over with its insert', async () => {
    const { spool, clock, calls } = await setup();
    spool.handle('a', () => undefined);
    await clock.settle();
    await spool.enqueue({ topic: 'a' });
    await spool.enqueue(KEYED);
    await clock.settle();
    const states = calls
      .filter(({ operation }) => operation === 'insert')
      .map(({ args }) => (args[0] as { status: { state: string } }[])[0]?.status.state);
    expect(states).toEqual(['active', 'incoming']);
  });

  test('is told by the message', async () => {
    const { spool } = await setup({ isStarted: false });
    const { id } = await spool.enqueue(KEYED);
    expect((await spool.get(id))?.envelope.orderKey).toBe('customer-7');
  });

  test.each([[''], ['x'.repeat(256)], ['a\nb'], [7]])('is refused as %j', async (orderKey) => {
    const { spool } = await setup({ isStarted: false });
    const enqueue = spool.enqueue({ topic: 'a', orderKey: orderKey as string });
    await expect(enqueue).rejects.toThrow('orderKey');
    expect(await codeOf(enqueue)).toBe('message.invalid');
  });

  test('of 255 characters is taken', async () => {
    const { spool } = await setup({ isStarted: false });
    const { id } = await spool.enqueue({ topic: 'a', orderKey: 'x'.repeat(255) });
    expect(await spool.get(id)).toBeDefined();
  });

  test('is refused by every way in where the store keeps no order, and nothing is written', async () => {
    const { spool, count } = await setup({ isStarted: false, traits: { ordered: false } });
    const ways = [
      () => spool.enqueue(KEYED),
      () => spool.enqueueMany([{ topic: 'a' }, KEYED]),
      () => spool.begin(KEYED),
    ];
    for (const way of ways) {
      expect(await codeOf(way())).toBe('config.invalid');
      await expect(way()).rejects.toThrow('memory, sqlite and postgres');
    }
    expect(count('insert')).toBe(0);
  });
});

describe('keyHeads', () => {
  test('tells the first of each key and how many wait behind it', async () => {
    const { spool } = await setup({ isStarted: false });
    expect(await spool.operator({ by: 'ops' }).keyHeads()).toEqual([]);
    await spool.enqueueMany([
      { topic: 'a', orderKey: 'l', id: 'l1', delay: '1m' },
      { ...KEYED, id: 'c1' },
      { ...KEYED, id: 'c2' },
      { topic: 'a', orderKey: 'l', id: 'l2' },
      { topic: 'a', orderKey: 'l', id: 'l3' },
    ]);
    await spool.operator({ by: 'ops' }).hold(['c1']);
    expect(await spool.operator({ by: 'ops' }).keyHeads()).toEqual([
      {
        orderKey: 'l',
        id: 'l1',
        state: 'deferred',
        dueAt: internalsOf(spool).now() + MINUTE,
        behind: 2,
      },
      { orderKey: 'customer-7', id: 'c1', state: 'hold', dueAt: null, behind: 1 },
    ]);
    expect(await spool.operator({ by: 'ops' }).keyHeads(1)).toHaveLength(1);
    expect(await codeOf(spool.operator({ by: 'ops' }).keyHeads(0))).toBe('limit.exceeded');
    expect(await codeOf(spool.operator({ by: 'ops' }).keyHeads(501))).toBe('limit.exceeded');
  });

  test('tells 100 unless more are asked for', async () => {
    const { spool } = await setup({ isStarted: false });
    const keys = Array.from({ length: 101 }, (_, at) => `k${at}`);
    await spool.enqueueMany([...keys, ...keys].map((orderKey) => ({ topic: 'a', orderKey })));
    expect(await spool.operator({ by: 'ops' }).keyHeads()).toHaveLength(100);
    expect(await spool.operator({ by: 'ops' }).keyHeads(500)).toHaveLength(101);
  });

  test('is refused where the store keeps no order', async () => {
    const without: object = { keyHeads: undefined };
    const { spool } = await setup({ isStarted: false, extras: () => without });
    expect(await codeOf(spool.operator({ by: 'ops' }).keyHeads())).toBe('config.invalid');
    await expect(spool.operator({ by: 'ops' }).keyHeads()).rejects.toThrow(
      'memory, sqlite and postgres',
    );
  });
});

describe('process', () => {
  test('of a message that waits for its turn says so, and leaves it in its place', async () => {
    const { spool, status } = await setup({ isStarted: false });
    await spool.enqueueMany([
      { ...KEYED, id: 'one' },
      { ...KEYED, id: 'two' },
    ]);
    const run = (): Promise<unknown> => spool.process('two', () => undefined);
    expect(await codeOf(run())).toBe('move.refused');
    await expect(run()).rejects.toThrow('behind another message of order key "customer-7"');
    expect((await status('two')).attempts).toBe(0);
    await spool.process('one', () => undefined);
    expect(await spool.process('two', () => undefined)).toEqual({ kind: 'ack' });
  });
});
