/** ids — message ids that sort by creation time, and short random names. */

import { V7Generator } from 'uuidv7';
import type { Dice } from '../ports/clock.ts';

/**
 * Makes UUIDv7 ids from the time and random numbers. Within one maker they go up, unless the clock
 * is set back by more than 10 s.
 */
export function createIdMaker(dice: Dice): (now: number) => string {
  const generator = new V7Generator({
    nextUint32: () => Math.floor(dice.random() * 0x1_0000_0000),
  });
  // A clock that jumped back by more than 10 s starts a new sequence instead of running ahead of
  // it.
  return (now) => textOf(generator.generateOrResetCore(now, 10_000).bytes);
}

const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) =>
  byte.toString(16).padStart(2, '0'),
);

/** Takes a third of the time of the library's `toString`; called once per message. */
function textOf(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < 16; at += 1) {
    if (at === 4 || at === 6 || at === 8 || at === 10) text += '-';
    text += HEX[bytes[at] ?? 0];
  }
  return text;
}

/** A random name of 12 characters, for instances and holders. */
export function randomName(dice: Dice): string {
  let name = '';
  while (name.length < 12) name += Math.floor(dice.random() * 36).toString(36);
  return name;
}
