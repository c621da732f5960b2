/**
 * clock — the machine's clock and random numbers, and the clock of a store. This is the only file
 * that asks the machine for the time and calls `Math.random`; keys, salts and tokens come from
 * node:crypto, where they are made.
 */

import { type Millis, MINUTE_MS } from '../core/duration.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';

/** Node refuses longer timers and fires them at once; a longer wait is waited in parts. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after: startTimer,
  soon: (call) => {
    setImmediate(call);
  },
};

/** The machine's random numbers. */
export const systemDice: Dice = { random: () => Math.random() };

function startTimer(ms: number, call: () => void): () => void {
  let timer = setTimeout(fire, Math.min(ms, TIMER_MAX_MS));
  let restMs = ms;
  function fire(): void {
    restMs -= TIMER_MAX_MS;
    // Also NaN, which Node takes for 1 ms, is over.
    if (restMs > 0) timer = setTimeout(fire, Math.min(restMs, TIMER_MAX_MS));
    else call();
  }
  return () => clearTimeout(timer);
}

// The clock of a store, by which its engine works.
//
// A store with a server's clock is asked at open and every minute; in between, local monotonic time
// is added. A store on this machine shares the machine's wall clock.
//
// The answer of a server was true at some moment of the round trip, and nothing tells at which: its
// clock shows `earliest()` at least and `latest()` at most, and `now()` is the middle. Due times
// are compared with `earliest()`, so no attempt begins before them by the server's clock.

/**
 * If wall and monotonic time differ by more than this since the last check, the clock was set. Also
 * in docs/guarantees.md, docs/reference/events.md and docs/reference/metrics.md.
 */
const JUMP_MS = 2_000;

/**
 * An answer that took longer does not replace an earlier one: a process that stood still in between
 * would be wrong by half of that, and start messages early or late.
 */
const ROUND_TRIP_TRUSTED_MS = 1_000;
/** A longer round trip is repeated: the shortest one gives the most exact answer. */
const ROUND_TRIP_GOOD_MS = 5;
const TRIES_MAX = 4;

/** Tells the store's time. */
export class StoreClock {
  readonly #clock: Clock;
  readonly #store: EntryStore;
  /** Store time less monotonic time; undefined while the machine's wall clock is the store's. */
  #offsetMs: number | undefined;
  /** How far the store's time may be from what `now()` tells, in both directions. */
  #uncertaintyMs = 0;
  #measuredAt = Number.NEGATIVE_INFINITY;
  #lastWall: number;
  #lastMonotonic: number;

  constructor(clock: Clock, store: EntryStore) {
    this.#clock = clock;
    this.#store = store;
    this.#lastWall = clock.now();
    this.#lastMonotonic = clock.monotonic();
  }

  now(): Millis {
    if (this.#offsetMs === undefined) return this.#clock.now();
    return Math.floor(this.#clock.monotonic() + this.#offsetMs);
  }

  /** The least that the store's clock shows now. */
  earliest(): Millis {
    if (this.#offsetMs === undefined) return this.#clock.now();
    return Math.floor(this.#clock.monotonic() + this.#offsetMs - this.#uncertaintyMs);
  }

  /** The most that the store's clock shows now. */
  latest(): Millis {
    if (this.#offsetMs === undefined) return this.#clock.now();
    return Math.ceil(this.#clock.monotonic() + this.#offsetMs + this.#uncertaintyMs);
  }

  /** Asks the store for its time if the last answer is a minute old. */
  async measure(): Promise<void> {
    const now = this.#store.now?.bind(this.#store);
    if (now === undefined || this.#clock.monotonic() - this.#measuredAt < MINUTE_MS) return;
    let bestMs = Number.POSITIVE_INFINITY;
    let offsetMs = 0;
    for (let tries = 0; tries < TRIES_MAX && bestMs > ROUND_TRIP_GOOD_MS; tries += 1) {
      const before = this.#clock.monotonic();
      const storeNow = await now();
      const after = this.#clock.monotonic();
      if (after - before >= bestMs) continue;
      bestMs = after - before;
      // The answer was true somewhere between the two; the middle is off by half the round trip.
      offsetMs = storeNow - (before + after) / 2;
    }
    this.#measuredAt = this.#clock.monotonic();
    // A good answer of some time ago is better than a bad one of now.
    if (this.#offsetMs !== undefined && bestMs > ROUND_TRIP_TRUSTED_MS) return;
    this.#offsetMs = offsetMs;
    this.#uncertaintyMs = bestMs / 2;
  }

  /** How far the wall clock was set since the last look; 0 when it ran as it should. */
  jumpedMs(): number {
    const wall = this.#clock.now();
    const monotonic = this.#clock.monotonic();
    const jumpMs = wall - this.#lastWall - (monotonic - this.#lastMonotonic);
    this.#lastWall = wall;
    this.#lastMonotonic = monotonic;
    return Math.abs(jumpMs) > JUMP_MS ? Math.round(jumpMs) : 0;
  }
}
