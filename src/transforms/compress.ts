/**
 * compress — bodies made smaller on their way to the store.
 *
 * What would not get smaller stays as it is, and the envelope says so. Most bodies are whole in
 * memory before the first byte is written: they take one call of the codec. What is longer streams.
 */

import { assert, RespoolError } from '../core/errors.ts';
import { checkNames, checkOneOf } from '../core/limits.ts';
import type { BodyWriter, Transform } from '../ports/transform.ts';
import { type Bytes, type Codec, type CompressionLevel, LEVELS, STEP_BYTES } from './codec.ts';
import { collect, createJoin, gather, joined, resumed, slices } from './codec-pieces.ts';
import {
  CODEC_NAMES,
  CODECS,
  type CodecSources,
  type CompressionCodec,
  encodingOf,
  PLAIN,
  RATIO_FREE_BYTES,
  refuseS2,
} from './compress-codecs.ts';
import { createReadCompressed } from './compress-read.ts';

/** Bodies below this size are stored as they are: headers of a codec would eat the gain. */
const COMPRESS_MIN_BYTES = 64;
/** So much of the beginning of a body tells whether the rest is worth the work. */
const SAMPLE_BYTES = 64 * 1024;
/** A body in memory goes through a codec's stream in slices of this size. */
const SLICE_BYTES = 512 * 1024;
/** Less gain than this is not worth the work of reading it back. */
const GAIN_MIN = 0.05;

/** The most that any codec takes in one call, or collects of a stream. */
const JOIN_MAX_BYTES = 1024 * 1024;
// New memory for every body would cost a twentieth of the quickest codecs' time.
const joinAtOnce = createJoin(JOIN_MAX_BYTES);

/** How a body is compressed. */
export interface CompressOptions {
  /**
   * How much work it takes. Default `default`; snappy and lz4 have no levels.
   *
   * gzip, zlib, deflate: 1, 6, 7, 9. brotli: quality 1, 4, 6, 11. zstd: 1, 3, 7, 19. The `best` of
   * brotli and zstd takes a hundred times as long as `default`, and zstd then 90 MB of memory.
   */
  readonly level?: CompressionLevel;
}

/**
 * Compresses bodies of 64 bytes and more that get at least 5 % smaller; the others stay plain.
 *
 * `snappy` needs the package `snappy`, `lz4` needs `lz4-napi`; the others come with Node. `s2` is
 * refused: its format is not implemented.
 */
export function compress(codec: CompressionCodec, options: CompressOptions = {}): Transform {
  return compressWith(CODECS, codec, options);
}

/** The same with codecs from elsewhere. */
export function compressWith(
  codecs: CodecSources,
  codec: CompressionCodec,
  options: CompressOptions = {},
): Transform {
  refuseS2(codec);
  const name = checkOneOf('codec', codec, CODEC_NAMES);
  checkNames('compress', options, ['level']);
  const source = codecs[name];
  const level = checkOneOf('level', options.level ?? 'default', LEVELS);
  if (options.level !== undefined && !source.hasLevels) {
    throw new RespoolError(
      'config.invalid',
      `cannot use "level" with ${name}: it has no levels; leave it out, or use zstd or gzip`,
    );
  }
  // A Node without zstd is found out here; packages are not looked for before open().
  source.ready();
  return {
    name,
    kind: 'compression',
    open: async () => {
      await source.load();
    },
    writer: () => new CompressWriter(codecs, name, level),
    reader: createReadCompressed(codecs),
  };
}

class CompressWriter implements BodyWriter {
  readonly #codecs: CodecSources;
  readonly #name: CompressionCodec;
  readonly #level: CompressionLevel;
  #encoding: string | undefined;

  constructor(codecs: CodecSources, name: CompressionCodec, level: CompressionLevel) {
    this.#codecs = codecs;
    this.#name = name;
    this.#level = level;
  }

