/** pace — no more letters per second than asked for; and waiting that can be called off. */

import { SECOND_MS } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';

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
    if (turnMs > nowMs) await waitFor(this.#clock, turnMs - nowMs, signal);
  }
}

/** What the work comes to; undefined when the signal fires first, and then nobody waits for it. */
export async function unlessAborted<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
): Promise<T | undefined> {
  if (signal === undefined) return work;
  const aborted = Promise.withResolvers<undefined>();
  const onAbort = () => aborted.resolve(undefined);
  signal.addEventListener('abort', onAbort);
  if (signal.aborted) onAbort();
  // Heard by nobody, when it fails after that.
  work.catch(() => undefined);
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Resolves after the span, or when the signal fires. */
export function waitFor(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = () => {
      cancel();
      signal.removeEventListener('abort', done);
      resolve();
    };
    const cancel = clock.after(ms, done);
    signal.addEventListener('abort', done);
  });
}
