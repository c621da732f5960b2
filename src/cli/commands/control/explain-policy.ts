/**
 * explain-policy — a policy attempt by attempt: the wait before each, the time since the start.
 * Pure.
 */

import { failure } from '../../../core/failure.ts';
import { type BackoffFunction, delayMs, type RetryPolicy } from '../../../core/policy.ts';

/** One attempt of a message that always fails at once. */
export interface ExplainedAttempt {
  readonly attempt: number;
  /** At least; chance may add up to `waitMaxMs`. */
  readonly waitMs: number;
  readonly waitMaxMs: number;
  /** From the enqueue to this attempt, at least. */
  readonly sinceMs: number;
  readonly sinceMaxMs: number;
}

/** A policy, attempt by attempt. */
export interface Explained {
  readonly attempts: readonly ExplainedAttempt[];
  /** Why there is no further attempt. */
  readonly end: 'attempts' | 'age';
}

/** Just below one: the most that chance can add. */
const CHANCE_MAX = 1 - 2 ** -53;

/** The attempts of a message whose every attempt fails at once, with nothing asked for. */
export function explainPolicy(
  policy: RetryPolicy,
  backoffs: Readonly<Record<string, BackoffFunction>> = {},
): Explained {
  const failed = failure('transient', 'explain', 'what if it failed');
  const attempts: ExplainedAttempt[] = [
    { attempt: 1, waitMs: 0, waitMaxMs: 0, sinceMs: 0, sinceMaxMs: 0 },
  ];
  for (let attempt = 1; attempt < policy.maxAttempts; attempt += 1) {
    const before = attempts[attempt - 1];
    const wait = (random: number): number =>
      delayMs({ policy, attempt, failure: failed, random, backoffs });
    const waitMs = wait(0);
    const waitMaxMs = wait(CHANCE_MAX);
    const sinceMs = (before?.sinceMs ?? 0) + waitMs;
    // An attempt that would come too late is not planned: the message bounces instead.
    if (policy.maxAgeMs !== null && sinceMs > policy.maxAgeMs) return { attempts, end: 'age' };
    const sinceMaxMs = (before?.sinceMaxMs ?? 0) + waitMaxMs;
    attempts.push({ attempt: attempt + 1, waitMs, waitMaxMs, sinceMs, sinceMaxMs });
  }
  return { attempts, end: 'attempts' };
}
