/**
 * encrypt-stream — decrypts (`EncryptReader`) and encrypts (`EncryptWriter`) the bytes of one body;
 * and the padding that hides its exact length.
 *
 * Promise: no byte of a chunk is returned before its tag was checked. What was read of a stream is
 * authentic; that it is complete is known at its end.
 */

import type { KeyObject } from 'node:crypto';
import { assert, RespoolError } from '../core/errors.ts';
import type { BodyReader, BodyWriter } from '../ports/transform.ts';
import {
  detachBuffer,
  type ReadWindow,
  readWhole,
  setReadWindow,
  streamWithWindow,
} from '../system/memory.ts';
import {
  Blocks,
  BlocksInParts,
  CHUNK_MAX_BYTES,
  Chunks,
  type EncryptHeader,
  headerLength,
  parseHeader,
  TAG_BYTES,
} from './encrypt-format.ts';
import { EventLoopTurns, ChunkMemory, onlyChunk, TURN_BYTES } from './event-loop.ts';
import type { KeyRing } from './key-ring.ts';
import type { Cipher } from './options.ts';

/** What the envelope says of an encrypted body. */
export interface EncryptRecord {
  readonly cipher: Cipher;
  readonly keyId: string;
}

/** A body whose header was read and whose key is there. */
interface OpenBody {
  readonly chunks: Chunks;
  /** The size of a chunk with its tag. */
  readonly blockBytes: number;
  readonly isPadded: boolean;
}

/** Decrypts one body. */
export class EncryptReader implements BodyReader {
  readonly #ring: KeyRing;
  readonly #record: EncryptRecord;
  readonly #id: string;
  #digestKey: Uint8Array | undefined;

  constructor(ring: KeyRing, record: EncryptRecord, id: string) {
    this.#ring = ring;
    this.#record = record;
    this.#id = id;
  }

  get digestKey(): Uint8Array {
    // The interface allows this only once the first byte or the end was returned.
    if (this.#digestKey !== undefined) return this.#digestKey;
    throw this.#corruptError('nothing of it was read');
  }

  decode(stream: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    return streamWithWindow((window) => this.#decode(stream, window));
  }

  async *#decode(
    stream: AsyncIterable<Uint8Array>,
    window: ReadWindow,
  ): AsyncGenerator<Uint8Array> {
    const strip = new PadStripper();
    const turns = new EventLoopTurns();
    const lent = new ChunkMemory(window.maxBytes);
    // It holds less than a chunk, of any size; the output is other memory.
    setReadWindow(stream, CHUNK_MAX_BYTES + TAG_BYTES);
    let start: Uint8Array = NOTHING;
    let body: (OpenBody & { readonly blocks: BlocksInParts }) | undefined;
    for await (const bytes of stream) {
      let rest = bytes;
      if (body === undefined) {
        start = start.length === 0 ? bytes : Buffer.concat([start, bytes]);
        const length = headerLength(start);
        if (length === undefined || start.length < length) continue;
        const header = this.#checkHeader(start.subarray(0, length));
        // Inside the loop, so that a failure closes the stream.
        const key = this.#ring.loaded(header.keyId) ?? (await this.#ring.fetch(header.keyId));
        const open = this.#openChunks(header, key);
        body = { ...open, blocks: new BlocksInParts(open.blockBytes) };
        rest = start.subarray(length);
      }
      for (const block of body.blocks.push(rest)) {
        const plain = this.#decryptChunk(body.chunks, block, false);
        // n.b. One by one: `yield*` would wait three times as often.
        let givenBytes = 0;
        for (const part of body.isPadded ? strip.pushAll(plain) : plain) {
          givenBytes += part.length;
          yield part;
        }
        lent.next(plain, givenBytes);
        await turns.after(body.blockBytes);
      }
    }
    // Too short for a header: faultOf says so.
    if (body === undefined) throw this.#corruptError(faultOf(start));
    const plain = this.#decryptChunk(body.chunks, body.blocks.last(), true);
    let givenBytes = 0;
    for (const part of body.isPadded ? strip.pushAll(plain) : plain) {
      givenBytes += part.length;
      if (part.length > 0) yield part;
    }
    lent.next(plain, givenBytes);
    if (body.isPadded && !strip.isPadded) throw this.#corruptError(NO_PADDING);
  }

  decodeBytes(bytes: Uint8Array): Uint8Array | Promise<Uint8Array> {
    const key = this.#ring.loaded(this.#record.keyId);
    if (key !== undefined && bytes.length <= TURN_BYTES) return this.#decodeNow(bytes, key);
    return readWhole(this.decode(onlyChunk(bytes)), bytes.length);
  }

  #decodeNow(bytes: Uint8Array, key: KeyObject): Uint8Array {
    const header = this.#checkHeader(bytes.subarray(0, headerLength(bytes)));
    const { chunks, blockBytes, isPadded } = this.#openChunks(header, key);
    const plain: Uint8Array[] = [];
    let at = headerLength(bytes) ?? 0;
    for (; bytes.length - at > blockBytes; at += blockBytes) {
      plain.push(...this.#decryptChunk(chunks, [bytes.subarray(at, at + blockBytes)], false));
    }
    plain.push(...this.#decryptChunk(chunks, [bytes.subarray(at)], true));
    const whole = joinBytes(plain);
    const stripped = isPadded ? withoutPadding(whole) : whole;
    if (stripped === undefined) throw this.#corruptError(NO_PADDING);
    return stripped;
  }

  /** The parsed header; refused if it differs from the envelope. */
  #checkHeader(bytes: Uint8Array): EncryptHeader {
    const header = parseHeader(bytes);
    if (typeof header === 'string') throw this.#corruptError(header);
    const { cipher, keyId } = this.#record;
    if (header.cipher === cipher && header.keyId === keyId) return header;
    throw this.#corruptError(
      `its header says cipher "${header.cipher}" and key "${header.keyId}", its entry says ` +
        `"${cipher}" and "${keyId}"`,
    );
  }

