/**
 * spacing — tells postponed deliveries apart, so that they come back one after the other.
 *
 * Without it, ten thousand that were postponed in the same second would all come back in the same
 * second, and all but one would be postponed again. A place in the line is a guess, no promise:
 * anyone who comes back is asked again.
 */

import { MINUTE_MS } from '../core/duration.ts';

/** Maximum postponement caused by other deliveries that wait, in ms. */
const LINE_MAX_MS: number = 10 * MINUTE_MS;

/** The line of those that were postponed. */
export class PostponeSpacing {
  readonly #stepMs: number;
  #ahead = 0;

  constructor(stepMs: number) {
    this.#stepMs = stepMs;
  }

  /** How long the next one should stay away, if the first in the line could go on after this. */
  join(firstMs: number): number {
    // Past the end it begins again: those at its head have long been back by then.
    if (this.#ahead * this.#stepMs > LINE_MAX_MS) this.#ahead = 0;
    const waitMs = firstMs + this.#ahead * this.#stepMs;
    this.#ahead += 1;
    return Math.ceil(waitMs);
  }

  /** One went on, from the line or past it. */
  leave(): void {
    if (this.#ahead > 0) this.#ahead -= 1;
  }
}
