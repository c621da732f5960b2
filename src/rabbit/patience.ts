/** patience — waits that may end early, and goodbyes that the other side may never answer. */

import type { Clock } from '../ports/clock.ts';
import type { AmqpChannel } from './amqp.ts';

/** How long a broker may take to say goodbye. */
export const GOODBYE_MS = 3_000;

/** Waits so long. */
export function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(ms, resolve);
  });
}

/** Waits for the work, whatever becomes of it, but no longer than so; false: it took longer. */
export function atMost(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = clock.after(ms, () => resolve(false));
    const done = (): void => {
      cancel();
      resolve(true);
    };
    work.then(done, done);
  });
}

/**
 * Closes a channel. n.b. The promise of amqplib never settles when the connection ends before the
 * broker's answer; the channel itself tells.
 */
export function closeChannel(channel: AmqpChannel): Promise<void> {
  return new Promise((resolve) => {
    channel.on('close', () => resolve());
    try {
      channel.close().then(resolve, () => resolve());
    } catch {
      // It is closed already.
      resolve();
    }
  });
}

/** Waits of one owner, all of which can be ended at once. */
export class Waits {
  readonly #clock: Clock;
  readonly #ends = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Waits so long, or until `end`. */
  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        this.#ends.delete(done);
        resolve();
      };
      const cancel = this.#clock.after(ms, done);
      this.#ends.add(done);
    });
  }

  /** A signal that `end` fires, while the work runs. */
  async during<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const abort = new AbortController();
    const end = (): void => abort.abort();
    this.#ends.add(end);
    try {
      return await work(abort.signal);
    } finally {
      this.#ends.delete(end);
    }
  }

  end(): void {
    for (const end of this.#ends) end();
  }
}
