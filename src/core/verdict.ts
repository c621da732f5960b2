/**
 * verdict — turns the outcome of one attempt into a verdict: what happens to the message.
 *
 * Pure. A handler returns an outcome, or the engine derives it from what the handler threw; `judge`
 * turns it into a verdict. The engine calls it once per attempt, for every source (invariant 6,
 * ARCHITECTURE.md). Promise: what is not positively final is deferred, as long as attempts and age
 * last (invariant 8).
 *
 * Also the outcomes that a handler can return: `delivered`, `failed`, `postponed`, `held`.
 *
 * Why: docs/decisions/0004-a-lost-holder-costs-no-second-attempt.md
 */

import { type Duration, DURATION_MAX_MS, durationMs, type Millis } from './duration.ts';
import type { Because } from './entry.ts';
import { show, unreachable } from './errors.ts';
import {
  checkedFailure,
  codeText,
  type Failure,
  failure,
  isWait,
  reasonText,
  RetryableError,
} from './failure.ts';
import { type BackoffFunction, delayMs, type RetryPolicy } from './policy.ts';
import type { Lane } from './state.ts';

/** What a handler says: it returns one of these, or nothing (delivered), or throws (failed). */
export type Outcome =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'failed'; readonly failure: Failure }
  | {
      readonly kind: 'postponed';
      readonly delayMs: number;
      readonly reason: string;
      readonly code?: string;
    }
  | { readonly kind: 'held'; readonly reason: string; readonly code?: string };

/** It is done. */
export function delivered(): Outcome {
  return { kind: 'delivered' };
}

/** It did not work; the same as throwing, for those who prefer values. */
export function failed(failure: Failure): Outcome {
  return { kind: 'failed', failure };
}

/** Not now: try again after the delay; costs no attempt. */
export function postponed(delay: Duration, reason: string): Outcome {
  return { kind: 'postponed', delayMs: durationMs(delay, 'delay'), reason };
}

/** A person has to look at it: no further attempt until an operator acts. */
export function held(reason: string, code = 'handler.held'): Outcome {
  return { kind: 'held', reason, code };
}

/**
 * Whether a value that a handler returned is an outcome. Throws a RetryableError for one that has
 * an outcome's kind but not its shape: "it failed, somehow" must not be taken for a delivery.
 */
export function isOutcome(value: unknown): value is Outcome {
  if (typeof value !== 'object' || value === null) return false;
  const { kind, failure, delayMs, reason, code } = value as Partial<Record<string, unknown>>;
  switch (kind) {
    case 'delivered':
      return true;
    case 'failed':
      if (checkedFailure(failure) !== null) return true;
      break;
    case 'postponed':
      if (isWait(delayMs) && isReasonAndCode(reason, code)) return true;
      break;
    case 'held':
      if (isReasonAndCode(reason, code)) return true;
      break;
    default:
      return false;
  }
  throw new RetryableError(
    'outcome.invalid',
    `the handler returned ${show(value)}, which is no outcome; use failed(), postponed() or held()`,
  );
}

function isReasonAndCode(reason: unknown, code: unknown): boolean {
  return typeof reason === 'string' && (code === undefined || typeof code === 'string');
}

/** What happens to the message. */
export type Verdict =
  | { readonly kind: 'ack' }
  | {
      readonly kind: 'defer';
      readonly delayMs: number;
      readonly because: Because;
      /** The failure behind it; none for a postponement. */
      readonly failure?: Failure;
      readonly costsAttempt: boolean;
    }
  | {
      readonly kind: 'bounce';
      readonly because: Because;
      readonly failure?: Failure;
      /** True when attempts or age ran out, false when the failure was final or it expired. */
      readonly spent: boolean;
      /** True when it was past its expiry before any handler ran: costs no attempt. */
      readonly expired?: true;
    }
  | { readonly kind: 'hold'; readonly because: Because; readonly costsAttempt: boolean }
  | { readonly kind: 'release' };

/** What `judge` needs to know of the claimed message. */
export interface JudgedClaim {
  readonly lane: Lane;
  /** Attempts so far in this lane, the present one included. */
  readonly attempt: number;
  /** Holders lost in a row. */
  readonly lost: number;
  readonly enqueuedAt: Millis;
}

/** Everything a verdict depends on. */
export interface Judgement {
  readonly outcome: Outcome;
  readonly claim: JudgedClaim;
  readonly policy: RetryPolicy;
  readonly now: Millis;
  /** 0 ≤ random < 1, for jitter. */
  readonly random: number;
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
}

/**
 * How many holders in a row may be lost before the message is held as poison. Also in
 * docs/start.md, docs/reference/limits.md and docs/operations/a-message-is-stuck.md.
 */
