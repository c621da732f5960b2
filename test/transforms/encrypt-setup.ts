/** What the tests of encryption share: bodies, their pieces, and all ways in and out. */

import {
  type BodyReader,
  type BodyWriter,
  type Cipher,
  type EncryptOptions,
  generateKey,
  type Transform,
} from 'respool/transforms';
import { isRespoolError, type RespoolError } from 'respool';
import { type EncryptInternals, encryptWith } from '../../src/transforms/encrypt.ts';

export const CIPHERS: readonly Cipher[] = ['aes-256-gcm', 'chacha20-poly1305'];

/** One key for everybody; the tests that mind make their own. */
export const KEY: string = generateKey();

/** Small chunks, so that small bodies have many. */
export const CHUNK_BYTES = 16;
export const TAG_BYTES = 16;
export const BLOCK_BYTES: number = CHUNK_BYTES + TAG_BYTES;

/** A body as it was stored, and what its envelope says. */
export interface Stored {
  readonly id: string;
  readonly bytes: Uint8Array;
  readonly encoding: string;
}

export function smallChunks(
  options: Partial<EncryptOptions> = {},
  internals: EncryptInternals = {},
): Transform {
  return encryptWith({ keys: { k1: KEY }, ...options }, { chunkBytes: CHUNK_BYTES, ...internals });
}

export function writerOf(transform: Transform, id: string): BodyWriter {
  const writer = transform.writer?.({ id });
  if (writer === undefined) throw new Error('this transform does not write');
  return writer;
}

export function readerOf(transform: Transform, { id, encoding }: Stored): BodyReader {
  const reader = transform.reader(encoding, { id, maxBytes: Number.POSITIVE_INFINITY });
  if (reader === undefined) throw new Error(`this transform does not read ${encoding}`);
  return reader;
}

export async function store(transform: Transform, plain: Uint8Array, id = 'm1'): Promise<Stored> {
  const writer = writerOf(transform, id);
  const bytes = await writer.encodeBytes(plain);
  return { id, bytes, encoding: writer.encoding };
}

export async function load(transform: Transform, stored: Stored): Promise<Uint8Array> {
  return readerOf(transform, stored).decodeBytes(stored.bytes);
}

/** The same as a stream, in pieces of these sizes again and again. */
export async function loadStream(
  transform: Transform,
  stored: Stored,
  sizes: readonly number[] = [7],
): Promise<Uint8Array> {
  return gather(readerOf(transform, stored).decode(pieces(stored.bytes, sizes)));
}

/** Pieces of these sizes, again and again. */
export async function* pieces(
  bytes: Uint8Array,
  sizes: readonly number[],
): AsyncGenerator<Uint8Array> {
  let turn = 0;
  for (let at = 0; at < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

/** The same out of one buffer that is used again: as some who enqueue do. */
export async function* reused(
  bytes: Uint8Array,
  sizes: readonly number[],
): AsyncGenerator<Uint8Array> {
  const buffer = new Uint8Array(Math.max(...sizes));
  for await (const piece of pieces(bytes, sizes)) {
    buffer.set(piece);
    yield buffer.subarray(0, piece.length);
    buffer.fill(0xee);
  }
}

export async function gather(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of stream) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

/** What was given out before the failure, and the failure. */
export async function broken(
  stream: AsyncIterable<Uint8Array>,
): Promise<{ readonly out: Uint8Array; readonly error: RespoolError }> {
  const parts: Uint8Array[] = [];
  try {
    for await (const part of stream) parts.push(Buffer.from(part));
  } catch (error) {
    if (isRespoolError(error)) return { out: Buffer.concat(parts), error };
    throw error;
  }
  throw new Error('the stream did not fail');
}

/** The RespoolError that something fails with; anything else fails the test. */
export async function refusal(run: () => unknown): Promise<RespoolError> {
  try {
    await run();
  } catch (error) {
    if (isRespoolError(error)) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

/** Bytes that are the same in every run. */
export function someBytes(length: number, seed = 1): Uint8Array {
  let state = seed;
  return Uint8Array.from({ length }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state >>> 24;
  });
}
