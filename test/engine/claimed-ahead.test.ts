/**
 * Messages that are claimed ahead of the free slots, because handlers are quicker than the store.
 */
import { fixed } from 'respool';
import { memory } from 'respool/stores/memory';
import { describe, expect, test } from 'vitest';
import { Prefetch } from '../../src/engine/claiming.ts';
import { all, makeGate, setup, type World, type WorldOptions } from '../spool/setup.ts';

const STARVED = { isFull: true, isStarved: true, waiting: 0, askedAt: 0, cameAt: 0 };

/** One that has had an answer. */
function begun(concurrency: number): Prefetch {
  const ahead = new Prefetch(concurrency);
  ahead.note({ ...STARVED, isStarved: false });
  return ahead;
}

describe('how far ahead', () => {
  test('not at all until handlers have waited for the store', () => {
    const ahead = new Prefetch(5);
    expect(ahead.count).toBe(0);
    ahead.note({ ...STARVED, isStarved: false });
    expect(ahead.count).toBe(0);
    expect(ahead.wantsMore(0)).toBe(false);
  });

  test('twice as far whenever handlers waited, up to twice as many as there are slots', () => {
    const ahead = begun(50);
    const counts = Array.from({ length: 7 }, () => {
      ahead.note(STARVED);
      return ahead.count;
    });
    expect(counts).toEqual([4, 8, 16, 32, 64, 100, 100]);
  });

  test.each([
    [1, 32],
    [5, 32],
    [10_000, 1_000],
  ])('with %i slots at most %i', (concurrency, most) => {
    const ahead = begun(concurrency);
    for (let n = 0; n < 20; n += 1) ahead.note(STARVED);
    expect(ahead.count).toBe(most);
  });

  test('half as far when many still wait, or there was no more', () => {
    const ahead = begun(1);
    for (let n = 0; n < 20; n += 1) ahead.note(STARVED);
    ahead.note({ ...STARVED, isStarved: false, waiting: 20 });
    expect(ahead.count).toBe(16);
    ahead.note({ ...STARVED, isFull: false });
    expect(ahead.count).toBe(8);
    expect([4, 5].map((waiting) => ahead.wantsMore(waiting))).toEqual([true, false]);
  });
});

describe('not further', () => {
  test('where handlers were busy for much longer than the claim took, or there was none before', () => {
    const ahead = new Prefetch(1);
    ahead.note({ ...STARVED, askedAt: 100, cameAt: 110 });
    expect(ahead.count).toBe(0);
    ahead.note({ ...STARVED, askedAt: 151, cameAt: 161 });
    expect(ahead.count).toBe(0);
    ahead.note({ ...STARVED, askedAt: 201, cameAt: 211 });
    expect(ahead.count).toBe(4);
  });

  test('for a hundred answers after one that should not have waited', () => {
    const ahead = begun(1);
    ahead.note(STARVED);
    expect(ahead.max(1, 0)).toBe(5);
    ahead.pause();
    for (let n = 0; n < 100; n += 1) ahead.note(STARVED);
    expect([ahead.max(1, 0), ahead.max(0, 0)]).toEqual([1, 0]);
    ahead.note(STARVED);
    expect(ahead.max(1, 0)).toBe(5);
  });
});

/** A spool with a backlog, whose first messages go so quickly that more are claimed ahead. */
async function world(quick: number, messages: number, options: WorldOptions = {}) {
  const gate = makeGate();
  let seen = 0;
  const made = await setup({ concurrency: 2, ...options, isStarted: false });
  const unhandle = made.spool.handle('a', async (delivery) => {
    seen += 1;
    if (seen > quick) await gate.handler(delivery);
  });
  await made.spool.enqueueMany(Array.from({ length: messages }, () => ({ topic: 'a' })));
  await made.spool.start();
  await made.clock.settle();
  return { ...made, gate, unhandle };
}

