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
  /**
   * Calls back once when the span is over, which may be of any length (`Infinity`: never), and
   * never within this call: one that is negative or NaN is over at once. The returned function
   * cancels that. On the machine, what waits keeps the process alive.
   */
  after(ms: number, call: () => void): () => void;
  /**
   * Calls back later, never within this call: on the machine in the next turn of the event loop, so
   * that timers and sockets get theirs; under a virtual clock in a microtask, since time stands
   * still there.
   */
  soon(call: () => void): void;
}

/** Random numbers. */
export interface Dice {
  /** 0 ≤ random < 1. */
  random(): number;
}
