/** stopwatch — a signal aborted by a time limit or by another signal, that knows by which. */

import type { Clock } from '../ports/clock.ts';

/** Runs from the moment it is made until `stop()`. */
export class Stopwatch {
  readonly #abort = new AbortController();
  readonly #callOff: () => void;
  readonly #outer: AbortSignal;
  /** True when the time limit came first. */
  isTimedOut = false;

  constructor(clock: Clock, limitMs: number, outer: AbortSignal) {
    this.#outer = outer;
    this.#callOff = clock.after(limitMs, () => {
      this.isTimedOut = !this.signal.aborted;
      this.#abort.abort();
    });
    if (outer.aborted) this.#onOuter();
    else outer.addEventListener('abort', this.#onOuter);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  stop(): void {
    this.#callOff();
    this.#outer.removeEventListener('abort', this.#onOuter);
  }

  readonly #onOuter = (): void => this.#abort.abort(this.#outer.reason);
}
