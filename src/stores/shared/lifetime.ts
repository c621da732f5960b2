/**
 * lifetime — what a store has while it is open; any caller may open or close it, even concurrently.
 *
 * Promise: opens share one try, and a close during one ends what that one opened. So nothing is
 * left open without an owner.
 */

// A store that is opened and closed by anyone who comes, in any order, also at once.
//
// Promise: opens share one try; a failed one is not final, and does not undo a later one that has
// begun already; a close waits for the opening it ends.

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
    // Not final: what was in the way may be gone at the next try, which may have begun already.
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

/** The life of one store, over as many openings as there are. */
export class Lifetime<Opened> {
  readonly #opening: Opening;
  #opened: Opened | undefined;

  constructor(open: () => Promise<Opened>, close: (opened: Opened) => Promise<void>) {
    this.#opening = new Opening(
      async () => {
        // Its caller has learned why a close failed; its resources were released anyway.
        await this.#opening.closing.catch(() => undefined);
        this.#opened = await open();
      },
      async (opening) => {
        // One that is open is closed for callers from here on, not a moment later.
        const opened = this.#take() ?? (await opening.then(() => this.#take(), nothing));
        if (opened !== undefined) await close(opened);
      },
    );
  }

  /** Undefined while it is closed. */
  get opened(): Opened | undefined {
    return this.#opened;
  }

  open(): Promise<void> {
    return this.#opening.open();
  }

  close(): Promise<void> {
    return this.#opening.close();
  }

  #take(): Opened | undefined {
    const opened = this.#opened;
    this.#opened = undefined;
    return opened;
  }
}

/** An opening that failed has closed what it had, and reported that to its caller. */
function nothing(): undefined {
  return undefined;
}
