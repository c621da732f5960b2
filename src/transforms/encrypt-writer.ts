/**
 * encrypt-writer — one body on its way in: header, chunks, and a last chunk that says so.
 */

import type { KeyObject } from 'node:crypto';
import { assert, RespoolError } from '../core/errors.ts';
import type { BodyWriter } from '../ports/transform.ts';
import { readWhole, WHOLE_HOLDS_BYTES } from '../system/memory.ts';
import { Blocks, Chunks, TAG_BYTES } from './encrypt-chunks.ts';
import type { EncryptHeader } from './encrypt-header.ts';
import { paddedLength, paddingAfter } from './pad.ts';
import { LentChunks, onlyChunk, TURN_BYTES, EventLoopTurns } from './event-loop.ts';

/** What is needed to encrypt one body. */
export interface EncryptWork {
  readonly header: EncryptHeader;
  readonly master: KeyObject;
  readonly id: string;
  /** Other than 0 in tests only. */
  readonly firstCounter: number;
}

/** Encrypts one body, once: a second one would have the nonces of the first. */
export class EncryptWriter implements BodyWriter {
  readonly #header: EncryptHeader;
  readonly #chunks: Chunks;
  readonly #id: string;
  #isUsed = false;

  constructor({ header, master, id, firstCounter }: EncryptWork) {
    this.#header = header;
    this.#chunks = new Chunks(header, master, id, firstCounter);
    this.#id = id;
  }

  get encoding(): string {
    return `${this.#header.cipher};key=${this.#header.keyId}`;
  }

  get digestKey(): Uint8Array {
    return this.#chunks.digestKey;
  }

  /** What is kept of a part is a copy. */
  get holdsMaxBytes(): number {
    return 0;
  }

  encode(stream: AsyncIterable<Uint8Array>, heldMaxBytes?: number): AsyncIterable<Uint8Array> {
    this.#use();
    return this.#encode(stream, heldMaxBytes);
  }

  encodeBytes(bytes: Uint8Array): Uint8Array | Promise<Uint8Array> {
    this.#use();
    const length = this.#encodedLength(bytes.length);
    return bytes.length <= TURN_BYTES
      ? this.#encodeNow(bytes, Buffer.allocUnsafe(length))
      : readWhole(this.#encode(onlyChunk(bytes), WHOLE_HOLDS_BYTES), length);
  }

  #use(): void {
    assert(!this.#isUsed, 'a writer of encryption was used for two bodies');
    this.#isUsed = true;
  }

  async *#encode(
    stream: AsyncIterable<Uint8Array>,
    heldMaxBytes?: number,
  ): AsyncGenerator<Uint8Array> {
    const blocks = new Blocks(this.#header.chunkBytes);
    const turns = new EventLoopTurns();
    const lent = new LentChunks(heldMaxBytes);
    yield this.#header.bytes;
    for await (const bytes of this.#header.isPadded ? padded(stream) : stream) {
      for (const block of blocks.push(bytes)) {
        // n.b. Apart, not joined: copying a chunk costs more than a second small write. And one by
        // one: `yield*` would wait three times as often.
        const parts = this.#chunk(block, false);
        for (const part of parts) yield part;
        lent.next(parts, block.length + TAG_BYTES);
        await turns.after(block.length);
      }
    }
    for (const part of this.#chunk(blocks.last(), true)) yield part;
  }

  #encodeNow(bytes: Uint8Array, encoded: Uint8Array): Uint8Array {
    const whole = this.#header.isPadded
      ? Buffer.concat([bytes, ...paddingAfter(bytes.length)])
      : bytes;
    encoded.set(this.#header.bytes, 0);
    let length = this.#header.bytes.length;
    let at = 0;
    const add = (isLast: boolean): void => {
      const block = whole.subarray(at, at + this.#header.chunkBytes);
      for (const part of this.#chunk(block, isLast)) {
        encoded.set(part, length);
        length += part.length;
      }
      at += block.length;
    };
    while (whole.length - at > this.#header.chunkBytes) add(false);
    add(true);
    return encoded;
  }

  #chunk(block: Uint8Array, isLast: boolean): readonly [Uint8Array, Uint8Array] {
    if (!this.#chunks.isFull) return this.#chunks.encrypt(block, isLast);
    throw new RespoolError(
      'limit.exceeded',
      `cannot encrypt the body of message "${this.#id}": it has more than ` +
        `${this.#chunks.count} chunks of ${this.#header.chunkBytes} bytes; split it`,
    );
  }

  #encodedLength(bytes: number): number {
    const { chunkBytes, isPadded } = this.#header;
    const length = isPadded ? paddedLength(bytes) : bytes;
    const chunks = Math.max(1, Math.ceil(length / chunkBytes));
    return this.#header.bytes.length + length + chunks * TAG_BYTES;
  }
}

async function* padded(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let length = 0;
  for await (const bytes of stream) {
    length += bytes.length;
    yield bytes;
  }
  yield* paddingAfter(length);
}
