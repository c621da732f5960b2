/** codec-pieces — streams of any chunking, cut and joined to the sizes that codecs work with. */

import type { Bytes } from './codec.ts';

/** Worked on in the calling thread before others get their turn: about 3 ms. */
export const CODEC_TURN_BYTES: number = 2 * 1024 * 1024;

/** Makes one piece of memory of several. */
export type Join = (parts: readonly Bytes[]) => Bytes;

/** Pieces of exactly `pieceBytes`, the last one shorter; none for an empty stream. */
export async function* pieces(
  stream: AsyncIterable<Bytes>,
  pieceBytes: number,
  join: Join = joined,
): AsyncGenerator<Bytes, void, undefined> {
  let held: Bytes[] = [];
  let heldBytes = 0;
  for await (const part of stream) {
    let at = 0;
    while (part.length - at >= pieceBytes - heldBytes) {
      const end = at + pieceBytes - heldBytes;
      held.push(part.subarray(at, end));
      yield join(held);
      held = [];
      heldBytes = 0;
      at = end;
    }
    if (at < part.length) {
      held.push(part.subarray(at));
      heldBytes += part.length - at;
    }
  }
  if (heldBytes > 0) yield join(held);
}

/** Is told of every part that is taken. */
export type OnPart = (part: Bytes) => void;

/** The same for bytes that are whole in memory. */
export async function* slices(
  bytes: Bytes,
  pieceBytes: number,
  onPart?: OnPart,
): AsyncGenerator<Bytes, void, undefined> {
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const part = bytes.subarray(at, at + pieceBytes);
    onPart?.(part);
    yield part;
  }
}

/** What is there already, then the rest of an iteration that was begun. */
export async function* resumed(
  begun: readonly Bytes[],
  rest: AsyncIterator<Bytes>,
  onPart?: OnPart,
): AsyncGenerator<Bytes, void, undefined> {
  let isOver = false;
  try {
    for (const part of begun) {
      onPart?.(part);
      yield part;
    }
    for (;;) {
      const { done, value } = await failing(rest.next(), () => (isOver = true));
      if (done === true) {
        isOver = true;
        return;
      }
      onPart?.(value);
      yield value;
    }
  } finally {
    // Anyone who stops in the middle lets the source close what it has open.
    if (!isOver) await rest.return?.();
  }
}

/** Reads until the end; gives up when more than `maxBytes` are held. */
export async function gather(
  stream: AsyncIterator<Bytes>,
  maxBytes: number,
): Promise<{ readonly held: Bytes[]; readonly isWhole: boolean }> {
  const held: Bytes[] = [];
  let heldBytes = 0;
  while (heldBytes <= maxBytes) {
    const { done, value } = await stream.next();
    if (done === true) return { held, isWhole: true };
    // Empty parts count nothing, so they must not be kept: a stream may have any number of them.
    if (value.length > 0) held.push(value);
    heldBytes += value.length;
  }
  return { held, isWhole: false };
}

/** Everything as one piece of memory. */
export async function collect(stream: AsyncIterable<Bytes>): Promise<Bytes> {
  const held: Bytes[] = [];
  for await (const part of stream) held.push(part);
  return joined(held);
}

/** One piece of memory; a single part is not copied. */
export function joined(parts: readonly Bytes[]): Bytes {
  const [first] = parts;
  return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
}

/** The same in memory that is used again: for anyone who is done with a piece before the next. */
export function createJoin(maxBytes: number): Join {
  let memory: Buffer | undefined;
  return (parts) => {
    if (parts.length === 1) return joined(parts);
    memory ??= Buffer.allocUnsafeSlow(maxBytes);
    let bytes = 0;
    for (const part of parts) {
      memory.set(part, bytes);
      bytes += part.length;
    }
    return memory.subarray(0, bytes);
  };
}

/** The same memory as a Buffer; native packages take nothing else. */
export function bufferOf(bytes: Bytes): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** An iterator that failed is over; it must not be asked to return. */
async function failing<T>(promise: Promise<T>, onFailure: () => void): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    onFailure();
    throw error;
  }
}
