/**
 * breaker — a circuit breaker: its states, and when it opens and closes. Used by the middleware
 * `circuitBreaker` and by relays.
 *
 *   closed ─failures in a row─▶ open ─pause over, or tried early─▶ half-open
 *   half-open ─succeed()─▶ closed       half-open ─fail()─▶ open, for a longer pause
 *
 * It counts and keeps the time; it calls nothing and starts no timer. Its owner asks `waitMs()`,
 * begins a trial with `halfOpen()`, and reports results.
 */

import type { Clock } from '../ports/clock.ts';
import { type BackoffRange, backoffMs } from './wait.ts';

/** Closed: calls go through. Open: none does. Half-open: a trial is under way. */
export type BreakerState = 'closed' | 'open' | 'half-open';

/** How a breaker behaves. */
export interface BreakerOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Failures in a row that open a closed one; one failure opens a half-open one. */
  readonly failures: number;
  /** The pause before a trial: it doubles with each trial that fails. */
  readonly pause: BackoffRange;
  /** Default `closed`. */
  readonly state?: BreakerState;
  readonly onChange: (state: BreakerState) => void;
}

/** A circuit breaker. */
export class Breaker {
  readonly #options: BreakerOptions;
  #state: BreakerState;
  /** Failures in a row. */
  #failures = 0;
  /** Times it opened since the last success. */
  #openings = 0;
  /** When its pause is over (monotonic). */
  #trialAt = 0;

  constructor(options: BreakerOptions) {
    this.#options = options;
    this.#state = options.state ?? 'closed';
  }

  get state(): BreakerState {
    return this.#state;
  }

  /** Times it opened since the last success. */
  get openings(): number {
    return this.#openings;
  }

  /** The rest of its pause; 0 when it is over, or there is none. */
  waitMs(): number {
    if (this.#state !== 'open') return 0;
    return Math.max(0, Math.ceil(this.#trialAt - this.#options.clock.monotonic()));
  }

  /** Begins a trial, if it is open. */
  halfOpen(): void {
    if (this.#state === 'open') this.#become('half-open');
  }

  /** A call succeeded: it closes, and counts failures from 0. */
  succeed(): void {
    this.reset();
    if (this.#state !== 'closed') this.#become('closed');
  }

  /** Counts failures from 0; the state stays. */
  reset(): void {
    this.#failures = 0;
    this.#openings = 0;
  }

  /** A failure: opens it, or counts towards that. Returns the pause (ms) if it opened. */
  fail(): number | undefined {
    this.#failures += 1;
    const isEnough = this.#state === 'half-open' || this.#failures >= this.#options.failures;
    if (this.#state === 'open' || !isEnough) return undefined;
    const { clock, pause } = this.#options;
    const pauseMs = backoffMs(pause, this.#openings);
    this.#trialAt = clock.monotonic() + pauseMs;
    this.#openings += 1;
    this.#become('open');
    return pauseMs;
  }

  #become(state: BreakerState): void {
    this.#state = state;
    this.#options.onChange(state);
  }
}
