/**
 * recent — counts per caller within a window of time, for limits. Bounded: the oldest is forgotten.
 */

import type { Clock } from '../../ports/clock.ts';

/** Callers that are remembered, at the most. */
const CALLERS_MAX = 10_000;

/** Counts what each caller did in the present window. */
export class RecentCounts {
  readonly #clock: Clock;
  readonly #windowMs: number;
  readonly #counts = new Map<string, { from: number; count: number }>();

  constructor(clock: Clock, windowMs: number) {
    this.#clock = clock;
    this.#windowMs = windowMs;
  }

  /** How often in this window. */
  of(key: string): number {
    const found = this.#counts.get(key);
    return found !== undefined && this.#isPresent(found) ? found.count : 0;
  }

  /** One more; returns how often in this window. */
  add(key: string): number {
    const found = this.#counts.get(key);
    if (found !== undefined && this.#isPresent(found)) {
      found.count += 1;
      return found.count;
    }
    // Put at the end again, so that the first key is always one of the oldest.
    this.#counts.delete(key);
    if (this.#counts.size >= CALLERS_MAX) this.#forgetOldest();
    this.#counts.set(key, { from: this.#clock.monotonic(), count: 1 });
    return 1;
  }

  /** Seconds until this caller's window is over, rounded up. */
  secondsLeft(key: string): number {
    const from = this.#counts.get(key)?.from ?? 0;
    const leftMs = from + this.#windowMs - this.#clock.monotonic();
    return Math.max(1, Math.ceil(leftMs / 1_000));
  }

  #isPresent({ from }: { readonly from: number }): boolean {
    return this.#clock.monotonic() - from < this.#windowMs;
  }

  #forgetOldest(): void {
    const [oldest] = this.#counts.keys();
    if (oldest !== undefined) this.#counts.delete(oldest);
  }
}
