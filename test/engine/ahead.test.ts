/** Messages that are claimed ahead of the free slots, because handlers are quicker than the store. */
import { describe, expect, test } from 'vitest';
import { Ahead } from '../../src/engine/ahead.ts';
import { all, makeGate, setup, type World, type WorldOptions } from '../spool/setup.ts';

const STARVED = { isFull: true, isStarved: true, waiting: 0 };

describe('how far ahead', () => {
  test('not at all until handlers have waited for the store', () => {
    const ahead = new Ahead(5);
    expect(ahead.count).toBe(0);
    ahead.note({ ...STARVED, isStarved: false });
    expect(ahead.count).toBe(0);
    expect(ahead.wantsMore(0)).toBe(false);
  });

  test('twice as far whenever handlers waited, up to twice as many as there are slots', () => {
    const ahead = new Ahead(50);
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
    const ahead = new Ahead(concurrency);
    for (let n = 0; n < 20; n += 1) ahead.note(STARVED);
    expect(ahead.count).toBe(most);
  });

  test('half as far when many still wait, or there was no more', () => {
    const ahead = new Ahead(1);
    for (let n = 0; n < 20; n += 1) ahead.note(STARVED);
    ahead.note({ isFull: true, isStarved: false, waiting: 20 });
    expect(ahead.count).toBe(16);
    ahead.note({ isFull: false, isStarved: true, waiting: 0 });
    expect(ahead.count).toBe(8);
    expect([4, 5].map((waiting) => ahead.wantsMore(waiting))).toEqual([true, false]);
  });
});

/** A spool with a backlog, whose first messages go so quickly that more are claimed ahead. */
async function world(quick: number, messages: number, options: WorldOptions = {}) {
  const gate = makeGate();
  let seen = 0;
  const made = await setup({ concurrency: 2, ...options, isStarted: false });
  made.spool.handle('a', async (delivery) => {
    seen += 1;
    if (seen > quick) await gate.handler(delivery);
  });
  await made.spool.enqueueMany(Array.from({ length: messages }, () => ({ topic: 'a' })));
  await made.spool.start();
  await made.clock.settle();
  return { ...made, gate };
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

  test.each([{}, { topic: 'a' }])('begins nothing that is paused meanwhile (%o)', async (pause) => {
    const { gate, ...made } = await world(20, 200);
    expect(made.spool.load.waiting).toBeGreaterThan(0);
    const began = gate.began.length;
    await made.spool.pause(pause);
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
});
