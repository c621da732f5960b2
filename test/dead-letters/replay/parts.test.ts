/** The small parts of replays: the diff, the guard, the pace. */
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { lineDiff } from '../../../src/dead-letters/replay/transform.ts';
import { FailureGuard } from '../../../src/dead-letters/replay/outcomes.ts';
import { Pace } from '../../../src/dead-letters/replay/send-letters.ts';
import { SimClock } from 'respool/testkit';

describe('a diff', () => {
  test.each([
    ['a\nb\nc', 'a\nb\nc', []],
    ['a\nb\nc', 'a\nx\nc', ['  a', '- b', '+ x', '  c']],
    ['a', 'a\nb', ['  a', '+ b']],
    ['1\n2\n3\n4\n5', '1\n2\n3\n4', ['  3', '  4', '- 5']],
  ])('of %j and %j', (before, after, lines) => {
    expect(lineDiff(before, after)).toEqual(lines);
  });

  test('tells both texts as far as they differ', () => {
    const lines = fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(lines, lines, (before, after) => {
        const diff = lineDiff(before.join('\n'), after.join('\n'));
        const of = (sign: string) => diff.filter((line) => line.startsWith(sign)).length;
        expect(after.length - before.length).toBe(of('+') - of('-'));
        const left = diff.filter((line) => !line.startsWith('+')).map((line) => line.slice(2));
        expect(before.join('')).toContain(left.join(''));
      }),
    );
  });

  test('is bounded, however long the texts are', () => {
    const text = (sign: string) => Array.from({ length: 5_000 }, (_, at) => `${sign}${at}`);
    const diff = lineDiff(text('a').join('\n'), text('b').join('\n'));
    expect(diff).toHaveLength(81);
    expect(diff.at(-1)).toBe('… 9920 lines more');
  });
});

describe('a guard', () => {
  const guardOf = (stopAbove: number, sent: number, failed: number) => {
    const guard = new FailureGuard(stopAbove);
    for (let at = 0; at < sent; at += 1) guard.countSent();
    for (let at = 0; at < failed; at += 1) guard.countFailed('x.y', 'no');
    return guard;
  };

  test.each([
    [20, 8, 2, false],
    [20, 7, 3, true],
    [20, 6, 3, false],
    [0, 9, 1, true],
    [0, 10, 0, false],
    [99, 1, 10, true],
    [100, 0, 50, false],
  ])('above %i %%: %i sent and %i failed stop it: %s', (stopAbove, sent, failed, isStopped) => {
    expect(guardOf(stopAbove, sent, failed).verdict() !== undefined).toBe(isStopped);
  });

  test('judges fewer than ten only when there will not be more', () => {
    const guard = guardOf(20, 2, 1);
    expect(guard.verdict()).toBeUndefined();
    expect(guard.verdict(true)).toMatch(/1 of 3 letters failed \(33 %.*the last one: x\.y, no/);
  });

  test('counts what failed again, and is not thinned out by what is on its way', () => {
    const guard = guardOf(20, 100, 0);
    guard.countNews(5, 10);
    expect(guard.verdict()).toMatch(/5 of 15 letters failed \(33 %/);
    const silent = guardOf(20, 100, 0);
    silent.countNews(5, 0);
    expect(silent.verdict()).toBeUndefined();
  });
});

describe('a pace', () => {
  test.each([0.5, 3, 1_000, 5_000])('gives %d turns a second', async (rate) => {
    const clock = new SimClock();
    const pace = new Pace(clock, rate);
    const { signal } = new AbortController();
    let turns = 0;
    const turning = (async () => {
      while (clock.monotonic() < 10_000) {
        await pace.turn(signal);
        turns += 1;
      }
    })();
    await clock.advance('12s');
    await turning;
    expect(Math.abs(turns - 10 * rate)).toBeLessThanOrEqual(2 + rate / 500);
  });

  test('makes up for no pause, and lets go when it is called off', async () => {
    const clock = new SimClock();
    const pace = new Pace(clock, 10);
    const stop = new AbortController();
    await clock.advance('1h');
    await pace.turn(stop.signal);
    const second = pace.turn(stop.signal);
    stop.abort();
    await second;
    expect(clock.timers).toBe(0);
  });
});
