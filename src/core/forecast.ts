/**
 * forecast — when a backlog will be drained, or a disk full, at the current rates: `drainsInMs`
 * from two rates, `Trend` from samples of a value. No I/O and no clock: times are arguments.
 */

import { DURATION_MAX_MS, type Millis, MINUTE_MS, SECOND_MS } from './duration.ts';

/** A backlog, and when it ends or runs over if everything goes on as it does. */
export interface Forecast {
  /** What waits or is on its way. */
  readonly backlog: number;
  readonly inPerSecond: number;
  readonly outPerSecond: number;
  /** Until nothing is left; null: it does not get smaller. */
  readonly drainsInMs: number | null;
  /** Until the disk of the store is full; null: it is not filling up, or unknown. */
  readonly fullInMs: number | null;
}

/**
 * Rates of a shorter time say nothing about when a backlog is gone. Also in
 * docs/reference/alerts.md.
 */
export const RATE_WINDOW_MIN_MS: number = 10 * SECOND_MS;

/** Until a backlog is gone; 0 when there is none, null when it is not within a hundred years. */
export function drainsInMs(
  backlog: number,
  { inPerSecond, outPerSecond }: { readonly inPerSecond: number; readonly outPerSecond: number },
): number | null {
  if (backlog <= 0) return 0;
  const perSecond = outPerSecond - inPerSecond;
  if (perSecond <= 0) return null;
  const ms = Math.round((backlog / perSecond) * SECOND_MS);
  return ms <= DURATION_MAX_MS ? ms : null;
}

interface Sample {
  readonly at: Millis;
  readonly value: number;
}

/**
 * Samples kept per window, and the share of the window that they must cover. The share of
 * TREND_WINDOW_MS is the "first minute" of docs/reference/alerts.md and docs/reference/metrics.md.
 */
const SAMPLES_MAX = 120;
const WINDOW_SHARE_MIN: number = 1 / 15;

/**
 * The window over which the growth of disks, queues and outboxes is measured. Also in
 * docs/reference/alerts.md and docs/reference/metrics.md.
 */
export const TREND_WINDOW_MS: number = 15 * MINUTE_MS;

/** The growth of one value over the last minutes, from samples of it. */
export class Trend {
  readonly #windowMs: number;
  readonly #samples: Sample[] = [];

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** Adds a sample. */
  add(at: Millis, value: number): void {
    const last = this.#samples.at(-1);
    // The clock was set back: earlier samples say nothing about the rate.
    if (last !== undefined && last.at > at) this.#samples.length = 0;
    const before = this.#samples.at(-2)?.at ?? Number.NEGATIVE_INFINITY;
    // Samples that come too fast replace each other.
    const isClose = at - before < this.#windowMs / SAMPLES_MAX;
    if (isClose || this.#samples.at(-1)?.at === at) this.#samples.pop();
    this.#samples.push({ at, value });
    while (at - (this.#samples[0]?.at ?? at) > this.#windowMs) this.#samples.shift();
  }

  /** Growth per second; undefined: the samples cover less than a fifteenth of the window. */
  get perSecond(): number | undefined {
    const first = this.#samples[0];
    const last = this.#samples.at(-1);
    if (first === undefined || last === undefined) return undefined;
    if (last.at - first.at < this.#windowMs * WINDOW_SHARE_MIN) return undefined;
    return ((last.value - first.value) / (last.at - first.at)) * SECOND_MS;
  }

  /** Until it is 0; null: it is not falling; undefined: unknown yet. */
  get endsInMs(): number | null | undefined {
    const { perSecond } = this;
    const last = this.#samples.at(-1);
    if (last === undefined) return undefined;
    // At 0 the rate does not matter.
    if (last.value <= 0) return 0;
    if (perSecond === undefined) return undefined;
    return drainsInMs(last.value, { inPerSecond: 0, outPerSecond: -perSecond });
  }
}
