/**
 * encrypt-chunks — the keys of one body, and its chunks one by one.
 *
 * The nonce of a chunk is the header's prefix, the chunk's number and whether it is the last; what
 * is authenticated besides is the header and the message's id. So a chunk that was moved, left
 * out, doubled or taken from another body does not match its tag, and neither does a cut body.
 */

import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  type KeyObject,
} from 'node:crypto';
import { type EncryptHeader, PREFIX_BYTES } from './encrypt-header.ts';

export const TAG_BYTES = 16;

const INFO_START = 'respool/v1|';
const DERIVED_BYTES = 32;
const NONCE_BYTES = 12;
const LAST_AT = NONCE_BYTES - 1;
const COUNTER_MAX = 0xffff_ffff;

/** n.b. Without a length of its own, Node 22 and 24 accept a tag of four bytes. */
const TAG = { authTagLength: TAG_BYTES } as const;

/** One body's chunks, written or read in order. */
export class Chunks {
  readonly #header: EncryptHeader;
  readonly #key: KeyObject;
  readonly #nonce: Buffer = Buffer.alloc(NONCE_BYTES);
  readonly #known: Uint8Array;
  readonly #digestKey: Uint8Array;
  #counter: number;

  /** `firstCounter` is for tests of the last number. */
  constructor(header: EncryptHeader, master: KeyObject, id: string, firstCounter = 0) {
    const derived = hkdfSync('sha256', master, header.salt, INFO_START + id, 2 * DERIVED_BYTES);
    this.#header = header;
    // n.b. A KeyObject once: bytes would cost a third of a chunk's time with every chunk.
    this.#key = createSecretKey(new Uint8Array(derived, 0, DERIVED_BYTES));
    // A copy: anyone who holds a view of it would hold the cipher's key as well.
    this.#digestKey = new Uint8Array(derived.slice(DERIVED_BYTES));
    this.#nonce.set(header.prefix, 0);
    this.#known = Buffer.concat([header.bytes, Buffer.from(id, 'utf8')]);
    this.#counter = firstCounter;
  }

  get digestKey(): Uint8Array {
    return this.#digestKey;
  }

  /** True once the numbers are used up: one more would be the nonce of the first. */
  get isFull(): boolean {
    return this.#counter > COUNTER_MAX;
  }

  /** How many chunks there were. */
  get count(): number {
    return this.#counter;
  }

  /** Ciphertext and tag of the next chunk, which the caller must not ask for when it is full. */
  encrypt(plain: Uint8Array, isLast: boolean): readonly [Uint8Array, Uint8Array] {
    const { cipher } = this.#header;
    const nonce = this.#nextNonce(isLast);
    // The types know the tag of a GCM cipher only; the other has it just the same.
    const work = createCipheriv(cipher as 'aes-256-gcm', this.#key, nonce, TAG);
    work.setAAD(this.#known);
    const bytes = work.update(plain);
    work.final();
    return [bytes, work.getAuthTag()];
  }

  /**
   * The plain bytes of the next chunk, which comes in parts with its tag at the end; undefined
   * where they are not what was written. Nothing of them is given out before the tag was right.
   */
  decrypt(chunk: readonly Uint8Array[], isLast: boolean): readonly Uint8Array[] | undefined {
    const parts = withTagWhole(chunk);
    const end = parts?.at(-1);
    if (parts === undefined || end === undefined || this.isFull) return undefined;
    const { cipher } = this.#header;
    const nonce = this.#nextNonce(isLast);
    const work = createDecipheriv(cipher as 'aes-256-gcm', this.#key, nonce, TAG);
    work.setAAD(this.#known);
    work.setAuthTag(end.subarray(-TAG_BYTES));
    const plain = parts.slice(0, -1).map((part) => work.update(part));
    // Where the tag comes by itself, there is nothing left to read; but an empty chunk is one.
    if (end.length > TAG_BYTES || plain.length === 0) {
      plain.push(work.update(end.subarray(0, -TAG_BYTES)));
    }
    try {
      work.final();
    } catch {
      // All that the library says is that the tag does not match.
      return undefined;
    }
    return plain;
  }

  #nextNonce(isLast: boolean): Uint8Array {
    this.#nonce.writeUInt32BE(this.#counter, PREFIX_BYTES);
    this.#nonce[LAST_AT] = isLast ? 1 : 0;
    this.#counter += 1;
    return this.#nonce;
  }
}

/**
 * Every part costs a call of the library; more than this are put together first. A chunk that comes
 * by 64 KiB has nine or ten.
 */
const PARTS_MAX = 24;

/** The parts of a chunk, such that the last holds the whole tag; undefined where there is none. */
function withTagWhole(chunk: readonly Uint8Array[]): readonly Uint8Array[] | undefined {
  const isWhole = (chunk.at(-1)?.length ?? 0) >= TAG_BYTES;
  if (isWhole && chunk.length <= PARTS_MAX) return chunk;
  const joined = Buffer.concat(chunk);
  return joined.length >= TAG_BYTES ? [joined] : undefined;
}

/**
 * Cuts a stream that is written into blocks of one size. What may be the last one is kept back
 * until more comes, in memory of its own: whoever gave the bytes may use theirs again.
 */
export class Blocks {
  readonly #size: number;
  #kept: Uint8Array | undefined;
  #filled = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** Blocks that are not the last; each is good until the next is asked for. */
  *push(bytes: Uint8Array): Generator<Uint8Array> {
    let at = 0;
    if (this.#filled > 0) {
      at = this.#keep(bytes.subarray(0, this.#size - this.#filled));
      if (at === bytes.length) return;
      yield this.last();
      this.#filled = 0;
    }
    for (; bytes.length - at > this.#size; at += this.#size) {
      yield bytes.subarray(at, at + this.#size);
    }
    this.#keep(bytes.subarray(at));
  }

  /** What is left: the last block, when the stream is over. */
  last(): Uint8Array {
    return this.#kept?.subarray(0, this.#filled) ?? new Uint8Array(0);
  }

  #keep(bytes: Uint8Array): number {
    if (bytes.length === 0) return 0;
    const filled = this.#filled + bytes.length;
    if (this.#kept === undefined || this.#kept.length < filled) this.#grow(filled);
    this.#kept?.set(bytes, this.#filled);
    this.#filled = filled;
    return bytes.length;
  }

  /** n.b. Memory for a whole block would cost a body of a quarter of it as much as its cipher. */
  #grow(bytes: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.min(this.#size, bytes * (this.#filled > 0 ? 4 : 1)));
    if (this.#kept !== undefined) grown.set(this.#kept.subarray(0, this.#filled), 0);
    this.#kept = grown;
  }
}

/**
 * The same for a stream that is read, without copying: what a store gives out may be kept. Blocks
 * come in parts.
 */
export class BlocksInParts {
  readonly #size: number;
  #parts: Uint8Array[] = [];
  #filled = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** Blocks that are not the last. */
  push(bytes: Uint8Array): readonly (readonly Uint8Array[])[] {
    const blocks: (readonly Uint8Array[])[] = [];
    let rest = bytes;
    while (this.#filled + rest.length > this.#size) {
      const at = this.#size - this.#filled;
      this.#keep(rest.subarray(0, at));
      rest = rest.subarray(at);
      blocks.push(this.#parts);
      this.#parts = [];
      this.#filled = 0;
    }
    this.#keep(rest);
    return blocks;
  }

  /** What is left: the last block, when the stream is over. */
  last(): readonly Uint8Array[] {
    return this.#parts;
  }

  #keep(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#parts.push(bytes);
    this.#filled += bytes.length;
  }
}
