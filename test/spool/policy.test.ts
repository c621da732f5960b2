/** Which policy a message gets, and what it does (R19, R99–R112, R117). */
import { custom, exponential, fixed, ladder, linear, noRetry, postfix, rungs } from 'respool';
import type { MessageOptions, RetryPolicy } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, HOUR, MINUTE, rejection, SECOND, setup, type World } from './setup.ts';

const POLICIES = {
  default: fixed('1m', { attempts: 3 }),
  option: fixed('2m'),
  header: fixed('3m'),
  handler: fixed('4m'),
};

/** The wait after the first failure, in minutes. */
async function firstWait(
  world: World,
  message: Partial<MessageOptions>,
  policy?: string | RetryPolicy,
): Promise<number> {
  const { spool, clock, status } = world;
  spool.handle('a', failing(99).handler, policy === undefined ? {} : { policy });
  const { id } = await spool.enqueue({ topic: 'a', ...message });
  await clock.settle();
  return ((await status(id)).dueAt ?? 0) / MINUTE - clock.now() / MINUTE;
}

describe('the policy of a message', () => {
  const header = { 'x-retry-policy': 'header' };
  test('is the option before all', async () => {
    const world = await setup({ policies: POLICIES });
    expect(await firstWait(world, { policy: 'option', headers: header }, 'handler')).toBe(2);
  });

  test('is the header before the handler', async () => {
    const world = await setup({ policies: POLICIES });
    expect(await firstWait(world, { headers: header }, 'handler')).toBe(3);
  });

  test('is the handler’s before the default, by name or as a policy', async () => {
    expect(await firstWait(await setup({ policies: POLICIES }), {}, 'handler')).toBe(4);
    expect(await firstWait(await setup({ policies: POLICIES }), {}, fixed('7m'))).toBe(7);
  });

  test('is the default otherwise, and when it is asked for by name', async () => {
    expect(await firstWait(await setup({ policies: POLICIES }), {})).toBe(1);
    const asked = await setup({ policies: POLICIES });
    expect(await firstWait(asked, { policy: 'default' }, 'handler')).toBe(1);
  });

  test('is the mail server’s when nothing is configured: 15 minutes, ten attempts', async () => {
    const { spool, clock, status } = await setup();
    const { handler, attempts } = failing(99);
    spool.handle('a', handler);
    const start = clock.now();
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect((await status(id)).dueAt).toBe(start + 15 * MINUTE);
    await clock.advance('4d');
    expect(attempts).toHaveLength(10);
    expect(await status(id)).toMatchObject({ state: 'bounce', attempts: 10 });
  });

  test('of an unknown name is the default, with an event at the door and at each judgement', async () => {
    const world = await setup({ policies: POLICIES });
    expect(await firstWait(world, { policy: 'nobody-knows' }, 'handler')).toBe(1);
    const told = world.events.filter((event) => event.kind === 'policy-unknown');
    expect(told.map((event) => event.policy)).toEqual(['nobody-knows', 'nobody-knows']);
    const headed = await setup({ policies: POLICIES });
    expect(await firstWait(headed, { headers: { 'x-retry-policy': 'gone' } })).toBe(1);
  });

  test('can be changed later, to a name that is registered', async () => {
    const { spool, clock, status } = await setup({ policies: POLICIES });
    spool.handle('a', failing(99).handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    await spool.operator({ by: 'ann' }).setPolicy([id], 'option');
    expect((await status(id)).policy).toBe('option');
    await clock.advance('1m');
    expect((await status(id)).dueAt).toBe(clock.now() + 2 * MINUTE);
    const error = await rejection(spool.operator({ by: 'ops' }).setPolicy([id], 'gone'));
    expect(error).toMatchObject({ code: 'policy.unknown' });
    expect(error.message).toContain('option');
    expect(await spool.operator({ by: 'ops' }).setPolicy(['nobody'], 'option')).toEqual([
      { id: 'nobody', result: 'unknown' },
    ]);
    expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([
      { action: 'setPolicy', by: 'ann', ids: [id], details: { policy: 'option' } },
      { ids: ['nobody'] },
    ]);
  });

  test('of a handler must be registered', async () => {
    const { spool } = await setup({ policies: POLICIES });
    expect(() => spool.handle('a', () => undefined, { policy: 'gone' })).toThrow('handler');
  });
});

describe('the attempts of a message', () => {
  async function waits(policy: RetryPolicy, times = 99): Promise<number[]> {
    const { spool, clock } = await setup({ policies: { default: policy } });
    const at: number[] = [];
    spool.handle('a', () => {
      at.push(clock.now());
      if (at.length <= times) throw new Error('no');
    });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('3h');
    return at.slice(1).map((time, index) => (time - (at[index] ?? 0)) / SECOND);
  }

  const table: Record<string, { policy: RetryPolicy; expected: number[] }> = {
    'fixed waits': { policy: fixed('5s', { attempts: 4 }), expected: [5, 5, 5] },
    'no wait at all': { policy: fixed(0, { attempts: 3 }), expected: [0, 0] },
    'linear waits up to a cap': {
      policy: linear({ first: '1s', step: '2s', max: '4s', attempts: 5 }),
      expected: [1, 3, 4, 4],
    },
    'exponential waits up to a cap': {
      policy: exponential({ first: '1s', factor: 3, max: '20s', attempts: 6 }),
      expected: [1, 3, 9, 20, 20],
    },
    'a list of waits, one attempt more': {
      policy: ladder(['2s', '5s', '15s']),
      expected: [2, 5, 15],
    },
    'no retry': { policy: noRetry(), expected: [] },
    'the first slots of a mail server': {
      policy: postfix({ attempts: 4 }),
      expected: [900, 1_800, 3_600],
    },
  };
  test.each(Object.entries(table))('come after %s', async (_, { policy, expected }) => {
    expect(await waits(policy)).toEqual(expected);
    expect([...new Set(expected)].map((seconds) => seconds * SECOND)).toEqual(rungs(policy));
  });

  test('end with the maximum age', async () => {
    const { spool, clock, status } = await setup({
      policies: { default: fixed('1h', { attempts: 100, maxAge: '3h' }) },
    });
    spool.handle('a', failing(99).handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1d');
    expect(await status(id)).toMatchObject({
      state: 'bounce',
      attempts: 4,
      because: { code: 'policy.max-age' },
    });
  });

  test('can wait by a function of attempt and failure, rounded up to its rungs', async () => {
    const asked: [number, string][] = [];
    const { spool, clock, status } = await setup({
      policies: { default: custom('mine', ['10s', '1m', '1h']) },
      backoffs: {
        mine: (attempt, failure) => {
          asked.push([attempt, failure.code]);
          return attempt === 1 ? '5s' : '2m';
        },
      },
    });
    spool.handle('a', failing(99).handler);
    const start = clock.now();
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect((await status(id)).dueAt).toBe(start + 10 * SECOND);
    await clock.advance('10s');
    expect((await status(id)).dueAt).toBe(clock.now() + HOUR);
    expect(asked).toEqual([
      [1, 'error'],
      [2, 'error'],
    ]);
  });

  test('wait the longest rung when the function throws or is not there', async () => {
    for (const backoffs of [{}, { mine: () => 'nonsense' }]) {
      const { spool, clock, status } = await setup({
        policies: { default: custom('mine', ['10s', '1h']) },
        backoffs,
      });
      spool.handle('a', failing(99).handler);
      const { id } = await spool.enqueue({ topic: 'a' });
      await clock.settle();
      expect((await status(id)).dueAt).toBe(clock.now() + HOUR);
    }
  });

  test('are spread by jitter, which only adds', async () => {
    const throws = [0, 0.5, 0.999];
    const { spool, clock, status } = await setup({
      policies: { default: fixed('100s', { jitter: 0.2 }) },
      dice: { random: () => throws[0] ?? 0 },
    });
    spool.handle('a', failing(99).handler);
    const waits: number[] = [];
    for (; throws.length > 0; throws.shift()) {
      const { id } = await spool.enqueue({ topic: 'a' });
      await clock.settle();
      waits.push(((await status(id)).dueAt ?? 0) - clock.now());
      await spool.operator({ by: 'ops' }).remove([id], { hard: true });
    }
    expect(waits[0]).toBe(100 * SECOND);
    expect(Math.abs((waits[1] ?? 0) - 110 * SECOND)).toBeLessThanOrEqual(1);
    expect(waits[2]).toBeGreaterThan(119 * SECOND);
    expect(waits[2]).toBeLessThanOrEqual(120 * SECOND);
  });
});
