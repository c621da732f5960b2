/** transform-step — what is measured of a transform, and the bodies it is measured with. */

import { setReadWindow } from '../src/system/memory.ts';

const PART_BYTES = 64 * 1_024;

/** One direction of one transform. */
export interface TransformStep {
  /** Such as `zstd encode`. */
  readonly name: string;
  /** The calls for one body; what is made here is not measured. */
  readonly prepare: (body: Buffer) => Promise<{
    readonly ours: () => Promise<unknown>;
    readonly theirs: () => unknown;
  }>;
}

/** Lines that differ a little from each other: a quarter to a fifth of their size when packed. */
export function sampleBody(bytes: number): Buffer {
  const lines: string[] = [];
  for (let at = 0, made = 0; made < bytes; at += 1) {
    const line = JSON.stringify({
      id: (at * 7_919) % 100_003,
      topic: 'mail.send',
      to: `user${(at * 31) % 997}@example.org`,
      at: 1_700_000_000 + at * 13,
      note: Math.sin(at)
        .toString(36)
        .slice(2, 8 + (at % 9)),
    });
    lines.push(line);
    made += line.length + 1;
  }
  return Buffer.from(lines.join('\n')).subarray(0, bytes);
}

/** The bytes as a stream brings them. */
export async function* partsOf(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0; at < bytes.length; at += PART_BYTES) yield bytes.subarray(at, at + PART_BYTES);
}

/** Reads a stream to its end, as a reader that may keep every part. */
export async function drain(stream: AsyncIterable<Uint8Array>): Promise<number> {
  let bytes = 0;
  for await (const part of stream) bytes += part.length;
  return bytes;
}

/** The same as a reader that holds nothing when it asks for more, as that of `body()`. */
export function drainReusing(stream: AsyncIterable<Uint8Array>): Promise<number> {
  setReadWindow(stream, 0);
  return drain(stream);
}
