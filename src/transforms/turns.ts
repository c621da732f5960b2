/**
 * turns — let others run while a long body is worked on.
 *
 * A stream out of memory never waits: without a pause, the whole body would be one turn of the
 * event loop.
 */

import { systemClock } from '../system/clock.ts';

/** Encrypted in well under 2 ms; whole bodies up to this size are worked on at once. */
export const TURN_BYTES = 1_048_576;

/** Counts the bytes of one body, and pauses after each turn's worth. */
export class Turns {
  #bytes = 0;

  /** True when it is time to pause. */
  add(bytes: number): boolean {
    this.#bytes += bytes;
    return this.#bytes >= TURN_BYTES;
  }

  async pause(): Promise<void> {
    this.#bytes = 0;
    const turn = Promise.withResolvers<void>();
    systemClock.soon(turn.resolve);
    await turn.promise;
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