function asked({ calls }: World): number[] {
  return calls
    .filter(({ operation }) => operation === 'claim')
    .map(({ args }) => (args[0] as { max: number }).max);
}

/** What is in a state, or anywhere. */
async function found({ spool }: World, state?: 'active' | 'incoming') {
  return all(spool.list(state === undefined ? {} : { state }));
}

/** A process that claims everything and ends; its leases are over after a minute. */
async function loseAll({ data, clock }: World): Promise<void> {
  const store = memory({ shared: data });
  await store.open();
  const states = ['incoming'] as const;
  const times = { now: clock.now(), leaseMs: 1_000, holder: `${store.instance}/1` };
  await store.claim({ lane: 'delivery', states, max: 1_000, ...times });
}

describe('an engine with quick handlers', () => {
  test('asks for more than it has slots, and runs no more than it has', async () => {
    const { gate, ...made } = await world(20, 200);
    expect(Math.max(...asked(made))).toBeGreaterThan(2);
    expect(gate.mostRunning).toBe(2);
    expect(made.spool.load).toMatchObject({ running: 2 });
    expect(made.spool.load.waiting).toBeGreaterThan(0);
    gate.open();
    await made.clock.settle();
    expect(await found(made)).toEqual([]);
    expect(gate.mostRunning).toBe(2);
    await made.spool.stop();
  });

  test('gives back what waited a second for a slot, without cost', async () => {
    const { gate, ...made } = await world(20, 200);
    const { waiting } = made.spool.load;
    expect(waiting).toBeGreaterThan(0);
    await made.clock.advance('1s');
    expect(made.spool.load).toMatchObject({ running: 2, waiting: 0 });
    expect(await found(made, 'active')).toHaveLength(2);
    const others = await found(made, 'incoming');
    expect(others.length).toBeGreaterThan(100);
    expect(others.every(({ status }) => status.attempts === 0)).toBe(true);
    // And takes no more than it has slots for from then on.
    const before = made.calls.length;
    gate.open(gate.began[0]);
    await made.clock.settle();
    expect(asked({ ...made, calls: made.calls.slice(before) })).toEqual([1, 1]);
    gate.open();
    await made.spool.stop();
  });

  test.each(['#', 'a'])('begins nothing that is paused meanwhile (%s)', async (pause) => {
    const { gate, ...made } = await world(20, 200);
    expect(made.spool.load.waiting).toBeGreaterThan(0);
    const began = gate.began.length;
    await made.spool.operator({ by: 'ops' }).pause(pause);
    gate.open();
    await made.clock.settle();
    expect(gate.began).toHaveLength(began);
    expect(made.spool.load).toMatchObject({ running: 0, waiting: 0 });
    expect(await found(made, 'active')).toEqual([]);
    await made.spool.stop();
  });

  test('gives everything back when it stops, without cost', async () => {
    const { gate, ...made } = await world(20, 200);
    expect(made.spool.load.waiting).toBeGreaterThan(0);
    gate.open();
    const began = gate.began.length;
    await made.spool.stop();
    expect(gate.began).toHaveLength(began);
    const left = await setup({ with: made, isStarted: false });
    const entries = await found(left);
    expect(entries).toHaveLength(200 - 20 - began);
    expect(entries.every(({ status }) => status.attempts === 0)).toBe(true);
  });

  test.each<WorldOptions>([{ destinationConcurrency: 1 }])(
    'claims nothing ahead when there are limits besides (%o)',
    async (options) => {
      const { gate, ...made } = await world(20, 200, options);
      expect(Math.max(...asked(made))).toBeLessThanOrEqual(2);
      expect(gate.running).toBe(2);
      gate.open();
      await made.spool.stop();
    },
  );

  test('leaves what it claimed where it was when its handler is taken away', async () => {
    const { gate, unhandle, ...made } = await world(20, 200, { unhandled: 'leave' });
    expect(made.spool.load.waiting).toBeGreaterThan(0);
    unhandle();
    gate.open();
    await made.clock.settle();
    expect(made.spool.load).toMatchObject({ running: 0, waiting: 0 });
    const left = await found(made, 'incoming');
    expect(left).toHaveLength(200 - 22);
    expect(left.every(({ status }) => status.attempts === 0)).toBe(true);
    await made.spool.stop();
  });

  test('lets nothing wait that would have no attempt left if the process ended', async () => {
    const policies = { default: fixed('1s', { attempts: 1 }) };
    const { gate, ...made } = await world(20, 200, { policies });
    expect(made.spool.load).toMatchObject({ running: 2, waiting: 0 });
    expect(await found(made, 'active')).toHaveLength(2);
    gate.open();
    await made.clock.settle();
    expect(await found(made)).toEqual([]);
    const claims = made.kinds().filter((kind) => kind === 'claimed');
    expect(claims.length).toBeLessThan(220);
    await made.spool.stop();
  });

  test('lets nothing wait that has lost a holder: it might lose one after the other', async () => {
    const { gate, ...made } = await world(0, 0, { policies: { default: fixed('1m') } });
    gate.open();
    await made.spool.operator({ by: 'ops' }).pause('#');
    await made.spool.enqueueMany(Array.from({ length: 50 }, () => ({ topic: 'a' })));
    await loseAll(made);
    await made.spool.operator({ by: 'ops' }).resume('#');
    await made.clock.advance('59s');
    expect(await found(made, 'active')).toEqual([]);
    let mostWaiting = 0;
    made.spool.on('started', () => {
      mostWaiting = Math.max(mostWaiting, made.spool.load.waiting);
    });
    await made.clock.advance('2s');
    expect(await found(made)).toEqual([]);
    expect(mostWaiting).toBe(0);
    await made.spool.stop();
  });
});

