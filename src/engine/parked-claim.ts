/**
 * parked-claim — a claim whose destination filled up in the very batch that brought it. It waits
 * under its lease, kept alive by the watchman, and goes first when there is room.
 */

import type { Claim } from '../ports/source.ts';
import type { Watched, Watchman } from './watchman.ts';

/** A claim that waits for room. */
export class ParkedClaim implements Watched {
  readonly claim: Claim;
  readonly #watchman: Watchman;
  timeoutAt: number = Number.POSITIVE_INFINITY;
  leaseEndsAt: number;
  isFenced = false;

  constructor(claim: Claim, leaseEndsAt: number, watchman: Watchman) {
    this.claim = claim;
    this.#watchman = watchman;
    this.leaseEndsAt = leaseEndsAt;
    watchman.add(this);
  }

  onTimeout(): void {
    // It has no time limit of its own: its handler has not begun.
  }

  onFence(): void {
    this.leave();
  }

  /** It starts, or is given up: the watchman need not look after it here any more. */
  leave(): void {
    this.#watchman.remove(this);
  }
}
