/** Spans of time as people write them. */
import { describe, expect, test } from 'vitest';
import { type Duration, formatDuration } from 'respool';
import {
  DAY_MS,
  DURATION_MAX_MS,
  durationMs,
  HOUR_MS,
  MINUTE_MS,
  SECOND_MS,
} from '../../src/core/duration.ts';
import { refusal } from './refusal.ts';

describe('a duration', () => {
  test.each<[Duration, number]>([
    [0, 0],
    [1, 1],
    [1_500, 1_500],
    ['0', 0],
    ['0s', 0],
    ['1ms', 1],
    ['250ms', 250],
    ['500ms', 500],
    ['2s', 2 * SECOND_MS],
    ['15m', 15 * MINUTE_MS],
    ['4h', 4 * HOUR_MS],
    ['1d', DAY_MS],
    ['7d', 7 * DAY_MS],
    ['1m30s', 90 * SECOND_MS],
    ['1h30m', 90 * MINUTE_MS],
    ['1d2h3m4s5ms', DAY_MS + 2 * HOUR_MS + 3 * MINUTE_MS + 4 * SECOND_MS + 5],
    ['30m1h', 90 * MINUTE_MS],
    ['1.5s', 1_500],
    ['0.5h', 30 * MINUTE_MS],
    ['1h 30m', 90 * MINUTE_MS],
    ['15 m', 15 * MINUTE_MS],
    [' 15m ', 15 * MINUTE_MS],
    [DURATION_MAX_MS, DURATION_MAX_MS],
    ['36525d', DURATION_MAX_MS],
  ])('%j is %d ms', (duration, ms) => {
    expect(durationMs(duration, 'delay')).toBe(ms);
  });

  test.each<[Duration, number]>([
    [0.2, 1],
    [1.000_1, 2],
    ['0.1ms', 1],
    ['1.5ms', 2],
  ])('%j is rounded up to whole milliseconds, never down', (duration, ms) => {
    expect(durationMs(duration, 'delay')).toBe(ms);
  });

  test.each<[Duration, number]>([
    ['1.1h', 3_960_000],
    ['1.1m', 66_000],
    ['2.3s', 2_300],
    ['8.2h', 29_520_000],
    ['0.07d', 6_048_000],
  ])('%j gains no millisecond from binary fractions', (duration, ms) => {
    expect(durationMs(duration, 'delay')).toBe(ms);
  });
});

describe('a bad duration', () => {
  test.each<[unknown, string]>([
    ['', '""'],
    [' ', '" "'],
    ['soon', '"soon"'],
    ['15', '"15"'],
    ['m', '"m"'],
    ['1 5m', '"1 5m"'],
    ['1.m', '"1.m"'],
    ['.5h', '".5h"'],
    ['1e3ms', '"1e3ms"'],
    ['-1s', '"-1s"'],
    ['+1s', '"+1s"'],
    ['1S', '"1S"'],
    ['1w', '"1w"'],
    ['1y', '"1y"'],
    ['1s;2s', '"1s;2s"'],
    ['١s', '"١s"'],
    [-1, '-1'],
    [Number.NaN, 'NaN'],
    [Number.POSITIVE_INFINITY, 'Infinity'],
    [undefined, 'undefined'],
    [null, 'null'],
    [true, 'true'],
    [10n, '10'],
    [{}, '{}'],
    [['1s'], '["1s"]'],
    [Object.create(null), '{}'],
  ])('%o is refused, with the value and what is allowed', (value, shown) => {
    const error = refusal(() => durationMs(value as Duration, 'retry.first'));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toBe(
      `cannot use ${shown} as "retry.first": allowed is milliseconds (0 or more) ` +
        "or a string like '250ms', '15m', '1h30m', '7d'",
    );
  });

  test('a very long text is refused at once and shown cut', () => {
    const error = refusal(() => durationMs('9'.repeat(1_000_000), 'delay'));
    expect(error.code).toBe('config.invalid');
    expect(error.message.length).toBeLessThan(250);
  });

  test('a span of more than a hundred years is refused with the range', () => {
    const error = refusal(() => durationMs('36526d', 'keep'));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toBe('cannot use "36526d" as "keep": allowed is 0s to 36525d');
  });

  test.each<[Duration]>([['4s'], ['61s'], [0]])(
    '%j outside a narrower range is refused',
    (value) => {
      const range = { minMs: 5_000, maxMs: MINUTE_MS };
      const error = refusal(() => durationMs(value, 'lease', range));
      expect(error.code).toBe('config.invalid');
      expect(error.message).toBe(
        `cannot use ${JSON.stringify(value)} as "lease": allowed is 5s to 1m`,
      );
    },
  );

  test('the ends of a range belong to it', () => {
    const range = { minMs: 5_000, maxMs: MINUTE_MS };
    expect(durationMs('5s', 'lease', range)).toBe(5_000);
    expect(durationMs('1m', 'lease', range)).toBe(MINUTE_MS);
  });
});

describe('writing a span', () => {
  test.each<[number, string]>([
    [0, '0s'],
    [1, '1ms'],
    [999, '999ms'],
    [1_000, '1s'],
    [1_001, '1s1ms'],
    [90_000, '1m30s'],
    [15 * MINUTE_MS, '15m'],
    [90 * MINUTE_MS, '1h30m'],
    [DAY_MS, '1d'],
    [8 * DAY_MS + 1, '8d1ms'],
    [DURATION_MAX_MS, '36525d'],
  ])('%d ms is written %j', (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });
});
