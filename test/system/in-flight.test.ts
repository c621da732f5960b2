/** in-flight — whoever closes waits until nothing is on its way. */

import { describe, expect, test } from 'vitest';
import { SimClock } from 'respool/testkit';
import { InFlight, WhenIdle } from '../../src/system/wait.ts';

describe('work in flight', () => {
  test('is waited for, whether it succeeds or fails', async () => {
    const inFlight = new InFlight();
    const first = Promise.withResolvers<string>();
    const second = Promise.withResolvers<string>();
    const ends: string[] = [];
    expect(inFlight.track(first.promise)).toBe(first.promise);
    const failed = inFlight.track(second.promise).catch(() => ends.push('failed'));
    const idle = inFlight.idle().then(() => ends.push('idle'));
    first.resolve('one');
    await first.promise;
    expect([inFlight.count, ends]).toEqual([1, []]);
    second.reject(new Error('broken'));
    await failed;
    await idle;
    expect(ends).toEqual(['failed', 'idle']);
    expect(inFlight.count).toBe(0);
  });

  test('that begins as the last one ends is waited for, too', async () => {
    const inFlight = new InFlight();
    let isIdle = false;
    inFlight.begin();
    const idle = inFlight.idle().then(() => {
      isIdle = true;
    });
    inFlight.end();
    inFlight.begin();
    await new Promise(setImmediate);
    expect(isIdle).toBe(false);
    inFlight.end();
    await idle;
  });

  test('is not waited for when there is none', async () => {
    await new InFlight().idle();
  });
});

describe('a condition', () => {
  test('is reported in time, or not within the span', async () => {
    const clock = new SimClock();
    const open = new Set(['upload']);
    const whenIdle = new WhenIdle(() => open.size === 0);
    const early = whenIdle.within(clock, 100);
    await clock.advance('100ms');
    expect(await early).toBe(false);
    const late = whenIdle.within(clock, 100);
    whenIdle.check();
    open.clear();
    whenIdle.check();
    expect(await late).toBe(true);
    expect(await whenIdle.within(clock, 0)).toBe(true);
  });
});
