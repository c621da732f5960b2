/** pace — no more letters per second than asked for. */

import { SECOND_MS } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import { sleep } from '../../system/wait.ts';

/** What a late timer may be made up for: timers are late by some milliseconds, not by more. */
const LAG_MAX_MS = 50;

/** Gives turns at an even pace. */
export class Pace {
  readonly #clock: Clock;
  readonly #gapMs: number;
  #nextMs: number;

  /** Without a rate there is always a turn. */
  constructor(clock: Clock, rate: number | undefined) {
    this.#clock = clock;
    this.#gapMs = rate === undefined ? 0 : SECOND_MS / rate;
    this.#nextMs = clock.monotonic();
  }

  /** Resolves when it is this one's turn, or the signal fires. */
  async turn(signal: AbortSignal): Promise<void> {
    if (this.#gapMs === 0) return;
    const nowMs = this.#clock.monotonic();
    const turnMs = Math.max(this.#nextMs, nowMs - LAG_MAX_MS);
    this.#nextMs = turnMs + this.#gapMs;
    if (turnMs > nowMs) await sleep(this.#clock, turnMs - nowMs, signal);
  }
}
