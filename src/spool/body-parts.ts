/**
 * body-parts — the parts of a caller's stream as bytes of our own.
 *
 * Copied: a source may fill the same buffer again for its next part, while a transform or a store
 * still gathers. Where all of these say how much they hold, the copies take turns in the same
 * memory: 1 GiB would leave 1 GiB of dead buffers otherwise.
 */

import { RespoolError } from '../core/errors.ts';
import { LentBuffers } from '../system/memory.ts';

/** Smaller copies come out of Node's pool; longer ones would stay for as long as the stream. */
const LENT_MIN_BYTES: number = 16 * 1024;
const LENT_MAX_BYTES: number = 1024 * 1024;

/** Copies of what one caller gives. */
export class Copies {
  #lent: LentBuffers | undefined;

  /** From now on nobody reads more than the last bytes of what is asked for; undefined: all. */
  lend(heldMaxBytes: number | undefined): void {
    if (heldMaxBytes !== undefined) this.#lent = new LentBuffers(heldMaxBytes);
  }

  copy(bytes: Uint8Array): Uint8Array {
    const length = bytes.byteLength;
    const isLent = length >= LENT_MIN_BYTES && length <= LENT_MAX_BYTES;
    if (this.#lent === undefined || !isLent) return copyOf(bytes);
    const memory = this.#lent.take(length);
    memory.set(bytes);
    return this.#lent.give(memory, length);
  }
}

/** n.b. Out of Node's pool: less than half the time of an array of its own for 1 KiB. */
export function copyOf(bytes: Uint8Array): Uint8Array {
  const copy = Buffer.allocUnsafe(bytes.byteLength);
  copy.set(bytes);
  return copy;
}

/** The caller's parts, cut off with an error at the byte that passes the limit. */
export async function* partsOf(
  input: AsyncIterable<Uint8Array | string>,
  maxBytes: number,
  copies: Copies,
): AsyncGenerator<Uint8Array, undefined> {
  let size = 0;
  for await (const { bytes, isOurs } of encodedParts(input)) {
    if (!(bytes instanceof Uint8Array)) throw notABody(undefined);
    size += bytes.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    if (bytes.byteLength > 0) yield isOurs ? bytes : copies.copy(bytes);
  }
  return undefined;
}

/** Parts as bytes; a character may be divided between two parts of text. */
export async function* encodedParts(
  input: AsyncIterable<Uint8Array | string>,
): AsyncGenerator<{ readonly bytes: Uint8Array; readonly isOurs: boolean }, undefined> {
  let half = '';
  for await (const part of input) {
    if (typeof part !== 'string') {
      if (half !== '') throw loneSurrogate();
      yield { bytes: part, isOurs: false };
      continue;
    }
    const text = half + part;
    half = /[\uD800-\uDBFF]$/.test(text) ? text.slice(-1) : '';
    yield { bytes: utf8Of(half === '' ? text : text.slice(0, -1)), isOurs: true };
  }
  if (half !== '') throw loneSurrogate();
  return undefined;
}

/** A text as UTF-8; half a surrogate pair would be stored as another character, and is refused. */
export function utf8Of(text: string): Uint8Array {
  if (!text.isWellFormed()) throw loneSurrogate();
  return Buffer.from(text, 'utf8');
}

function loneSurrogate(): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot use this text as body: it holds half a surrogate pair, which UTF-8 cannot write; ' +
      'send well-formed text, or bytes',
  );
}

/** The refusal of a body that passes the limit. */
export function tooLarge(maxBytes: number): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot accept the body: it has more than the allowed ${maxBytes} bytes (limits.bodyBytes)`,
  );
}

/** The refusal of what is no body. */
export function notABody(cause: unknown): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot use this value as body: allowed is a string, bytes, a Blob, a stream of bytes or a ' +
      'JSON value; a promise has to be awaited first',
    { cause },
  );
}
