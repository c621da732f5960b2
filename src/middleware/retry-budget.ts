/**
 * retryBudget — middleware that lets at most a given number of retries begin per minute.
 *
 * Messages that fail together come back together. The budget keeps their retries from displacing
 * new messages, and from overloading the other side again.
 */

import { MINUTE_MS } from '../core/duration.ts';
import type { Option } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import type { Middleware } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { checkMiddlewareOptions, CLOCK } from './options.ts';
import { postponedOutcome, PostponeSpacing } from './run.ts';

const RETRY_BUDGET = {
  perMinute: {
    kind: 'number',
    min: 1,
    max: 100_000,
    required: true,
    about: 'this many retries may begin in any 60 seconds',
  },
  clock: CLOCK,
} as const;

/** Every option of `retryBudget()`. */
export const RETRY_BUDGET_OPTIONS: Readonly<Record<keyof RetryBudgetOptions, Option>> =
  RETRY_BUDGET;

/** What `retryBudget()` takes. */
export interface RetryBudgetOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** This many retries may begin in any 60 seconds. 1 to 100,000. */
  readonly perMinute: number;
  /** Time; the machine's unless given, a test gives its virtual one. */
  readonly clock?: Clock;
}

/**
 * Lets at most `perMinute` retries (attempts after the first) begin in any 60 seconds; the others
 * are postponed, which costs no attempt. First attempts always go on.
 */
export function retryBudget(options: RetryBudgetOptions): Middleware {
  const { perMinute } = checkMiddlewareOptions('retryBudget', options, RETRY_BUDGET);
  const { clock = systemClock } = options;
  // A ring: the beginning that the next one has to be a minute away from is the oldest.
  const beganAt = new Float64Array(perMinute).fill(Number.NEGATIVE_INFINITY);
  const spacing = new PostponeSpacing(MINUTE_MS / perMinute);
  let oldest = 0;
  const reason = `no retry may begin now: the budget of ${perMinute} per minute is spent`;
  return async ({ attempt }, next) => {
    if (attempt <= 1) return next();
    const nowMs = clock.monotonic();
    const waitMs = (beganAt[oldest] ?? 0) + MINUTE_MS - nowMs;
    if (waitMs > 0) return postponedOutcome(spacing.join(waitMs), 'budget.spent', reason);
    beganAt[oldest] = nowMs;
    oldest = (oldest + 1) % perMinute;
    spacing.leave();
    return next();
  };
}
