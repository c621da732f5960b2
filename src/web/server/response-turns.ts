/**
 * response-turns — how many answers that may be large are made at once; the others wait in the
 * order in which they came.
 */

/** Large answers that are made at once, at the most: a store reads one page after the other. */
const AT_ONCE_MAX = 4;

/** Gives turns. */
export class ResponseTurns {
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  /** Runs when it is its turn. */
  async run<T>(work: () => Promise<T> | T): Promise<T> {
    if (this.#running >= AT_ONCE_MAX) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else this.#running += 1;
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }
}
