/** Hand-off: an insert that is already active, one write less (R73). */
import { fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, setup, type World } from '../spool/setup.ts';

/** The state of the entries that were inserted, in order. */
function inserted({ calls }: World): string[] {
  return calls
    .filter(({ operation }) => operation === 'insert')
    .flatMap(({ args }) => args[0] as { status: { state: string } }[])
    .map(({ status }) => status.state);
}

describe('a message that comes while a slot is free and nothing older is due', () => {
  test('is inserted active, and delivered with one insert and one commit', async () => {
    const world = await setup();
    const { spool, clock, calls } = world;
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    calls.length = 0;
    await spool.enqueue({ topic: 'a', body: 'x' });
    await clock.settle();
    expect(attempts).toEqual([1]);
    expect(calls.map(({ operation }) => operation)).toEqual(['insert', 'commit']);
    expect(inserted(world)).toEqual(['active']);
  });

  test('counts its attempt, and has revision 1 with the insert', async () => {
    const { spool, clock, status } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await clock.settle();
    const { id } = await spool.enqueue({ topic: 'a' });
    expect(await status(id)).toMatchObject({
      state: 'active',
      attempts: 1,
      revision: 1,
      claimedFrom: 'incoming',
    });
  });

  test('of many at once is handed over as far as there are slots', async () => {
    const world = await setup({ concurrency: 2 });
    const { spool, clock } = world;
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await clock.settle();
    await spool.enqueueMany([{ topic: 'a' }, { topic: 'a' }, { topic: 'a' }]);
    expect(inserted(world)).toEqual(['active', 'active', 'incoming']);
    gate.open();
    await clock.settle();
    expect(gate.began).toHaveLength(3);
  });
});

describe('a message is not handed over', () => {
  const cases: Record<string, (world: World) => Promise<unknown>> = {
    'when it has a delay': ({ spool }) => spool.enqueue({ topic: 'a', delay: '1h' }),
    'when nobody handles its topic': ({ spool }) => spool.enqueue({ topic: 'other', delay: 0 }),
    'when its topic is paused': async ({ spool, clock }) => {
      await spool.operator({ by: 'ops' }).pause('a');
      await clock.settle();
      return spool.enqueue({ topic: 'a' });
    },
    'when its destination is full': async ({ spool }) => {
      await spool.enqueue({ topic: 'wait', destination: 'x' });
      return spool.enqueue({ topic: 'a', destination: 'x' });
    },
    'when its handler is full': async ({ spool }) => {
      await spool.enqueue({ topic: 'wait' });
      return spool.enqueue({ topic: 'wait' });
    },
  };
  test.each(Object.entries(cases))('%s', async (_, run) => {
    const world = await setup({ destinationConcurrency: 1 });
    world.spool.handle('a', () => undefined);
    world.spool.handle('wait', makeGate().handler, { concurrency: 1 });
    await world.clock.settle();
    await run(world);
    expect(inserted(world).at(-1)).not.toBe('active');
  });

  test('when something older is due: it would overtake', async () => {
    const world = await setup({ concurrency: 1, policies: { default: fixed('1h') } });
    const { spool, clock } = world;
    const order: string[] = [];
    const gate = makeGate();
    spool.handle('a', async (delivery) => {
      order.push(delivery.headers['n'] ?? '');
      await gate.handler(delivery);
    });
    await clock.settle();
    for (const n of ['1', '2']) await spool.enqueue({ topic: 'a', headers: { n } });
    await clock.settle();
    const first = gate.began[0] ?? '';
    gate.open(first);
    // In the same turn: the slot is free for a moment, and yet message 2 is older.
    const work = spool.enqueue({ topic: 'a', headers: { n: '3' } });
    await work;
    gate.open();
    await clock.settle();
    expect(order).toEqual(['1', '2', '3']);
    expect(inserted(world)).toEqual(['active', 'incoming', 'incoming']);
  });

  test('when a retry has become due in the meantime', async () => {
    const world = await setup({ concurrency: 1 });
    const { spool, clock, store } = world;
    spool.handle('a', () => undefined);
    await spool.enqueue({ topic: 'a', delay: '10s' });
    await clock.settle();
    // The claim of the due one is on its way for a while.
    store.faults.plan = (operation) => (operation === 'claim' ? { delayMs: 100 } : 'ok');
    await clock.advance('10s');
    await spool.enqueue({ topic: 'a' });
    expect(inserted(world).at(-1)).toBe('incoming');
    await clock.advance('2s');
    expect(await spool.count()).toMatchObject({ incoming: 0, deferred: 0, active: 0 });
  });

  test('while the engine still finds out how long it may sleep', async () => {
    const world = await setup();
    const { spool, clock, store } = world;
    spool.handle('a', () => undefined);
    await spool.enqueue({ topic: 'a', delay: '10s' });
    await clock.advance(10_000 - 50);
    store.faults.plan = (operation) => (operation === 'nextDueAt' ? { delayMs: 100 } : 'ok');
    await spool.operator({ by: 'ops' }).resume('anything');
    await clock.advance(60);
    // The older one became due ten milliseconds ago, and no round has seen it yet.
    await spool.enqueue({ topic: 'a' });
    expect(inserted(world).at(-1)).toBe('incoming');
  });

  test('twice: a duplicate gives its slot back', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await spool.enqueue({ topic: 'other', delay: '1h', dedupeKey: 'k' });
    await clock.settle();
    await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(gate.running).toBe(1);
  });

  test('when the insert fails: its slot is given back', async () => {
    const { spool, clock, store } = await setup({ concurrency: 1 });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    await spool.enqueue({ topic: 'a' }).catch(() => undefined);
    store.faults.plan = () => 'ok';
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(gate.running).toBe(1);
  });

  test('lost when the insert was done and its answer was not: its lease brings it back', async () => {
    const { spool, clock, store } = await setup({ policies: { default: fixed('1m') } });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'insert' ? 'after' : 'ok');
    await spool.enqueue({ topic: 'a' }).catch(() => undefined);
    store.faults.plan = () => 'ok';
    await clock.advance('3m');
    expect(attempts).toEqual([2]);
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
  });
});

test('a message whose topic is paused while it is inserted is given back without cost', async () => {
  const world = await setup();
  const { spool, clock, store, status } = world;
  const { handler, attempts } = failing(0);
  spool.handle('a', handler);
  await clock.settle();
  store.faults.plan = (operation) => (operation === 'insert' ? { answerLateMs: 50 } : 'ok');
  const enqueueing = spool.enqueue({ topic: 'a' });
  await clock.advance('10ms');
  await spool.operator({ by: 'ops' }).pause('a');
  await clock.advance('100ms');
  const { id } = await enqueueing;
  expect(inserted(world)).toEqual(['active']);
  expect(attempts).toEqual([]);
  expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
  await spool.operator({ by: 'ops' }).resume('a');
  await clock.settle();
  expect(attempts).toEqual([1]);
});
