/**
 * codec-zlib — gzip, zlib, deflate, brotli and zstd, all from node:zlib; the end of a zstd frame
 * (`ZstdFrame`); and a zlib stream that its reader drives step by step (`runStream`).
 *
 * Whole bodies of up to `packMaxBytes` and `unpackMaxBytes` use the synchronous calls, streams use
 * the thread pool. Promise: bytes after the end, and an early end, are reported as damage, also
 * where Node itself accepts them; but a further member of gzip is read as a part of the body.
 */

import type { Transform } from 'node:stream';
import * as nodeZlib from 'node:zlib';
import { RespoolError } from '../core/errors.ts';
import {
  type ByteSource,
  type Codec,
  type CodecSource,
  createJoin,
  DamagedData,
  type JoinBytes,
  pieces,
} from './codec.ts';
import type { CompressionLevel } from './options.ts';

// Finds the end of the zstd frame of a body (RFC 8878, section 3.1.1).
//
// Node does not report it: Node 22 reads a cut frame as a shorter one, and 22 and 24 ignore what
// follows the first frame. Only the lengths of blocks are read, so it costs next to nothing.

const MAGIC = 0xfd2fb528;
const START_BYTES = 5;
const BLOCK_HEADER_BYTES = 3;
const CHECKSUM_BYTES = 4;
const RLE_BLOCK = 1;
const RESERVED_BLOCK = 3;
/** By the two lowest bits of the descriptor. */
const DICTIONARY_ID_BYTES = [0, 1, 2, 4] as const;
/** By the two highest bits of the descriptor. */
const CONTENT_SIZE_BYTES = [0, 2, 4, 8] as const;

/** Parses the headers of a frame, piece by piece. */
class ZstdFrame {
  #step: 'start' | 'block' | 'over' = 'start';
  readonly #head: Buffer = Buffer.alloc(START_BYTES);
  #headBytes = 0;
  #skipBytes = 0;
  #hasChecksum = false;

