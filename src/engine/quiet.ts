/** quiet — waits until an engine has nothing in its hands any more, for at most a while. */

import type { Clock } from '../ports/clock.ts';

/** Who waits for an engine to come to rest. */
export class Quiet {
  readonly #clock: Clock;
  readonly #isQuiet: () => boolean;
  #waiting: (() => void)[] = [];

  constructor(clock: Clock, isQuiet: () => boolean) {
    this.#clock = clock;
    this.#isQuiet = isQuiet;
  }

  /** Something ended: tells those who wait, if it was the last. */
  tell(): void {
    if (!this.#isQuiet()) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Whether it came to rest within the span. */
  within(ms: number): Promise<boolean> {
    if (this.#isQuiet()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const cancel = Number.isFinite(ms)
        ? this.#clock.after(ms, () => resolve(this.#isQuiet()))
        : () => undefined;
      this.#waiting.push(() => {
        cancel();
        resolve(true);
      });
    });
  }
}
