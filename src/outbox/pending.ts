/** pending — what has been begun and has to be through before something else may end. */

export class Pending {
  readonly #all = new Set<Promise<unknown>>();

  add(work: Promise<unknown>): void {
    this.#all.add(work);
    const forget = (): void => void this.#all.delete(work);
    void work.then(forget, forget);
  }

  /** Waits for all, and for what they begin; what failed was told to its caller. */
  async idle(): Promise<void> {
    while (this.#all.size > 0) await Promise.allSettled(this.#all);
  }
}
