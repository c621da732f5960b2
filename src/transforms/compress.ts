/**
 * compress — the transform that compresses bodies (`compress`), the codecs by name, what an
 * envelope records of a compression, and reading compressed bodies (`readCompressed`).
 *
 * A body that would not get 5 % smaller, judged by its first 64 KiB, is stored as it is, and the
 * envelope says so. Most bodies are whole in memory before the first byte is written: they take one
 * call of the codec. Larger ones stream. The recorded encodings are stored: old ones must stay
 * readable.
 */

import { assert, RespoolError } from '../core/errors.ts';
import { checkOneOf } from '../core/limits.ts';
import type { BodyReader, BodyWriter, ReadContext, Transform } from '../ports/transform.ts';
import { type ReadWindow, setReadWindow, shareWindow, streamWithWindow } from '../system/memory.ts';
import { lz4Source } from './codec-lz4.ts';
import { snappySource } from './codec-snappy.ts';
import { zlibSource } from './codec-zlib.ts';
import {
  type ByteSource,
  type Codec,
  type CodecSource,
  collectBytes,
  createJoin,
  DamagedData,
  readUpTo,
  joinBytes,
  pieces,
  resumeStream,
  slices,
  STEP_BYTES,
} from './codec.ts';
import { checkCompressOptions, type CompressionLevel, type CompressOptions } from './options.ts';

/**
 * Smaller bodies are stored as they are: the header of a codec would use up the gain. Also in
 * docs/reference/body-format.md.
 */
const COMPRESS_MIN_BYTES = 64;
/**
 * The beginning of a body by which is decided whether to compress it. Also in
 * docs/reference/body-format.md and docs/how-to/compress-and-encrypt.md.
 */
const SAMPLE_BYTES = 64 * 1024;
/** A large body in memory is packed by the codec's stream, in slices of this size. */
const SLICE_BYTES = 512 * 1024;
/** A smaller gain is not worth the work of decompressing. Also in docs/reference/body-format.md. */
const GAIN_MIN = 0.05;

/** The most that any codec accepts in one call, or collects of a stream. */
const JOIN_MAX_BYTES = 1024 * 1024;
// New memory for every body would cost a twentieth of the quickest codecs' time.
const joinAtOnce = createJoin(JOIN_MAX_BYTES);

/**
 * Compresses bodies of 64 bytes and more whose first 64 KiB get at least 5 % smaller; the others
 * stay plain.
 *
 * `snappy` needs the package `snappy`, `lz4` needs `lz4-napi`; the others come with Node. `s2` is
 * refused: its format is not implemented.
 */
export function compress(codec: CompressionCodec, options: CompressOptions = {}): Transform {
  return compressWith(CODECS, codec, options);
}

