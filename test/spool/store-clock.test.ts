/** The engine's clock is the store's; a clock that is set is noticed. */
import { fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, HOUR, MINUTE, SECOND, setup } from './setup.ts';

describe('a store with a clock of its own', () => {
  test('tells the time of everything: enqueue, due times, leases', async () => {
    let offset = 3 * HOUR;
    const machine = await setup({ isStarted: false });
    const { spool, clock, status } = await setup({
      with: machine,
      policies: { default: fixed('10m') },
      extras: () => ({ now: async () => machine.clock.now() + offset }),
    });
    spool.handle('a', failing(99).handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const storeNow = clock.now() + offset;
    expect((await spool.get(id))?.envelope.enqueuedAt).toBe(storeNow);
    expect((await status(id)).dueAt).toBe(storeNow + 10 * MINUTE);
    await clock.advance(10 * MINUTE - 1);
    expect((await status(id)).attempts).toBe(1);
    await clock.advance(1);
    expect((await status(id)).attempts).toBe(2);
    // The server's clock is corrected; within a minute and a half we have noticed.
    offset = 4 * HOUR;
    await clock.advance('90s');
    const { id: later } = await spool.enqueue({ topic: 'a' });
    expect((await spool.get(later))?.envelope.enqueuedAt).toBe(clock.now() + 4 * HOUR);
  });

  test('is asked once a minute, not with every message', async () => {
    const { spool, clock, count } = await setup({
      extras: () => ({ now: async () => 1_000_000 }),
    });
    spool.handle('a', () => undefined);
    for (let at = 0; at < 50; at += 1) await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(count('now')).toBe(1);
    await clock.advance('10m');
    expect(count('now')).toBeGreaterThanOrEqual(9);
    expect(count('now')).toBeLessThanOrEqual(12);
  });

  test('is asked again when its answer took long, and not believed while it does', async () => {
    const machine = await setup({ isStarted: false });
    const { clock } = machine;
    let answerMs = 0;
    const { spool } = await setup({
      with: machine,
      extras: () => ({
        now: async () => {
          const at = clock.now() + HOUR;
          await new Promise<void>((resolve) => clock.after(answerMs, resolve));
          return at;
        },
      }),
      isStarted: false,
    });
    const open = spool.count();
    await clock.settle();
    await open;
    spool.handle('a', () => undefined);
    await spool.start();
    answerMs = 20 * SECOND;
    await clock.advance('10m');
    const { id } = await spool.enqueue({ topic: 'a', delay: '1h' });
    expect((await spool.get(id))?.envelope.enqueuedAt).toBe(clock.now() + HOUR);
  });

  // Regression: with a request that takes 54 ms to arrive and an answer that takes none, the middle
  // of the round trip is 27 ms ahead of the server, and attempts began so much before they were due.
  for (const [road, toMs, backMs] of [
    ['the request', 54, 0],
    ['the answer', 0, 54],
  ] as const) {
    test(`never begins an attempt before its due time, also where ${road} takes long`, async () => {
      const writer = await setup({ isStarted: false, traits: { processes: 'many' } });
      const { clock } = writer;
      const pass = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
      const { spool } = await setup({
        with: writer,
        isStarted: false,
        traits: { processes: 'many' },
        extras: () => ({
          now: async () => {
            await pass(toMs);
            const serverNow = clock.now();
            await pass(backMs);
            return serverNow;
          },
        }),
        policies: { default: fixed('10s') },
      });
      const starts: { readonly id: string; readonly at: number }[] = [];
      spool.handle('a', ({ id, attempt }) => {
        starts.push({ id, at: clock.now() });
        if (attempt === 1) throw new Error('again');
      });
      const due = new Map<string, number>();
      for (let at = 0; at < 20; at += 1) {
        const { id } = await writer.spool.enqueue({ topic: 'a', delay: 5 * SECOND + 7 * at });
        due.set(id, (await writer.status(id)).dueAt ?? 0);
      }
      const open = spool.start();
      await clock.advance(40 * SECOND);
      await open;
      const firsts = [...due].map(([id, dueAt]) => {
        const first = starts.find((start) => start.id === id);
        return (first?.at ?? 0) - dueAt;
      });
      expect(Math.min(...firsts)).toBeGreaterThanOrEqual(0);
      // Late by no more than the doubt that a round trip of 54 ms leaves.
      expect(Math.max(...firsts)).toBeLessThanOrEqual(55);
    });
  }

  test('does not hand over a message before the time it was given, also where requests take long', async () => {
    const machine = await setup({ isStarted: false });
    const { clock } = machine;
    const { spool } = await setup({
      with: machine,
      isStarted: false,
      extras: () => ({
        now: async () => {
          await new Promise<void>((resolve) => clock.after(54, resolve));
          return clock.now();
        },
      }),
    });
    const starts: number[] = [];
    spool.handle('a', () => void starts.push(clock.now()));
    const open = spool.start();
    await clock.advance(SECOND);
    await open;
    const dueAt = clock.now() + 20;
    await spool.enqueue({ topic: 'a', dueAt });
    await clock.advance(SECOND);
    expect(starts).toHaveLength(1);
    expect(starts[0]).toBeGreaterThanOrEqual(dueAt);
    // Without a delay nothing waits for that doubt.
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(starts).toHaveLength(2);
  });

  test('counts leases from the latest time that it may be, also when it extends them', async () => {
    const machine = await setup({ isStarted: false });
    const { clock, status } = machine;
    const { spool } = await setup({
      with: machine,
      isStarted: false,
      lease: '60s',
      extras: () => ({
        now: async () => {
          const serverNow = clock.now();
          await new Promise<void>((resolve) => clock.after(54, resolve));
          return serverNow;
        },
      }),
    });
    const done = Promise.withResolvers<void>();
    spool.handle('a', () => done.promise);
    const open = spool.start();
    await clock.advance(SECOND);
    await open;
    const { id } = await spool.enqueue({ topic: 'a' });
    const first = await status(id);
    expect(first.state).toBe('active');
    expect(first.dueAt).toBeGreaterThanOrEqual(clock.now() + 60 * SECOND);
    await clock.advance(30 * SECOND);
    const extended = await status(id);
    expect(extended.revision).toBeGreaterThan(first.revision);
    // By the server's clock it was 27 ms later than this process has written.
    expect((extended.dueAt ?? 0) - extended.updatedAt).toBeGreaterThanOrEqual(60 * SECOND + 27);
    done.resolve();
    await clock.settle();
  });

  test('does not follow this machine’s clock when that is set', async () => {
    const { spool, clock } = await setup({ extras: () => ({ now: async () => 5_000_000 }) });
    clock.jump(7 * HOUR);
    const { id } = await spool.enqueue({ topic: 'a' });
    expect((await spool.get(id))?.envelope.enqueuedAt).toBe(5_000_000);
  });

  test('that cannot tell its time is trouble, not the end', async () => {
    let isAway = false;
    const { spool, clock, events } = await setup({
      extras: () => ({
        now: async () => {
          if (isAway) throw new Error('away');
          return 1_000_000;
        },
      }),
    });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    isAway = true;
    await clock.advance('5m');
    expect(events.some((event) => event.kind === 'trouble')).toBe(true);
    isAway = false;
    await clock.advance('1m');
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(attempts).toEqual([1]);
  });
});

describe('a machine whose clock is set', () => {
  test('says so, once, with how far', async () => {
    const { spool, clock, events } = await setup();
    spool.handle('a', () => undefined);
    await clock.settle();
    clock.jump(2 * HOUR);
    await clock.advance('2m');
    clock.jump(-30 * MINUTE);
    await clock.advance('2m');
    clock.jump(SECOND);
    await clock.advance('2m');
    const jumps = events.filter((event) => event.kind === 'clock-jumped');
    expect(jumps.map((event) => event.byMs)).toEqual([2 * HOUR, -30 * MINUTE]);
  });

  test('forward delivers what became due, within the safety poll', async () => {
    const { spool, clock } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'a', delay: '2h' });
    await clock.settle();
    clock.jump(2 * HOUR);
    await clock.advance('30s');
    expect(attempts).toEqual([1]);
  });

  test('back does not lose a running handler its claim', async () => {
    const { spool, clock, kinds } = await setup();
    let finish = (): void => undefined;
    spool.handle('a', () => new Promise<void>((resolve) => (finish = resolve)));
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('30s');
    clock.jump(-HOUR);
    await clock.advance('5m');
    finish();
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
    expect(kinds(id)).not.toContain('lease-lost');
  });
});
