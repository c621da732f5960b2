/** wait — sleeping, backing off and time limits, by virtual time. */

import { getEventListeners } from 'node:events';
import { describe, expect, test } from 'vitest';
import {
  backoff,
  backoffMs,
  endsWithin,
  Sleeper,
  sleep,
  TimeLimit,
  unlessAborted,
  withTimeout,
} from '../../src/system/wait.ts';
import { systemClock } from '../../src/system/clock.ts';
import { SimClock } from 'respool/testkit';

/** A clock that knows how many of its timers are running. */
function makeClock() {
  const clock = new SimClock();
  const running = new Set<object>();
  const after = (ms: number, call: () => void): (() => void) => {
    const timer = {};
    running.add(timer);
    const cancel = clock.after(ms, () => {
      running.delete(timer);
      call();
    });
    return () => {
      running.delete(timer);
      cancel();
    };
  };
  const advance = (ms: number) => clock.advance(`${ms}ms`);
  return { after, advance, running };
}

function isSettled(work: Promise<unknown>): Promise<boolean> {
  const pending = {};
  const tell = (value: unknown): boolean => value !== pending;
  return Promise.race([work, Promise.resolve(pending)]).then(tell, () => true);
}

describe('a sleep', () => {
  test('ends after its span, and leaves no listener on its signal', async () => {
    const clock = makeClock();
    const { signal } = new AbortController();
    const sleeping = sleep(clock, 100, signal);
    await clock.advance(99);
    expect(await isSettled(sleeping)).toBe(false);
    await clock.advance(1);
    expect(await isSettled(sleeping)).toBe(true);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  test('ends when its signal fires, and leaves no timer', async () => {
    const clock = makeClock();
    const stop = new AbortController();
    const sleeping = sleep(clock, 100, stop.signal);
    stop.abort();
    await sleeping;
    expect(clock.running.size).toBe(0);
    expect(getEventListeners(stop.signal, 'abort')).toEqual([]);
  });

  test('does not begin when its signal has fired already', async () => {
    const clock = makeClock();
    await sleep(clock, 100, AbortSignal.abort());
    expect(clock.running.size).toBe(0);
  });

  test('without an end starts no timer and waits for its signal', async () => {
    const clock = makeClock();
    const stop = new AbortController();
    const sleeping = sleep(clock, Number.POSITIVE_INFINITY, stop.signal);
    expect(clock.running.size).toBe(0);
    expect(await isSettled(sleeping)).toBe(false);
    stop.abort();
    await sleeping;
  });
});

describe('a sleeper', () => {
  test('wakes from all its sleeps at once, and can sleep again', async () => {
    const clock = makeClock();
    const sleeper = new Sleeper(clock);
    const both = Promise.all([sleeper.sleep(100), sleeper.sleep(200)]);
    expect(sleeper.isAsleep).toBe(true);
    sleeper.wake();
    await both;
    expect(sleeper.isAsleep).toBe(false);
    const again = sleeper.sleep(50);
    expect(await isSettled(again)).toBe(false);
    await clock.advance(50);
    expect(await isSettled(again)).toBe(true);
    expect(sleeper.isAsleep).toBe(false);
    expect(clock.running.size).toBe(0);
  });

  test('also ends a sleep with the signal of that one', async () => {
    const clock = makeClock();
    const sleeper = new Sleeper(clock);
    const stop = new AbortController();
    const other = sleeper.sleep(100);
    const sleeping = sleeper.sleep(100, stop.signal);
    stop.abort();
    await sleeping;
    expect(await isSettled(other)).toBe(false);
    expect(sleeper.isAsleep).toBe(true);
    await sleeper.sleep(100, stop.signal);
    expect(clock.running.size).toBe(1);
  });
});

describe('a back-off', () => {
  test('doubles up to its maximum and starts over after a success', () => {
    const retry = backoff({ firstMs: 100, maxMs: 500 });
    expect([retry.next(), retry.next(), retry.next(), retry.next()]).toEqual([100, 200, 400, 500]);
    retry.reset();
    expect(retry.next()).toBe(100);
  });

  test('stays at its maximum after any number of failures', () => {
    expect(backoffMs({ firstMs: 1, maxMs: 60_000 }, 1_000_000)).toBe(60_000);
    expect(backoffMs({ firstMs: 0, maxMs: 60_000 }, 1_000_000)).toBe(0);
  });
});

describe('work with a time limit', () => {
  test('gives its result or its error, and leaves no timer', async () => {
    const clock = makeClock();
    const late = () => 'late';
    expect(await withTimeout(clock, 100, Promise.resolve('in time'), late)).toBe('in time');
    const failing = withTimeout(clock, 100, Promise.reject(new Error('broken')), late);
    await expect(failing).rejects.toThrow('broken');
    expect(clock.running.size).toBe(0);
  });

  test('gives what is decided for a timeout, and ignores the result that comes later', async () => {
    const clock = makeClock();
    const work = Promise.withResolvers<string>();
    const limited = withTimeout(clock, 100, work.promise, () => 'late');
    await clock.advance(100);
    work.reject(new Error('too late to matter'));
    expect(await limited).toBe('late');
  });

  test('fails with what the timeout throws', async () => {
    const clock = makeClock();
    const limited = withTimeout(clock, 100, new Promise<never>(() => undefined), () => {
      throw new Error('no answer within 100 ms');
    });
    const refused = expect(limited).rejects.toThrow('no answer within 100 ms');
    await clock.advance(100);
    await refused;
  });

  test('ends within the limit also when it fails', async () => {
    const clock = makeClock();
    expect(await endsWithin(clock, 100, Promise.resolve())).toBe(true);
    expect(await endsWithin(clock, 100, Promise.reject(new Error('broken')))).toBe(true);
    const hanging = endsWithin(clock, 100, new Promise(() => undefined));
    await clock.advance(100);
    expect(await hanging).toBe(false);
  });
});

describe('work with a signal', () => {
  test('gives its result, or nothing when the signal fires first', async () => {
    const stop = new AbortController();
    expect(await unlessAborted(Promise.resolve(1), undefined)).toBe(1);
    expect(await unlessAborted(Promise.resolve(2), stop.signal)).toBe(2);
    await expect(unlessAborted(Promise.reject(new Error('no')), stop.signal)).rejects.toThrow('no');
    expect(getEventListeners(stop.signal, 'abort')).toEqual([]);
    const work = Promise.withResolvers<number>();
    const waiting = unlessAborted(work.promise, stop.signal);
    stop.abort();
    expect(await waiting).toBeUndefined();
    work.reject(new Error('heard by nothing'));
    expect(await unlessAborted(work.promise, stop.signal)).toBeUndefined();
    expect(getEventListeners(stop.signal, 'abort')).toEqual([]);
  });
});

describe('a time limit', () => {
  test('fires its signal when the time is over, and says so', async () => {
    const clock = makeClock();
    const limit = new TimeLimit(clock, 100);
    await clock.advance(100);
    expect([limit.isOver, limit.signal.aborted]).toEqual([true, true]);
  });

  test('fires with the other signal and its reason, and is then not over', async () => {
    const clock = makeClock();
    const stop = new AbortController();
    const limit = new TimeLimit(clock, 100, stop.signal);
    stop.abort('stopping');
    await clock.advance(100);
    expect([limit.isOver, limit.signal.reason]).toEqual([false, 'stopping']);
    expect(new TimeLimit(clock, 100, stop.signal).signal.aborted).toBe(true);
  });

  test('leaves nothing behind when it is stopped', () => {
    const clock = makeClock();
    const { signal } = new AbortController();
    const limit = new TimeLimit(clock, 100, signal);
    limit.stop();
    expect(limit.signal.aborted).toBe(false);
    expect(clock.running.size).toBe(0);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });
});

test.for([Number.NaN, -1, 0])(
  'a span of %d ms is over at once, but not within the call',
  async (ms) => {
    for (const clock of [systemClock, new SimClock()]) {
      let isOver = false;
      const over = new Promise<void>((resolve) => {
        clock.after(ms, () => {
          isOver = true;
          resolve();
        });
      });
      expect(isOver).toBe(false);
      if (clock instanceof SimClock) await clock.advance(0);
      await over;
    }
  },
);
