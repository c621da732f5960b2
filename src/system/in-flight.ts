/**
 * in-flight — waiting until no call is running, as every `close()` has to.
 *
 * Calls are counted and not kept: what they bring must not stay in memory because a close may come.
 */

import { endsWithin, type Timers } from './wait.ts';

/** Waiting for a condition that the owner checks whenever something has ended. */
export class WhenIdle {
  readonly #isIdle: () => boolean;
  #waiting: (() => void)[] = [];

  constructor(isIdle: () => boolean) {
    this.#isIdle = isIdle;
  }

  /** Something has ended; if it was the last, the waits are over. */
  check(): void {
    if (this.#waiting.length === 0 || !this.#isIdle()) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when it is idle, also if more began in the meantime. */
  async wait(): Promise<void> {
    while (!this.#isIdle()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** Whether it is idle within the span. */
  async within(clock: Timers, ms: number): Promise<boolean> {
    return this.#isIdle() || endsWithin(clock, ms, this.wait());
  }
}

/** Counts what is on its way. */
export class InFlight {
  #count = 0;
  readonly #whenIdle = new WhenIdle(() => this.#count === 0);

  get count(): number {
    return this.#count;
  }

  begin(): void {
    this.#count += 1;
  }

  /** Once for each `begin`. */
  readonly end = (): void => {
    this.#count -= 1;
    this.#whenIdle.check();
  };

  /** Counts the work until it ends, with a result or an error; the result is the same promise. */
  track<T>(work: Promise<T>): Promise<T> {
    this.begin();
    work.then(this.end, this.end);
    return work;
  }

  /** Resolves when nothing is on its way. */
  idle(): Promise<void> {
    return this.#whenIdle.wait();
  }
}
