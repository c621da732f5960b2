/**
 * encrypt-format — the format of an encrypted body: the header, which says how it was encrypted and
 * with which key; the encrypted chunks (`Chunks`); and cutting streams into blocks of a chunk.
 *
 *   0   4  magic "RSPE"            43   7  nonce prefix, random
 *   4   1  version 1               50   1  length of the key's id, 1 to 64
 *   5   1  cipher 1 or 2           51   n  the key's id
 *   6   1  flags, bit 0: padded    then the chunks
 *   7   4  plain bytes in a chunk
 *  11  32  salt, random            numbers are unsigned, big endian
 *
 * Described for others in docs/reference/body-format.md. Promise: bodies of version 1 stay
 * readable; every byte of a header is authenticated with every chunk.
 */

import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  type KeyObject,
} from 'node:crypto';
import { isKeyId } from './key-ring.ts';
import { type Cipher, CIPHERS } from './options.ts';

/**
 * n.b. Smaller chunks are slower: reading takes a tenth longer with 256 KiB, and half as long again
 * with 64 KiB. With 1 MiB writing takes longer: what may be the last chunk is kept back. Also in
 * docs/reference/body-format.md and test/transforms/encrypt-roundtrip.test.ts.
 */
export const CHUNK_BYTES = 524_288;
export const SALT_BYTES = 32;
export const PREFIX_BYTES = 7;
export const CHUNK_MAX_BYTES = 1_048_576;

const MAGIC = 'RSPE';
const VERSION = 1;
const CODES: Readonly<Record<Cipher, number>> = { 'aes-256-gcm': 1, 'chacha20-poly1305': 2 };
const PADDED = 1;

const CIPHER_AT = 5;
const FLAGS_AT = 6;
const CHUNK_BYTES_AT = 7;
const SALT_AT = 11;
const PREFIX_AT = SALT_AT + SALT_BYTES;
const KEY_LENGTH_AT = PREFIX_AT + PREFIX_BYTES;
const KEY_AT = KEY_LENGTH_AT + 1;

/** The fields of a header. */
interface HeaderFields {
  readonly cipher: Cipher;
  readonly isPadded: boolean;
  readonly chunkBytes: number;
  readonly salt: Uint8Array;
  readonly prefix: Uint8Array;
  readonly keyId: string;
}

/** A header, and its bytes as they are stored. */
export interface EncryptHeader extends HeaderFields {
  readonly bytes: Uint8Array;
}

/** A new header. */
export function createHeader(fields: HeaderFields): EncryptHeader {
  const { cipher, isPadded, chunkBytes, salt, prefix, keyId } = fields;
  const bytes = Buffer.alloc(KEY_AT + keyId.length);
  bytes.write(MAGIC, 0, 'latin1');
  bytes[MAGIC.length] = VERSION;
  bytes[CIPHER_AT] = CODES[cipher];
  bytes[FLAGS_AT] = isPadded ? PADDED : 0;
  bytes.writeUInt32BE(chunkBytes, CHUNK_BYTES_AT);
  bytes.set(salt, SALT_AT);
  bytes.set(prefix, PREFIX_AT);
  bytes[KEY_LENGTH_AT] = keyId.length;
  bytes.write(keyId, KEY_AT, 'latin1');
  return { ...fields, bytes };
}

/** The length of the header that begins with these bytes; undefined if more bytes are needed. */
export function headerLength(start: Uint8Array): number | undefined {
  const keyLength = start[KEY_LENGTH_AT];
  return keyLength === undefined ? undefined : KEY_AT + keyLength;
}

/** Parses a whole header; a returned text says why it is not valid. */
export function parseHeader(bytes: Uint8Array): EncryptHeader | string {
  // A copy: the key may have to be fetched before the salt is used.
  const view = Buffer.from(bytes);
  if (view.toString('latin1', 0, MAGIC.length) !== MAGIC) return 'it does not begin as one';
  const version = view[MAGIC.length] ?? 0;
  if (version > VERSION) {
    return `it is of version ${version}, written by a newer version of respool; update this one`;
  }
  if (version !== VERSION) return `there is no version ${version}`;
  if (view.length !== headerLength(view)) return 'it ends inside its header';
  const cipher = CIPHERS.find((name) => CODES[name] === view[CIPHER_AT]);
  if (cipher === undefined) return `there is no cipher ${view[CIPHER_AT]}`;
  const flags = view[FLAGS_AT] ?? 0;
  if ((flags & ~PADDED) !== 0) return `there are no flags ${flags}`;
  const chunkBytes = view.readUInt32BE(CHUNK_BYTES_AT);
  if (chunkBytes < 1 || chunkBytes > CHUNK_MAX_BYTES) {
    return `a chunk of ${chunkBytes} bytes is none; allowed are 1 to ${CHUNK_MAX_BYTES}`;
  }
  const keyId = view.toString('latin1', KEY_AT);
  if (!isKeyId(keyId)) return "its key's id is none";
  return {
    bytes: view,
    cipher,
    isPadded: (flags & PADDED) !== 0,
    chunkBytes,
    salt: view.subarray(SALT_AT, PREFIX_AT),
    prefix: view.subarray(PREFIX_AT, KEY_LENGTH_AT),
    keyId,
  };
}

