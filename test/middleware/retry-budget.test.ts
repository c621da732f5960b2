/** retryBudget: how many retries begin per minute (R113). */
import { type Delivery, fixed } from 'respool';
import { retryBudget } from 'respool/middleware';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { MINUTE } from '../spool/setup.ts';
import { pass } from './setup.ts';

describe('a retry budget', () => {
  test('lets no more retries begin in any minute than it allows, and all in the end', async () => {
    const began: { at: number; attempt: number }[] = [];
    const { spool, clock } = await createTestSpool({
      policies: { default: fixed('1m') },
      concurrency: 50,
    });
    const handler = ({ attempt }: Delivery): void => {
      began.push({ at: clock.now(), attempt });
      if (attempt === 1) throw new Error('not yet');
    };
    spool.handle('a', handler, { middleware: [retryBudget({ perMinute: 3, clock })] });
    for (let number = 0; number < 10; number += 1) await spool.enqueue({ topic: 'a' });
    await clock.settle();
    // First attempts are never held back.
    expect(began.length).toBe(10);
    await clock.advance('20m');
    const retries = began.filter(({ attempt }) => attempt > 1).map(({ at }) => at);
    // Postponed ones came back with the same attempt number: it cost none.
    expect(began.filter(({ attempt }) => attempt === 2).length).toBe(10);
    for (const at of retries) {
      const inMinute = retries.filter((other) => other >= at && other < at + MINUTE);
      expect(inMinute.length).toBeLessThanOrEqual(3);
    }
    await spool.stop();
    expect(clock.timers).toBe(0);
  });

  test('postpones beyond it at no cost, and says why', async () => {
    const clock = new SimClock();
    const budget = retryBudget({ perMinute: 1, clock });
    expect((await pass(budget, { attempt: 2 })).kind).toBe('delivered');
    await clock.advance('20s');
    expect(await pass(budget, { attempt: 2 })).toEqual({
      kind: 'postponed',
      delayMs: 40_000,
      code: 'budget.spent',
      reason: 'no retry may begin now: the budget of 1 per minute is spent',
    });
    expect((await pass(budget, { attempt: 1 })).kind).toBe('delivered');
    await clock.advance('40s');
    expect((await pass(budget, { attempt: 7 })).kind).toBe('delivered');
  });

  test('sends those beyond it away one after the other, not all to the same moment', async () => {
    const budget = retryBudget({ perMinute: 2, clock: new SimClock() });
    const waits: unknown[] = [];
    for (let number = 0; number < 60; number += 1) {
      const outcome = await pass(budget, { attempt: 2 });
      waits.push(outcome.kind === 'postponed' ? outcome.delayMs : outcome.kind);
    }
    expect(waits.slice(0, 5)).toEqual(['delivered', 'delivered', 60_000, 90_000, 120_000]);
    // Nobody is sent away for ever: the line begins again after ten minutes.
    expect(Math.max(...waits.slice(2).map(Number))).toBe(11 * MINUTE);
  });
});
