/**
 * event-loop — pauses for the event loop while a long body is processed (`EventLoopTurns`); and two
 * helpers of encryption: the memory of its chunks, and bytes as a stream.
 *
 * A stream from memory never waits: without pauses, the whole body would block the event loop.
 */

import { systemClock } from '../system/clock.ts';
import { ReusedMemory, detachBuffer } from '../system/memory.ts';

/** Encrypted in well under 2 ms; whole bodies up to this size are processed in one call. */
export const TURN_BYTES = 1_048_576;

/** Counts the bytes of one body, and pauses each time `turnBytes` were processed. */
export class EventLoopTurns {
  readonly #turnBytes: number;
  #bytes = 0;

  constructor(turnBytes: number = TURN_BYTES) {
    this.#turnBytes = turnBytes;
  }

  /** A promise to await when it is time to pause. */
  after(bytes: number): Promise<void> | undefined {
    this.#bytes += bytes;
    if (this.#bytes < this.#turnBytes) return undefined;
    this.#bytes = 0;
    return new Promise((resolve) => {
      systemClock.soon(resolve);
    });
  }
}

/** The memory of the chunks of one body, released once they are outside the reader's window. */
export class ChunkMemory {
  readonly #lent: ReusedMemory<readonly Uint8Array[]> | undefined;

  constructor(windowBytes: number | undefined) {
    const free = (parts: readonly Uint8Array[]): void => parts.forEach(detachBuffer);
    this.#lent = windowBytes === undefined ? undefined : new ReusedMemory(windowBytes, free);
  }

  /** `givenBytes` of these parts were returned to the reader, and it asks for more. */
  next(parts: readonly Uint8Array[], givenBytes: number): void {
    this.#lent?.handOut(parts, givenBytes);
    this.#lent?.reclaim();
  }
}

/** Bytes as a stream of one piece. */
export async function* onlyChunk(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