// The keys of one body, and its chunks one by one.
//
// The nonce of a chunk is the header's prefix, the chunk's number and whether it is the last; the
// header and the message's id are authenticated too. So the tag does not match if a chunk was
// moved, omitted, repeated or taken from another body, or if the body was cut.

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
  readonly #authenticatedData: Uint8Array;
  readonly #digestKey: Uint8Array;
  #counter: number;

  /** `firstCounter` is for tests of the last number. */
  constructor(header: EncryptHeader, master: KeyObject, id: string, firstCounter = 0) {
    const derived = hkdfSync('sha256', master, header.salt, INFO_START + id, 2 * DERIVED_BYTES);
    this.#header = header;
    // n.b. A KeyObject once: bytes would cost a third of a chunk's time with every chunk.
    this.#key = createSecretKey(new Uint8Array(derived, 0, DERIVED_BYTES));
    // A copy: a view would also give access to the key of the cipher.
    this.#digestKey = new Uint8Array(derived.slice(DERIVED_BYTES));
    this.#nonce.set(header.prefix, 0);
    this.#authenticatedData = Buffer.concat([header.bytes, Buffer.from(id, 'utf8')]);
    this.#counter = firstCounter;
  }

  get digestKey(): Uint8Array {
    return this.#digestKey;
  }

  /** True once all numbers are used: one more would repeat the first nonce. */
  get isFull(): boolean {
    return this.#counter > COUNTER_MAX;
  }

  /** How many chunks there were. */
  get count(): number {
    return this.#counter;
  }

  /** Ciphertext and tag of the next chunk; must not be called when `isFull`. */
  encrypt(plain: Uint8Array, isLast: boolean): readonly [Uint8Array, Uint8Array] {
    const { cipher } = this.#header;
    const nonce = this.#nextNonce(isLast);
    // The types know tags of GCM ciphers only; the other cipher has one too.
    const work = createCipheriv(cipher as 'aes-256-gcm', this.#key, nonce, TAG);
    work.setAAD(this.#authenticatedData);
    const bytes = work.update(plain);
    work.final();
    return [bytes, work.getAuthTag()];
  }

  /**
   * The plain bytes of the next chunk, which comes in parts with its tag at the end; undefined if
   * the tag does not match. No byte is returned before the tag is checked.
   */
  decrypt(chunk: readonly Uint8Array[], isLast: boolean): readonly Uint8Array[] | undefined {
    const parts = withTagWhole(chunk);
    const end = parts?.at(-1);
    if (parts === undefined || end === undefined || this.isFull) return undefined;
    const { cipher } = this.#header;
    const nonce = this.#nextNonce(isLast);
    const work = createDecipheriv(cipher as 'aes-256-gcm', this.#key, nonce, TAG);
    work.setAAD(this.#authenticatedData);
    work.setAuthTag(end.subarray(-TAG_BYTES));
    const plain = parts.slice(0, -1).map((part) => work.update(part));
    // If the last part is the tag alone, there is nothing left to read, unless the chunk is empty.
    if (end.length > TAG_BYTES || plain.length === 0) {
      plain.push(work.update(end.subarray(0, -TAG_BYTES)));
    }
    try {
      work.final();
    } catch {
      // The only reason is that the tag does not match.
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
 * Every part costs a call of the library; more than this are joined first. A chunk that comes in
 * parts of 64 KiB has nine or ten.
 */
const PARTS_MAX = 24;

/** The parts of a chunk, joined if the tag is split; undefined if it is shorter than a tag. */
function withTagWhole(chunk: readonly Uint8Array[]): readonly Uint8Array[] | undefined {
  const isWhole = (chunk.at(-1)?.length ?? 0) >= TAG_BYTES;
  if (isWhole && chunk.length <= PARTS_MAX) return chunk;
  const joined = Buffer.concat(chunk);
  return joined.length >= TAG_BYTES ? [joined] : undefined;
}

/**
 * Cuts a stream into blocks of one size, for encryption. What may be the last block is kept until
 * more comes, in a copy: the caller may reuse the bytes it passed.
 */
export class Blocks {
  readonly #size: number;
  #kept: Uint8Array | undefined;
  #filled = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** Blocks that are not the last; each is valid until the next is requested. */
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

  /**
   * n.b. For a body of a quarter block, memory for a whole one would cost as much as the cipher.
   */
  #grow(bytes: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.min(this.#size, bytes * (this.#filled > 0 ? 4 : 1)));
    if (this.#kept !== undefined) grown.set(this.#kept.subarray(0, this.#filled), 0);
    this.#kept = grown;
  }
}

/**
 * Cuts a stream into blocks in parts, for decryption, without copying: the parts that a store
 * returns may be kept.
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
