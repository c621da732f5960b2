/**
 * wake — wakes relays after a commit: those of this process at once, those of others by NOTIFY.
 *
 * A NOTIFY takes a lock of the whole database when it commits. So it is sent after the transaction,
 * on another connection, and 20 ms after the last at the earliest. SQLite has none: other processes
 * look into the file. Correctness does not depend on it: relays that get no wake-up poll.
 *
 * Why: docs/decisions/0030-an-emit-does-not-notify.md
 */

import { textOf } from '../core/errors.ts';
import type { Clock } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Logger } from '../ports/logger.ts';
import { sleep } from '../system/wait.ts';

/** Time from the end of a NOTIFY to the next one. Also in decision 0030. */
const NOTIFY_EVERY_MS = 20;

/** How other processes are notified. */
interface WakeOptions {
  /** Notifies other processes. */
  readonly notify: () => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger | undefined;
}

/** The wake-ups of one outbox. */
export class OutboxWake {
  readonly #parts: WakeOptions;
  readonly #calls = new Set<() => void>();
  /** The next notification, shared by all callers until it is sent. */
  #next: Promise<void> | undefined;
  /** The last notification that was sent. */
  #notifying: Promise<void> = Promise.resolve();
  /** Resolves when the next notification may be sent. */
  #free: Promise<void> = Promise.resolve();

  constructor(parts: WakeOptions) {
    this.#parts = parts;
  }

  /** Resolves when others were notified, or that failed. */
  wake(): Promise<void> {
    for (const call of this.#calls) call();
    this.#next ??= this.#free.then(() => {
      this.#next = undefined;
      this.#notifying = this.#notify();
      this.#free = this.#notifying.then(() => this.#pause());
      return this.#notifying;
    });
    return this.#next;
  }

  /** Resolves when no notification is in flight. */
  async idle(): Promise<void> {
    await this.#next;
    await this.#notifying;
  }

  /** The store, whose watchers are also called by `wake()`. */
  withWake(store: EntryStore): EntryStore {
    return {
      ...store,
      watch: (onDue) => {
        this.#calls.add(onDue);
        const stop = store.watch?.(onDue);
        return () => {
          this.#calls.delete(onDue);
          stop?.();
        };
      },
    };
  }

  async #notify(): Promise<void> {
    try {
      await this.#parts.notify();
    } catch (error) {
      // The message is committed; relays poll at least every second.
      this.#parts.logger?.warn({ error: textOf(error) }, 'relays could not be woken after an emit');
    }
  }

  #pause(): Promise<void> {
    return sleep(this.#parts.clock, NOTIFY_EVERY_MS);
  }
}
