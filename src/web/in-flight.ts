/**
 * in-flight — posts whose bodies are being read here, so that a stop can wait for them before the
 * spool takes nothing more. Streams are not among them: the spool has those from their first byte.
 */

import type { Clock } from '../ports/clock.ts';

/** The posts that are on their way. */
export class InFlight {
  readonly #clock: Clock;
  readonly #posts = new Set<object>();
  #onEmpty: (() => void)[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(post: object): void {
    this.#posts.add(post);
  }

  /** Also for what was never added. */
  delete(post: object): void {
    if (!this.#posts.delete(post) || this.#posts.size > 0) return;
    const calls = this.#onEmpty;
    this.#onEmpty = [];
    for (const call of calls) call();
  }

  /** Resolves when nothing is on its way, or after this long. */
  async empty(withinMs: number): Promise<void> {
    // What is on its way to the spool in this turn is there in the next.
    await new Promise<void>((resolve) => this.#clock.soon(resolve));
    if (this.#posts.size === 0) return;
    await new Promise<void>((resolve) => {
      const callOff = this.#clock.after(withinMs, resolve);
      this.#onEmpty.push(() => {
        callOff();
        resolve();
      });
    });
  }
}