  #openChunks(header: EncryptHeader, key: KeyObject): OpenBody {
    const chunks = new Chunks(header, key, this.#id);
    this.#digestKey = chunks.digestKey;
    return { chunks, blockBytes: header.chunkBytes + TAG_BYTES, isPadded: header.isPadded };
  }

  #decryptChunk(
    chunks: Chunks,
    chunk: readonly Uint8Array[],
    isLast: boolean,
  ): readonly Uint8Array[] {
    const number = chunks.count + 1;
    const plain = chunks.decrypt(chunk, isLast);
    // A body has exactly one form: the last chunk is empty only if the body is empty.
    const isNeedless = number > 1 && plain?.every((part) => part.length === 0);
    if (plain !== undefined && isNeedless !== true) return plain;
    throw this.#corruptError(
      `chunk ${number} is not what was written under key "${this.#record.keyId}": the bytes were ` +
        'damaged, cut or exchanged, or the key of that id is another one now',
    );
  }

  #corruptError(why: string): RespoolError {
    const text = `cannot decrypt the body of message "${this.#id}": ${why}`;
    return new RespoolError('body.corrupt', text);
  }
}

/** Joins the parts and releases their memory. */
function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  const [first = NOTHING] = parts;
  if (parts.length <= 1) return first;
  const whole = Buffer.concat(parts);
  for (const part of parts) detachBuffer(part);
  return whole;
}

const NOTHING: Uint8Array = new Uint8Array(0);
const NO_PADDING = 'its padding is missing';

function faultOf(start: Uint8Array): string {
  const fault = parseHeader(start);
  return typeof fault === 'string' ? fault : 'it ends after its header';
}

// Encrypting one body: header, chunks, and a last chunk that is marked as the last.

/** What is needed to encrypt one body. */
interface EncryptWork {
  readonly header: EncryptHeader;
  readonly master: KeyObject;
  readonly id: string;
  /** Other than 0 in tests only. */
  readonly firstCounter: number;
}

