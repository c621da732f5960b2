/**
 * encrypt-reader — one body on its way out.
 *
 * Promise: no byte of a chunk is given out before its tag was found right. A stream is right as far
 * as it was read; that it is whole is known at its end.
 */

import type { KeyObject } from 'node:crypto';
import { RespoolError } from '../core/errors.ts';
import type { BodyReader } from '../ports/transform.ts';
import { readWhole, WHOLE_HOLDS_BYTES, letGo } from '../system/memory.ts';
import { BlocksInParts, Chunks, TAG_BYTES } from './encrypt-chunks.ts';
import {
  CHUNK_MAX_BYTES,
  type Cipher,
  type EncryptHeader,
  headerLength,
  parseHeader,
} from './encrypt-header.ts';
import type { KeyRing } from './key-ring.ts';
import { PadStripper, withoutPadding } from './pad.ts';
import { LentChunks, onlyChunk, TURN_BYTES, EventLoopTurns } from './event-loop.ts';

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
    // The door allows to ask once the first byte or the end is out.
    if (this.#digestKey !== undefined) return this.#digestKey;
    throw this.#corrupt('nothing of it was read');
  }

  /** Less than a chunk, whatever its size; what comes out is another memory. */
  get holdsMaxBytes(): number {
    return CHUNK_MAX_BYTES + TAG_BYTES;
  }

  async *decode(
    stream: AsyncIterable<Uint8Array>,
    heldMaxBytes?: number,
  ): AsyncGenerator<Uint8Array> {
    const strip = new PadStripper();
    const turns = new EventLoopTurns();
    const lent = new LentChunks(heldMaxBytes);
    let start: Uint8Array = NOTHING;
    let body: (OpenBody & { readonly blocks: BlocksInParts }) | undefined;
    for await (const bytes of stream) {
      let rest = bytes;
      if (body === undefined) {
        start = start.length === 0 ? bytes : Buffer.concat([start, bytes]);
        const length = headerLength(start);
        if (length === undefined || start.length < length) continue;
        const header = this.#header(start.subarray(0, length));
        // Inside the loop, so that a failure closes the stream.
        const key = this.#ring.loaded(header.keyId) ?? (await this.#ring.fetch(header.keyId));
        const open = this.#open(header, key);
        body = { ...open, blocks: new BlocksInParts(open.blockBytes) };
        rest = start.subarray(length);
      }
      for (const block of body.blocks.push(rest)) {
        const plain = this.#plain(body.chunks, block, false);
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
    // Too short for a header: reading it says so.
    if (body === undefined) throw this.#corrupt(faultOf(start));
    const plain = this.#plain(body.chunks, body.blocks.last(), true);
    let givenBytes = 0;
    for (const part of body.isPadded ? strip.pushAll(plain) : plain) {
      givenBytes += part.length;
      if (part.length > 0) yield part;
    }
    lent.next(plain, givenBytes);
    if (body.isPadded && !strip.isPadded) throw this.#corrupt(NO_PADDING);
  }

  decodeBytes(bytes: Uint8Array): Uint8Array | Promise<Uint8Array> {
    const key = this.#ring.loaded(this.#record.keyId);
    if (key !== undefined && bytes.length <= TURN_BYTES) return this.#decodeNow(bytes, key);
    return readWhole(this.decode(onlyChunk(bytes), WHOLE_HOLDS_BYTES), bytes.length);
  }

  #decodeNow(bytes: Uint8Array, key: KeyObject): Uint8Array {
    const header = this.#header(bytes.subarray(0, headerLength(bytes)));
    const { chunks, blockBytes, isPadded } = this.#open(header, key);
    const plain: Uint8Array[] = [];
    let at = headerLength(bytes) ?? 0;
    for (; bytes.length - at > blockBytes; at += blockBytes) {
      plain.push(...this.#plain(chunks, [bytes.subarray(at, at + blockBytes)], false));
    }
    plain.push(...this.#plain(chunks, [bytes.subarray(at)], true));
    const whole = joined(plain);
    const stripped = isPadded ? withoutPadding(whole) : whole;
    if (stripped === undefined) throw this.#corrupt(NO_PADDING);
    return stripped;
  }

  /** What the header says, where it says the same as the envelope. */
  #header(bytes: Uint8Array): EncryptHeader {
    const header = parseHeader(bytes);
    if (typeof header === 'string') throw this.#corrupt(header);
    const { cipher, keyId } = this.#record;
    if (header.cipher === cipher && header.keyId === keyId) return header;
    throw this.#corrupt(
      `its header says cipher "${header.cipher}" and key "${header.keyId}", its entry says ` +
        `"${cipher}" and "${keyId}"`,
    );
  }

  #open(header: EncryptHeader, key: KeyObject): OpenBody {
    const chunks = new Chunks(header, key, this.#id);
    this.#digestKey = chunks.digestKey;
    return { chunks, blockBytes: header.chunkBytes + TAG_BYTES, isPadded: header.isPadded };
  }

  #plain(chunks: Chunks, chunk: readonly Uint8Array[], isLast: boolean): readonly Uint8Array[] {
    const number = chunks.count + 1;
    const plain = chunks.decrypt(chunk, isLast);
    // A body has one form: only where there is nothing else is an empty chunk the last.
    const isNeedless = number > 1 && plain?.every((part) => part.length === 0);
    if (plain !== undefined && isNeedless !== true) return plain;
    throw this.#corrupt(
      `chunk ${number} is not what was written under key "${this.#record.keyId}": the bytes were ` +
        'damaged, cut or exchanged, or the key of that id is another one now',
    );
  }

  #corrupt(why: string): RespoolError {
    const text = `cannot decrypt the body of message "${this.#id}": ${why}`;
    return new RespoolError('body.corrupt', text);
  }
}

/** One after the other; what they were made of is gone. */
function joined(parts: readonly Uint8Array[]): Uint8Array {
  const [first = NOTHING] = parts;
  if (parts.length <= 1) return first;
  const whole = Buffer.concat(parts);
  for (const part of parts) letGo(part);
  return whole;
}

const NOTHING: Uint8Array = new Uint8Array(0);
const NO_PADDING = 'its padding is missing';

function faultOf(start: Uint8Array): string {
  const fault = parseHeader(start);
  return typeof fault === 'string' ? fault : 'it ends after its header';
}
