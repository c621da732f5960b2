/** wake — an engine that sleeps, and what wakes it. */

import type { Clock } from '../ports/clock.ts';
import { sleep } from '../system/wait.ts';

/** Why a wait ends when there is something to look at; nobody reads it. */
const POKED = 'poked';

/** Sleeps of one engine. */
export class Wake {
  readonly #clock: Clock;
  #controller: AbortController = new AbortController();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the present sleep, or the next one that uses the present signal. */
  poke(): void {
    // n.b. Without a reason each call makes an error with its stack: 4 % of a busy service.
    this.#controller.abort(POKED);
  }

  /** A signal that fires with the next poke. */
  fresh(): AbortSignal {
    if (this.#controller.signal.aborted) this.#controller = new AbortController();
    return this.#controller.signal;
  }

  /** Waits for the span, or until poked. */
  pause(ms: number): Promise<void> {
    return sleep(this.#clock, ms, this.fresh());
  }
}

/** What one waits for until it happens. */
export class Signal {
  #resolve: (() => void) | undefined;

  wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  fire(): void {
    const resolve = this.#resolve;
    this.#resolve = undefined;
    resolve?.();
  }
}
