/**
 * unread — answers that their callers have not taken yet, over all connections. Each is in memory
 * until it is taken: when there is too much of it, the connection goes that has taken nothing for
 * the longest time.
 */

import type { ServerResponse } from 'node:http';

/** Bytes of answers in memory that were not read, at the most; one answer may be larger. */
const UNREAD_MAX_BYTES = 16_777_216;

/** Counts them, and ends connections. */
export class UnreadAnswers {
  readonly #maxBytes: number;
  /** In the order in which they came: a stream comes anew with each part of it. */
  readonly #answers = new Map<ServerResponse, number>();
  #bytes = 0;

  constructor(maxBytes: number = UNREAD_MAX_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** An answer, or a part of one, that the socket has not taken at once. */
  add(response: ServerResponse, bytes: number): void {
    this.delete(response);
    this.#answers.set(response, bytes);
    this.#bytes += bytes;
    for (const [oldest] of this.#answers) {
      // The last one has had no time to be taken: alone it may be larger than the limit.
      if (this.#bytes <= this.#maxBytes || oldest === response) return;
      this.delete(oldest);
      oldest.destroy();
    }
  }

  /** It has been taken, or its connection is gone. */
  delete(response: ServerResponse): void {
    this.#bytes -= this.#answers.get(response) ?? 0;
    this.#answers.delete(response);
  }
}
