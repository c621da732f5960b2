/**
 * ahead — how many messages are claimed beyond the free slots, where handlers are quicker than the
 * store.
 *
 *   a full answer finds nobody at work     ─▶ twice as many
 *   an answer finds many still waiting     ─▶ half as many
 *   one waited too long for a slot         ─▶ none, and it is given back
 *
 * What is claimed ahead waits under its lease. With handlers that take their time the number is
 * zero: then a claim costs nothing beside them, and other nodes should have the messages.
 */

/** What an answer to a claim was like. */
export interface Answer {
  /** It brought as many as were asked for. */
  readonly isFull: boolean;
  /** No handler was running, and nothing waited for one. */
  readonly isStarved: boolean;
  /** How many were still waiting for a slot. */
  readonly waiting: number;
}

/** Where the number begins, and what it may always grow to, however few slots there are. */
const FIRST = 4;
const FEW_MAX = 32;
const MANY_MAX = 1_000;
/** How long a message may wait for a slot until it is given back. */
export const AHEAD_WAIT_MS = 1_000;

/** How far ahead one engine claims. */
export class Ahead {
  readonly #max: number;
  #count = 0;

  constructor(concurrency: number) {
    this.#max = Math.min(MANY_MAX, Math.max(FEW_MAX, concurrency * 2));
  }

  get count(): number {
    return this.#count;
  }

  /** Whether so many that wait are few enough to ask for more. */
  wantsMore(waiting: number): boolean {
    return this.#count > 0 && 2 * waiting <= this.#count;
  }

  note({ isFull, isStarved, waiting }: Answer): void {
    if (isFull && isStarved) this.#count = Math.min(this.#max, Math.max(FIRST, 2 * this.#count));
    else if (!isFull || 2 * waiting > this.#count) this.#count = this.#count >> 1;
  }

  /** One waited too long. */
  end(): void {
    this.#count = 0;
  }
}
