/** Stopping with handlers at work: drain, abort, release without cost (R76). */
import { fixed, isRespoolError } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, SECOND, setup } from '../spool/setup.ts';

describe('a stop with handlers at work', () => {
  test('waits for them and settles what they say', async () => {
    const { spool, clock } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    let isStopped = false;
    const stop = spool.stop().then(() => (isStopped = true));
    await clock.advance('5s');
    expect(isStopped).toBe(false);
    gate.open();
    await clock.settle();
    await stop;
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0 });
    await spool.stop();
  });

  test('that a handler asked for, without waiting, settles its message', async () => {
    const { spool, clock, kinds } = await setup();
    spool.handle('a', () => void spool.stop());
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(kinds(id).at(-1)).toBe('delivered');
    expect(kinds().at(-1)).toBe('engine-stopped');
  });

  // It cannot know who awaits it; that it ends all the same is what it promises.
  test('that a handler waits for ends with its time, and gives the message back', async () => {
    const { spool, clock, kinds, status } = await setup();
    let isOver = false;
    spool.handle('a', async () => {
      await spool.stop({ within: '3s' });
      isOver = true;
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    await clock.advance(4 * SECOND - 1);
    expect(isOver).toBe(false);
    await clock.advance(1);
    expect(isOver).toBe(true);
    expect(kinds(id).at(-1)).toBe('released');
    expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
    await spool.stop();
  });

  test('does not begin the messages that wait for a slot', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    for (let at = 0; at < 5; at += 1) await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stop = spool.stop();
    gate.open();
    await clock.settle();
    await stop;
    expect(gate.began).toHaveLength(1);
    expect(await spool.count()).toMatchObject({ incoming: 4, active: 0 });
    await spool.stop();
  });

  test('aborts their signals when the time is over, and says why', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    const reasons: unknown[] = [];
    spool.handle(
      'a',
      ({ signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener('abort', () => {
            reasons.push(signal.reason);
            reject(signal.reason as Error);
          });
        }),
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stop = spool.stop({ within: '3s' });
    await clock.advance(3 * SECOND - 1);
    expect(reasons).toEqual([]);
    await clock.advance(1);
    expect(isRespoolError(reasons[0], 'engine.stopping')).toBe(true);
    await stop;
    // Interrupted by us, not failed: no attempt is spent, and it is due at once.
    expect(await status(id)).toMatchObject({
      state: 'incoming',
      attempts: 0,
      lost: 0,
      dueAt: clock.now(),
    });
    expect((await status(id)).lastFailure).toBeUndefined();
    await spool.stop();
  });

  test('releases to the state it was claimed from', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1m') } });
    let calls = 0;
    spool.handle('a', ({ signal }) => {
      calls += 1;
      if (calls === 1) throw new Error('no');
      return new Promise((_, reject) => {
        signal.addEventListener('abort', () => reject(new Error('interrupted')));
      });
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1m');
    const stop = spool.stop({ within: 0 });
    await clock.advance(1);
    await stop;
    expect(await status(id)).toMatchObject({
      state: 'deferred',
      attempts: 1,
      lastFailure: { reason: 'no' },
    });
    await spool.stop();
  });

  test('keeps a success that comes after the abort', async () => {
    const { spool, clock } = await setup();
    spool.handle(
      'a',
      ({ signal }) =>
        new Promise((resolve) => {
          signal.addEventListener('abort', () => clock.after(900, resolve));
        }),
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stop = spool.stop({ within: '1s' });
    await clock.advance('2s');
    await stop;
    expect(await spool.get(id)).toBeUndefined();
    await spool.stop();
  });

  test('gives up on a handler that is stuck: its message is released without cost', async () => {
    const { spool, clock, status, kinds } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stop = spool.stop({ within: '2s' });
    await clock.advance('10s');
    await stop;
    expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
    expect(kinds(id)).toContain('released');
    // What the stuck handler says in the end is nobody's business any more.
    gate.open();
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
    await spool.stop();
    expect(clock.timers).toBe(0);
  });

  test('gives the released message to the next start, as the same attempt', async () => {
    const { spool, clock } = await setup();
    const attempts: number[] = [];
    const gate = makeGate();
    spool.handle('a', (delivery) => {
      attempts.push(delivery.attempt);
      return attempts.length === 1 ? gate.handler(delivery) : undefined;
    });
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stop = spool.stop({ within: 0 });
    await clock.advance('5s');
    await stop;
    await spool.start();
    await clock.settle();
    expect(attempts).toEqual([1, 1]);
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0 });
  });

  test('within no time at all comes to an end', async () => {
    const { spool, clock } = await setup();
    spool.handle('a', makeGate().handler);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stop = spool.stop({ within: 0 });
    await clock.advance(1);
    await stop;
    expect(clock.timers).toBe(0);
  });

  // Regression: the handler of such a message began on a stopped engine with a closed store.
  test('during an enqueue that is on its way loses nothing and begins nothing', async () => {
    const { spool, clock, store, status } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'insert' ? { answerLateMs: 500 } : 'ok');
    const enqueue = spool.enqueue({ topic: 'a' });
    const stop = spool.stop();
    await clock.advance('1s');
    const { id } = await enqueue;
    await stop;
    expect(attempts).toEqual([]);
    expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
    await spool.stop();
  });

  test('gives back what waited for room under its lease, without cost', async () => {
    const { spool, clock } = await setup({ destinationConcurrency: 1 });
    await spool.operator({ by: 'ops' }).pause('#');
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await spool.enqueueMany(Array.from({ length: 5 }, () => ({ topic: 'a', destination: 'x' })));
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(await spool.count()).toMatchObject({ active: 5 });
    const stop = spool.stop();
    gate.open();
    await clock.settle();
    await stop;
    expect(gate.began).toHaveLength(1);
    const { entries } = await spool.page();
    expect(entries.map(({ status }) => [status.state, status.attempts, status.lost])).toEqual(
      Array.from({ length: 4 }, () => ['incoming', 0, 0]),
    );
    await spool.stop();
    expect(clock.timers).toBe(0);
  });

  test('while the store is away comes to an end, and the message is found by its lease', async () => {
    const { spool, clock, store } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    gate.open();
    let isStopped = false;
    const stop = spool.stop({ within: '5s' }).then(() => (isStopped = true));
    await clock.advance('70s');
    expect(isStopped).toBe(true);
    await stop;
    store.faults.plan = () => 'ok';
    expect((await spool.get(id))?.status.state).toBe('active');
    await spool.stop();
  });
});
