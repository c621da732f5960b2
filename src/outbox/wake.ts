/**
 * wake — tells relays that something was committed, those of this process at once, those of others
 * by NOTIFY.
 *
 * A NOTIFY takes a lock of the whole database when it commits: so it goes by itself after the
 * transaction, on another connection, and at most every 20 ms. Nothing depends on it: relays that
 * are not told look for themselves.
 *
 * Why: docs/decisions/0030-an-emit-does-not-notify.md
 */

import { textOf } from '../core/errors.ts';
import type { Clock } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Logger } from '../ports/logger.ts';
import { sleep } from '../system/wait.ts';

const TELL_EVERY_MS = 20;

/** What telling needs. */
export interface WakeOptions {
  /** Tells other processes. */
  readonly tell: () => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger | undefined;
}

/** The wake-ups of one outbox. */
export class OutboxWake {
  readonly #parts: WakeOptions;
  readonly #calls = new Set<() => void>();
  /** The next telling, which all join who come before it goes. */
  #next: Promise<void> | undefined;
  /** The last one that went. */
  #telling: Promise<void> = Promise.resolve();
  /** Resolves when another one may go. */
  #free: Promise<void> = Promise.resolve();

  constructor(parts: WakeOptions) {
    this.#parts = parts;
  }

  /** Resolves when others were told, or could not be. */
  wake(): Promise<void> {
    for (const call of this.#calls) call();
    this.#next ??= this.#free.then(() => {
      this.#next = undefined;
      this.#telling = this.#tell();
      this.#free = this.#telling.then(() => this.#pause());
      return this.#telling;
    });
    return this.#next;
  }

  /** Resolves when nothing is on its way. */
  async idle(): Promise<void> {
    await this.#next;
    await this.#telling;
  }

  /** The store, woken by us as well. */
  wired(store: EntryStore): EntryStore {
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

  async #tell(): Promise<void> {
    try {
      await this.#parts.tell();
    } catch (error) {
      // What was committed is there; relays look for themselves at least every second.
      this.#parts.logger?.warn({ error: textOf(error) }, 'relays could not be woken after an emit');
    }
  }

  #pause(): Promise<void> {
    return sleep(this.#parts.clock, TELL_EVERY_MS);
  }
}
