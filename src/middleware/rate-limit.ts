/**
 * rateLimit — middleware with a token bucket: `max` deliveries at once, then one every `per` /
 * `max`.
 *
 * A short wait is spent inside the slot; a longer one is a postponement, so that slots are free for
 * others.
 */

import { type Duration, formatDuration } from '../core/duration.ts';
import type { Option } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import type { Middleware } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { keyFunctionOf, type KeyBy, PerKey } from './per-key.ts';
import { checkMiddlewareOptions, CLOCK } from './options.ts';
import { postponedOutcome, PostponeSpacing, waitInSlot } from './run.ts';

const RATE_LIMIT = {
  max: {
    kind: 'number',
    min: 1,
    max: 1_000_000,
    required: true,
    about: 'this many per `per`, and this many at once after a rest',
  },
  per: {
    kind: 'duration',
    min: '1ms',
    max: '1d',
    required: true,
    about: 'the span that `max` is for',
  },
  by: {
    kind: 'code',
    ts: 'KeyBy',
    defaultText: "`'all'`",
    about: 'what shares one limit',
  },
  wait: {
    kind: 'duration',
    max: '30s',
    default: '1s',
    about: 'waits up to this are spent in the slot, longer ones are postponed',
  },
  clock: CLOCK,
} as const;

/** Every option of `rateLimit()`. */
export const RATE_LIMIT_OPTIONS: Readonly<Record<keyof RateLimitOptions, Option>> = RATE_LIMIT;

/** What `rateLimit()` takes. */
export interface RateLimitOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** This many per `per`, and this many at once after a rest. 1 to 1,000,000. */
  readonly max: number;
  /** The span that `max` is for. 1ms to 1d. */
  readonly per: Duration;
  /** What shares one limit. Default `'all'`. */
  readonly by?: KeyBy;
  /** Waits up to this are spent in the slot, longer ones are postponed. Up to 30s; default 1s. */
  readonly wait?: Duration;
  /** Time; the machine's unless given, a test gives its virtual one. */
  readonly clock?: Clock;
}

/**
 * Lets at most `max` deliveries begin per `per`, after a burst of `max`; the others wait in their
 * slots up to `wait`, or are postponed.
 */
export function rateLimit(options: RateLimitOptions): Middleware {
  const {
    max,
    perMs,
    waitMs: waitMaxMs,
  } = checkMiddlewareOptions('rateLimit', options, RATE_LIMIT);
  const { by = 'all', clock = systemClock } = options;
  const buckets = new PerKey(keyFunctionOf('by', by), () => new Bucket(max, perMs / max));
  const reason = `the rate of ${max} per ${formatDuration(perMs)} is reached`;
  return async (delivery, next) => {
    const bucket = buckets.of(delivery);
    const waitMs = bucket.waitMs(clock.monotonic());
    if (waitMs > waitMaxMs)
      return postponedOutcome(bucket.spacing.join(waitMs), 'rate.limited', reason);
    bucket.take(clock.monotonic());
    if (waitMs > 0 && !(await waitInSlot(clock, waitMs, delivery.signal))) {
      bucket.giveBack();
      return postponedOutcome(
        0,
        'rate.limited',
        `${reason}, and the delivery was called off meanwhile`,
      );
    }
    return next();
  };
}

/** Tokens as one number: when the bucket would be full again. */
class Bucket {
  readonly spacing: PostponeSpacing;
  readonly #max: number;
  readonly #stepMs: number;
  #fullAt = Number.NEGATIVE_INFINITY;

  constructor(max: number, stepMs: number) {
    this.#max = max;
    this.#stepMs = stepMs;
    this.spacing = new PostponeSpacing(stepMs);
  }

  /** How long until there is a token; 0 when there is one. */
  waitMs(nowMs: number): number {
    return Math.max(0, this.#fullAt - (this.#max - 1) * this.#stepMs - nowMs);
  }

  take(nowMs: number): void {
    this.#fullAt = Math.max(this.#fullAt, nowMs) + this.#stepMs;
    this.spacing.leave();
  }

  giveBack(): void {
    this.#fullAt -= this.#stepMs;
  }
}
