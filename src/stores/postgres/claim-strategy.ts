/**
 * claim-strategy — whether a claim may look straight at the due rows with its filter, or only
 * glance at a bounded number of them first.
 *
 * A glance never walks far, whatever waits there; straight is a fifth quicker where nearly
 * everything that waits is allowed. So: straight after some glances that left nothing out, and back
 * to glances when a claim is not filled or takes longer than the quickest did, and now and then in
 * any case. A doubt for nothing costs a few glances; a far walk that is taken for usual costs more.
 */

import type { ClaimRequest } from '../../ports/entry-store.ts';

/** This many glances in a row that were filled make a filter trusted, for this many claims. */
const TRUSTED_AFTER = 4;
const TRUSTED_FOR = 64;
/** A claim that takes so long, and so many times as long as the quickest, has walked too far. */
const SLOW_MS = 2;
const SLOW_FACTOR = 3;
/** Filters that are remembered; those of full destinations change all the time. */
const FILTERS_MAX = 64;

interface Experience {
  filled: number;
  trustedFor: number;
  quickestMs: number;
}

/** What was seen through the filters of one store. */
export class ClaimStrategy {
  readonly #seen = new Map<string, Experience>();

  /** Whether the next claim with this filter may look straight. */
  isStraight(request: ClaimRequest): boolean {
    return this.#of(request).trustedFor > 0;
  }

  /** How a claim went; `isClear`: it brought all that was asked for, and saw nothing left out. */
  note(request: ClaimRequest, isClear: boolean, tookMs: number): void {
    const seen = this.#of(request);
    if (seen.trustedFor > 0) {
      const isSlow = tookMs > SLOW_MS && tookMs > SLOW_FACTOR * seen.quickestMs;
      seen.trustedFor = isClear && !isSlow ? seen.trustedFor - 1 : 0;
      // One good glance is enough to go on, unless this one was bad.
      seen.filled = isClear && !isSlow ? TRUSTED_AFTER - 1 : 0;
    } else {
      seen.filled = isClear ? seen.filled + 1 : 0;
      if (seen.filled >= TRUSTED_AFTER) seen.trustedFor = TRUSTED_FOR;
    }
    seen.quickestMs = Math.min(seen.quickestMs, tookMs);
  }

  #of({ lane, states, topics, exceptDestinations, max }: ClaimRequest): Experience {
    // Claims of about the same number take about the same time.
    const size = Math.ceil(Math.log2(max));
    const key = JSON.stringify([lane, states, topics, exceptDestinations, size]);
    const found = this.#seen.get(key);
    if (found !== undefined) return found;
    if (this.#seen.size >= FILTERS_MAX) this.#seen.clear();
    const fresh: Experience = { filled: 0, trustedFor: 0, quickestMs: Number.POSITIVE_INFINITY };
    this.#seen.set(key, fresh);
    return fresh;
  }
}
