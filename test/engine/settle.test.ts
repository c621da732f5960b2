/** Verdicts that do not get through: tried again, never doubled, never lost (R53, R54). */
import { fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, MINUTE, setup } from '../spool/setup.ts';

describe('a verdict', () => {
  test('that fails before the write is written again; the handler ran once', async () => {
    const { spool, clock, store, kinds } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation, n) => (operation === 'commit' && n <= 3 ? 'before' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('10s');
    expect(attempts).toEqual([1]);
    expect(await spool.get(id)).toBeUndefined();
    expect(kinds(id).filter((kind) => kind === 'delivered')).toHaveLength(1);
    expect(kinds().filter((kind) => kind === 'trouble')).toHaveLength(3);
  });

  test('that fails after the write is not carried out twice', async () => {
    const { spool, clock, store, status } = await setup({ policies: { default: fixed('10m') } });
    const { handler, attempts } = failing(1);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation, n) => (operation === 'commit' && n === 1 ? 'after' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
    await clock.advance('1m');
    expect(await status(id)).toMatchObject({ state: 'deferred', attempts: 1, revision: 2 });
    await clock.advance('10m');
    expect(attempts).toEqual([1, 2]);
    expect((await status(id)).ending).toBe('delivered');
  });

  // Regression: what was done and not answered was told as stale, and process() as refused.
  test('that fails after the write is told as what it was', async () => {
    const { spool, clock, store, kinds, status } = await setup({
      policies: { default: fixed('10m') },
    });
    spool.handle('a', failing(1).handler);
    await clock.settle();
    store.faults.plan = (operation, n) => (operation === 'commit' && n % 2 === 1 ? 'after' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('11m');
    const isTold = (kind: string): boolean => !['claimed', 'started', 'ended'].includes(kind);
    const told = kinds(id).filter(isTold);
    expect(told).toEqual(['accepted', 'deferred', 'delivered']);
    const { id: other } = await spool.enqueue({ topic: 'b', delay: '1h', dedupeKey: 'k' });
    let commits = 0;
    store.faults.plan = (operation) => {
      if (operation !== 'commit') return 'ok';
      commits += 1;
      // The first is the operator's, the second the verdict.
      return commits === 2 ? 'after' : 'ok';
    };
    const work = spool.process(other, () => undefined);
    await clock.advance('1s');
    expect(await work).toEqual({ kind: 'ack' });
    expect((await status(other)).ending).toBe('delivered');
  });

  test('that fails after the write has all its consequences, in time', async () => {
    const { spool, clock, store, bodies } = await setup({
      policies: { default: fixed('7s') },
      caretaker: { every: '1d' },
    });
    const { handler, attempts } = failing(1);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation, n) => (operation === 'commit' && n % 2 === 1 ? 'after' : 'ok');
    await spool.enqueue({ topic: 'a', body: Buffer.alloc(50_000) });
    await clock.advance('7s');
    // Due at its time, not at the next safety poll.
    expect(attempts).toEqual([1, 2]);
    await clock.advance('1s');
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
    let refs = 0;
    for await (const _ of bodies.refs(Number.MAX_SAFE_INTEGER)) refs += 1;
    expect(refs).toBe(0);
  });

  test.each([{ answerLateMs: 25_000 }, { delayMs: 25_000 }])(
    'that takes longer than a heartbeat’s time is not taken for a lost lease (%o)',
    async (fault) => {
      const { spool, clock, store, kinds } = await setup({ lease: '60s' });
      spool.handle('a', () => undefined);
      await clock.settle();
      store.faults.plan = (operation, n) => (operation === 'commit' && n === 1 ? fault : 'ok');
      const { id } = await spool.enqueue({ topic: 'a' });
      await clock.advance('1m');
      expect(kinds(id)).toEqual(['accepted', 'claimed', 'started', 'ended', 'delivered']);
    },
  );

  test('of success that fails after the write leaves nothing behind', async () => {
    const { spool, clock, store, bodies } = await setup({ caretaker: { orphanGrace: '1m' } });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation, n) => (operation === 'commit' && n === 1 ? 'after' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a', body: Buffer.alloc(50_000) });
    await clock.advance('30m');
    expect(attempts).toEqual([1]);
    expect(await spool.get(id)).toBeUndefined();
    let refs = 0;
    for await (const _ of bodies.refs(Number.MAX_SAFE_INTEGER)) refs += 1;
    expect(refs).toBe(0);
  });

  test('that does not get through is tried again with growing waits', async () => {
    const { spool, clock, store, count } = await setup();
    spool.handle('a', () => undefined);
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    await spool.enqueue({ topic: 'a' });
    await clock.advance('19s');
    expect(count('commit')).toBeGreaterThan(5);
    expect(count('commit')).toBeLessThan(20);
  });

  test('is not tried any more once the fence has fallen', async () => {
    const { spool, clock, store, count } = await setup({ caretaker: { every: '1d' } });
    spool.handle('a', () => undefined);
    await clock.settle();
    store.faults.plan = (operation) =>
      operation === 'commit' || operation === 'claim' ? 'before' : 'ok';
    await spool.enqueue({ topic: 'a' });
    await clock.advance('1m');
    const tries = count('commit');
    await clock.advance('10m');
    expect(count('commit')).toBe(tries);
  });

  test('that never gets through is given up at the fence; the message comes again', async () => {
    const { spool, clock, store } = await setup({ policies: { default: fixed('1m') } });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('2m');
    store.faults.plan = () => 'ok';
    await clock.advance('5m');
    // At least once: the success was not on record, so it is delivered again.
    expect(attempts).toEqual([1, 2]);
    expect(await spool.get(id)).toBeUndefined();
  });

  test('that comes after another holder took over is stale and changes nothing', async () => {
    const one = await setup({ policies: { default: fixed('10m') } });
    const gate = makeGate();
    one.spool.handle('a', gate.handler, { timeout: '1d' });
    const { id } = await one.spool.enqueue({ topic: 'a' });
    await one.clock.settle();
    // The first process sleeps through its lease: its store does not answer.
    one.store.faults.plan = (operation) => {
      if (operation === 'claim') return 'before';
      return operation === 'commit' ? { delayMs: 5 * MINUTE } : 'ok';
    };
    const two = await setup({ with: one, policies: { default: fixed('10m') } });
    two.spool.handle('a', () => undefined);
    await one.clock.advance('3m');
    expect(await two.status(id)).toMatchObject({ state: 'deferred', lost: 1 });
    gate.open();
    // Its heartbeat comes back first, then its verdict goes out: both far too late.
    await two.spool.operator({ by: 'ops' }).hold([id]);
    await one.clock.advance('10m');
    expect(one.kinds(id)).toContain('stale');
    expect(one.kinds(id)).not.toContain('delivered');
    expect(await two.status(id)).toMatchObject({ state: 'hold', lost: 1 });
  });

  test('waits for a heartbeat that is on its way, instead of overtaking itself', async () => {
    const { spool, clock, store, kinds } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler, { timeout: '1d' });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    store.faults.plan = (operation, n) =>
      operation === 'commit' && n === 1 ? { answerLateMs: 500 } : 'ok';
    await clock.advance('20s');
    gate.open();
    await clock.advance('1s');
    expect(await spool.get(id)).toBeUndefined();
    expect(kinds(id)).not.toContain('stale');
  });
});

describe('a store that is away', () => {
  test('is tried again with growing waits, and work goes on when it is back', async () => {
    const { spool, clock, store, kinds, count } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'a', delay: '1m' });
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'claim' ? 'before' : 'ok');
    const before = count('claim');
    await clock.advance('11m');
    // 100 ms, 200 ms, … up to 30 s, two claims each: not one try per millisecond.
    expect(count('claim') - before).toBeLessThan(100);
    expect(kinds().filter((kind) => kind === 'trouble').length).toBeGreaterThan(5);
    store.faults.plan = () => 'ok';
    await clock.advance('30s');
    expect(attempts).toEqual([1]);
  });

  test('in the middle of a round does not lose what that round claimed', async () => {
    const { spool, clock, store, kinds } = await setup();
    await spool.operator({ by: 'ops' }).pause('#');
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'a', delay: '1s' });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('1s');
    let claims = 0;
    store.faults.plan = (operation) => {
      if (operation !== 'claim') return 'ok';
      claims += 1;
      return claims === 2 ? 'before' : 'ok';
    };
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.advance('5s');
    expect(attempts).toEqual([1, 1]);
    expect(kinds()).not.toContain('lease-lost');
  });
});
