/** start, stop, restart, dispose; several spools in one process (R25, R31, R76, R209, R220). */
import { fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { codeOf, failing, makeGate, MINUTE, rejection, setup } from './setup.ts';

describe('start', () => {
  test('twice is refused, and the first goes on', async () => {
    const { spool, clock } = await setup();
    expect(await codeOf(spool.start())).toBe('config.invalid');
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(attempts).toEqual([1]);
  });

  test('twice at once starts one', async () => {
    const { spool } = await setup({ isStarted: false });
    const results = await Promise.allSettled([spool.start(), spool.start()]);
    expect(results.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    await spool.stop();
  });

  test('fails when the store does not open, and can be tried again', async () => {
    const { spool, store, clock } = await setup({ isStarted: false });
    store.faults.plan = (operation) => (operation === 'open' ? 'before' : 'ok');
    expect(await codeOf(spool.start())).toBe('store.unavailable');
    store.faults.plan = () => 'ok';
    await spool.start();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(attempts).toEqual([1]);
  });

  test('closes the entry store again when the body store does not open', async () => {
    const { spool, bodies, count } = await setup({ isStarted: false });
    bodies.faults.plan = (operation) => (operation === 'open' ? 'before' : 'ok');
    expect(await codeOf(spool.start())).toBe('store.unavailable');
    expect(count('close')).toBe(1);
    expect(bodies.faults.count('close')).toBe(0);
  });

  test('closes both stores again when a later step fails, and can be tried again', async () => {
    const { spool, store, bodies, count } = await setup({ isStarted: false });
    store.faults.plan = (operation) => (operation.startsWith('records.') ? 'before' : 'ok');
    bodies.faults.plan = (operation) => (operation === 'close' ? 'after' : 'ok');
    expect(await codeOf(spool.start())).toBe('store.unavailable');
    expect([count('close'), bodies.faults.count('close')]).toEqual([1, 1]);
    store.faults.plan = () => 'ok';
    bodies.faults.plan = () => 'ok';
    await spool.start();
    await spool.stop();
  });
});

describe('stop', () => {
  test('is idempotent, before and after a start, and while it stops', async () => {
    const { spool, count } = await setup({ isStarted: false });
    await spool.stop();
    await spool.start();
    await Promise.all([spool.stop(), spool.stop()]);
    await spool.stop();
    expect(count('close')).toBe(1);
  });

  test('leaves no timer behind', async () => {
    const { spool, clock } = await setup();
    spool.handle('a', failing(1).handler);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    await spool.stop();
    expect(clock.timers).toBe(0);
  });

  test('stops watching the store', async () => {
    let watchers = 0;
    const { spool } = await setup({
      extras: () => ({
        watch: () => {
          watchers += 1;
          return () => void (watchers -= 1);
        },
      }),
    });
    expect(watchers).toBe(1);
    await spool.stop();
    expect(watchers).toBe(0);
    await spool.start();
    expect(watchers).toBe(1);
    await spool.stop();
  });

  test('ends the delivering: nothing is claimed afterwards', async () => {
    const { spool, clock, count } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'a', delay: '1m' });
    await clock.settle();
    await spool.stop();
    const claims = count('claim');
    await clock.advance('1h');
    expect(count('claim')).toBe(claims);
    expect(attempts).toEqual([]);
  });

  test('refuses new work while it stops', async () => {
    const { spool, clock } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stop = spool.stop();
    await clock.settle();
    expect(await codeOf(spool.enqueue({ topic: 'a' }))).toBe('engine.stopping');
    expect(await codeOf(spool.count())).toBe('engine.stopping');
    gate.open();
    await clock.settle();
    await stop;
  });

  test('refuses every way in once it has stopped, and nothing is opened for it', async () => {
    const { spool, count } = await setup();
    const tx = await spool.begin({ topic: 'a' });
    await tx.write('x');
    const committing = codeOf(tx.commit());
    await spool.stop();
    await committing;
    const opened = count('open');
    const message = { topic: 'a', body: { n: 1 } };
    expect(await codeOf(spool.enqueue(message))).toBe('engine.stopping');
    expect(await codeOf(spool.enqueueMany([message, message]))).toBe('engine.stopping');
    expect(await codeOf(spool.begin({ topic: 'a' }))).toBe('engine.stopping');
    expect((await rejection(spool.enqueue(message))).message).toContain('call start()');
    expect(count('open')).toBe(opened);
  });

  test('refuses an enqueue also when a look has opened the stores again', async () => {
    const { spool } = await setup();
    await spool.stop();
    expect(await spool.count()).toMatchObject({ incoming: 0 });
    expect(await codeOf(spool.enqueue({ topic: 'a' }))).toBe('engine.stopping');
    expect(await spool.count()).toMatchObject({ incoming: 0 });
    await spool.start();
    await spool.enqueue({ topic: 'a' });
    expect(await spool.count()).toMatchObject({ incoming: 1 });
  });

  test('right after a start that nobody awaited leaves the spool stopped', async () => {
    const { spool, clock, count } = await setup({ isStarted: false });
    const start = spool.start();
    await spool.stop();
    await start.catch(() => undefined);
    await clock.settle();
    const calls = count('claim');
    await clock.advance('1h');
    expect(count('claim')).toBe(calls);
    expect(clock.timers).toBe(0);
    expect(count('close')).toBe(count('open'));
  });

  test('refuses a span that is none, as a rejection', async () => {
    const { spool } = await setup();
    const error = await rejection(spool.stop({ within: 'soon' }));
    expect(error.message).toContain('"within"');
  });
});

