/**
 * codec — what every way of compressing has in common, as compress.ts and compress-read.ts see it.
 *
 * A codec knows bytes, nothing of messages: what it cannot read it calls `Damaged`, and the reader
 * above says whose body it was. Promise: no codec holds more than a few blocks of a stream.
 */

/** How much work compression takes, in four words; what they mean is the codec's. */
export const LEVELS = ['fastest', 'default', 'better', 'best'] as const;

/** How much work compression takes: from `fastest` to `best`. */
export type CompressionLevel = (typeof LEVELS)[number];

/** Compressed bytes are given to a decoder in steps of this size; ratios are counted by it. */
export const STEP_BYTES: number = 64 * 1024;

/** A piece of a compressed or plain stream. */
export type Bytes = Uint8Array;

/** A codec that is ready to work: optional packages are loaded. */
export interface Codec {
  /** Compresses a whole body in the calling thread. */
  pack(plain: Bytes, level: CompressionLevel): Bytes;
  /** Up to this size `pack` takes about 2 ms, on a machine of the year 2020. */
  readonly packMaxBytes: Readonly<Record<CompressionLevel, number>>;
  /** Reads at most the last MiB of what it was given when it asks for more. */
  packStream(plain: AsyncIterable<Bytes>, level: CompressionLevel): AsyncIterable<Bytes>;
  /** How many bytes a part of a body takes, roughly, compressed in the quickest way. */
  sample(plain: Bytes): number;
  /** Decompresses a whole body in the calling thread; more than `maxBytes` is damage. */
  unpack(packed: Bytes, maxBytes: number): Bytes;
  /** Up to this plain size `unpack` takes about 2 ms. */
  readonly unpackMaxBytes: number;
  /** Takes pieces of `STEP_BYTES`; hands out pieces of less than a MiB. */
  unpackStream(packed: AsyncIterable<Bytes>): AsyncIterable<Bytes>;
  /** Whether it is done with a piece when it asks for the next, and gives out nothing of it. */
  readonly isDoneWithPieces: boolean;
}

/** Where a codec comes from: at hand, or with a package that has to be loaded first. */
export interface CodecSource {
  readonly hasLevels: boolean;
  /** Undefined until `load` has resolved. */
  ready(): Codec | undefined;
  load(): Promise<Codec>;
}

/** The bytes cannot be what our writer wrote. */
export class Damaged extends Error {
  override readonly name = 'Damaged';
}

/** A source whose package is loaded at first use; a failed load is tried again by the next. */
export function lazySource(load: () => Promise<Codec>): CodecSource {
  let codec: Codec | undefined;
  return {
    hasLevels: false,
    ready: () => codec,
    load: async () => (codec ??= await load()),
  };
}
