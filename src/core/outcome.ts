/**
 * outcome — what a handler reports about one attempt: returned, or derived from what it threw.
 */

import { type Duration, durationMs } from './duration.ts';
import { show } from './errors.ts';
import { checkedFailure, type Failure, isWait, RetryableError } from './failure.ts';

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
      if (isWait(delayMs) && isWhy(reason, code)) return true;
      break;
    case 'held':
      if (isWhy(reason, code)) return true;
      break;
    default:
      return false;
  }
  throw new RetryableError(
    'outcome.invalid',
    `the handler returned ${show(value)}, which is no outcome; use failed(), postponed() or held()`,
  );
}

function isWhy(reason: unknown, code: unknown): boolean {
  return typeof reason === 'string' && (code === undefined || typeof code === 'string');
}