describe('a restart', () => {
  test('goes on with what was left, deferred and due alike', async () => {
    // Weakness 2: elsewhere a restart parks due messages where nothing looks for them.
    const { spool, clock, status } = await setup({ policies: { default: fixed('10m') } });
    const { handler, attempts } = failing(2);
    spool.handle('a', handler);
    const { id } = await spool.enqueue({ topic: 'a', id: 'mine' });
    await clock.settle();
    await spool.stop();
    await clock.advance('30m');
    expect(attempts).toEqual([1]);
    await spool.start();
    await clock.settle();
    expect(attempts).toEqual([1, 2]);
    await clock.advance('10m');
    expect(attempts).toEqual([1, 2, 3]);
    expect((await status(id)).ending).toBe('delivered');
  });

  test('in another process goes on with what the first left, ten thousand and more', async () => {
    const first = await setup({ isStarted: false });
    await first.spool.enqueueMany(
      Array.from({ length: 10_050 }, (_, at) => ({ topic: 'a', delay: at % 2 === 0 ? 0 : 1 })),
    );
    await first.spool.stop();
    const second = await setup({ with: first, concurrency: 500 });
    let delivered = 0;
    second.spool.handle('a', () => void (delivered += 1));
    await second.clock.advance('1s');
    expect(delivered).toBe(10_050);
  });

  test('frees at once what a dead process held, when the store can tell', async () => {
    const dead = await setup();
    const gate = makeGate();
    dead.spool.handle('a', gate.handler);
    const { id } = await dead.spool.enqueue({ topic: 'a' });
    await dead.clock.settle();
    // The first process is gone; its store's lifetime lock can be taken.
    const { spool, status, clock } = await setup({
      with: dead,
      policies: { default: fixed('5m') },
      extras: (store) => ({
        expireLost: async (now) => {
          const entry = await store.get(id);
          if (entry?.status.state !== 'active' || (entry.status.dueAt ?? 0) <= now) return 0;
          const { holder = '', revision } = entry.status;
          const to = { ...entry.status, revision: revision + 1, dueAt: now };
          await store.commit([{ id, revision, holder, to }]);
          return 1;
        },
      }),
    });
    spool.handle('a', () => undefined);
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'deferred',
      lost: 1,
      lastFailure: { code: 'holder.lost' },
      dueAt: clock.now() + 5 * MINUTE,
    });
  });
});

describe('a spool', () => {
  test('is stopped by leaving its scope', async () => {
    const world = await setup();
    {
      await using spool = world.spool;
      spool.handle('a', () => undefined);
      await spool.enqueue({ topic: 'a' });
      await world.clock.settle();
    }
    expect(world.kinds().at(-1)).toBe('engine-stopped');
    expect(world.count('close')).toBe(1);
  });

  test('knows nothing of another spool in the same process', async () => {
    const one = await setup();
    const two = await setup();
    const seen: string[] = [];
    one.spool.handle('a', () => void seen.push('one'));
    two.spool.handle('a', () => void seen.push('two'));
    await one.spool.operator({ by: 'ops' }).pause('#');
    await one.spool.enqueue({ topic: 'a' });
    await two.spool.enqueue({ topic: 'a' });
    await one.clock.settle();
    await two.clock.settle();
    expect(seen).toEqual(['two']);
    await two.spool.stop();
    await one.spool.operator({ by: 'ops' }).resume('#');
    await one.clock.settle();
    expect(seen).toEqual(['two', 'one']);
  });

  test('shares its messages with another spool on the same data: each is delivered once', async () => {
    const one = await setup();
    const two = await setup({ with: one });
    const seen: string[] = [];
    for (const { spool } of [one, two]) spool.handle('a', ({ id }) => void seen.push(id));
    const work: Promise<unknown>[] = [];
    for (let at = 0; at < 100; at += 1) {
      work.push((at % 2 === 0 ? one : two).spool.enqueue({ topic: 'a' }));
    }
    await Promise.all(work);
    await one.clock.advance('1m');
    expect(seen).toHaveLength(100);
    expect(new Set(seen).size).toBe(100);
  });
});