/** Encrypts one body, once: a second one would repeat the nonces of the first. */
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

  encode(stream: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    this.#use();
    return this.#encodeStream(stream);
  }

  encodeBytes(bytes: Uint8Array): Uint8Array | Promise<Uint8Array> {
    this.#use();
    const length = this.#encodedLength(bytes.length);
    return bytes.length <= TURN_BYTES
      ? this.#encodeNow(bytes, Buffer.allocUnsafe(length))
      : readWhole(this.#encodeStream(onlyChunk(bytes)), length);
  }

  #use(): void {
    assert(!this.#isUsed, 'a writer of encryption was used for two bodies');
    this.#isUsed = true;
  }

  #encodeStream(stream: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    return streamWithWindow((window) => this.#encode(stream, window));
  }

  async *#encode(
    stream: AsyncIterable<Uint8Array>,
    window: ReadWindow,
  ): AsyncGenerator<Uint8Array> {
    const blocks = new Blocks(this.#header.chunkBytes);
    const turns = new EventLoopTurns();
    const lent = new ChunkMemory(window.maxBytes);
    // It keeps only copies of its input.
    setReadWindow(stream, 0);
    yield this.#header.bytes;
    for await (const bytes of this.#header.isPadded ? withPadding(stream) : stream) {
      for (const block of blocks.push(bytes)) {
        // n.b. Not joined: copying a chunk costs more than a second small write. And not with
        // `yield*`, which would wait three times as often.
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

async function* withPadding(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let length = 0;
  for await (const bytes of stream) {
    length += bytes.length;
    yield bytes;
  }
  yield* paddingAfter(length);
}

// Padding, which hides the exact length of a body.
//
// After the last byte comes 0x80, then zeros up to a length with few significant bits (Padmé): at
// most 12 % more than with the 0x80 alone, and less for longer bodies. A reader removes the last
// 0x80 and what follows.

const MARK = 0x80;

/** The zeros of the padding, in pieces of this size. */
const ZEROS: Uint8Array = new Uint8Array(64 * 1_024);
const MARK_PIECE: Uint8Array = Uint8Array.of(MARK);

/** The padded length of this many bytes, with the mark. */
export function paddedLength(bytes: number): number {
  return padme(bytes + 1);
}

/** The padding after this many bytes. */
export function* paddingAfter(bytes: number): Generator<Uint8Array> {
  yield* padding(paddedLength(bytes) - bytes - 1);
}

/** The bytes before the padding; undefined if there is none. */
export function withoutPadding(bytes: Uint8Array): Uint8Array | undefined {
  const at = lastNonZero(bytes);
  return at >= 0 && bytes[at] === MARK ? bytes.subarray(0, at) : undefined;
}

/** Removes the padding of a stream: keeps back what may be padding until more comes. */
export class PadStripper {
  /** Zeros since the last mark; undefined if the bytes so far do not end in possible padding. */
  #zeros: number | undefined;

  /** The bytes of some parts that are certainly no padding, in order. */
  *pushAll(parts: readonly Uint8Array[]): Generator<Uint8Array> {
    for (const part of parts) yield* this.push(part);
  }

  /** The bytes of one part that are certainly no padding, with earlier ones that were kept back. */
  *push(bytes: Uint8Array): Generator<Uint8Array> {
    const at = lastNonZero(bytes);
    if (at < 0 && this.#zeros !== undefined) {
      this.#zeros += bytes.length;
      return;
    }
    if (at >= 0 && this.#zeros !== undefined) {
      yield* padding(this.#zeros);
      this.#zeros = undefined;
    }
    const isMark = at >= 0 && bytes[at] === MARK;
    if (isMark) this.#zeros = bytes.length - at - 1;
    const rest = isMark ? bytes.subarray(0, at) : bytes;
    if (rest.length > 0) yield rest;
  }

  /** Whether the stream so far ends in padding. */
  get isPadded(): boolean {
    return this.#zeros !== undefined;
  }
}

/** Rounds a length up, so that only about log2(log2(length)) upper bits are set. */
function padme(length: number): number {
  let exponent = 0;
  while (2 ** (exponent + 1) <= length) exponent += 1;
  if (exponent < 2) return length;
  const kept = Math.floor(Math.log2(exponent)) + 1;
  const step = 2 ** (exponent - kept);
  return Math.ceil(length / step) * step;
}

function* padding(zeros: number): Generator<Uint8Array> {
  yield MARK_PIECE;
  for (let left = zeros; left > 0; left -= ZEROS.length) yield ZEROS.subarray(0, left);
}

function lastNonZero(bytes: Uint8Array): number {
  let at = bytes.length - 1;
  while (at >= 0 && bytes[at] === 0) at -= 1;
  return at;
}
