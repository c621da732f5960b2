/**
 * sight — whether a claim may look straight at the due rows with its filter, or only glance at a
 * bounded number of them first.
 *
 * A glance never walks far, whatever waits there; straight is a fifth quicker where nearly
 * everything that waits is allowed. So: straight after some glances that left nothing out, and back
 * to glances when a claim is not filled or takes unusually long, and now and then in any case.
 */

import type { ClaimRequest } from '../../ports/entry-store.ts';

/** So many glances in a row that were filled make a filter trusted, for so many claims. */
const TRUSTED_AFTER = 4;
const TRUSTED_FOR = 64;
/** A claim that takes so long, and so many times as long as usual, has walked too far. */
const SLOW_MS = 2;
const SLOW_FACTOR = 2;
/** How much the last claim weighs in what is usual. */
const WEIGHT = 0.2;
/** Filters that are remembered; those of full destinations change all the time. */
const FILTERS_MAX = 64;

interface Experience {
  filled: number;
  trustedFor: number;
  usualMs: number;
}

/** What was seen through the filters of one store. */
export class Sight {
  readonly #seen = new Map<string, Experience>();

  /** Whether the next claim with this filter may look straight. */
  isStraight(request: ClaimRequest): boolean {
    return this.#of(request).trustedFor > 0;
  }

  /** A claim brought as many as were asked for, or not, and took so long. */
  note(request: ClaimRequest, isFilled: boolean, tookMs: number): void {
    const seen = this.#of(request);
    if (seen.trustedFor > 0) {
      const isSlow = tookMs > SLOW_MS && tookMs > SLOW_FACTOR * seen.usualMs;
      seen.trustedFor = isFilled && !isSlow ? seen.trustedFor - 1 : 0;
      // One good glance is enough to go on, unless this one was bad.
      seen.filled = isFilled && !isSlow ? TRUSTED_AFTER - 1 : 0;
    } else {
      seen.filled = isFilled ? seen.filled + 1 : 0;
      if (seen.filled >= TRUSTED_AFTER) seen.trustedFor = TRUSTED_FOR;
    }
    seen.usualMs += WEIGHT * (tookMs - seen.usualMs);
  }

  #of({ lane, states, topics, exceptDestinations }: ClaimRequest): Experience {
    const key = JSON.stringify([lane, states, topics, exceptDestinations]);
    const found = this.#seen.get(key);
    if (found !== undefined) return found;
    if (this.#seen.size >= FILTERS_MAX) this.#seen.clear();
    const fresh: Experience = { filled: 0, trustedFor: 0, usualMs: 0 };
    this.#seen.set(key, fresh);
    return fresh;
  }
}
