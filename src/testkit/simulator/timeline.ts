/**
 * timeline — virtual time and chance of the whole world: one event happens, everything that
 * follows from it settles in microtasks, then the next event happens.
 */

import type { Dice } from '../../ports/clock.ts';
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
  /** Calls of the stores, counted by them. */
  calls = 0;
  #callsBefore = 0;
  #made = 0;
  readonly #moments = new Heap<Moment>(
    (one, other) => one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order),
  );

  /** Calls of the stores within this moment. */
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

/** Chance with words. */
export class Chance implements Dice {
  readonly #dice: Dice;

  constructor(dice: Dice) {
    this.#dice = dice;
  }

  random(): number {
    return this.#dice.random();
  }

  /** True with this probability. */
  happens(probability: number): boolean {
    return this.#dice.random() < probability;
  }

  /** A whole number, both ends included. */
  between(min: number, max: number): number {
    return min + Math.floor(this.#dice.random() * (max - min + 1));
  }

  pick<T>(from: readonly T[]): T {
    const found = from[Math.floor(this.#dice.random() * from.length)];
    if (found === undefined) throw new Error('bug in the simulator: nothing to pick from');
    return found;
  }

  /** One of the names, by weight. */
  weighted<K extends string>(weights: Readonly<Partial<Record<K, number>>>): K {
    const entries = Object.entries(weights) as [K, number][];
    let total = 0;
    for (const [, weight] of entries) total += weight;
    let left = this.#dice.random() * total;
    for (const [name, weight] of entries) {
      left -= weight;
      if (left < 0) return name;
    }
    return (entries.at(-1) as [K, number])[0];
  }

  /** Small spans often, large ones seldom. */
  spanMs(maxMs: number): number {
    return Math.floor(this.#dice.random() ** 4 * maxMs);
  }

  /** A number to seed other dice with. */
  seed(): number {
    return Math.floor(this.#dice.random() * 0x1_0000_0000);
  }
}
