/** Leases: heartbeats, lost holders, self-fencing (R25, R26, weakness 4). */
import { type EntryStore, fixed, isRespoolError, PermanentError } from 'respool';
import { memory } from 'respool/stores/memory';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, MINUTE, setup, type World } from '../spool/setup.ts';

/** A process that claims what is due and dies with it. */
async function deadProcess({
  data,
  clock,
}: World): Promise<{ readonly claim: () => Promise<number> }> {
  const store: EntryStore = memory({ shared: data });
  await store.open();
  let calls = 0;
  return {
    claim: async () => {
      calls += 1;
      const claimed = await store.claim({
        lane: 'delivery',
        states: ['incoming', 'deferred'],
        max: 100,
        now: clock.now(),
        leaseMs: MINUTE,
        holder: `${store.instance}/${calls}`,
      });
      return claimed.length;
    },
  };
}

describe('the lease of a running handler', () => {
  test('is kept by heartbeats for as long as it runs', async () => {
    const one = await setup();
    const two = await setup({ with: one });
    const gate = makeGate();
    one.spool.handle('a', gate.handler, { timeout: '1d' });
    const { id } = await one.spool.enqueue({ topic: 'a' });
    await one.clock.settle();
    const other = failing(0);
    two.spool.handle('a', other.handler);
    await one.clock.advance('2h');
    expect(other.attempts).toEqual([]);
    expect((await one.status(id)).state).toBe('active');
    gate.open();
    await one.clock.settle();
    expect(await one.spool.get(id)).toBeUndefined();
    expect(one.kinds()).not.toContain('lease-lost');
  });

  test('is extended a third into it, and by one commit for all that run', async () => {
    const { spool, clock, calls, count } = await setup({ lease: '60s' });
    spool.handle('a', makeGate().handler, { timeout: '1d' });
    await spool.enqueueMany(Array.from({ length: 5 }, () => ({ topic: 'a' })));
    await clock.settle();
    calls.length = 0;
    await clock.advance('19s');
    expect(count('commit')).toBe(0);
    await clock.advance('1s');
    const commits = calls.filter(({ operation }) => operation === 'commit');
    expect(commits.map(({ args }) => (args[0] as unknown[]).length)).toEqual([5]);
    await clock.advance('60s');
    expect(count('commit')).toBe(4);
  });

  test('is kept though every second heartbeat fails', async () => {
    const { spool, clock, store, kinds } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler, { timeout: '1d' });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    store.faults.plan = (operation, n) => (operation === 'commit' && n % 2 === 0 ? 'before' : 'ok');
    await clock.advance('10m');
    store.faults.plan = () => 'ok';
    gate.open();
    await clock.settle();
    expect(kinds(id)).not.toContain('lease-lost');
    expect(await spool.get(id)).toBeUndefined();
  });

  // Regression: a heartbeat that was written and not answered cost a living holder its claim.
  test('is kept though the answers to heartbeats get lost', async () => {
    const { spool, clock, store, kinds, status } = await setup({
      retention: { delivered: { archive: '1d' } },
    });
    const gate = makeGate();
    let isAborted = false;
    spool.handle(
      'a',
      async (delivery) => {
        await gate.handler(delivery);
        isAborted = delivery.signal.aborted;
      },
      { timeout: '1d' },
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    store.faults.plan = (operation, n) => (operation === 'commit' && n % 3 !== 0 ? 'after' : 'ok');
    await clock.advance('10m');
    store.faults.plan = () => 'ok';
    gate.open();
    await clock.advance('1s');
    expect(isAborted).toBe(false);
    expect(kinds(id)).not.toContain('lease-lost');
    expect(kinds(id)).not.toContain('stale');
    expect(await status(id)).toMatchObject({ ending: 'delivered', attempts: 1 });
  });

  test('that cannot be kept aborts the handler before it is over', async () => {
    const { spool, clock, store, kinds } = await setup({ lease: '60s' });
    const aborted: unknown[] = [];
    const start = clock.now();
    spool.handle('a', ({ signal }) => {
      signal.addEventListener('abort', () => aborted.push([clock.now() - start, signal.reason]));
      return new Promise(() => undefined);
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    await clock.advance('59s');
    expect(aborted).toHaveLength(1);
    const [[at, reason]] = aborted as [[number, unknown]];
    expect(at).toBeLessThan(60_000);
    expect(at).toBeGreaterThanOrEqual(40_000);
    expect(isRespoolError(reason, 'store.unavailable')).toBe(true);
    expect(kinds(id)).toContain('lease-lost');
  });

  test('that somebody else took is noticed with the next heartbeat', async () => {
    const world = await setup();
    const { spool, clock, kinds, data } = world;
    const aborted: string[] = [];
    const gate = makeGate();
    spool.handle('a', async (delivery) => {
      delivery.signal.addEventListener('abort', () => aborted.push(delivery.id));
      await gate.handler(delivery);
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    // An operator with wrong ideas, or a server that forgot the claim in a crash.
    const store = memory({ shared: data });
    await store.open();
    const entry = await store.get(id);
    if (entry === undefined) throw new Error('gone');
    const { holder: _holder, claimedFrom: _from, ...rest } = entry.status;
    const to = { ...rest, state: 'hold' as const, revision: rest.revision + 1, dueAt: null };
    await store.commit([{ id, revision: rest.revision, holder: entry.status.holder ?? '', to }]);
    await clock.advance('20s');
    expect(aborted).toEqual([id]);
    gate.open();
    await clock.settle();
    expect(kinds(id)).toContain('stale');
    expect((await world.status(id)).state).toBe('hold');
  });
});

describe('a message whose holder was lost', () => {
  test('is judged as a failure when its lease is over, before any handler runs', async () => {
    const world = await setup({ policies: { default: fixed('10m') } });
    const { spool, clock, status, kinds } = world;
    const dead = await deadProcess(world);
    await spool.operator({ by: 'ops' }).pause('#');
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    expect(await dead.claim()).toBe(1);
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.advance('59s');
    expect((await status(id)).state).toBe('active');
    await clock.advance('1s');
    expect(attempts).toEqual([]);
    expect(await status(id)).toMatchObject({
      state: 'deferred',
      attempts: 1,
      lost: 1,
      dueAt: clock.now() + 10 * MINUTE,
      lastFailure: { code: 'holder.lost', permanence: 'transient' },
    });
    expect(kinds(id)).toContain('lease-lost');
    await clock.advance('10m');
    expect(attempts).toEqual([2]);
  });

  test('is held at the fourth loss in a row: it may kill its holders', async () => {
    const world = await setup({
      isStarted: false,
      policies: { default: fixed('10m', { attempts: 50 }) },
    });
    const { spool, clock, status } = world;
    const dead = await deadProcess(world);
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    for (let loss = 1; loss <= 4; loss += 1) {
      expect(await dead.claim()).toBe(1);
      await spool.start();
      await clock.advance('61s');
      expect(await status(id)).toMatchObject({ lost: loss, attempts: loss });
      expect((await status(id)).state).toBe(loss < 4 ? 'deferred' : 'hold');
      await spool.stop();
      await clock.advance('10m');
    }
    expect(attempts).toEqual([]);
    expect(await status(id)).toMatchObject({ because: { code: 'holder.lost' }, dueAt: null });
    await spool.operator({ by: 'ops' }).release([id]);
    await spool.start();
    await clock.settle();
    expect(attempts).toEqual([5]);
  });

  test('counts losses in a row only: a holder that lives breaks the row', async () => {
    const world = await setup({
      isStarted: false,
      policies: { default: fixed('10m', { attempts: 50 }) },
    });
    const { spool, clock, status } = world;
    const dead = await deadProcess(world);
    spool.handle('a', failing(99).handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await dead.claim();
    await spool.start();
    await clock.advance('61s');
    expect((await status(id)).lost).toBe(1);
    await clock.advance('10m');
    expect(await status(id)).toMatchObject({ lost: 0, attempts: 2 });
  });

  test('spends its attempts: one that kills every process bounces in the end', async () => {
    const world = await setup({
      isStarted: false,
      policies: { default: fixed('10m', { attempts: 2 }) },
    });
    const { spool, clock, status } = world;
    const dead = await deadProcess(world);
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    for (const state of ['deferred', 'bounce']) {
      expect(await dead.claim()).toBe(1);
      await spool.start();
      await clock.advance('61s');
      expect((await status(id)).state).toBe(state);
      await spool.stop();
      await clock.advance('10m');
    }
    expect(attempts).toEqual([]);
    expect(await status(id)).toMatchObject({ attempts: 2, lastFailure: { code: 'holder.lost' } });
    await spool.stop();
  });

  test('in the lane of notices goes on as a notice', async () => {
    const world = await setup({ policies: { notice: fixed('5m'), default: fixed('1m') } });
    const { spool, clock, status, data } = world;
    const deliveries = failing(9, () => new PermanentError('x', 'y'));
    spool.handle('a', deliveries.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const store = memory({ shared: data });
    await store.open();
    await store.claim({
      lane: 'notice',
      states: ['bounce'],
      max: 1,
      now: clock.now(),
      leaseMs: MINUTE,
      holder: `${store.instance}/1`,
    });
    const notices = failing(0);
    spool.onBounce('a', notices.handler);
    await clock.advance('61s');
    expect(await status(id)).toMatchObject({ state: 'bounce', lane: 'notice', lost: 1 });
    await clock.advance('5m');
    expect(notices.attempts).toEqual([2]);
    expect(deliveries.attempts).toEqual([1]);
  });

  test('may be taken over by an operator once the lease is over', async () => {
    const world = await setup({ isStarted: false });
    const { spool, clock, status } = world;
    const { id } = await spool.enqueue({ topic: 'a' });
    await (await deadProcess(world)).claim();
    expect((await spool.operator({ by: 'ops' }).hold([id]))[0]?.result).toBe('refused');
    await clock.advance('1m');
    expect((await spool.operator({ by: 'ops' }).hold([id]))[0]?.result).toBe('done');
    expect((await status(id)).holder).toBeUndefined();
  });
});
