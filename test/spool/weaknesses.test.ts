/**
 * The weaknesses of other systems that concern the spool, each with the test that shows it is not
 * here: numbers 2, 3, 4, 10, 11 and 15 of that list. Details are in the tests of each room.
 */
import { createSpool, ERROR_CODES, fixed, isRespoolError, PermanentError } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, MINUTE, rejection, setup } from './setup.ts';

describe('weakness 2: recovery parks ready deferred messages where nothing looks', () => {
  test('after a crash everything that was due is delivered, none is left behind', async () => {
    const crashed = await setup({ policies: { default: fixed('10m') } });
    crashed.spool.handle('a', failing(99_999).handler);
    crashed.spool.handle('hang', makeGate().handler, { timeout: '1d' });
    await crashed.spool.enqueueMany([
      ...Array.from({ length: 30 }, () => ({ topic: 'a' })),
      ...Array.from({ length: 5 }, () => ({ topic: 'hang' })),
    ]);
    await crashed.clock.advance('1s');
    // From here on the first process does nothing any more: its store is gone for it.
    crashed.store.faults.plan = () => 'before';
    const next = await setup({ with: crashed, policies: { default: fixed('10m') } });
    let delivered = 0;
    next.spool.handle('#', () => void (delivered += 1));
    await next.clock.advance('30m');
    expect(delivered).toBe(35);
    expect(await next.spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
  });
});

describe('weakness 3: archiving a bounce deletes it, and a failing notice delivers again', () => {
  test('a bounce is archived with its body, after its notice went through', async () => {
    const { spool, clock, status } = await setup({
      retention: { bounced: { archive: '7d' } },
      policies: { notice: fixed('1m') },
    });
    const deliveries = failing(99, () => new PermanentError('x', 'y'));
    spool.handle('a', deliveries.handler);
    const notices = failing(3);
    spool.onBounce('a', notices.handler);
    const { id } = await spool.enqueue({ topic: 'a', body: 'kept' });
    await clock.advance('10m');
    expect(deliveries.attempts).toEqual([1]);
    expect(notices.attempts).toEqual([1, 2, 3, 4]);
    expect((await status(id)).state).toBe('archived');
    expect((await spool.get(id))?.envelope.body).toMatchObject({ place: 'inline', size: 4 });
  });
});

describe('weakness 4: nobody owns an active message', () => {
  test('two processes never run one message at once, and a hung one is seen', async () => {
    const one = await setup();
    const two = await setup({ with: one });
    const running = new Set<string>();
    const doubles: string[] = [];
    for (const { spool } of [one, two]) {
      spool.handle('a', async ({ id }) => {
        if (running.has(id)) doubles.push(id);
        running.add(id);
        await new Promise<void>((resolve) => one.clock.after(90_000, resolve));
        running.delete(id);
      });
    }
    await one.spool.enqueueMany(Array.from({ length: 40 }, () => ({ topic: 'a' })));
    await one.clock.advance('10m');
    expect(doubles).toEqual([]);
    expect(await one.spool.count()).toMatchObject({ incoming: 0, active: 0 });
    one.spool.handle('hang', () => new Promise(() => undefined));
    const { id } = await one.spool.enqueue({ topic: 'hang' });
    await one.clock.settle();
    const { holder, dueAt } = await one.status(id);
    expect(holder).toContain('memory-');
    expect(dueAt).toBe(one.clock.now() + MINUTE);
  });
});

describe('weakness 10: two writes without a plan for what comes between them', () => {
  test('a body without entry is collected, an entry without body is held and reported', async () => {
    const { spool, clock, store, bodies, status } = await setup({
      isStarted: false,
      caretaker: { orphanGrace: '1h' },
    });
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    await rejection(spool.enqueue({ topic: 'a', body: Buffer.alloc(50_000) }));
    store.faults.plan = () => 'ok';
    expect((await spool.operator({ by: 'ops' }).check()).findings).toMatchObject([
      { kind: 'body.orphan' },
    ]);
    await clock.advance('2h');
    await spool.operator({ by: 'ops' }).cleanUp();
    await clock.advance('10m');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ orphans: 1 });
    const { id } = await spool.enqueue({ topic: 'a', body: Buffer.alloc(50_000) });
    await bodies.remove([(await spool.get(id))?.envelope.body.ref ?? '']);
    spool.handle('a', async (delivery) => void (await delivery.body()));
    await spool.start();
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'hold', because: { code: 'body.missing' } });
  });

  test('the body is written before the entry, and removed after it', async () => {
    const { spool, clock, calls, bodies } = await setup();
    spool.handle('a', () => undefined);
    await clock.settle();
    calls.length = 0;
    const order: string[] = [];
    bodies.faults.plan = (operation) => {
      order.push(...calls.splice(0).map((call) => call.operation), `body ${operation}`);
      return 'ok';
    };
    await spool.enqueue({ topic: 'a', body: Buffer.alloc(50_000) });
    await clock.settle();
    expect(order).toEqual(['body put', 'insert', 'commit', 'flush', 'body remove']);
  });
});