export const LOST_MAX = 3;

/**
 * The verdict on one attempt.
 *
 * @example
 * import { delivered, fixed, judge } from 'respool';
 * const verdict = judge({
 *   outcome: delivered(),
 *   claim: { lane: 'delivery', attempt: 1, lost: 0, enqueuedAt: Date.now() },
 *   policy: fixed('1m'),
 *   now: Date.now(),
 *   random: Math.random(),
 * });
 */
export function judge(judgement: Judgement): Verdict {
  const { outcome } = judgement;
  switch (outcome.kind) {
    case 'delivered':
      return { kind: 'ack' };
    case 'held':
      return {
        kind: 'hold',
        because: {
          code: codeText(outcome.code ?? 'handler.held'),
          text: reasonText(outcome.reason),
          by: 'handler',
        },
        costsAttempt: true,
      };
    case 'postponed':
      return judgePostponed(judgement, outcome);
    case 'failed':
      // Rebuilt: a handler may have made it by hand, without the limits of what is stored.
      return judgeFailed(judgement, checkedFailure(outcome.failure) ?? outcome.failure, 'handler');
    default:
      return unreachable(outcome);
  }
}

/** The verdict on a claim whose former holder was lost, before any handler runs again. */
export function judgeLost(judgement: Omit<Judgement, 'outcome'>): Verdict {
  const lost = failure(
    'transient',
    'holder.lost',
    'the process that held this message ended or stalled before it could say how it went',
  );
  const { claim } = judgement;
  if (claim.lost > LOST_MAX) {
    const text = `${claim.lost} holders in a row were lost with this message; it may kill them`;
    const because = { code: 'holder.lost', text, by: 'engine' };
    return { kind: 'hold', because, costsAttempt: true };
  }
  return judgeFailed(judgement, lost, 'engine');
}

/** The verdict on a claim that is past its expiry, or undefined while it may still be delivered. */
export function judgeExpiry(
  claim: { readonly lane: Lane; readonly expiresAt?: Millis | undefined },
  now: Millis,
): Verdict | undefined {
  if (claim.lane === 'notice' || claim.expiresAt === undefined || now < claim.expiresAt) {
    return undefined;
  }
  const text = `it was not delivered before ${new Date(claim.expiresAt).toISOString()}`;
  const because = { code: 'expired', text, by: 'engine' };
  return { kind: 'bounce', because, spent: false, expired: true };
}

function judgePostponed(
  { claim, policy, now }: Judgement,
  outcome: Extract<Outcome, { kind: 'postponed' }>,
): Verdict {
  const because: Because = {
    code: codeText(outcome.code ?? 'handler.postponed'),
    text: reasonText(outcome.reason),
    by: 'handler',
  };
  const waitMs = Math.min(DURATION_MAX_MS, Math.ceil(outcome.delayMs));
  if (isTooOld(policy, claim, now, waitMs)) return tooOld(policy, because.text);
  return { kind: 'defer', delayMs: waitMs, because, costsAttempt: false };
}

function judgeFailed(
  judgement: Omit<Judgement, 'outcome'>,
  reported: Failure,
  by: 'handler' | 'engine',
): Verdict {
  const { claim, policy, now } = judgement;
  const because: Because = { code: reported.code, text: reported.reason, by };
  if (reported.permanence === 'permanent') {
    return { kind: 'bounce', because, failure: reported, spent: false };
  }
  if (claim.attempt >= policy.maxAttempts) {
    return { kind: 'bounce', because, failure: reported, spent: true };
  }
  const waitMs = delayMs({ ...judgement, attempt: claim.attempt, failure: reported });
  if (isTooOld(policy, claim, now, waitMs)) {
    return { ...tooOld(policy, reported.reason), failure: reported };
  }
  return { kind: 'defer', delayMs: waitMs, because, failure: reported, costsAttempt: true };
}

function isTooOld(policy: RetryPolicy, claim: JudgedClaim, now: Millis, waitMs: number): boolean {
  // Notices are about a message that is old already; its age says nothing about them.
  if (claim.lane === 'notice' || policy.maxAgeMs === null) return false;
  return now + waitMs > claim.enqueuedAt + policy.maxAgeMs;
}

function tooOld(policy: RetryPolicy, text: string): Extract<Verdict, { kind: 'bounce' }> {
  return {
    kind: 'bounce',
    because: {
      code: 'policy.max-age',
      text: `the next attempt would come after the maximum age of ${policy.maxAgeMs} ms: ${text}`,
      by: 'policy',
    },
    spent: true,
  };
}