  /** Takes the next piece; bytes after the end of the frame are damage. */
  scan(piece: ByteSource): void {
    let at = 0;
    while (at < piece.length) {
      if (this.#skipBytes > 0) {
        const skipped = Math.min(this.#skipBytes, piece.length - at);
        this.#skipBytes -= skipped;
        at += skipped;
      } else if (this.#step === 'over') {
        throw new DamagedData('there are bytes after its end');
      } else {
        this.#head[this.#headBytes] = piece[at] ?? 0;
        this.#headBytes += 1;
        at += 1;
        const neededBytes = this.#step === 'start' ? START_BYTES : BLOCK_HEADER_BYTES;
        if (this.#headBytes === neededBytes) this.#readHeader();
      }
    }
  }

  /** No more pieces: a frame that is not whole is damage. */
  end(): void {
    if (this.#step === 'over' && this.#skipBytes === 0) return;
    throw new DamagedData('it ends too early');
  }

  #readHeader(): void {
    this.#headBytes = 0;
    if (this.#step === 'start') this.#readFrameHeader();
    else this.#readBlockHeader();
  }

  #readFrameHeader(): void {
    if (this.#head.readUInt32LE(0) !== MAGIC)
      throw new DamagedData('it does not begin as zstd does');
    const descriptor = this.#head[4] ?? 0;
    const isSingleSegment = (descriptor & 0x20) !== 0;
    const sizeBytes = CONTENT_SIZE_BYTES[(descriptor >> 6) as 0 | 1 | 2 | 3];
    this.#hasChecksum = (descriptor & 0x04) !== 0;
    this.#skipBytes =
      (isSingleSegment ? Math.max(1, sizeBytes) : 1 + sizeBytes) +
      DICTIONARY_ID_BYTES[(descriptor & 0x03) as 0 | 1 | 2 | 3];
    this.#step = 'block';
  }

  #readBlockHeader(): void {
    const header = this.#head.readUIntLE(0, BLOCK_HEADER_BYTES);
    const kind = (header >> 1) & 0x03;
    if (kind === RESERVED_BLOCK) throw new DamagedData('a block of it has no known kind');
    this.#skipBytes = kind === RLE_BLOCK ? 1 : header >> 3;
    if ((header & 1) === 0) return;
    this.#step = 'over';
    if (this.#hasChecksum) this.#skipBytes += CHECKSUM_BYTES;
  }
}

/** The names of the codecs that come with Node. */
type ZlibName = 'gzip' | 'zlib' | 'deflate' | 'brotli' | 'zstd';

type Options = nodeZlib.ZlibOptions & nodeZlib.BrotliOptions & nodeZlib.ZstdOptions;
/** The module; before Node 22.15 without zstd, whatever its types say. */
type Zlib = typeof nodeZlib;
type OneShot = (bytes: ByteSource, options: Options) => unknown;
type Numbers = Readonly<Record<CompressionLevel, number>>;

/** The functions and settings of one of these codecs. */
interface ZlibFunctions {
  readonly pack: OneShot;
  readonly unpack: OneShot;
  readonly createPack: (options: Options) => ZlibStream;
  readonly createUnpack: (options: Options) => ZlibStream;
  /** Its numbers for the four levels. */
  readonly levels: Numbers;
  readonly levelOptions: (level: number) => Options;
  readonly unpackOptions: Options;
  readonly packMaxBytes: Numbers;
  readonly unpackMaxBytes: number;
  readonly createFrame?: () => ZstdFrame;
}

const KIB = 1024;
/** Plain bytes per call of the thread pool: with fewer, the call costs more than the work. */
const PACK_STEP_BYTES = 512 * KIB;
const PACK_OUT_BYTES = 128 * KIB;
/** Maximum number of finished streams whose memory is kept for reuse. */
const SPARE_JOINS_MAX = 4;
const UNPACK_OUT_BYTES = 256 * KIB;
const OUT_MIN_BYTES = KIB;
/**
 * 8 MiB, the largest that `best` writes: a hostile frame must not take 128 MiB of memory. Also in
 * docs/reference/body-format.md.
 */
const ZSTD_WINDOW_LOG_MAX = 23;

/** One of these codecs; `ready` throws `config.invalid` on a Node that does not have it. */
export function zlibSource(name: ZlibName, node: Zlib = nodeZlib): CodecSource {
  let codec: Codec | undefined;
  const ready = (): Codec => (codec ??= codecOf(FUNCTIONS_OF[name](node)));
  return { hasLevels: true, ready, load: async () => ready() };
}

const FUNCTIONS_OF = { gzip, zlib, deflate, brotli, zstd };

function codecOf(family: ZlibFunctions): Codec {
  const { levels, levelOptions, createFrame } = family;
  const options = (level: CompressionLevel): Options => levelOptions(levels[level]);
  return {
    packMaxBytes: family.packMaxBytes,
    unpackMaxBytes: family.unpackMaxBytes,
    pack: (plain, level) => pack(family, plain, options(level)),
    sample: (plain) => pack(family, plain, options('fastest')).length,
    packStream: (plain, level) =>
      packStream(family.createPack({ ...options(level), chunkSize: PACK_OUT_BYTES }), plain),
    unpack: (packed, maxBytes) => {
      const frame = createFrame?.();
      frame?.scan(packed);
      frame?.end();
      return unpack(family, packed, maxBytes);
    },
    releasesInput: true,
    unpackStream: (packed) =>
      runStream(
        family.createUnpack({ ...family.unpackOptions, chunkSize: UNPACK_OUT_BYTES }),
        createFrame === undefined ? packed : scanFrame(createFrame(), packed),
      ),
  };
}

const spareJoins: JoinBytes[] = [];

async function* packStream(
  stream: ZlibStream,
  plain: AsyncIterable<ByteSource>,
): AsyncGenerator<ByteSource, void, undefined> {
  const join = spareJoins.pop() ?? createJoin(PACK_STEP_BYTES);
  yield* runStream(stream, pieces(plain, PACK_STEP_BYTES, join));
  // Not if it was stopped early: the other thread may still read this memory.
  if (spareJoins.length < SPARE_JOINS_MAX) spareJoins.push(join);
}

function pack({ pack: call }: ZlibFunctions, plain: ByteSource, options: Options): ByteSource {
  // Text packs to about a quarter: mostly one block of memory, and not a far too large one.
  const chunkSize = Math.max(OUT_MIN_BYTES, plain.length >> 2);
  return call(plain, { ...options, chunkSize }) as ByteSource;
}

function unpack(
  { unpack: call, unpackOptions }: ZlibFunctions,
  packed: ByteSource,
  maxBytes: number,
): ByteSource {
  // One byte more: zlib needs room to notice that it is at the end.
  const chunkSize = Math.max(OUT_MIN_BYTES, maxBytes + 1);
  const maxOutputLength = Math.max(1, maxBytes);
  try {
    const { buffer, engine } = call(packed, {
      ...unpackOptions,
      chunkSize,
      maxOutputLength,
      info: true,
    }) as { readonly buffer: ByteSource; readonly engine: { readonly bytesWritten: number } };
    if (engine.bytesWritten < packed.length) throw new DamagedData('there are bytes after its end');
    if (buffer.length > maxBytes) throw new DamagedData(`it holds more than ${maxBytes} bytes`);
    return buffer;
  } catch (error) {
    if (error instanceof DamagedData) throw error;
    throw new DamagedData(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

async function* scanFrame(
  frame: ZstdFrame,
  packed: AsyncIterable<ByteSource>,
): AsyncGenerator<ByteSource, void, undefined> {
  for await (const piece of packed) {
    frame.scan(piece);
    yield piece;
  }
  frame.end();
}

/**
 * Shared by gzip, zlib and deflate, which differ only in what they put around it. The levels, as
 * those of brotli and zstd below, are also in the text of the option `level` (options.ts).
 */
const DEFLATE = {
  levels: { fastest: 1, default: 6, better: 7, best: 9 },
  levelOptions: (level: number): Options => ({ level }),
  unpackOptions: {},
  packMaxBytes: { fastest: 256 * KIB, default: 128 * KIB, better: 64 * KIB, best: 32 * KIB },
  unpackMaxBytes: 1024 * KIB,
};

function gzip({ gzipSync, gunzipSync, createGzip, createGunzip }: Zlib): ZlibFunctions {
  return {
    ...DEFLATE,
    pack: gzipSync,
    unpack: gunzipSync,
    createPack: createGzip,
    createUnpack: createGunzip,
  };
}

function zlib({ deflateSync, inflateSync, createDeflate, createInflate }: Zlib): ZlibFunctions {
  return {
    ...DEFLATE,
    pack: deflateSync,
    unpack: inflateSync,
    createPack: createDeflate,
    createUnpack: createInflate,
  };
}

function deflate(node: Zlib): ZlibFunctions {
  return {
    ...DEFLATE,
    pack: node.deflateRawSync,
    unpack: node.inflateRawSync,
    createPack: node.createDeflateRaw,
    createUnpack: node.createInflateRaw,
  };
}

function brotli(node: Zlib): ZlibFunctions {
  return {
    pack: node.brotliCompressSync,
    unpack: node.brotliDecompressSync,
    createPack: node.createBrotliCompress,
    createUnpack: node.createBrotliDecompress,
    levels: { fastest: 1, default: 4, better: 6, best: 11 },
    levelOptions: (level) => ({ params: { [node.constants.BROTLI_PARAM_QUALITY]: level } }),
    unpackOptions: {},
    packMaxBytes: { fastest: 256 * KIB, default: 128 * KIB, better: 64 * KIB, best: 2 * KIB },
    unpackMaxBytes: 1024 * KIB,
  };
}

function zstd(node: Zlib): ZlibFunctions {
  const { zstdCompressSync, zstdDecompressSync, createZstdCompress, createZstdDecompress } =
    node as Partial<Zlib>;
  const isHere =
    zstdCompressSync && zstdDecompressSync && createZstdCompress && createZstdDecompress;
  if (!isHere) {
    throw new RespoolError(
      'config.invalid',
      `cannot use zstd: this Node (${process.versions.node}) does not have it; ` +
        'use Node 22.15 or newer, or another compression',
    );
  }
  const { ZSTD_c_compressionLevel, ZSTD_c_checksumFlag, ZSTD_d_windowLogMax } = node.constants;
  return {
    pack: zstdCompressSync,
    unpack: zstdDecompressSync,
    createPack: createZstdCompress,
    createUnpack: createZstdDecompress,
    levels: { fastest: 1, default: 3, better: 7, best: 19 },
    levelOptions: (level) => ({
      params: { [ZSTD_c_compressionLevel]: level, [ZSTD_c_checksumFlag]: 1 },
    }),
    unpackOptions: { params: { [ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG_MAX } },
    packMaxBytes: { fastest: 1024 * KIB, default: 1024 * KIB, better: 128 * KIB, best: 4 * KIB },
    unpackMaxBytes: 1024 * KIB,
    createFrame: () => new ZstdFrame(),
  };
}

// A zlib stream of Node, driven step by step by the reader of the result.
//
//   write(piece) ─▶ outputs until the piece is processed ─▶ next piece … end() ─▶ last outputs
//
// Nothing runs ahead of the reader: until it asks for the next output, no input is requested. So
// stopping early, at any output, leaves neither a pending read nor an open handle.

/** A stream of node:zlib. */
type ZlibStream = Transform & { readonly bytesWritten: number };

/** Sends pieces through the stream; destroys it at the end, also after an error or early stop. */
async function* runStream(
  stream: ZlibStream,
  input: AsyncIterable<ByteSource>,
): AsyncGenerator<ByteSource, void, undefined> {
  const engine = new ZlibStreamState(stream);
  let givenBytes = 0;
  try {
    for await (const piece of input) {
      givenBytes += piece.length;
      engine.write(piece);
      for (let out = await engine.next(); out !== undefined; out = await engine.next()) yield out;
      if (engine.isEnded) throw new DamagedData('there are bytes after its end');
    }
    engine.end();
    for (let out = await engine.next(); out !== undefined; out = await engine.next()) yield out;
    if (stream.bytesWritten < givenBytes) throw new DamagedData('there are bytes after its end');
  } finally {
    stream.destroy();
  }
}

/** A stream, and its state by its events. */
class ZlibStreamState {
  readonly #stream: ZlibStream;
  #error: Error | undefined;
  #isBusy = false;
  #isEnded = false;
  #wake: (() => void) | undefined;

  constructor(stream: ZlibStream) {
    this.#stream = stream;
    stream.on('readable', () => this.#resume());
    stream.on('end', () => {
      this.#isEnded = true;
      this.#resume();
    });
    // Never removed: a failure after we have stopped must not end the process.
    stream.on('error', (error) => {
      this.#error ??= error;
      this.#resume();
    });
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  write(piece: ByteSource): void {
    this.#isBusy = true;
    this.#stream.write(piece, () => {
      this.#isBusy = false;
      this.#resume();
    });
  }

  end(): void {
    // From now on only the end of the stream ends the wait.
    this.#isBusy = true;
    this.#stream.end();
  }

  /** The next output; undefined if the piece is processed or the stream has ended. */
  async next(): Promise<ByteSource | undefined> {
    for (;;) {
      if (this.#error !== undefined) {
        throw new DamagedData(this.#error.message, { cause: this.#error });
      }
      const out: unknown = this.#stream.read();
      if (out instanceof Uint8Array) return out;
      // n.b. zlib ends its stream, and never calls back, when bytes follow the compressed data.
      if (this.#isEnded || !this.#isBusy) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #resume(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
