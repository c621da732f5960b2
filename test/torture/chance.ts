/** chance — throws that can be repeated: every fault test prints the seed it ran with. */
import { seededDice } from 'respool/testkit';

/** Throws of one seed. */
export interface Chance {
  readonly seed: number;
  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number;
  /** True with this probability. */
  happens(probability: number): boolean;
  /** One of these, each as likely as its weight says. */
  weighed<Value>(weights: ReadonlyMap<Value, number>): Value;
}

/** Throws that depend on the seed alone. */
export function createChance(seed: number): Chance {
  const dice = seededDice(seed);
  return {
    seed,
    between: (low, high) => low + Math.floor(dice.random() * (high - low + 1)),
    happens: (probability) => dice.random() < probability,
    weighed(weights) {
      let left = dice.random() * [...weights.values()].reduce((sum, weight) => sum + weight, 0);
      for (const [value, weight] of weights) {
        left -= weight;
        if (left < 0) return value;
      }
      return [...weights.keys()].at(-1) as never;
    },
  };
}

/** A seed for a run that was given none. */
export function freshSeed(): number {
  return Math.floor(Math.random() * 2 ** 31);
}
