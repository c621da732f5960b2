/**
 * opening — a store that is opened and closed by whoever comes, in any order, also at once.
 *
 * Promise: opens share one try; one that failed is not for good, and does not undo a later one that
 * has begun already; a close waits for the opening it ends.
 */

/** Whether a store is open, and the work on the way there and back. */
export class Opening {
  readonly #open: () => Promise<void>;
  readonly #close: (opening: Promise<void>) => Promise<void>;
  #opening: Promise<void> | undefined;
  #closing: Promise<void> = Promise.resolve();

  /** `open` may wait for `closing`; `close` is given the opening that it ends. */
  constructor(open: () => Promise<void>, close: (opening: Promise<void>) => Promise<void>) {
    this.#open = open;
    this.#close = close;
  }

  /** The last close, for an open that must not overtake it. */
  get closing(): Promise<void> {
    return this.#closing;
  }

  open(): Promise<void> {
    if (this.#opening !== undefined) return this.#opening;
    const opening = this.#open();
    this.#opening = opening;
    // Not for good: what was in the way may be gone at the next try, which may have begun already.
    opening.catch(() => {
      if (this.#opening === opening) this.#opening = undefined;
    });
    return opening;
  }

  close(): Promise<void> {
    const opening = this.#opening;
    if (opening === undefined) return this.#closing;
    this.#opening = undefined;
    this.#closing = this.#close(opening);
    return this.#closing;
  }
}
