/** Properties of durations and policies. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { failure, formatDuration, type RetryPolicy, rungs } from 'respool';
import { DURATION_MAX_MS, durationMs } from '../../src/core/duration.ts';
import { checkPolicy, delayMs } from '../../src/core/policy.ts';
import { anyPolicy, chance, growing } from './arbitraries.ts';
import { always } from './runs.ts';

const broken = failure('transient', 'timeout', 'no answer');
const attempt = fc.integer({ min: 1, max: 1_000 });

function plain(policy: RetryPolicy, number: number): number {
  return delayMs({ policy: { ...policy, jitter: 0 }, attempt: number, failure: broken, random: 0 });
}

describe('a duration', () => {
  test('is read back as it was written', () => {
    always([fc.nat({ max: DURATION_MAX_MS })], (ms) => {
      expect(durationMs(formatDuration(ms), 'x')).toBe(ms);
    });
  });

  test('of any text is a whole number of milliseconds or a refusal, nothing else', () => {
    const unit = fc.constantFrom('ms', 's', 'm', 'h', 'd', ' ', '.', '0', '7', '-', 'e');
    always(
      [
        fc.oneof(
          fc.string(),
          fc.array(unit).map((parts) => parts.join('')),
        ),
      ],
      (text) => {
        try {
          expect(Number.isInteger(durationMs(text, 'x'))).toBe(true);
        } catch (error) {
          expect(error).toMatchObject({ code: 'config.invalid' });
        }
      },
    );
  });

  test('given as a number is never rounded down', () => {
    always([fc.double({ min: 0, max: DURATION_MAX_MS, noNaN: true })], (ms) => {
      expect(durationMs(ms, 'x')).toBe(Math.ceil(ms));
    });
  });
});

describe('the delay of a growing policy', () => {
  test('never shrinks from attempt to attempt', () => {
    always([growing, attempt], (policy, number) => {
      expect(plain(policy, number + 1)).toBeGreaterThanOrEqual(plain(policy, number));
    });
  });

  test('stays between its first and its maximum', () => {
    always([growing, attempt], (policy, number) => {
      const { backoff } = policy;
      if (backoff.kind !== 'linear' && backoff.kind !== 'exponential') return;
      const delay = plain(policy, number);
      expect(delay).toBeGreaterThanOrEqual(backoff.firstMs);
      expect(delay).toBeLessThanOrEqual(backoff.maxMs);
      expect(plain(policy, 1)).toBe(backoff.firstMs);
    });
  });
});

describe('the delay of any policy', () => {
  test('is a whole number of milliseconds that a store can keep', () => {
    always([anyPolicy, attempt, chance], (policy, number, random) => {
      const delay = delayMs({ policy, attempt: number, failure: broken, random });
      expect(Number.isSafeInteger(delay)).toBe(true);
      expect(delay).toBeGreaterThanOrEqual(0);
    });
  });

  test('with jitter is never shorter and at most its share longer', () => {
    always([anyPolicy, attempt, chance], (policy, number, random) => {
      const without = plain(policy, number);
      const delay = delayMs({ policy, attempt: number, failure: broken, random });
      expect(delay).toBeGreaterThanOrEqual(without);
      expect(delay).toBeLessThanOrEqual(Math.ceil(without * (1 + policy.jitter)));
    });
  });

  test('is one of its rungs, which ascend', () => {
    always([anyPolicy, attempt, fc.integer({ min: -5 })], (policy, number, asked) => {
      const list = rungs(policy);
      expect(list).toEqual([...new Set(list)].sort((a, b) => a - b));
      if (number >= policy.maxAttempts) return;
      const delay = delayMs({
        policy: { ...policy, jitter: 0 },
        attempt: number,
        failure: broken,
        random: 0,
        backoffs: { own: () => asked },
      });
      expect(list).toContain(delay);
    });
  });

  test('comes from data that survives JSON and its own check', () => {
    always([anyPolicy], (policy) => {
      const copy = JSON.parse(JSON.stringify(policy)) as RetryPolicy;
      expect(checkPolicy(copy, 'copy')).toEqual(policy);
    });
  });
});