describe('an engine whose handlers take their time', () => {
  test('claims no more than it runs, also with a single slot', async () => {
    const made = await setup({ concurrency: 1, isStarted: false });
    const { spool, clock } = made;
    spool.handle('a', () => new Promise<void>((end) => void clock.after(5_000, end)));
    await spool.enqueueMany(Array.from({ length: 20 }, () => ({ topic: 'a' })));
    await spool.start();
    for (let n = 0; n < 10; n += 1) await clock.advance('5s');
    const count = (kind: string): number => made.kinds().filter((one) => one === kind).length;
    expect(count('started')).toBe(11);
    expect(count('claimed')).toBe(11);
    const stopping = spool.stop();
    await clock.advance('5s');
    await stopping;
  });

  test('leaves to others what comes while its single slot is taken', async () => {
    const gate = makeGate();
    const made = await setup({ concurrency: 1 });
    made.spool.handle('a', gate.handler);
    await made.clock.settle();
    await made.spool.enqueue({ topic: 'a' });
    await made.clock.advance('10s');
    await made.spool.enqueue({ topic: 'a' });
    await made.clock.advance('1ms');
    expect(made.spool.load).toMatchObject({ running: 1, waiting: 0 });
    expect(await found(made, 'incoming')).toHaveLength(1);
    gate.open();
    await made.spool.stop();
  });
});

test('a claim that is on its way when its topic is paused is given back without cost', async () => {
  const gate = makeGate();
  const made = await setup({ isStarted: false });
  made.spool.handle('a', gate.handler);
  await made.spool.enqueueMany([{ topic: 'a' }, { topic: 'a' }]);
  made.store.faults.plan = (operation) => (operation === 'claim' ? { answerLateMs: 50 } : 'ok');
  await made.spool.start();
  await made.clock.advance('10ms');
  await made.spool.operator({ by: 'ops' }).pause('a');
  await made.clock.advance('1s');
  expect(gate.began).toEqual([]);
  const left = await found(made, 'incoming');
  expect(left.map(({ status }) => status.attempts)).toEqual([0, 0]);
  await made.spool.stop();
});
