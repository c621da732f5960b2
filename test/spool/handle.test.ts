/** handle and its options: topics, policy, concurrency, timeout, accepts (R81, R91–R93, R111). */
import { z } from 'zod';
import { fixed, type Outcome } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, makeGate, SECOND, setup } from './setup.ts';

describe('handle', () => {
  test('the first registered match wins', async () => {
    const { spool, clock } = await setup();
    const seen: string[] = [];
    spool.handle('mail.welcome', () => void seen.push('exact'));
    spool.handle('mail.*', () => void seen.push('star'));
    spool.handle('#', () => void seen.push('all'));
    for (const topic of ['mail.welcome', 'mail.x', 'mail.x.y', 'sms']) {
      await spool.enqueue({ topic });
      await clock.settle();
    }
    expect(seen).toEqual(['exact', 'star', 'all', 'all']);
  });

  test('returns the way to undo', async () => {
    const { spool, clock } = await setup();
    const seen: string[] = [];
    const undo = spool.handle('a', () => void seen.push('first'));
    spool.handle('a', () => void seen.push('second'));
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    undo();
    undo();
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(seen).toEqual(['first', 'second']);
  });

  test('what a handler returns besides an outcome means delivered', async () => {
    const { spool, clock } = await setup();
    const values: unknown[] = [undefined, null, 42, 'failed', { status: 500 }, []];
    spool.handle('a', () => values.shift() as Outcome);
    await spool.enqueueMany(values.map(() => ({ topic: 'a' })));
    await clock.settle();
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0, bounce: 0 });
  });

  test('a handler may be synchronous', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    spool.handle('a', () => {
      throw new TypeError('sync');
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect((await status(id)).lastFailure).toMatchObject({
      code: 'error.typeerror',
      reason: 'sync',
    });
  });

  test('concurrency bounds one handler, the others have the remaining slots', async () => {
    const { spool, clock } = await setup({ concurrency: 5 });
    const narrow = makeGate();
    const wide = makeGate();
    spool.handle('narrow', narrow.handler, { concurrency: 2 });
    spool.handle('wide', wide.handler);
    for (let at = 0; at < 6; at += 1) await spool.enqueue({ topic: 'narrow' });
    for (let at = 0; at < 3; at += 1) await spool.enqueue({ topic: 'wide' });
    await clock.settle();
    expect([narrow.running, wide.running]).toEqual([2, 3]);
    narrow.open();
    await clock.settle();
    expect(narrow.mostRunning).toBe(2);
    expect(narrow.began).toHaveLength(6);
    wide.open();
    await clock.settle();
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0 });
  });

  // Regression: slots went to the handlers without a limit for as long as they had a backlog.
  test('a handler with a limit of its own is not starved by the backlog of another', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    await spool.operator({ by: 'ops' }).pause('#');
    const order: string[] = [];
    spool.handle('narrow', () => void order.push('narrow'), { concurrency: 1 });
    spool.handle('wide', () => void order.push('wide'));
    await spool.enqueueMany(Array.from({ length: 50 }, () => ({ topic: 'wide' })));
    await spool.enqueueMany(Array.from({ length: 5 }, () => ({ topic: 'narrow' })));
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(order.lastIndexOf('narrow')).toBeLessThan(20);
    expect(order).toHaveLength(55);
  });

  test('timeout bounds one attempt', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    const gate = makeGate();
    spool.handle('a', gate.handler, { timeout: '5s' });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance(5 * SECOND - 1);
    expect((await status(id)).state).toBe('active');
    await clock.advance(1);
    expect(await status(id)).toMatchObject({ state: 'deferred', lastFailure: { code: 'timeout' } });
  });

  test('timeout is fifteen minutes by default', async () => {
    const { spool, clock, status } = await setup();
    spool.handle('a', makeGate().handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('14m59s');
    expect((await status(id)).state).toBe('active');
    await clock.advance('1s');
    expect((await status(id)).state).toBe('deferred');
  });

  const bad: Record<string, { use: unknown; words: string[] }> = {
    'a pattern that is none': { use: ['a..b', () => 1], words: ['"a..b"'] },
    'no handler': { use: ['a', 'nope'], words: ['"a"', 'function'] },
    'a concurrency of 0': {
      use: ['a', () => 1, { concurrency: 0 }],
      words: ['"concurrency"', '0', '1', '10000'],
    },
    'a timeout of 0': { use: ['a', () => 1, { timeout: 0 }], words: ['"timeout"', '0', '1ms'] },
    'a timeout of two days': { use: ['a', () => 1, { timeout: '2d' }], words: ['"2d"', '1d'] },
    'an unknown option': { use: ['a', () => 1, { retries: 3 }], words: ['"retries"', 'policy'] },
    'a middleware that is none': {
      use: ['a', () => 1, { middleware: ['log'] }],
      words: ['"middleware"'],
    },
    'a schema that is none': { use: ['a', () => 1, { accepts: 'json' }], words: ['"accepts"'] },
  };
  test.each(Object.entries(bad))('refuses %s', async (_, { use, words }) => {
    const { spool } = await setup();
    const call = (): unknown => spool.handle(...(use as Parameters<typeof spool.handle>));
    for (const word of words) expect(call).toThrow(word);
  });

  test('onBounce refuses accepts: every bounce is told', async () => {
    const { spool } = await setup();
    const options = { accepts: () => true } as object;
    expect(() => spool.onBounce('a', () => undefined, options)).toThrow('accepts');
  });
});