describe('weakness 11: polling', () => {
  test('ten thousand waiting messages cost no look; a look costs one answer', async () => {
    const { spool, clock, calls, count } = await setup({ caretaker: { every: '1d' } });
    spool.handle('a', () => undefined);
    await spool.enqueueMany(Array.from({ length: 10_000 }, () => ({ topic: 'a', delay: '1d' })));
    await clock.settle();
    calls.length = 0;
    await clock.advance('1m');
    expect(calls.length).toBeLessThanOrEqual(2 * 3);
    expect(count('list') + count('tally') + count('get')).toBe(0);
  });
});

describe('weakness 15: options without effect, errors never raised, constructors that exit', () => {
  test('an option that does not exist is refused, not ignored', async () => {
    const stores = { entries: memory(), bodies: memoryBodies() };
    const wrong: object[] = [
      { maxActiveMessages: 50 },
      { batchSize: 200 },
      { scanInterval: '10ms' },
      { archiveSuccess: true },
    ];
    for (const options of wrong) {
      const make = (): unknown => createSpool({ ...stores, ...options });
      expect(make).toThrow(Object.keys(options)[0] ?? '');
    }
  });

  test('the errors of the spool are really raised', async () => {
    const { spool, clock, store, data } = await setup({ limits: { bodyBytes: 10 } });
    const gate = makeGate();
    spool.handle('wait', gate.handler);
    const { id: active } = await spool.enqueue({ topic: 'wait' });
    const { id: damaged } = await spool.enqueue({ topic: 'other', delay: '1h' });
    const { id: gone } = await spool.enqueue({ topic: 'other', delay: '1h', dedupeKey: 'k' });
    await clock.settle();
    data.damage(damaged);
    spool.handle('other', () => undefined);
    await spool.operator({ by: 'ops' }).retry([gone]);
    await clock.settle();
    const away = async (): Promise<unknown> => {
      store.faults.plan = () => 'before';
      try {
        return await spool.count();
      } finally {
        store.faults.plan = () => 'ok';
      }
    };
    const read = async (): Promise<void> => {
      for await (const _ of await spool.body(gone));
    };
    const raised: Record<string, () => Promise<unknown>> = {
      'message.unknown': () => spool.body('nobody'),
      'message.invalid': () => spool.enqueue({ topic: '' }),
      'move.refused': () =>
        spool.operator({ by: 'ops' }).move(active, { from: 'active', to: 'hold' }),
      'policy.unknown': () => spool.operator({ by: 'ops' }).setPolicy([active], 'gone'),
      'limit.exceeded': () => spool.enqueue({ topic: 'a', body: 'x'.repeat(11) }),
      'config.invalid': () => spool.start(),
      'store.unavailable': away,
      'store.corrupt': () => spool.get(damaged),
      'body.missing': read,
      'engine.stopping': async () => {
        const stop = spool.stop({ within: '1s' });
        await clock.settle();
        const error = await rejection(spool.count());
        await clock.advance('5s');
        await stop;
        throw error;
      },
    };
    for (const [code, attempt] of Object.entries(raised)) {
      const error = await rejection(attempt());
      expect([code, isRespoolError(error) ? error.code : error]).toEqual([code, code]);
      expect(ERROR_CODES).toContain(code);
    }
  });
});
