/** in-hand — how many letters were taken and not yet settled; the next waits for room. */

/** Counts what is in hand. */
export class InHand {
  readonly #max: number;
  readonly #signal: AbortSignal | undefined;
  readonly #open = new Set<unknown>();
  #onRoom: (() => void) | undefined;

  constructor(max: number, signal: AbortSignal | undefined) {
    this.#max = max;
    this.#signal = signal;
    signal?.addEventListener('abort', () => this.#onRoom?.(), { once: true });
  }

  /** Resolves when there is room for one more; false: it was called off. */
  async room(): Promise<boolean> {
    while (this.#open.size >= this.#max && this.#signal?.aborted !== true) {
      await new Promise<void>((resolve) => {
        this.#onRoom = resolve;
      });
    }
    return this.#signal?.aborted !== true;
  }

  add(token: unknown): void {
    this.#open.add(token);
  }

  done(token: unknown): void {
    this.#open.delete(token);
    this.#onRoom?.();
  }
}