describe('accepts with a schema', () => {
  const schema = z.object({ to: z.email(), times: z.coerce.number().default(1) });

  test('gives the handler what the schema made of the body, typed', async () => {
    const { spool, clock } = await setup();
    const seen: number[] = [];
    spool.handle(
      'mail',
      async (delivery) => {
        const mail = await delivery.json();
        seen.push(mail.times + 1);
      },
      { accepts: schema },
    );
    await spool.enqueue({ topic: 'mail', body: { to: 'a@example.com', times: '41' } });
    await spool.enqueue({ topic: 'mail', body: { to: 'a@example.com' } });
    await clock.settle();
    expect(seen).toEqual([42, 2]);
  });

  test.each([
    ['a body that does not fit', { to: 'nobody' }, 'to: '],
    ['a body that is not JSON', 'hello', 'not JSON'],
    ['an empty body', undefined, 'not JSON'],
    ['a body that is not text', Uint8Array.of(0xff, 0xfe), 'not UTF-8'],
  ])('holds %s without running the handler and without a retry', async (_, body, why) => {
    const { spool, clock, status } = await setup();
    const { handler, attempts } = failing(0);
    spool.handle('mail', handler, { accepts: schema });
    const { id } = await spool.enqueue({ topic: 'mail', body });
    await clock.advance('1h');
    expect(attempts).toEqual([]);
    const { state, because } = await status(id);
    expect(state).toBe('hold');
    expect(because?.code).toBe('body.invalid');
    expect(because?.text).toContain(why);
  });

  test('takes any Standard Schema, also one that answers later', async () => {
    const { spool, clock } = await setup();
    const seen: unknown[] = [];
    spool.handle('a', async (delivery) => void seen.push(await delivery.json()), {
      accepts: {
        '~standard': { version: 1, vendor: 'us', validate: async (value) => ({ value: [value] }) },
      },
    });
    await spool.enqueue({ topic: 'a', body: 1 });
    await clock.settle();
    expect(seen).toEqual([[1]]);
  });

  test('a schema that throws fails the attempt, which is retried', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    spool.handle('a', () => undefined, {
      accepts: {
        '~standard': {
          version: 1,
          vendor: 'us',
          validate: () => {
            throw new Error('the schema is not loaded yet');
          },
        },
      },
    });
    const { id } = await spool.enqueue({ topic: 'a', body: 1 });
    await clock.settle();
    expect((await status(id)).state).toBe('deferred');
  });
});

describe('accepts with a function', () => {
  test('picks by envelope; what it refuses goes to the next matching handler', async () => {
    const { spool, clock } = await setup();
    const seen: string[] = [];
    const tenant = (name: string) => (envelope: { headers: Readonly<Record<string, string>> }) =>
      envelope.headers['tenant'] === name;
    spool.handle('a', () => void seen.push('acme'), { accepts: tenant('acme') });
    spool.handle('a', () => void seen.push('bolt'), { accepts: tenant('bolt') });
    spool.handle('a', () => void seen.push('rest'));
    for (const name of ['acme', 'bolt', 'other']) {
      await spool.enqueue({ topic: 'a', headers: { tenant: name } });
    }
    await clock.settle();
    expect(seen).toEqual(['acme', 'bolt', 'rest']);
  });

  test('a message that all of them refuse is held with handler.missing', async () => {
    const { spool, clock, status } = await setup();
    spool.handle('a', () => undefined, { accepts: () => false });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'hold',
      attempts: 0,
      because: { code: 'handler.missing' },
    });
  });

  // Regression: it stopped the round of claims, and the claimed messages waited for their leases.
  test('that throws fails the attempt, and harms neither enqueue nor other messages', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    const seen: string[] = [];
    spool.handle('a', () => undefined, {
      accepts: () => {
        throw new Error('no tenant');
      },
    });
    spool.handle('b', ({ id }) => void seen.push(id));
    await spool.operator({ by: 'ops' }).pause('#');
    const { id } = await spool.enqueue({ topic: 'a' });
    const { id: other } = await spool.enqueue({ topic: 'b' });
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    const { id: direct } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(seen).toEqual([other]);
    for (const one of [id, direct]) {
      expect(await status(one)).toMatchObject({
        state: 'deferred',
        lastFailure: { reason: 'no tenant' },
      });
    }
  });
});
