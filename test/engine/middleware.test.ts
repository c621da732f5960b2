/** Middleware: order, short circuit, mapping of errors (R97). */
import { delivered, failed, failure, fixed, type Middleware, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, setup } from '../spool/setup.ts';

describe('middleware', () => {
  const tracing =
    (order: string[], name: string): Middleware =>
    async (_, next) => {
      order.push(`${name} in`);
      const outcome = await next();
      order.push(`${name} out: ${outcome.kind}`);
      return outcome;
    };

  test('runs in listed order, the spool’s outermost, then the handler’s', async () => {
    const order: string[] = [];
    const { spool, clock } = await setup({
      middleware: [tracing(order, 'spool 1'), tracing(order, 'spool 2')],
    });
    spool.handle('a', () => void order.push('handler'), {
      middleware: [tracing(order, 'own 1'), tracing(order, 'own 2')],
    });
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(order).toEqual([
      'spool 1 in',
      'spool 2 in',
      'own 1 in',
      'own 2 in',
      'handler',
      'own 2 out: delivered',
      'own 1 out: delivered',
      'spool 2 out: delivered',
      'spool 1 out: delivered',
    ]);
  });

  test('sees what the handler threw as a rejection, and may turn it into anything', async () => {
    const mapped: Middleware = async (_, next) => {
      try {
        return await next();
      } catch (error) {
        if ((error as Error).message === 'gone') {
          throw new PermanentError('mapped', 'it is gone for good', { cause: error });
        }
        return delivered();
      }
    };
    const { spool, clock, status } = await setup({ middleware: [mapped] });
    spool.handle('a', failing(1, () => new Error('gone')).handler);
    spool.handle('b', failing(1, () => new Error('never mind')).handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    const { id: other } = await spool.enqueue({ topic: 'b' });
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'bounce', lastFailure: { code: 'mapped' } });
    expect(await spool.get(other)).toBeUndefined();
  });

  test('may answer without calling the handler', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler, {
      middleware: [async () => failed(failure('transient', 'closed', 'not today'))],
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(attempts).toEqual([]);
    expect(await status(id)).toMatchObject({ state: 'deferred', lastFailure: { code: 'closed' } });
  });

  test('that calls next twice fails the attempt; the handler ran once', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    const { handler, attempts } = failing(0);
    const twice: Middleware = async (_, next) => {
      await next();
      return next();
    };
    spool.handle('a', handler, { middleware: [twice] });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(attempts).toEqual([1]);
    const { state, lastFailure } = await status(id);
    expect(state).toBe('deferred');
    expect(lastFailure?.reason).toContain('next() twice');
  });

  test('that forgets to return an outcome means delivered', async () => {
    const { spool, clock } = await setup();
    const forgetful = async (_: unknown, next: () => Promise<unknown>): Promise<void> => {
      await next();
    };
    spool.handle('a', () => undefined, {
      middleware: [forgetful as unknown as Middleware],
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
  });

  test('that throws before the handler fails the attempt', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    spool.handle('a', () => undefined, {
      middleware: [
        async () => {
          throw new Error('the meter is broken');
        },
      ],
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect((await status(id)).lastFailure?.reason).toBe('the meter is broken');
  });

  test('may note, read the body and see the attempt', async () => {
    const { spool, clock, status } = await setup({ retention: { delivered: { archive: '1d' } } });
    spool.handle('a', () => undefined, {
      middleware: [
        async (delivery, next) => {
          delivery.note('seen', `${delivery.attempt} ${await delivery.text()}`);
          return next();
        },
      ],
    });
    const { id } = await spool.enqueue({ topic: 'a', body: 'hello' });
    await clock.settle();
    expect((await status(id)).notes).toEqual({ seen: '1 hello' });
  });

  test('runs around bounce handlers too', async () => {
    const lanes: string[] = [];
    const { spool, clock } = await setup({
      middleware: [
        async (delivery, next) => {
          lanes.push(delivery.lane);
          return next();
        },
      ],
    });
    spool.handle('a', failing(1, () => new PermanentError('x', 'no')).handler);
    spool.onBounce('a', () => undefined);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(lanes).toEqual(['delivery', 'notice']);
  });
});