  get encoding(): string {
    assert(this.#encoding !== undefined, 'the encoding is known when the bytes are out');
    return this.#encoding;
  }

  get holdsMaxBytes(): number {
    return JOIN_MAX_BYTES;
  }

  encodeBytes(plain: Bytes): Bytes | Promise<Bytes> {
    if (plain.length < COMPRESS_MIN_BYTES) return this.#leave(plain);
    const source = this.#codecs[this.#name];
    const codec = source.ready();
    if (codec !== undefined) return this.#pack(codec, plain);
    return source.load().then((loaded) => this.#pack(loaded, plain));
  }

  async *encode(stream: AsyncIterable<Bytes>): AsyncGenerator<Bytes, void, undefined> {
    const source = this.#codecs[this.#name];
    // Before the stream is begun: what fails here must leave nothing open.
    const codec = source.ready() ?? (await source.load());
    const rest = stream[Symbol.asyncIterator]();
    // As much as one call takes: the body is often whole by then.
    const callMaxBytes = Math.min(JOIN_MAX_BYTES, codec.packMaxBytes[this.#level]);
    const collectMaxBytes = Math.max(SAMPLE_BYTES, callMaxBytes);
    const { held, isWhole } = await gather(rest, collectMaxBytes);
    if (isWhole) {
      yield* await this.#packWhole(codec, held);
      return;
    }
    if (!isSmaller(codec, beginning(held))) {
      this.#encoding = PLAIN;
      yield* resumed(held, rest);
      return;
    }
    const meter = new RatioMeter();
    yield* this.#packStream(codec, resumed(held, rest, meter.onPlain), meter);
  }

  /** One call for all parts; the parts themselves where they are left as they are. */
  async #packWhole(codec: Codec, parts: readonly Bytes[]): Promise<readonly Bytes[]> {
    const bytes = parts.reduce((sum, part) => sum + part.length, 0);
    // Memory that all bodies share is safe only as long as nothing is awaited.
    const isAtOnce = bytes <= Math.min(JOIN_MAX_BYTES, codec.packMaxBytes[this.#level]);
    const packing = this.encodeBytes(isAtOnce ? joinAtOnce(parts) : joined(parts));
    const packed = await packing;
    return this.#encoding === PLAIN ? parts : [packed];
  }

  #pack(codec: Codec, plain: Bytes): Bytes | Promise<Bytes> {
    if (plain.length > SAMPLE_BYTES && !isSmaller(codec, plain)) return this.#leave(plain);
    if (plain.length <= codec.packMaxBytes[this.#level]) {
      this.#encoding = this.#name;
      return this.#judge(plain, codec.pack(plain, this.#level));
    }
    const meter = new RatioMeter();
    const stream = this.#packStream(codec, slices(plain, SLICE_BYTES, meter.onPlain), meter);
    return collect(stream).then((packed) => this.#judge(plain, packed));
  }

  /** Small bodies are their own sample. */
  #judge(plain: Bytes, packed: Bytes): Bytes {
    const isOwnSample = plain.length <= SAMPLE_BYTES;
    return isOwnSample && !hasGain(plain.length, packed.length) ? this.#leave(plain) : packed;
  }

  #leave(plain: Bytes): Bytes {
    this.#encoding = PLAIN;
    return plain;
  }

  async *#packStream(
    codec: Codec,
    plain: AsyncIterable<Bytes>,
    meter: RatioMeter,
  ): AsyncGenerator<Bytes, void, undefined> {
    for await (const part of codec.packStream(plain, this.#level)) {
      meter.packed(part.length);
      yield part;
    }
    this.#encoding = encodingOf(this.#name, meter.end());
  }
}

function beginning(parts: readonly Bytes[]): Bytes {
  const [first] = parts;
  const isEnough = first !== undefined && first.length >= SAMPLE_BYTES;
  return isEnough ? first : Buffer.concat(parts, SAMPLE_BYTES);
}

/** Judged by the beginning, in the quickest way the codec has. */
function isSmaller(codec: Codec, plain: Bytes): boolean {
  const sample = plain.subarray(0, SAMPLE_BYTES);
  // Mostly a quarter of the sample gains enough for all of it, whatever the rest does.
  const glance = sample.subarray(0, SAMPLE_BYTES / 4);
  const isClear = glance.length - codec.sample(glance) >= SAMPLE_BYTES * GAIN_MIN;
  return isClear || hasGain(sample.length, codec.sample(sample));
}

function hasGain(plainBytes: number, packedBytes: number): boolean {
  return packedBytes <= plainBytes * (1 - GAIN_MIN);
}

/**
 * The highest ratio that a reader can come to who is given the packed bytes in steps of 64 KiB.
 *
 * When this many steps are out, they cannot hold more plain bytes than were taken in until then.
 */
class RatioMeter {
  #plainBytes = 0;
  #packedBytes = 0;
  #highest = 0;

  readonly onPlain = (part: Bytes): void => {
    this.#plainBytes += part.length;
  };

  packed(bytes: number): void {
    const nextStepBytes = (Math.floor(this.#packedBytes / STEP_BYTES) + 1) * STEP_BYTES;
    this.#packedBytes += bytes;
    if (this.#packedBytes >= nextStepBytes) this.#reach(nextStepBytes);
  }

  end(): number {
    this.#reach(this.#packedBytes);
    return this.#highest;
  }

  #reach(packedBytes: number): void {
    if (this.#plainBytes <= RATIO_FREE_BYTES) return;
    this.#highest = Math.max(this.#highest, this.#plainBytes / packedBytes);
  }
}
