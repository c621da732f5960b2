/** ids — message ids that sort by the time they were made, and short random names. */

import { V7Generator } from 'uuidv7';
import type { Clock, Dice } from '../ports/clock.ts';

/** Makes UUIDv7 ids that never go backwards within one maker, from this clock and this chance. */
export function createIdMaker(clock: Clock, dice: Dice): () => string {
  const generator = new V7Generator({
    nextUint32: () => Math.floor(dice.random() * 0x1_0000_0000),
  });
  // A clock that jumped back by more than 10 s starts a new sequence instead of running ahead of
  // it.
  return () => generator.generateOrResetCore(clock.now(), 10_000).toString();
}

/** A random name of 12 characters, for instances and holders. */
export function randomName(dice: Dice): string {
  let name = '';
  while (name.length < 12) name += Math.floor(dice.random() * 36).toString(36);
  return name;
}
