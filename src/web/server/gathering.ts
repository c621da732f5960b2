/**
 * gathering — posts that came in within one turn of the event loop are put down together.
 *
 * Each request is read in a turn of promises of its own, so a store would see one message at a time
 * and sync the disk for each. Waiting for the end of the turn costs no timer and lets its group
 * commit see them all. 50 connections, 1 KiB, SQLite: 25 messages in a batch instead of 1, and
 * 6,900 to 17,600 posts/s instead of 1,600 to 5,000. Up to 8 turns made batches of 38, and no
 * difference that stood out of the noise. (November 2026, 2 busy cores)
 */

import { asError } from '../../core/errors.ts';
import type { Desk } from '../../operator/operator.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Enqueued } from '../../spool/accept.ts';
import type { Message } from '../../spool/message.ts';

interface Waiting {
  readonly desk: Desk;
  readonly message: Message;
  readonly resolve: (enqueued: Promise<Enqueued>) => void;
  readonly reject: (error: Error) => void;
}

/** Makes desks whose enqueues of one turn go together. */
export class Gathering {
  readonly #clock: Clock;
  #waiting: Waiting[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The same desk, but for its enqueue. */
  over(desk: Desk): Desk {
    return { ...desk, enqueue: (message) => this.#enqueue(desk, message) };
  }

  #enqueue(desk: Desk, message: Message): Promise<Enqueued> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ desk, message, resolve, reject });
      if (this.#waiting.length === 1) this.#clock.soon(() => this.#putDown());
    });
  }

  #putDown(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { desk, message, resolve, reject } of waiting) {
      try {
        resolve(desk.enqueue(message));
      } catch (error) {
        reject(asError(error));
      }
    }
  }
}
