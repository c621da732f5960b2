/** The handler's word, and what only looks like it. */
import { describe, expect, test } from 'vitest';
import { classify, delivered, failed, failure, held, postponed } from 'respool';
import { isOutcome } from '../../src/core/verdict.ts';
import { refusal } from './refusal.ts';

const broken = failure('transient', 'a', 'b');

test('an outcome is plain data', () => {
  expect(delivered()).toEqual({ kind: 'delivered' });
  expect(failed(broken)).toEqual({ kind: 'failed', failure: broken });
  expect(postponed('5m', 'busy')).toEqual({ kind: 'postponed', delayMs: 300_000, reason: 'busy' });
  expect(held('look')).toEqual({ kind: 'held', reason: 'look', code: 'handler.held' });
  expect(held('look', 'body.odd')).toEqual({ kind: 'held', reason: 'look', code: 'body.odd' });
});

test('a postponement by something that is no duration is refused', () => {
  const error = refusal(() => postponed('later', 'busy'));
  expect(error.code).toBe('config.invalid');
  expect(error.message).toContain('"later" as "delay"');
});

describe('what a handler returns', () => {
  test.each([delivered(), failed(broken), postponed(0, ''), held('x')])(
    '%o is an outcome',
    (value) => {
      expect(isOutcome(value)).toBe(true);
    },
  );

  test.each([undefined, null, 0, 'failed', [], {}, { kind: 'fine' }, { kind: undefined }, () => 1])(
    '%o is none, and says no more than "done"',
    (value) => {
      expect(isOutcome(value)).toBe(false);
    },
  );

  test.each([
    { kind: 'failed' },
    { kind: 'failed', failure: new Error('x') },
    { kind: 'failed', failure: { ...broken, permanence: 'no' } },
    { kind: 'postponed', reason: 'x' },
    { kind: 'postponed', delayMs: '5m', reason: 'x' },
    { kind: 'postponed', delayMs: Number.NaN, reason: 'x' },
    { kind: 'postponed', delayMs: -1, reason: 'x' },
    { kind: 'postponed', delayMs: 1 },
    { kind: 'postponed', delayMs: 1, reason: 'x', code: 5 },
    { kind: 'held' },
    { kind: 'held', reason: 5 },
    { kind: 'held', reason: 'x', code: null },
  ])('%o is a broken outcome: a transient failure, never a delivery', (value) => {
    let thrown: unknown;
    try {
      isOutcome(value);
    } catch (error) {
      thrown = error;
    }
    expect(classify(thrown)).toMatchObject({ permanence: 'transient', code: 'outcome.invalid' });
  });
});
