/** sql-body — bodies as rows of chunks: what every store with tables does in the same way. */

import { RespoolError } from '../../core/errors.ts';

/**
 * The size of a chunk. Also in docs/reference/sqlite.md and docs/reference/stores/postgres.md;
 * bodies that are stored may have chunks of another size.
 */
const CHUNK_BYTES: number = 256 * 1024;
/** Refs that are listed with one statement. */
export const REFS_PAGE = 1_000;

/** The bytes of a stream in pieces of CHUNK_BYTES, the last one shorter; each its own memory. */
export async function* inChunks(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of stream) {
    for (let from = 0; from < piece.byteLength; ) {
      const part = piece.slice(from, from + CHUNK_BYTES - bytes);
      parts.push(part);
      bytes += part.byteLength;
      from += part.byteLength;
      if (bytes < CHUNK_BYTES) continue;
      yield Buffer.concat(parts);
      parts = [];
      bytes = 0;
    }
  }
  if (bytes > 0) yield Buffer.concat(parts);
}

/** A body, chunk by chunk; plain bytes, whatever the client made them of. */
export async function* readChunks(
  ref: string,
  size: number,
  readAt: (at: number) => Promise<unknown>,
): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < size; ) {
    const bytes = await readAt(at);
    if (!(bytes instanceof Uint8Array) || bytes.byteLength === 0) {
      throw new RespoolError(
        'body.missing',
        `cannot continue reading body "${ref}" at byte ${at} of ${size}: the rest is not there`,
      );
    }
    yield new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    at += bytes.byteLength;
  }
}

export function bodyTakenError(ref: string): RespoolError {
  return new RespoolError(
    'message.duplicate',
    `cannot put body "${ref}": there is one already; a ref is used once`,
  );
}

export function noBodyError(ref: string): RespoolError {
  return new RespoolError('body.missing', `cannot read body "${ref}": it does not exist`);
}
