/**
 * answer-memory — how much memory answers take, over all connections: few large ones are made at
 * once, and none while too many bytes of others are unread.
 *
 *   make() ─▶ waits for its turn and for room ─▶ made ─▶ hold() for each part written ─▶ release()
 *
 * Promise: while answers wait, a connection that takes nothing for a while is ended, so that the
 * others go on. Past UNREAD_MAX_BYTES the connection that was written to the longest ago is ended
 * at once, even if it waits for the store. Called by endpoint.ts (`make`) and writing.ts.
 */

import type { ServerResponse } from 'node:http';
import { asError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';

/**
 * Maximum number of large answers made at once: a store reads one page after the other. Also in
 * docs/reference/http-api.md.
 */
const AT_ONCE_MAX = 4;
/** Unread bytes above which no large answer is built. Also in docs/reference/http-api.md. */
const ROOM_BYTES = 8_388_608;
/**
 * Above this total, the connection that was written to the longest ago is ended at once: that of a
 * caller that reads is written to again and again. Also in docs/reference/http-api.md.
 */
const UNREAD_MAX_BYTES = 16_777_216;
/** Below this an answer is not worth counting. */
const COUNTED_MIN_BYTES = 4_096;
/**
 * A connection that has taken nothing for so long is ended when others wait for its room. Also in
 * docs/reference/http-api.md.
 */
const STALLED_MS = 2_000;

interface Unread {
  readonly bytes: number;
  /** When the caller took something last; Infinity while it waits for more. */
  readonly sinceMs: number;
}

/** Counts answers that were not read, and lets the next ones be made. */
export class AnswerMemory {
  readonly #clock: Clock;
  readonly #maxBytes: number;
  /** By the time at which they were written to last (`hold`), the longest ago first. */
  readonly #unread = new Map<ServerResponse, Unread>();
  readonly #waiting: (() => Promise<void>)[] = [];
  #bytes = 0;
  #making = 0;
  #isNextSoon = false;
  #callOffLook: (() => void) | undefined;

  constructor(clock: Clock, maxBytes: number = UNREAD_MAX_BYTES) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
  }

  /** Makes an answer that may be large, when it is its turn. */
  make<T>(work: () => Promise<T> | T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(async () => {
        try {
          resolve(await work());
        } catch (error) {
          reject(asError(error));
        }
      });
      this.#goOn();
    });
  }

  /** So much of this answer is in memory; called again with each part that is written. */
  hold(response: ServerResponse, bytes: number): void {
    if (response.destroyed || bytes < COUNTED_MIN_BYTES) return;
    const before = this.#unread.get(response);
    this.#bytes += bytes - (before?.bytes ?? 0);
    this.#unread.delete(response);
    this.#unread.set(response, { bytes, sinceMs: this.#clock.monotonic() });
    for (const [oldest] of this.#unread) {
      // The last one has had no time to be taken: alone it may be larger than the limit.
      if (this.#bytes <= this.#maxBytes || oldest === response) break;
      this.#end(oldest);
    }
    if (this.#waiting.length > 0 && this.#callOffLook === undefined) this.#goOn();
  }

  /** The caller has taken all parts so far: the next one comes from the store, however late. */
  taken(response: ServerResponse): void {
    const unread = this.#unread.get(response);
    if (unread === undefined) return;
    this.#unread.set(response, { ...unread, sinceMs: Number.POSITIVE_INFINITY });
  }

  /** It has been taken, or its connection is gone. */
  release(response: ServerResponse): void {
    this.#bytes -= this.#unread.get(response)?.bytes ?? 0;
    this.#unread.delete(response);
    this.#goOn();
  }

  #end(response: ServerResponse): void {
    this.release(response);
    response.destroy();
  }

  /**
   * n.b. One in each turn of the event loop: answers that a store makes in this thread would follow
   * each other otherwise, and no other request would be read until all of them are made.
   */
  #goOn(): void {
    this.#callOffLook?.();
    this.#callOffLook = undefined;
    if (this.#isNextSoon || this.#waiting.length === 0 || this.#making >= AT_ONCE_MAX) return;
    if (this.#bytes > ROOM_BYTES) {
      this.#lookForStalled();
      return;
    }
    this.#isNextSoon = true;
    this.#clock.soon(() => {
      this.#isNextSoon = false;
      const work = this.#waiting.shift();
      this.#making += 1;
      void work?.().finally(() => {
        this.#making -= 1;
        this.#goOn();
      });
      this.#goOn();
    });
  }

  /** Ends the connection that has taken nothing for too long, or looks again when it has. */
  #lookForStalled(): void {
    const oldest = [...this.#unread].find(([, { sinceMs }]) => Number.isFinite(sinceMs));
    if (oldest === undefined) return;
    const [response, { sinceMs }] = oldest;
    const leftMs = sinceMs + STALLED_MS - this.#clock.monotonic();
    if (leftMs <= 0) {
      this.#end(response);
      return;
    }
    this.#callOffLook = this.#clock.after(leftMs, () => this.#goOn());
  }
}
