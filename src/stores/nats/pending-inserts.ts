/**
 * pending-inserts — inserts on their way, and whether the stream has shown that one of them
 * arrived.
 *
 * A message may be stored, delivered and removed by another process while the answer to its insert
 * is lost. Then nothing lies under its key, and writing it again would deliver it twice. So every
 * insert draws a number. All steps of that entry carry it, and so do the marker over it and the
 * tombstone that outlives both by ten minutes. A process about to repeat an insert has the stream
 * followed up to its end, and knows by the number what became of the first one, also after a
 * restart of the server: tombstones are messages like any other.
 */

import { systemDice } from '../../system/clock.ts';

/** Enough to tell two lives of one id apart, and a small number in memory. */
const BIRTH_MAX = 2 ** 30;

/** Draws the number of a new entry. */
export function drawInsertMark(): number {
  return 1 + Math.floor(systemDice.random() * (BIRTH_MAX - 1));
}

/** The inserts that this process has on their way. */
export class PendingInserts {
  readonly #underway = new Map<number, { readonly id: string; isSeen: boolean }>();

  begin(id: string, birth: number): void {
    this.#underway.set(birth, { id, isSeen: false });
  }

  end(birth: number): void {
    this.#underway.delete(birth);
  }

  /** Takes in what the stream tells of an entry. */
  note(id: string, birth: number): void {
    const insert = this.#underway.get(birth);
    if (insert?.id === id) insert.isSeen = true;
  }

  isSeen(birth: number): boolean {
    return this.#underway.get(birth)?.isSeen === true;
  }

  /** Before the stream is reread: a server that failed may have lost what it had shown. */
  forget(): void {
    for (const insert of this.#underway.values()) insert.isSeen = false;
  }
}
