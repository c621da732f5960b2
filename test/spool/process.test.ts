/** process: one message, now, with a handler of the moment (R17). */
import { type EntryStore, fixed, held, PermanentError, type Verdict } from 'respool';
import { describe, expect, test } from 'vitest';
import { codeOf, failing, makeGate, MINUTE, setup } from './setup.ts';

describe('process', () => {
  test('runs the handler once and resolves to what became of the message', async () => {
    const { spool, status } = await setup({
      isStarted: false,
      policies: { default: fixed('5m') },
    });
    const ids = await Promise.all([1, 2, 3, 4].map(() => spool.enqueue({ topic: 'a' })));
    const handlers = [
      () => undefined,
      () => {
        throw new Error('no');
      },
      () => {
        throw new PermanentError('x', 'final');
      },
      () => held('a person must look'),
    ];
    const verdicts: Verdict[] = [];
    for (const [at, { id }] of ids.entries()) {
      verdicts.push(await spool.process(id, handlers[at] ?? (() => undefined)));
    }
    expect(verdicts).toMatchObject([
      { kind: 'ack' },
      { kind: 'defer', delayMs: 5 * MINUTE },
      { kind: 'bounce', spent: false },
      { kind: 'hold', because: { text: 'a person must look' } },
    ]);
    expect(await spool.get(ids[0]?.id ?? '')).toBeUndefined();
    expect((await status(ids[1]?.id ?? '')).state).toBe('deferred');
  });

  test('works on deferred, held, bounced and archived messages too', async () => {
    const { spool, status } = await setup({ isStarted: false });
    for (const state of ['deferred', 'hold', 'bounce', 'archived'] as const) {
      const { id } = await spool.enqueue({ topic: 'a', id: `m-${state}`, delay: '1h', body: 'x' });
      if (state === 'hold') await spool.operator({ by: 'ops' }).hold([id]);
      if (state === 'bounce') await spool.operator({ by: 'ops' }).bounce([id]);
      if (state === 'archived') await spool.operator({ by: 'ops' }).remove([id]);
      let attempt = 0;
      await spool.process(id, (delivery) => void (attempt = delivery.attempt));
      expect([state, attempt]).toEqual([state, 1]);
      expect((await status(id)).ending).toBe('delivered');
    }
  });

  // Regression: the running engine was woken and had the message first.
  test('has a waiting message before the running engine has it', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1h') } });
    const usual = failing(1);
    spool.handle('a', usual.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await spool.process(id, () => undefined)).toEqual({ kind: 'ack' });
    expect(usual.attempts).toEqual([1]);
  });

  test('is refused for a message that somebody holds, and for one that is not there', async () => {
    const { spool, clock } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await codeOf(spool.process(id, () => undefined))).toBe('move.refused');
    expect(await codeOf(spool.process('nobody', () => undefined))).toBe('message.unknown');
  });

  test('two at once: one has the message, the other is refused', async () => {
    const { spool } = await setup({ isStarted: false });
    const { id } = await spool.enqueue({ topic: 'a' });
    let runs = 0;
    const run = (): Promise<unknown> => spool.process(id, () => void (runs += 1));
    const results = await Promise.allSettled([run(), run()]);
    expect(results.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    expect(runs).toBe(1);
  });

  test('uses the message’s policy and the spool’s middleware', async () => {
    const order: string[] = [];
    const { spool } = await setup({
      isStarted: false,
      policies: { quick: fixed('3s') },
      middleware: [
        async (_, next) => {
          order.push('around');
          return next();
        },
      ],
    });
    const { id } = await spool.enqueue({ topic: 'a', policy: 'quick' });
    const verdict = await spool.process(id, () => {
      order.push('handler');
      throw new Error('no');
    });
    expect(verdict).toMatchObject({ kind: 'defer', delayMs: 3_000 });
    expect(order).toEqual(['around', 'handler']);
  });

  test('is waited for by stop, also on a spool that was never started', async () => {
    const { spool, clock } = await setup({ isStarted: false });
    const { id } = await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
    const gate = makeGate();
    const work = spool.process(id, gate.handler);
    await clock.settle();
    let isStopped = false;
    const stop = spool.stop().then(() => (isStopped = true));
    await clock.advance('1s');
    expect(isStopped).toBe(false);
    gate.open();
    expect(await work).toEqual({ kind: 'ack' });
    await stop;
  });

  test('does not keep a stop waiting when its claim fails', async () => {
    let fail = (): void => undefined;
    const extras = (store: EntryStore): Partial<EntryStore> => ({
      claim: (options) =>
        options.ids === undefined
          ? store.claim(options)
          : new Promise((_, reject) => {
              fail = () => reject(new Error('the disk is gone'));
            }),
    });
    const { spool, clock } = await setup({ extras });
    const { id } = await spool.enqueue({ topic: 'a', delay: '1h' });
    const work = spool.process(id, () => undefined);
    await clock.settle();
    const stopped = spool.stop();
    await clock.settle();
    fail();
    await expect(work).rejects.toThrow('the disk is gone');
    // No time passes.
    await stopped;
  });
});
