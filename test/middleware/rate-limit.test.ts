/** rateLimit: a token bucket, with short waits in the slot and postponements beyond (R98). */
import type { Delivery } from 'respool';
import { rateLimit, type RateLimitOptions } from 'respool/middleware';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { SECOND } from '../spool/setup.ts';
import { pass } from './setup.ts';

describe('a rate limit', () => {
  test('lets a burst go at once and then one for each part of the span, at no cost', async () => {
    const { spool, clock } = await createTestSpool({ concurrency: 50 });
    const startedAt = clock.now();
    const began: { at: number; attempt: number }[] = [];
    const handler = ({ attempt }: Delivery): void => {
      began.push({ at: clock.now() - startedAt, attempt });
    };
    spool.handle('a', handler, { middleware: [rateLimit({ max: 4, per: '4s', clock })] });
    for (let number = 0; number < 10; number += 1) await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(began.length).toBe(4);
    await clock.advance('1m');
    expect(began.map(({ at }) => at)).toEqual(
      [0, 0, 0, 0, 1, 2, 3, 4, 5, 6].map((s) => s * SECOND),
    );
    expect(began.every(({ attempt }) => attempt === 1)).toBe(true);
    await spool.stop();
  });

  test('waits inside the slot up to `wait`, and postpones what is longer', async () => {
    const clock = new SimClock();
    const limit = rateLimit({ max: 1, per: '10s', wait: '15s', clock });
    await pass(limit);
    const inside = pass(limit);
    expect(await pass(limit)).toEqual({
      kind: 'postponed',
      delayMs: 20 * SECOND,
      code: 'rate.limited',
      reason: 'the rate of 1 per 10s is reached',
    });
    expect(await pass(limit)).toMatchObject({ delayMs: 30 * SECOND });
    await clock.advance('10s');
    expect((await inside).kind).toBe('delivered');
  });

  test('waits inside for up to a second, and counts all together, unless told otherwise', async () => {
    const clock = new SimClock();
    const limit = rateLimit({ max: 1, per: '1s', clock });
    await pass(limit, { topic: 'a' });
    const inside = pass(limit, { topic: 'b' });
    expect(clock.timers).toBe(1);
    expect(await pass(limit)).toMatchObject({ kind: 'postponed', delayMs: 2 * SECOND });
    await clock.advance('1s');
    expect((await inside).kind).toBe('delivered');
  });

  test('gives its token to another when the delivery is called off while it waits', async () => {
    const clock = new SimClock();
    const limit = rateLimit({ max: 1, per: '10s', wait: '10s', clock });
    await pass(limit);
    const abort = new AbortController();
    let isCalled = false;
    const called = pass(limit, { signal: abort.signal }, async () => {
      isCalled = true;
      return { kind: 'delivered' };
    });
    abort.abort(new Error('stop'));
    expect(await called).toMatchObject({ kind: 'postponed', delayMs: 0 });
    expect(isCalled).toBe(false);
    expect(clock.timers).toBe(0);
    const next = pass(limit);
    await clock.advance('10s');
    expect((await next).kind).toBe('delivered');
  });

  test('lets go at once when a spool that stops calls its deliveries off', async () => {
    const { spool, clock } = await createTestSpool();
    const events: string[] = [];
    spool.on('deferred', (event) => events.push(`${event.id} ${event.because.code}`));
    let calls = 0;
    const limit = rateLimit({ max: 1, per: '20s', wait: '30s', clock });
    spool.handle('a', () => void (calls += 1), { middleware: [limit] });
    await spool.enqueue({ topic: 'a' });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const stopped = spool.stop({ within: '1s' });
    await clock.advance('1s');
    await stopped;
    expect(calls).toBe(1);
    expect(events).toEqual([`${id} rate.limited`]);
    expect(clock.timers).toBe(0);
  });

  test.each<[string, NonNullable<RateLimitOptions['by']>, string[]]>([
    ['topic', 'topic', ['postponed', 'postponed', 'delivered']],
    ['destination', 'destination', ['postponed', 'delivered', 'postponed']],
    ['what a function says', ({ id }) => id, ['postponed', 'postponed', 'postponed']],
  ])('may be counted by %s', async (_, by, kinds) => {
    const limit = rateLimit({ max: 1, per: '1h', by, clock: new SimClock() });
    await pass(limit, { topic: 'a', destination: 'x' });
    const of = [
      { topic: 'a', destination: 'x' },
      { topic: 'a', destination: 'y' },
      { topic: 'b', destination: 'x' },
    ];
    const found: string[] = [];
    for (const one of of) found.push((await pass(limit, one)).kind);
    expect(found).toEqual(kinds);
  });

  test('remembers 10,000 keys and forgets the one that was not used for longest', async () => {
    const limit = rateLimit({ max: 1, per: '1h', by: 'topic', clock: new SimClock() });
    for (let number = 0; number <= 10_000; number += 1) await pass(limit, { topic: `t${number}` });
    expect((await pass(limit, { topic: 't1' })).kind).toBe('postponed');
    expect((await pass(limit, { topic: 't0' })).kind).toBe('delivered');
  });

  test('fails the attempt when its function gives no text to count by', async () => {
    const by = (() => 7) as unknown as () => string;
    const limit = rateLimit({ max: 1, per: '1h', by });
    await expect(pass(limit)).rejects.toThrow('cannot use 7 as "what by() returned"');
  });
});
