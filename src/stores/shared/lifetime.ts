/**
 * lifetime — what a store has while it is open; opened and closed by whoever comes, also at once.
 *
 * Promise: opens share one try, and a close during one ends what that one opened. So nothing is
 * left open that nobody knows of.
 */

import { Opening } from './opening.ts';

/** The life of one store, over as many openings as there are. */
export class Lifetime<Opened> {
  readonly #opening: Opening;
  #opened: Opened | undefined;

  constructor(open: () => Promise<Opened>, close: (opened: Opened) => Promise<void>) {
    this.#opening = new Opening(
      async () => {
        // Why a close failed was told to its caller; what it had was let go of all the same.
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

/** An opening that failed has closed what it had, and told its caller. */
function nothing(): undefined {
  return undefined;
}
