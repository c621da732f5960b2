/** From what a handler said to what happened (R86–R88, R208, R212). */
import {
  delivered,
  failed,
  failure,
  fixed,
  type Handler,
  held,
  isPermanent,
  isRetryable,
  PermanentError,
  postponed,
  RetryableError,
  type Status,
} from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, HOUR, MINUTE, setup, type World } from '../spool/setup.ts';

async function after(handler: Handler): Promise<{ world: World; status: Status | undefined }> {
  const world = await setup({ policies: { default: fixed('1h', { attempts: 3 }) } });
  world.spool.handle('a', handler);
  const { id } = await world.spool.enqueue({ topic: 'a' });
  await world.clock.settle();
  return { world, status: (await world.spool.get(id))?.status };
}

function throwing(thrown: unknown): Handler {
  return () => {
    throw thrown;
  };
}

describe('an outcome that is returned', () => {
  test('delivered() is the same as nothing', async () => {
    expect((await after(() => delivered())).status).toBeUndefined();
    expect((await after(() => undefined)).status).toBeUndefined();
  });

  test('failed() is judged as if it was thrown', async () => {
    const transient = await after(() => failed(failure('transient', 'smtp.451', 'greylisted')));
    expect(transient.status).toMatchObject({
      state: 'deferred',
      attempts: 1,
      dueAt: transient.world.clock.now() + HOUR,
      lastFailure: { code: 'smtp.451', reason: 'greylisted', permanence: 'transient' },
      because: { code: 'smtp.451' },
    });
    const final = await after(() => failed(failure('permanent', 'smtp.550', 'no such user')));
    expect(final.status).toMatchObject({ state: 'bounce', ending: 'bounced' });
    const asked = await after(() => failed(failure('transient', 'x', 'y', 5 * MINUTE)));
    expect(asked.status?.dueAt).toBe(asked.world.clock.now() + 5 * MINUTE);
  });

  test('postponed() waits as asked and costs no attempt', async () => {
    const { world, status } = await after(() => postponed('5m', 'quota'));
    expect(status).toMatchObject({
      state: 'deferred',
      attempts: 0,
      postponed: 1,
      dueAt: world.clock.now() + 5 * MINUTE,
      because: { text: 'quota' },
    });
    expect(status?.lastFailure).toBeUndefined();
    await world.clock.advance('20m');
    const [entry] = (await world.spool.page()).entries;
    expect(entry?.status).toMatchObject({ attempts: 0, postponed: 5 });
  });

  test('held() stops everything until an operator acts', async () => {
    const { status } = await after(() => held('needs a human'));
    expect(status).toMatchObject({
      state: 'hold',
      dueAt: null,
      attempts: 1,
      because: { code: 'handler.held', text: 'needs a human', by: 'handler' },
    });
    const coded = await after(() => held('look', 'fraud'));
    expect(coded.status?.because?.code).toBe('fraud');
  });
});

describe('an outcome that is thrown', () => {
  const retried: Record<string, unknown> = {
    'a plain error': new Error('no'),
    'a RetryableError': new RetryableError('smtp.451', 'later'),
    'an error of another kind': new RangeError('x'),
    'an error with a code': Object.assign(new Error('x'), { code: 'ECONNRESET' }),
    'a text': 'just a text',
    undefined,
    null: null,
    'a number': 42,
    'an error that says it can be retried': { isRetryable: true },
    'an error that fails when asked': {
      isRetryable: () => {
        throw new Error('x');
      },
    },
  };
  test.each(Object.entries(retried))('%s is retried', async (_, thrown) => {
    const { status } = await after(throwing(thrown));
    expect(status).toMatchObject({ state: 'deferred', attempts: 1 });
    expect(isRetryable(thrown)).toBe(true);
  });

  const final: Record<string, unknown> = {
    'a PermanentError': new PermanentError('smtp.550', 'no such user'),
    'an error caused by one': new Error('wrapped', { cause: new PermanentError('x', 'y') }),
    'an error that says so': Object.assign(new Error('x'), { isRetryable: false }),
    'an error that says so when asked': { message: 'x', isRetryable: () => false },
  };
  test.each(Object.entries(final))('%s bounces at once', async (_, thrown) => {
    const { status } = await after(throwing(thrown));
    expect(status).toMatchObject({ state: 'bounce', attempts: 1, lane: 'notice' });
    expect(isPermanent(thrown)).toBe(true);
  });

  test('retryAfter replaces the wait of the policy', async () => {
    const thrown = new RetryableError('http.429', 'slow down', { retryAfter: '10m' });
    const { world, status } = await after(throwing(thrown));
    expect(status?.dueAt).toBe(world.clock.now() + 10 * MINUTE);
    expect(status?.lastFailure).toMatchObject({ code: 'http.429', retryAfterMs: 10 * MINUTE });
  });

  test('a thrown undefined has a failure that can be read', async () => {
    const { status } = await after(throwing(undefined));
    expect(status?.lastFailure).toMatchObject({ code: 'error', reason: 'undefined' });
  });

  test('a very long reason is cut', async () => {
    const { status } = await after(throwing(new Error('x'.repeat(10_000))));
    expect(status?.lastFailure?.reason).toHaveLength(1_000);
  });
});

describe('attempts that run out', () => {
  test('bounce with the last failure, spent', async () => {
    const { world } = await after(throwing(new Error('no')));
    await world.clock.advance('2h');
    const [entry] = (await world.spool.page()).entries;
    expect(entry?.status).toMatchObject({
      state: 'bounce',
      attempts: 3,
      ending: 'bounced',
      because: { code: 'error', text: 'no' },
    });
    const bounced = world.events.find((event) => event.kind === 'bounced');
    expect(bounced).toMatchObject({ spent: true, attempt: 3, failure: { reason: 'no' } });
  });

  test('are counted when they are claimed, and never exceed the policy', async () => {
    const { spool, clock, status } = await setup({
      policies: { default: fixed('1m', { attempts: 5 }) },
    });
    const { handler, attempts } = failing(99);
    spool.handle('a', handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    expect(attempts).toEqual([1, 2, 3, 4, 5]);
    expect((await status(id)).attempts).toBe(5);
  });

  test('leave a history of the last ten', async () => {
    const { spool, clock, status } = await setup({
      policies: { default: fixed('1m', { attempts: 12 }) },
    });
    spool.handle('a', failing(99).handler);
    const start = clock.now();
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    const { history } = await status(id);
    expect(history.map(({ attempt }) => attempt)).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    expect(history[0]).toMatchObject({
      at: start + 2 * MINUTE,
      tookMs: 0,
      lane: 'delivery',
      code: 'error',
      reason: 'no',
    });
    expect(history[0]?.by).toContain('memory');
  });

  test('like failures share a fingerprint, others do not', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1h') } });
    const reasons = ['user 17 not found', 'user 4711 not found', 'disk full'];
    spool.handle('a', ({ headers }) => {
      throw new Error(headers['why']);
    });
    for (const why of reasons) await spool.enqueue({ topic: 'a', headers: { why } });
    await clock.settle();
    const counts = (await spool.operator({ by: 'ops' }).tally('fingerprint')).map(
      ({ count }) => count,
    );
    expect(counts.toSorted((one, other) => one - other)).toEqual([1, 2]);
  });
});
