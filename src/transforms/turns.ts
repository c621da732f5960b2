/**
 * turns — let others run while a long body is worked on.
 *
 * A stream out of memory never waits: without a pause, the whole body would be one turn of the
 * event loop.
 */

import { systemClock } from '../system/clock.ts';

/** Encrypted in well under 2 ms; whole bodies up to this size are worked on at once. */
export const TURN_BYTES = 1_048_576;

/** Counts the bytes of one body, and lets the event loop turn after each turn's worth. */
export class Turns {
  readonly #turnBytes: number;
  #bytes = 0;

  constructor(turnBytes: number = TURN_BYTES) {
    this.#turnBytes = turnBytes;
  }

  /** Something to wait for when it is time to pause. */
  after(bytes: number): Promise<void> | undefined {
    this.#bytes += bytes;
    if (this.#bytes < this.#turnBytes) return undefined;
    this.#bytes = 0;
    return new Promise((resolve) => {
      systemClock.soon(resolve);
    });
  }
}

/** Bytes as a stream of one piece. */
export async function* only(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Writes a stream into memory that is large enough, and returns the part that was filled. */
export async function fill(
  memory: Uint8Array,
  stream: AsyncIterable<Uint8Array>,
): Promise<Uint8Array> {
  let length = 0;
  for await (const bytes of stream) {
    memory.set(bytes, length);
    length += bytes.length;
  }
  return memory.subarray(0, length);
}
