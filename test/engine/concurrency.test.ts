/** Never more handlers at once than allowed: in all, per handler, per destination (R70, R72, R75). */
import { fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, MINUTE, setup } from '../spool/setup.ts';

describe('concurrency', () => {
  test('is never passed, whatever the mix of new, due and handed-over messages', async () => {
    const { spool, clock } = await setup({ concurrency: 4, policies: { default: fixed('1m') } });
    let running = 0;
    let most = 0;
    const failed = new Set<string>();
    spool.handle('a', async ({ id }) => {
      running += 1;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => clock.after(7, resolve));
      running -= 1;
      if (!failed.has(id)) {
        failed.add(id);
        throw new Error('once');
      }
    });
    await spool.enqueueMany(Array.from({ length: 20 }, () => ({ topic: 'a' })));
    await clock.advance('1m');
    for (let at = 0; at < 20; at += 1) {
      await spool.enqueue({ topic: 'a' });
      await clock.advance(3);
    }
    await clock.advance('3m');
    expect(most).toBe(4);
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
  });

  // Regression: each handler with a limit of its own took the whole share of its kind.
  test('is never passed by handlers with limits of their own', async () => {
    const { spool, clock } = await setup({ concurrency: 4, policies: { default: fixed('1m') } });
    const gates = [makeGate(), makeGate(), makeGate()];
    await spool.operator({ by: 'ops' }).pause('#');
    const dueAt = clock.now() + MINUTE;
    for (const [at, gate] of gates.entries()) {
      spool.handle(`t${at}`, gate.handler, { concurrency: 4 });
      for (let n = 0; n < 6; n += 1) {
        await spool.enqueue({ topic: `t${at}` });
        await spool.enqueue({ topic: `t${at}`, dueAt });
      }
    }
    await clock.advance('1m');
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    const running = (): number => gates.reduce((sum, gate) => sum + gate.running, 0);
    expect(running()).toBe(4);
    let most = 0;
    for (let step = 0; step < 40; step += 1) {
      const busy = gates.find((gate) => gate.running > 0);
      const last = busy?.began.at(-1);
      if (busy === undefined || last === undefined) break;
      for (const id of busy.began) busy.open(id);
      await clock.settle();
      most = Math.max(most, running());
    }
    expect(most).toBeLessThanOrEqual(4);
    expect(gates.map((gate) => gate.began.length)).toEqual([12, 12, 12]);
  });

  // Regression: what the second of them claimed was the first one's, and waited under its lease.
  test('is not stretched by a second handler of the same topic, which never has its turn', async () => {
    const { spool, clock, status } = await setup();
    const gate = makeGate();
    const second = failing(0);
    spool.handle('a', gate.handler, { concurrency: 1, timeout: '1d' });
    spool.handle('a', second.handler, { concurrency: 5 });
    const messages = Array.from({ length: 20 }, () => ({ topic: 'a' }));
    const ids = (await spool.enqueueMany(messages)).map(({ id }) => id);
    await clock.advance('5m');
    expect(gate.began).toHaveLength(1);
    const touched = await Promise.all(ids.map(async (id) => (await status(id)).attempts));
    expect(touched.filter((attempts) => attempts > 0)).toHaveLength(1);
    gate.open();
    await clock.settle();
    expect([gate.began.length, gate.mostRunning, second.attempts.length]).toEqual([20, 1, 0]);
  });

  // Regression: the second handler's room claimed the first one's whole backlog, to wait under lease.
  test('of handlers that pick by envelope claims ahead no more than a few per slot', async () => {
    const { spool, clock, status } = await setup({ concurrency: 2 });
    const gate = makeGate();
    const rest = failing(0);
    spool.handle('a', gate.handler, {
      concurrency: 1,
      timeout: '1d',
      accepts: ({ headers }) => headers['tenant'] === 'acme',
    });
    spool.handle('a', rest.handler, { concurrency: 1 });
    const messages = Array.from({ length: 100 }, () => ({
      topic: 'a',
      headers: { tenant: 'acme' },
    }));
    const ids = (await spool.enqueueMany(messages)).map(({ id }) => id);
    await clock.advance('5m');
    const touched = await Promise.all(ids.map(async (id) => (await status(id)).attempts));
    expect(touched.filter((attempts) => attempts > 0).length).toBeLessThanOrEqual(1 + 2 * 4 + 1);
    await spool.enqueue({ topic: 'a' });
    gate.open();
    await clock.settle();
    expect([gate.began.length, gate.mostRunning, rest.attempts.length]).toEqual([100, 1, 1]);
  });

  test('frees a slot when the handler ends, not when its verdict is on disk', async () => {
    const { spool, clock, store } = await setup({ concurrency: 1 });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.settle();
    store.faults.plan = (operation) => (operation === 'commit' ? { delayMs: 1_000 } : 'ok');
    await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(attempts).toEqual([1, 1]);
  });
});

