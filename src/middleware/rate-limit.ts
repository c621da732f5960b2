/**
 * rateLimit — a token bucket: `max` at once, then one for every `per` / `max` that goes by.
 *
 * A short wait is waited inside the slot, where it costs nothing; a longer one is a postponement,
 * so that slots are free for others.
 */

import { DAY_MS, type Duration, durationMs, formatDuration, SECOND_MS } from '../core/duration.ts';
import { checkNumber } from '../core/limits.ts';
import type { Clock } from '../ports/clock.ts';
import type { Middleware } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { countedBy, type CountedBy, Keyed } from './keyed.ts';
import { checkOptions } from './options.ts';
import { notNow, PostponeSpacing, waitInside } from './run.ts';

/** What `rateLimit()` takes. */
export interface RateLimitOptions {
  /** So many per `per`, and so many at once after a rest; 1 to 1,000,000. */
  readonly max: number;
  /** The span that `max` is for, up to a day. */
  readonly per: Duration;
  /** What shares one limit: `'all'` unless given. */
  readonly by?: CountedBy;
  /** Waits up to this are waited in the slot, longer ones postponed; `'1s'`, at most 30s. */
  readonly wait?: Duration;
  /** The machine's unless given; a test gives its virtual one. */
  readonly clock?: Clock;
}

const MAX_MAX = 1_000_000;
/** A slot that waits does nothing else; more than this has no place inside. */
const WAIT_MAX_MS: number = 30 * SECOND_MS;

/** Lets at most `max` deliveries begin per `per`, after a burst of `max`; postpones the others. */
export function rateLimit(options: RateLimitOptions): Middleware {
  checkOptions('rateLimit', options, ['max', 'per', 'by', 'wait', 'clock']);
  const { by = 'all', wait = '1s', clock = systemClock } = options;
  const max = checkNumber('max', options.max, { min: 1, max: MAX_MAX });
  const perMs = durationMs(options.per, 'per', { minMs: 1, maxMs: DAY_MS });
  const waitMaxMs = durationMs(wait, 'wait', { maxMs: WAIT_MAX_MS });
  const buckets = new Keyed(countedBy('by', by), () => new Bucket(max, perMs / max));
  const reason = `the rate of ${max} per ${formatDuration(perMs)} is reached`;
  return async (delivery, next) => {
    const bucket = buckets.of(delivery);
    const waitMs = bucket.waitMs(clock.monotonic());
    if (waitMs > waitMaxMs) return notNow(bucket.line.join(waitMs), 'rate.limited', reason);
    bucket.take(clock.monotonic());
    if (waitMs > 0 && !(await waitInside(clock, waitMs, delivery.signal))) {
      bucket.giveBack();
      return notNow(0, 'rate.limited', `${reason}, and the delivery was called off meanwhile`);
    }
    return next();
  };
}

/** Tokens as one number: when the bucket would be full again. */
class Bucket {
  readonly line: PostponeSpacing;
  readonly #max: number;
  readonly #stepMs: number;
  #fullAt = Number.NEGATIVE_INFINITY;

  constructor(max: number, stepMs: number) {
    this.#max = max;
    this.#stepMs = stepMs;
    this.line = new PostponeSpacing(stepMs);
  }

  /** How long until there is a token; 0 when there is one. */
  waitMs(nowMs: number): number {
    return Math.max(0, this.#fullAt - (this.#max - 1) * this.#stepMs - nowMs);
  }

  take(nowMs: number): void {
    this.#fullAt = Math.max(this.#fullAt, nowMs) + this.#stepMs;
    this.line.leave();
  }

  giveBack(): void {
    this.#fullAt -= this.#stepMs;
  }
}
