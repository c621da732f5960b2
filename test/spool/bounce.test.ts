/** Bounces and their notices: own policy, own counter, never a delivery again (R24, R82, R83). */
import { fixed, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { failing, HOUR, MINUTE, setup, type World, type WorldOptions } from './setup.ts';

/** A spool on which topic `a` always bounces. */
async function bouncing(options: WorldOptions = {}): Promise<World & { deliveries: number[] }> {
  const world = await setup(options);
  const { handler, attempts } = failing(1_000, () => new PermanentError('smtp.550', 'nobody'));
  world.spool.handle('a', handler);
  return { ...world, deliveries: attempts };
}

describe('a bounced message', () => {
  test('stays in bounce for good when nobody asked otherwise', async () => {
    const { spool, clock, status, count } = await bouncing();
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const claims = count('claim');
    await clock.advance('3h');
    expect(await status(id)).toMatchObject({ state: 'bounce', lane: 'notice', notices: 0 });
    // Without a bounce handler no claim is ever made for notices.
    expect(count('claim') - claims).toBeLessThanOrEqual(2 * 360 + 2);
  });

  test('is announced once, with its failure, and then left alone', async () => {
    const { spool, clock, status, kinds, deliveries } = await bouncing();
    const seen: unknown[] = [];
    spool.onBounce('a', async (delivery) => {
      const { id, lane, attempt, lastFailure } = delivery;
      seen.push({ id, lane, attempt, code: lastFailure?.code, body: await delivery.text() });
    });
    const { id } = await spool.enqueue({ topic: 'a', body: 'hello' });
    await clock.advance('3h');
    expect(seen).toEqual([{ id, lane: 'notice', attempt: 1, code: 'smtp.550', body: 'hello' }]);
    expect(await status(id)).toMatchObject({ state: 'bounce', dueAt: null, notices: 1 });
    expect(deliveries).toEqual([1]);
    expect(kinds(id)).toContain('announced');
  });

  test('is announced later when the bounce handler comes later', async () => {
    const { spool, clock } = await bouncing();
    await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    const seen: string[] = [];
    spool.onBounce('#', ({ topic }) => void seen.push(topic));
    await clock.settle();
    expect(seen).toEqual(['a']);
  });

  test('is told only to the bounce handler of its topic', async () => {
    const { spool, clock, status } = await bouncing();
    const seen: string[] = [];
    const undo = spool.onBounce('b', ({ topic }) => void seen.push(topic));
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    expect(seen).toEqual([]);
    undo();
    expect(await status(id)).toMatchObject({ state: 'bounce', notices: 0 });
  });
});

describe('a notice that fails', () => {
  // Weakness 3: elsewhere an error of the bounce handler delivers again, or spins.
  test('backs off inside bounce by its own policy and never delivers again', async () => {
    const { spool, clock, status, deliveries } = await bouncing({
      policies: { notice: fixed('10m', { attempts: 3 }), default: fixed('1h') },
    });
    const notices = failing(99, () => new Error('the notice failed'));
    spool.onBounce('a', notices.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'bounce',
      lane: 'notice',
      attempts: 1,
      notices: 1,
      dueAt: clock.now() + 10 * MINUTE,
      lastFailure: { code: 'smtp.550' },
    });
    await clock.advance('5h');
    expect(notices.attempts).toEqual([1, 2, 3]);
    expect(deliveries).toEqual([1]);
    expect(await status(id)).toMatchObject({ state: 'bounce', dueAt: null, notices: 3 });
  });

  test('is told as a deferral, and at its end as what is left of it', async () => {
    const { spool, clock, events } = await bouncing({
      policies: { notice: fixed('10m', { attempts: 2 }) },
    });
    spool.onBounce('a', failing(99).handler);
    await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    const told = events.filter((event) => 'lane' in event && event.lane === 'notice');
    expect(told.map((event) => event.kind)).toEqual([
      'claimed',
      'started',
      'ended',
      'deferred',
      'claimed',
      'started',
      'ended',
      'bounced',
    ]);
  });

  test('uses the policy of onBounce before that of the spool', async () => {
    const { spool, clock, status } = await bouncing({ policies: { quick: fixed('1s') } });
    spool.onBounce('a', failing(99).handler, { policy: 'quick' });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect((await status(id)).dueAt).toBe(clock.now() + 1_000);
  });

  test('uses the default policy when there is no other, whatever the message’s own is', async () => {
    const { spool, clock, status } = await bouncing({
      policies: { default: fixed('2h'), own: fixed('1s') },
    });
    spool.onBounce('a', failing(99).handler);
    const { id } = await spool.enqueue({ topic: 'a', policy: 'own' });
    await clock.settle();
    expect((await status(id)).dueAt).toBe(clock.now() + 2 * HOUR);
  });

  test('can be tried again by retryNow only as a whole new round', async () => {
    const { spool, clock, status, deliveries } = await bouncing({
      policies: { notice: fixed('1s', { attempts: 1 }) },
    });
    const notices = failing(1);
    spool.onBounce('a', notices.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    expect(await status(id)).toMatchObject({ dueAt: null, notices: 1 });
    await spool.operator({ by: 'ops' }).retry([id]);
    await clock.settle();
    expect(deliveries).toHaveLength(2);
    expect(notices.attempts).toEqual([1, 1]);
    expect(await status(id)).toMatchObject({ replays: 1, state: 'bounce', dueAt: null });
  });

  test('has a time limit and a concurrency of its own', async () => {
    const { spool, clock, status } = await bouncing({ policies: { notice: fixed('1h') } });
    let running = 0;
    let most = 0;
    spool.onBounce(
      'a',
      () => {
        running += 1;
        most = Math.max(most, running);
        return new Promise(() => undefined);
      },
      { timeout: '10s', concurrency: 1 },
    );
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    await clock.advance('9s');
    expect(most).toBe(1);
    await clock.advance('1s');
    expect(await status(id)).toMatchObject({ state: 'bounce', notices: 1 });
    expect((await status(id)).history.at(-1)).toMatchObject({ lane: 'notice', code: 'timeout' });
  });
});
