/**
 * event-loop — let others run while a long body is worked on.
 *
 * A stream out of memory never waits: without a pause, the whole body would be one turn of the
 * event loop.
 */

import { systemClock } from '../system/clock.ts';
import { ReusedMemory, letGo } from '../system/memory.ts';

/** Encrypted in well under 2 ms; whole bodies up to this size are worked on at once. */
export const TURN_BYTES = 1_048_576;

/** Counts the bytes of one body, and lets the event loop turn after each turn's worth. */
export class EventLoopTurns {
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

/** The encrypted chunks of one body: released as soon as no reader is left. */
export class ReusedChunks {
  readonly #lent: ReusedMemory<readonly Uint8Array[]> | undefined;

  constructor(heldMaxBytes: number | undefined) {
    const free = (parts: readonly Uint8Array[]): void => parts.forEach(letGo);
    this.#lent = heldMaxBytes === undefined ? undefined : new ReusedMemory(heldMaxBytes, free);
  }

  /** This many bytes of these parts were given out, and more is asked for. */
  next(parts: readonly Uint8Array[], givenBytes: number): void {
    this.#lent?.give(parts, givenBytes);
    this.#lent?.asked();
  }
}

/** Bytes as a stream of one piece. */
export async function* onlyChunk(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
