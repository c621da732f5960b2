/** Handlers that take too long, hang, or answer twice (R93). */
import { fixed, held, isRespoolError } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, setup } from '../spool/setup.ts';

describe('a handler that takes too long', () => {
  test('fails with a transient timeout, and its signal is aborted', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    const reasons: unknown[] = [];
    spool.handle(
      'a',
      ({ signal }) =>
        new Promise(() => {
          signal.addEventListener('abort', () => reasons.push(signal.reason));
        }),
      { timeout: '10s' },
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('10s');
    expect(await status(id)).toMatchObject({
      state: 'deferred',
      attempts: 1,
      lastFailure: { code: 'timeout', permanence: 'transient' },
    });
    expect((await status(id)).history).toMatchObject([{ code: 'timeout', tookMs: 10_000 }]);
    expect(isRespoolError(reasons[0], 'limit.exceeded')).toBe(true);
  });

  test('frees its slot for others', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    spool.handle('hang', () => new Promise(() => undefined), { timeout: '10s' });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await spool.enqueue({ topic: 'hang' });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('9s');
    expect(attempts).toEqual([]);
    await clock.advance('1s');
    expect(attempts).toEqual([1]);
  });

  test.each([
    ['succeeds', (gate: ReturnType<typeof makeGate>) => gate.handler],
    [
      'fails',
      (gate: ReturnType<typeof makeGate>) =>
        async (delivery: Parameters<typeof gate.handler>[0]): Promise<void> => {
          await gate.handler(delivery);
          throw new Error('late');
        },
    ],
  ])('and then %s is not listened to any more', async (_, make) => {
    const { spool, clock, status, kinds } = await setup({ policies: { default: fixed('1h') } });
    const gate = makeGate();
    spool.handle('a', make(gate), { timeout: '10s' });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('11s');
    const { revision } = await status(id);
    gate.open();
    await clock.advance('1s');
    expect(await status(id)).toMatchObject({ revision, lastFailure: { code: 'timeout' } });
    expect(kinds(id).filter((kind) => kind === 'delivered')).toEqual([]);
  });

  test('may say in its last word before the limit what it wants', async () => {
    const { spool, clock, status } = await setup();
    spool.handle(
      'a',
      () =>
        new Promise((resolve) => {
          clock.after(9_999, () => resolve(held('just in time')));
        }),
      { timeout: '10s' },
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('10s');
    expect((await status(id)).state).toBe('hold');
  });

  test('is each timed from its own start', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    spool.handle('a', () => new Promise(() => undefined), { timeout: '10s' });
    spool.handle('b', () => new Promise(() => undefined), { timeout: '3s' });
    const { id: first } = await spool.enqueue({ topic: 'a' });
    await clock.advance('5s');
    const { id: second } = await spool.enqueue({ topic: 'b' });
    await clock.advance('3s');
    expect([(await status(first)).state, (await status(second)).state]).toEqual([
      'active',
      'deferred',
    ]);
    await clock.advance('2s');
    expect((await status(first)).state).toBe('deferred');
  });

  test('bounces when its attempts run out by time-outs', async () => {
    const { spool, clock, status } = await setup({
      policies: { default: fixed('1s', { attempts: 3 }) },
    });
    let calls = 0;
    spool.handle(
      'a',
      () => {
        calls += 1;
        return new Promise(() => undefined);
      },
      { timeout: '10s' },
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1m');
    expect(calls).toBe(3);
    expect(await status(id)).toMatchObject({ state: 'bounce', attempts: 3 });
  });
});

describe('a handler that answers oddly', () => {
  test('once and twice is heard once', async () => {
    const { spool, clock, status, kinds } = await setup({
      retention: { delivered: { archive: '1d' } },
    });
    spool.handle(
      'a',
      () =>
        new Promise((resolve, reject) => {
          resolve();
          reject(new Error('and again'));
          resolve(held('and again'));
        }),
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect((await status(id)).ending).toBe('delivered');
    expect(kinds(id).filter((kind) => kind === 'delivered')).toHaveLength(1);
  });

  test('with a thenable that throws fails its attempt only', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    // oxlint-disable-next-line unicorn/no-thenable -- the broken promise of another library.
    const broken = Object.fromEntries([['then', failing(1, () => new Error('broken')).handler]]);
    spool.handle('a', () => broken as unknown as Promise<void>);
    const fine = failing(0);
    spool.handle('b', fine.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'b' });
    await clock.settle();
    expect((await status(id)).lastFailure?.reason).toBe('broken');
    expect(fine.attempts).toEqual([1]);
  });

  test('that crashes does not harm its neighbours', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1h') } });
    spool.handle('bad', () => {
      throw new RangeError('Maximum call stack size exceeded');
    });
    const { handler, attempts } = failing(0);
    spool.handle('good', handler);
    await spool.enqueueMany(
      Array.from({ length: 10 }, (_, at) => ({ topic: at % 2 === 0 ? 'bad' : 'good' })),
    );
    await clock.settle();
    expect(attempts).toHaveLength(5);
    expect(await spool.count()).toMatchObject({ deferred: 5 });
  });
});
