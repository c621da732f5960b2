/**
 * ahead — how many messages are claimed beyond the free slots, where handlers are quicker than the
 * store.
 *
 *   a full answer finds nobody at work, and took longer than they did  ─▶ twice as many
 *   an answer finds many still waiting                                 ─▶ half as many
 *   one waited too long for a slot, or should not wait at all          ─▶ none for a while; it is
 *                                                                         given back
 *
 * What is claimed ahead waits under its lease. With handlers that take their time the number is
 * zero: then a claim costs nothing beside them, and other nodes should have the messages.
 *
 * Why: docs/decisions/0014-messages-are-claimed-ahead.md
 */

/** What an answer to a claim was like. */
export interface Answer {
  /** It brought as many as were asked for. */
  readonly isFull: boolean;
  /** No handler was running, and nothing waited for one. */
  readonly isStarved: boolean;
  /** How many were still waiting for a slot. */
  readonly waiting: number;
  /** When it was asked for, and when it came (monotonic). */
  readonly askedAt: number;
  readonly cameAt: number;
}

/** Where the number begins, and what it may always grow to, however few slots there are. */
const FIRST = 4;
const FEW_MAX = 32;
const MANY_MAX = 1_000;
/** Handlers that are busy for more than so many times as long as a claim takes gain nothing. */
const QUICK_FACTOR = 4;
/** After one that should not have waited, so many answers say nothing. */
const REST_ANSWERS = 100;
/** How long a message may wait for a slot until it is given back. */
export const AHEAD_WAIT_MS = 1_000;

/** How far ahead one engine claims. */
export class Ahead {
  readonly #max: number;
  #count = 0;
  #rest = 0;
  #lastCameAt = Number.NEGATIVE_INFINITY;

  /** `isNear`: the source has its messages at hand; nothing is gained by taking more of them. */
  constructor(concurrency: number, isNear = false) {
    this.#max = isNear ? 0 : Math.min(MANY_MAX, Math.max(FEW_MAX, concurrency * 2));
  }

  get count(): number {
    return this.#count;
  }

  /** Whether so many that wait are few enough to ask for more. */
  wantsMore(waiting: number): boolean {
    return this.#count > 0 && 2 * waiting <= this.#count;
  }

  /** How many to ask for with so many free slots, while so many wait. */
  max(free: number, waiting: number): number {
    if (free === 0 && !this.wantsMore(waiting)) return 0;
    return free + Math.max(0, this.#count - waiting);
  }

  note({ isFull, isStarved, waiting, askedAt, cameAt }: Answer): void {
    // With a single slot, or handlers that end together, nobody is at work whenever an answer
    // comes: that alone does not tell that they are quick.
    const isQuick = askedAt - this.#lastCameAt <= QUICK_FACTOR * (cameAt - askedAt);
    this.#lastCameAt = cameAt;
    if (this.#rest > 0) this.#rest -= 1;
    else if (!isFull || 2 * waiting > this.#count) this.#count = this.#count >> 1;
    else if (isStarved && isQuick) {
      this.#count = Math.min(this.#max, Math.max(FIRST, 2 * this.#count));
    }
  }

  /** One waited too long, or must not wait. */
  end(): void {
    this.#count = 0;
    this.#rest = REST_ANSWERS;
  }
}
