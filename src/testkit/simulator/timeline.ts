/**
 * timeline — virtual time of the whole world: one thing happens, everything that follows from it
 * settles in microtasks, then the next thing happens.
 */

import { Heap, type HeapItem } from '../../stores/shared/heap.ts';
import { systemClock } from '../../system/clock.ts';

interface Moment extends HeapItem {
  readonly atMs: number;
  /** Breaks ties: what was asked for first happens first. */
  readonly order: number;
  readonly call: () => void;
}

/** Virtual time. */
export class Timeline {
  /** Milliseconds since the world began. */
  nowMs = 0;
  /** How many moments have passed. */
  steps = 0;
  /** Calls at the doors of the stores, counted by them. */
  calls = 0;
  #callsBefore = 0;
  #made = 0;
  readonly #moments = new Heap<Moment>(
    (one, other) => one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order),
  );

  /** Calls at the doors of the stores within this moment. */
  get callsNow(): number {
    return this.calls - this.#callsBefore;
  }

  /** Calls back after this span; the returned function calls it off. */
  after(ms: number, call: () => void): () => void {
    this.#made += 1;
    const atMs = this.nowMs + (ms > 0 ? Math.ceil(ms) : 0);
    const moment: Moment = { atMs, order: this.#made, call, place: -1 };
    this.#moments.add(moment);
    return () => {
      if (moment.place >= 0) this.#moments.remove(moment);
    };
  }

  /** Goes on, moment by moment, until this time or until `isOver`. */
  async runTo(untilMs: number, isOver: () => boolean): Promise<void> {
    await settled();
    while (!isOver()) {
      const next = this.#moments.first();
      if (next === undefined || next.atMs > untilMs) {
        this.nowMs = Math.max(this.nowMs, untilMs);
        return;
      }
      this.#moments.remove(next);
      this.nowMs = next.atMs;
      this.steps += 1;
      this.#callsBefore = this.calls;
      next.call();
      await settled();
    }
  }
}

/** A turn of the real event loop: by then every microtask has run. */
function settled(): Promise<void> {
  return new Promise((resolve) => systemClock.soon(resolve));
}
