/**
 * open-calls — how many calls are on their way, and waiting until there are none.
 *
 * Counted and not kept: what a call brings must not stay because somebody may close the store.
 */

/** The calls that closing a store has to wait for. */
export class OpenCalls {
  #count = 0;
  #onNone: (() => void)[] = [];

  async run<T>(call: () => Promise<T>): Promise<T> {
    this.#count += 1;
    try {
      return await call();
    } finally {
      this.#count -= 1;
      if (this.#count === 0) this.#tellNone();
    }
  }

  /** Resolves once none is on its way, whatever became of them. */
  none(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onNone.push(resolve);
    });
  }

  #tellNone(): void {
    const waiting = this.#onNone;
    this.#onNone = [];
    for (const resolve of waiting) resolve();
  }
}
