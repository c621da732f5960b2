/** Properties of the judge. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { failed, judge } from 'respool';
import { type JudgedClaim, judgeLost, LOST_MAX } from '../../src/core/verdict.ts';
import { delayMs } from '../../src/core/policy.ts';
import { anyOutcome, anyPolicy, chance, transient } from './arbitraries.ts';
import { always } from './runs.ts';
import { DAY_MS } from '../time.ts';

const NOW = Date.UTC(2026, 0, 1);

const claims: fc.Arbitrary<JudgedClaim> = fc.record({
  lane: fc.constantFrom('delivery' as const, 'notice' as const),
  attempt: fc.integer({ min: 1, max: 25 }),
  lost: fc.nat({ max: 6 }),
  enqueuedAt: fc.nat({ max: 3 * DAY_MS }).map((ageMs) => NOW - ageMs),
});

describe('the judge', () => {
  test('defers a transient failure that has attempts and age left, by exactly its delay', () => {
    always([transient, claims, anyPolicy, chance], (failure, claim, policy, random) => {
      const waitMs = delayMs({ policy, attempt: claim.attempt, failure, random });
      const isYoung =
        claim.lane === 'notice' ||
        policy.maxAgeMs === null ||
        NOW + waitMs <= claim.enqueuedAt + policy.maxAgeMs;
      const verdict = judge({ outcome: failed(failure), claim, policy, now: NOW, random });
      if (claim.attempt < policy.maxAttempts && isYoung) {
        expect(verdict).toMatchObject({ kind: 'defer', delayMs: waitMs, costsAttempt: true });
      } else expect(verdict).toMatchObject({ kind: 'bounce', spent: true });
    });
  });

  test('gives every outcome the kind of verdict that belongs to it', () => {
    always([anyOutcome, claims, anyPolicy, chance], (outcome, claim, policy, random) => {
      const { kind } = judge({ outcome, claim, policy, now: NOW, random });
      const allowed = {
        delivered: ['ack'],
        failed: ['defer', 'bounce'],
        postponed: ['defer', 'bounce'],
        held: ['hold'],
      }[outcome.kind];
      expect(allowed).toContain(kind);
    });
  });

  test('says why, in one line, for everything but an ack', () => {
    always([anyOutcome, claims, anyPolicy, chance], (outcome, claim, policy, random) => {
      const verdict = judge({ outcome, claim, policy, now: NOW, random });
      if (verdict.kind === 'ack' || verdict.kind === 'release') return;
      expect(verdict.because.text).not.toMatch(/\p{Cc}/u);
      expect(['handler', 'policy']).toContain(verdict.because.by);
    });
  });

  test('bounces as final only what was permanent, and never by a postponement’s cost', () => {
    always([anyOutcome, claims, anyPolicy, chance], (outcome, claim, policy, random) => {
      const verdict = judge({ outcome, claim, policy, now: NOW, random });
      if (verdict.kind === 'bounce' && !verdict.spent) {
        expect(outcome).toMatchObject({ failure: { permanence: 'permanent' } });
      }
      if (verdict.kind === 'defer') expect(verdict.costsAttempt).toBe(outcome.kind === 'failed');
    });
  });

  test('answers the same question the same way', () => {
    always([anyOutcome, claims, anyPolicy, chance], (outcome, claim, policy, random) => {
      const question = { outcome, claim, policy, now: NOW, random };
      expect(judge(question)).toEqual(judge(structuredClone(question)));
    });
  });
});

test('a lost holder is held past the limit, and otherwise never final', () => {
  always([claims, anyPolicy, chance], (claim, policy, random) => {
    const verdict = judgeLost({ claim, policy, now: NOW, random });
    expect(verdict.kind === 'hold').toBe(claim.lost > LOST_MAX);
    if (verdict.kind === 'bounce') expect(verdict.spent).toBe(true);
  });
});