describe('destinationConcurrency', () => {
  test('bounds each destination by one number', async () => {
    const { spool, clock } = await setup({ destinationConcurrency: 2 });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    for (const destination of ['x', 'x', 'x', 'x', 'y', 'y', 'y']) {
      await spool.enqueue({ topic: 'a', destination });
    }
    await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(gate.running).toBe(2 + 2 + 3);
    gate.open();
    await clock.settle();
    expect(gate.began).toHaveLength(10);
  });

  test('bounds destinations by name, with a star for the rest', async () => {
    const { spool, clock } = await setup({
      concurrency: 20,
      destinationConcurrency: { slow: 1, fast: 5, '*': 2 },
    });
    const running = new Map<string, number>();
    spool.handle('a', ({ envelope }) => {
      const { destination = '' } = envelope;
      running.set(destination, (running.get(destination) ?? 0) + 1);
      return new Promise(() => undefined);
    });
    for (let at = 0; at < 8; at += 1) {
      for (const destination of ['slow', 'fast', 'other']) {
        await spool.enqueue({ topic: 'a', destination });
      }
    }
    await clock.settle();
    expect(Object.fromEntries(running)).toEqual({ slow: 1, fast: 5, other: 2 });
  });

  test('without a star leaves the unnamed ones unbounded', async () => {
    const { spool, clock } = await setup({ destinationConcurrency: { slow: 1 } });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    for (let at = 0; at < 5; at += 1) await spool.enqueue({ topic: 'a', destination: 'free' });
    await clock.settle();
    expect(gate.running).toBe(5);
  });

  test('excludes full destinations in the claim: nothing is claimed and released', async () => {
    const { spool, clock, calls, status, kinds } = await setup({ destinationConcurrency: 1 });
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await spool.enqueue({ topic: 'a', destination: 'x' });
    await clock.settle();
    const waiting: string[] = [];
    for (let at = 0; at < 100; at += 1) {
      waiting.push((await spool.enqueue({ topic: 'a', destination: 'x' })).id);
    }
    calls.length = 0;
    const { id: other } = await spool.enqueue({ topic: 'a', destination: 'y' });
    await clock.advance('5m');
    expect(gate.began).toContain(other);
    for (const id of waiting) expect(await status(id)).toMatchObject({ revision: 1, attempts: 0 });
    const claims = calls.filter(({ operation }) => operation === 'claim');
    for (const { args } of claims) {
      expect((args[0] as { exceptDestinations: string[] }).exceptDestinations).toContain('x');
    }
    expect(kinds()).not.toContain('released');
  });

  test('lets the next of a destination in as soon as one is done', async () => {
    const { spool, clock } = await setup({ destinationConcurrency: 1 });
    const order: string[] = [];
    const gate = makeGate();
    spool.handle('a', async (delivery) => {
      order.push(delivery.headers['n'] ?? '');
      await gate.handler(delivery);
    });
    for (const n of ['1', '2', '3']) {
      await spool.enqueue({ topic: 'a', destination: 'x', headers: { n } });
    }
    await clock.settle();
    expect(order).toEqual(['1']);
    for (let at = 0; at < 3; at += 1) {
      gate.open(gate.began.at(-1) ?? '');
      await clock.settle();
    }
    expect(order).toEqual(['1', '2', '3']);
  });

  test('claims ahead for full destinations no more than about a slot’s worth', async () => {
    const { spool, clock } = await setup({ destinationConcurrency: 1 });
    const gate = makeGate();
    spool.handle('a', gate.handler, { timeout: '1d' });
    await spool.operator({ by: 'ops' }).pause('#');
    const messages = Array.from({ length: 30 }, (_, host) =>
      Array.from({ length: 30 }, () => ({ topic: 'a', destination: `host-${host}` })),
    );
    for (const batch of messages) {
      await spool.enqueueMany(batch);
      await clock.advance(1);
    }
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(gate.running).toBe(10);
    // Ten run; the batches that filled the slots brought some of the same hosts with them.
    expect((await spool.count()).active).toBeLessThanOrEqual(10 + 10 + 9);
    gate.open();
    await clock.settle();
    expect(gate.began).toHaveLength(900);
    expect(gate.mostRunning).toBe(10);
  });

  test('does not begin what waited so long for room that its lease was lost', async () => {
    const { spool, clock, store, status } = await setup({
      destinationConcurrency: 1,
      policies: { default: fixed('1h') },
    });
    const gate = makeGate();
    spool.handle('a', gate.handler, { timeout: '1d' });
    await spool.operator({ by: 'ops' }).pause('#');
    await spool.enqueueMany([
      { topic: 'a', destination: 'x' },
      { topic: 'a', destination: 'x' },
    ]);
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    const [first] = gate.began;
    const waiting = (await spool.page()).entries.find(({ envelope }) => envelope.id !== first);
    // No heartbeat gets through until the fence falls, a little before the lease is over.
    store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    await clock.advance('58s');
    store.faults.plan = () => 'ok';
    gate.open();
    await clock.advance('30s');
    expect(gate.began).toEqual([first]);
    expect(await status(waiting?.envelope.id ?? '')).toMatchObject({ state: 'deferred', lost: 1 });
  });

  test('holds for what one batch of claims brings: the surplus waits under its lease', async () => {
    const { spool, clock, kinds, status } = await setup({ destinationConcurrency: 1 });
    await spool.operator({ by: 'ops' }).pause('#');
    const gate = makeGate();
    spool.handle('a', gate.handler, { timeout: '1d' });
    const messages = Array.from({ length: 5 }, () => ({ topic: 'a', destination: 'x' }));
    const ids = (await spool.enqueueMany(messages)).map(({ id }) => id);
    await spool.operator({ by: 'ops' }).resume('#');
    // Longer than several leases: the heartbeat keeps those that wait as well.
    await clock.advance('10m');
    expect(gate.mostRunning).toBe(1);
    for (let at = 0; at < 5; at += 1) {
      gate.open(gate.began.at(-1) ?? '');
      await clock.settle();
    }
    expect(gate.began.toSorted()).toEqual(ids.toSorted());
    expect(gate.mostRunning).toBe(1);
    expect(kinds()).not.toContain('lease-lost');
    void status;
  });
});
