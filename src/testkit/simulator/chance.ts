/** chance — the ways the simulator throws its dice. */

import type { Dice } from '../../ports/clock.ts';

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
