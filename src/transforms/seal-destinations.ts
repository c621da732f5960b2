/**
 * seal-destinations — the words under which a destination may lie in a sealed store.
 *
 *   'mx.example' ─▶ 'mx.example', sealed.<under k2>, sealed.<under k1>
 *
 * Under the seal a destination is a token, another one for each key; entries from before the seal
 * have it as it is. A filter that leaves one out has to name them all. One of a key that is not
 * there yet is left out of the filter: whoever claims such an entry opens it, so the key is there
 * for the next filter, and what finds its destination full waits for room there in any case.
 *
 * Why: docs/decisions/0044-a-seal-hides-destinations-as-tokens.md
 */

import type { ClaimFilter } from '../ports/entry-store.ts';
import type { SealCipher } from './seal-cipher.ts';

/** Destinations as a store has them. */
export class SealedDestinations {
  readonly #cipher: SealCipher;
  readonly #keyIds: readonly string[];

  /** The ids of all keys, where they are known. */
  constructor(cipher: SealCipher, keyIds: readonly string[] = []) {
    this.#cipher = cipher;
    this.#keyIds = keyIds;
  }

  /** All words for some destinations, under the keys that are there. */
  wordsFor(destinations: string | readonly string[]): readonly string[] {
    const cipher = this.#cipher;
    const ids = new Set([cipher.primary, ...this.#keyIds, ...cipher.used]);
    const there = [...ids].filter((id) => cipher.has(id));
    return [destinations]
      .flat()
      .flatMap((one) => [one, ...there.map((id) => cipher.token('destination', one, id))]);
  }

  /** The filter as the store has to be asked; the very same where it leaves no destination out. */
  filter<T extends ClaimFilter>(filter: T): T {
    const { exceptDestinations } = filter;
    if (exceptDestinations === undefined || exceptDestinations.length === 0) return filter;
    return { ...filter, exceptDestinations: this.wordsFor(exceptDestinations) };
  }
}