/** `compress` with other codecs, for tests. */
export function compressWith(
  codecs: CodecSources,
  codec: CompressionCodec,
  options: CompressOptions = {},
): Transform {
  refuseS2(codec);
  const name = checkOneOf('codec', codec, CODEC_NAMES);
  const level = checkCompressOptions(options);
  const source = codecs[name];
  if (options.level !== undefined && !source.hasLevels) {
    throw new RespoolError(
      'config.invalid',
      `cannot use "level" with ${name}: it has no levels; leave it out, or use zstd or gzip`,
    );
  }
  // Fails here on a Node without zstd; packages are loaded by open().
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

  encodeBytes(plain: ByteSource): ByteSource | Promise<ByteSource> {
    if (plain.length < COMPRESS_MIN_BYTES) return this.#keepPlain(plain);
    const source = this.#codecs[this.#name];
    const codec = source.ready();
    if (codec !== undefined) return this.#pack(codec, plain);
    return source.load().then((loaded) => this.#pack(loaded, plain));
  }

  encode(stream: AsyncIterable<ByteSource>): AsyncIterable<ByteSource> {
    return streamWithWindow((window) => this.#encode(stream, window));
  }

  async *#encode(
    stream: AsyncIterable<ByteSource>,
    window: ReadWindow,
  ): AsyncGenerator<ByteSource, void, undefined> {
    const { maxBytes } = window;
    // Parts may be passed on unchanged: then the reader of this stream reads them too.
    if (maxBytes !== undefined) setReadWindow(stream, JOIN_MAX_BYTES + maxBytes);
    const source = this.#codecs[this.#name];
    // Before the stream is begun, so that a failure here leaves nothing open.
    const codec = source.ready() ?? (await source.load());
    const rest = stream[Symbol.asyncIterator]();
    // As much as one call takes: the body is often whole by then.
    const callMaxBytes = Math.min(JOIN_MAX_BYTES, codec.packMaxBytes[this.#level]);
    const collectMaxBytes = Math.max(SAMPLE_BYTES, callMaxBytes);
    const { held, isWhole } = await readUpTo(rest, collectMaxBytes);
    if (isWhole) {
      yield* await this.#packWhole(codec, held);
      return;
    }
    if (!isSmaller(codec, beginning(held))) {
      this.#encoding = PLAIN;
      yield* resumeStream(held, rest);
      return;
    }
    const meter = new RatioMeter();
    yield* this.#packStream(codec, resumeStream(held, rest, meter.onPlain), meter);
  }

  /** One call for all parts; returns the parts themselves if they are not compressed. */
  async #packWhole(codec: Codec, parts: readonly ByteSource[]): Promise<readonly ByteSource[]> {
    const bytes = parts.reduce((sum, part) => sum + part.length, 0);
    // Memory that all bodies share is safe only as long as nothing is awaited.
    const isAtOnce = bytes <= Math.min(JOIN_MAX_BYTES, codec.packMaxBytes[this.#level]);
    const packing = this.encodeBytes(isAtOnce ? joinAtOnce(parts) : joinBytes(parts));
    const packed = await packing;
    return this.#encoding === PLAIN ? parts : [packed];
  }

  #pack(codec: Codec, plain: ByteSource): ByteSource | Promise<ByteSource> {
    if (plain.length > SAMPLE_BYTES && !isSmaller(codec, plain)) return this.#keepPlain(plain);
    if (plain.length <= codec.packMaxBytes[this.#level]) {
      this.#encoding = this.#name;
      return this.#keepIfSmaller(plain, codec.pack(plain, this.#level));
    }
    const meter = new RatioMeter();
    const stream = this.#packStream(codec, slices(plain, SLICE_BYTES, meter.onPlain), meter);
    return collectBytes(stream).then((packed) => this.#keepIfSmaller(plain, packed));
  }

  /** A body of up to SAMPLE_BYTES is its own sample: kept plain unless it got 5 % smaller. */
  #keepIfSmaller(plain: ByteSource, packed: ByteSource): ByteSource {
    const isOwnSample = plain.length <= SAMPLE_BYTES;
    return isOwnSample && !hasGain(plain.length, packed.length) ? this.#keepPlain(plain) : packed;
  }

  #keepPlain(plain: ByteSource): ByteSource {
    this.#encoding = PLAIN;
    return plain;
  }

  async *#packStream(
    codec: Codec,
    plain: AsyncIterable<ByteSource>,
    meter: RatioMeter,
  ): AsyncGenerator<ByteSource, void, undefined> {
    for await (const part of codec.packStream(plain, this.#level)) {
      meter.packed(part.length);
      yield part;
    }
    this.#encoding = encodingOf(this.#name, meter.end());
  }
}

function beginning(parts: readonly ByteSource[]): ByteSource {
  const [first] = parts;
  const isEnough = first !== undefined && first.length >= SAMPLE_BYTES;
  return isEnough ? first : Buffer.concat(parts, SAMPLE_BYTES);
}

/** Whether compression gains enough, estimated from the beginning at the fastest level. */
function isSmaller(codec: Codec, plain: ByteSource): boolean {
  const sample = plain.subarray(0, SAMPLE_BYTES);
  // Often a quarter of the sample already gains enough for the whole sample.
  const glance = sample.subarray(0, SAMPLE_BYTES / 4);
  const isClear = glance.length - codec.sample(glance) >= SAMPLE_BYTES * GAIN_MIN;
  return isClear || hasGain(sample.length, codec.sample(sample));
}

function hasGain(plainBytes: number, packedBytes: number): boolean {
  return packedBytes <= plainBytes * (1 - GAIN_MIN);
}

/**
 * Measures the highest ratio that a reader can see, which reads the packed bytes in steps of 64
 * KiB: after each step, the plain bytes taken in until then per packed byte.
 */
class RatioMeter {
  #plainBytes = 0;
  #packedBytes = 0;
  #highest = 0;

  readonly onPlain = (part: ByteSource): void => {
    this.#plainBytes += part.length;
  };

  packed(bytes: number): void {
    const nextStepBytes = (Math.floor(this.#packedBytes / STEP_BYTES) + 1) * STEP_BYTES;
    this.#packedBytes += bytes;
    if (this.#packedBytes >= nextStepBytes) this.#measure(nextStepBytes);
  }

  end(): number {
    this.#measure(this.#packedBytes);
    return this.#highest;
  }

  #measure(packedBytes: number): void {
    if (this.#plainBytes <= RATIO_FREE_BYTES) return;
    this.#highest = Math.max(this.#highest, this.#plainBytes / packedBytes);
  }
}

// The codecs by name, and what an envelope records of a compression.
/** The compression codecs. */
export const CODEC_NAMES = ['gzip', 'zlib', 'deflate', 'brotli', 'zstd', 'snappy', 'lz4'] as const;

/** The name of a codec; encodings begin with it. */
export type CompressionCodec = (typeof CODEC_NAMES)[number];

/**
 * A codec that stored bodies may name. Bodies under the name `s2` hold the bytes of snappy, as
 * former versions wrote them; S2 in its own format is neither written nor read.
 */
export type StoredCodec = CompressionCodec | 's2';

const STORED_NAMES: readonly StoredCodec[] = [...CODEC_NAMES, 's2'];

/** Refuses S2 where it is asked for, with what to use instead. */
export function refuseS2(codec: unknown): void {
  if (codec !== 's2') return;
  throw new RespoolError(
    'config.invalid',
    'cannot compress with s2: the S2 format and its levels are not implemented; use snappy, ' +
      'whose bytes readers of S2 take, or zstd, which has levels. Bodies that are stored under ' +
      'the name s2 stay readable',
  );
}

/** The codecs by name. */
export type CodecSources = Readonly<Record<StoredCodec, CodecSource>>;

/** The recorded encoding of a body that was not compressed. */
export const PLAIN = 'plain';

/**
 * A body of more than RATIO_FREE_BYTES whose ratio passes this, at its end or earlier, has its
 * highest ratio recorded (`RatioMeter`). Stored bodies depend on it. Also in
 * docs/reference/body-format.md.
 */
const RATIO_MAX = 200;
/**
 * Minimum number of plain bytes before ratios are checked: smaller bodies are harmless. Also in
 * docs/reference/body-format.md.
 */
const RATIO_FREE_BYTES: number = 1024 * 1024;

const ENCODING_PATTERN = /^([a-z0-9]+)(?:;ratio=([1-9][0-9]{0,14}))?$/;

// Read under two names: former versions wrote it as s2, too.
const snappy = snappySource();

/** The codecs as they are used outside of tests. */
export const CODECS: CodecSources = {
  gzip: zlibSource('gzip'),
  zlib: zlibSource('zlib'),
  deflate: zlibSource('deflate'),
  brotli: zlibSource('brotli'),
  zstd: zlibSource('zstd'),
  snappy,
  s2: snappy,
  lz4: lz4Source(),
};

/** The recorded encoding of a compressed body; `ratio` is the highest that a reader will see. */
function encodingOf(codec: CompressionCodec, ratio: number): string {
  return ratio > RATIO_MAX ? `${codec};ratio=${Math.ceil(ratio)}` : codec;
}

/** Parses a recorded encoding; undefined if it is not that of a compression. */
function parseEncoding(
  encoding: string,
): { readonly codec: StoredCodec; readonly ratioMax: number } | undefined {
  const [, name, ratio] = ENCODING_PATTERN.exec(encoding) ?? [];
  const codec = STORED_NAMES.find((item) => item === name);
  if (codec === undefined) return undefined;
  return { codec, ratioMax: Math.max(RATIO_MAX, Number(ratio ?? 0)) };
}

// Reading compressed bodies, whatever the present configuration says.
//
// Promise: no body unpacks to more than its envelope allows, and bytes that do not unpack are
// `body.corrupt`. A body that exceeds its recorded ratio is stopped while it is read.

/** Maximum number of bytes read before unpacking in one call, if the plain size is small. */
const COLLECT_MAX_BYTES = 1024 * 1024;

/** Returns a reader for an encoding; undefined if it is not that of a compression. */
export type ReadCompressed = (encoding: string, context: ReadContext) => BodyReader | undefined;

/**
 * Reads what any `compress()` has written, without a configuration.
 *
 * Optional packages are loaded when the first body needs them; `decodeBytes` is a promise then, and
 * for a body that takes long.
 *
 * @example
 * import { readCompressed } from 'respool/transforms';
 * const reader = readCompressed('zstd', { id, maxBytes: 1_000_000 });
 */
export const readCompressed: ReadCompressed = createReadCompressed(CODECS);

/** `readCompressed` with other codecs, for tests. */
export function createReadCompressed(codecs: CodecSources): ReadCompressed {
  return (encoding, context) => {
    if (encoding === PLAIN) return new PlainReader(context);
    const parsed = parseEncoding(encoding);
    if (parsed === undefined) return undefined;
    const { codec, ratioMax } = parsed;
    return new CompressReader(codecs[codec], { ...context, codec, ratioMax });
  };
}

/** Reads a body that was not compressed. */
class PlainReader implements BodyReader {
  readonly #context: ReadContext;

  constructor(context: ReadContext) {
    this.#context = context;
  }

  decodeBytes(bytes: ByteSource): ByteSource {
    this.#check(bytes.length);
    return bytes;
  }

  decode(stream: AsyncIterable<ByteSource>): AsyncIterable<ByteSource> {
    return shareWindow(stream, this.#decode(stream));
  }

  async *#decode(stream: AsyncIterable<ByteSource>): AsyncGenerator<ByteSource, void, undefined> {
    let bytes = 0;
    for await (const part of stream) {
      bytes += part.length;
      this.#check(bytes);
      yield part;
    }
  }

  #check(bytes: number): void {
    const { id, maxBytes } = this.#context;
    if (bytes > maxBytes) throw corruptError(id, PLAIN, tooLong(maxBytes));
  }
}

/** What is known of a compressed body before it is read. */
interface Expectation extends ReadContext {
  readonly codec: StoredCodec;
  readonly ratioMax: number;
}

class CompressReader implements BodyReader {
  readonly #source: CodecSource;
  readonly #expected: Expectation;

  constructor(source: CodecSource, expected: Expectation) {
    this.#source = source;
    this.#expected = expected;
  }

  decodeBytes(packed: ByteSource): ByteSource | Promise<ByteSource> {
    const codec = this.#source.ready();
    if (codec !== undefined && this.#isQuick(codec)) return this.#unpack(codec, packed);
    return collectBytes(this.decode(slices(packed, STEP_BYTES)));
  }

  async *decode(stream: AsyncIterable<ByteSource>): AsyncGenerator<ByteSource, void, undefined> {
    // Before the stream is begun, so that a failure here leaves nothing open.
    const codec = this.#source.ready() ?? (await this.#source.load());
    const isQuick = this.#isQuick(codec);
    if (codec.releasesInput) setReadWindow(stream, isQuick ? COLLECT_MAX_BYTES : STEP_BYTES);
    if (!isQuick) {
      yield* this.#unpackStream(codec, stream);
      return;
    }
    const rest = stream[Symbol.asyncIterator]();
    const { held, isWhole } = await readUpTo(rest, COLLECT_MAX_BYTES);
    if (!isWhole) {
      yield* this.#unpackStream(codec, resumeStream(held, rest));
      return;
    }
    const plain = this.#unpack(codec, joinBytes(held));
    if (plain.length > 0) yield plain;
  }

  #isQuick(codec: Codec): boolean {
    return this.#expected.maxBytes <= codec.unpackMaxBytes;
  }

  #unpack(codec: Codec, packed: ByteSource): ByteSource {
    try {
      return codec.unpack(packed, this.#expected.maxBytes);
    } catch (error) {
      throw this.#corruptError(error);
    }
  }

  async *#unpackStream(
    codec: Codec,
    packed: AsyncIterable<ByteSource>,
  ): AsyncGenerator<ByteSource, void, undefined> {
    const join = codec.releasesInput ? createJoin(STEP_BYTES) : joinBytes;
    let givenBytes = 0;
    let plainBytes = 0;
    async function* counted(): AsyncGenerator<ByteSource, void, undefined> {
      for await (const piece of pieces(packed, STEP_BYTES, join)) {
        givenBytes += piece.length;
        yield piece;
      }
    }
    try {
      for await (const part of codec.unpackStream(counted())) {
        plainBytes += part.length;
        this.#check(plainBytes, givenBytes);
        yield part;
      }
    } catch (error) {
      throw this.#corruptError(error);
    }
  }

  #check(plainBytes: number, givenBytes: number): void {
    const { maxBytes, ratioMax } = this.#expected;
    if (plainBytes > maxBytes) throw new DamagedData(tooLong(maxBytes));
    if (plainBytes > RATIO_FREE_BYTES && plainBytes > givenBytes * ratioMax) {
      throw new DamagedData(`it unpacks to more than ${ratioMax} times its size`);
    }
  }

  /** Adds whose body is damaged; an error of the source of the bytes is returned as it is. */
  #corruptError(error: unknown): unknown {
    const { id, codec } = this.#expected;
    return error instanceof DamagedData ? corruptError(id, codec, error.message, error) : error;
  }
}

function corruptError(id: string, codec: string, why: string, damaged?: DamagedData): RespoolError {
  return new RespoolError(
    'body.corrupt',
    `cannot read the body of message "${id}", stored as ${codec}: ${why}; ` +
      'the stored bytes are not what was written',
    damaged === undefined ? {} : { cause: damaged.cause ?? damaged },
  );
}

function tooLong(maxBytes: number): string {
  return `it holds more than the ${maxBytes} bytes of its envelope`;
}
