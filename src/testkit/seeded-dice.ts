/** seeded-dice — chance that can be repeated: the same seed throws the same numbers. */

import type { Dice } from '../ports/clock.ts';

/** Dice whose throws depend on the seed alone. */
export function seededDice(seed: number): Dice {
  // mulberry32: 32 bits of state are plenty for tests, and it is five lines.
  let state = seed >>> 0;
  return {
    random() {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
    },
  };
}
