/**
 * codec-engine — one zlib stream of Node, driven step by step by whoever reads the result.
 *
 *   write(piece) ─▶ outputs until the piece is worked off ─▶ next piece … end() ─▶ last outputs
 *
 * Nothing runs ahead of the consumer: while it holds an output, no piece of the input is asked for.
 * So stopping early, at any output, leaves neither a pending read nor an open handle.
 */

import type { Transform } from 'node:stream';
import { type Bytes, Damaged } from './codec.ts';

/** A stream of node:zlib. */
export type ZlibStream = Transform & { readonly bytesWritten: number };

/** Sends pieces through the stream; destroys it at the end, however that comes. */
export async function* runEngine(
  stream: ZlibStream,
  input: AsyncIterable<Bytes>,
): AsyncGenerator<Bytes, void, undefined> {
  const engine = new Engine(stream);
  let givenBytes = 0;
  try {
    for await (const piece of input) {
      givenBytes += piece.length;
      engine.write(piece);
      for (let out = await engine.next(); out !== undefined; out = await engine.next()) yield out;
      if (engine.isEnded) throw new Damaged('there are bytes after its end');
    }
    engine.end();
    for (let out = await engine.next(); out !== undefined; out = await engine.next()) yield out;
    if (stream.bytesWritten < givenBytes) throw new Damaged('there are bytes after its end');
  } finally {
    stream.destroy();
  }
}

/** The stream, and what its events have said so far. */
class Engine {
  readonly #stream: ZlibStream;
  #error: Error | undefined;
  #isBusy = false;
  #isEnded = false;
  #wake: (() => void) | undefined;

  constructor(stream: ZlibStream) {
    this.#stream = stream;
    stream.on('readable', () => this.#woken());
    stream.on('end', () => {
      this.#isEnded = true;
      this.#woken();
    });
    // It stays for good: what fails after we have left must not end the process.
    stream.on('error', (error) => {
      this.#error ??= error;
      this.#woken();
    });
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  write(piece: Bytes): void {
    this.#isBusy = true;
    this.#stream.write(piece, () => {
      this.#isBusy = false;
      this.#woken();
    });
  }

  end(): void {
    // From here on only the end of the stream is an answer.
    this.#isBusy = true;
    this.#stream.end();
  }

  /** The next output; undefined when the piece is worked off or the stream has ended. */
  async next(): Promise<Bytes | undefined> {
    for (;;) {
      if (this.#error !== undefined) {
        throw new Damaged(this.#error.message, { cause: this.#error });
      }
      const out: unknown = this.#stream.read();
      if (out instanceof Uint8Array) return out;
      // n.b. zlib ends its stream, and never calls back, when bytes follow the compressed data.
      if (this.#isEnded || !this.#isBusy) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #woken(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
