/**
 * clock — the interfaces to time and randomness. Real ones in system/, virtual ones in testkit/.
 */

import type { Millis } from '../core/duration.ts';

/** Time, and waiting for it. */
export interface Clock {
  /** Milliseconds since the epoch, as the wall clock of this machine shows them; may jump. */
  now(): Millis;
  /** Milliseconds that only grow; for measuring spans. */
  monotonic(): number;
  /** Calls back once after the span; the returned function cancels that. */
  after(ms: number, call: () => void): () => void;
  /** Calls back when what is already queued in this turn of the loop has run. */
  soon(call: () => void): void;
}

/** Random numbers. */
export interface Dice {
  /** 0 ≤ random < 1. */
  random(): number;
}
