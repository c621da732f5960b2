/** healthGate: nothing is delivered while isHealthy() is not true (R114). */
import { healthGate } from 'respool/middleware';
import { createTestSpool, SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { failing } from '../spool/setup.ts';
import { pass } from './setup.ts';

const forEver = (): Promise<boolean> => Promise.withResolvers<boolean>().promise;

describe('a health gate', () => {
  test('postpones without calling the handler or costing an attempt until it is healthy', async () => {
    let isHealthy = false;
    const { spool, clock } = await createTestSpool({ retention: { delivered: { archive: '1d' } } });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler, {
      middleware: [healthGate({ isHealthy: () => isHealthy, postpone: '1m', clock })],
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('5m');
    expect(attempts).toEqual([]);
    const waiting = await spool.get(id);
    expect(waiting?.status).toMatchObject({ state: 'deferred', attempts: 0 });
    expect(waiting?.status.because?.code).toBe('health.down');
    isHealthy = true;
    await clock.advance('1m');
    expect(attempts).toEqual([1]);
    expect((await spool.get(id))?.status.ending).toBe('delivered');
    await spool.stop();
  });

  test('asks at most every so often, once for all that come meanwhile', async () => {
    const clock = new SimClock();
    let asked = 0;
    const gate = healthGate({
      isHealthy: async () => {
        asked += 1;
        return true;
      },
      every: '10s',
      clock,
    });
    await Promise.all([pass(gate), pass(gate), pass(gate)]);
    await clock.advance(9_999);
    await pass(gate);
    expect(asked).toBe(1);
    await clock.advance(1);
    await pass(gate);
    expect(asked).toBe(2);
  });

  test.each([
    [
      'throws',
      () => {
        throw new Error('cannot tell');
      },
    ],
    ['rejects', () => Promise.reject(new Error('cannot tell'))],
    ['answers something else than true', () => 'yes' as unknown as boolean],
  ])(
    'takes an isHealthy that %s for unhealthy',
    async (_, isHealthy: () => boolean | Promise<boolean>) => {
      const gate = healthGate({ isHealthy, postpone: '7s', clock: new SimClock() });
      expect(await pass(gate)).toMatchObject({ kind: 'postponed', delayMs: 7_000 });
    },
  );

  test('takes no answer within its time limit for unhealthy, and asks again later', async () => {
    const clock = new SimClock();
    let asked = 0;
    const isHealthy = (): boolean | Promise<boolean> => {
      asked += 1;
      return asked === 1 ? forEver() : true;
    };
    const gate = healthGate({ isHealthy, timeout: '3s', every: '4s', clock });
    const first = pass(gate);
    await clock.advance('3s');
    expect((await first).kind).toBe('postponed');
    await clock.advance(3_999);
    expect((await pass(gate)).kind).toBe('postponed');
    await clock.advance(1);
    expect((await pass(gate)).kind).toBe('delivered');
    expect(clock.timers).toBe(0);
  });

  test('believes an answer for 5s, waits 2s for one and postpones by 30s unless told', async () => {
    const clock = new SimClock();
    let asked = 0;
    const gate = healthGate({
      isHealthy: () => {
        asked += 1;
        return forEver();
      },
      clock,
    });
    const first = pass(gate);
    await clock.advance('2s');
    expect(await first).toMatchObject({ kind: 'postponed', delayMs: 30_000 });
    await clock.advance(4_999);
    await pass(gate);
    expect(asked).toBe(1);
    await clock.advance(1);
    void pass(gate);
    expect(asked).toBe(2);
  });
});
