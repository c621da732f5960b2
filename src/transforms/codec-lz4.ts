/**
 * codec-lz4 — compression with LZ4: a sequence of frames with checksums, each of 64 KiB plain
 * bytes, the last one shorter.
 *
 * The package has no streams, and reads only the first of several frames. So we find the ends of
 * frames ourselves. The last frame is always shorter, empty if necessary: by this, a body that is
 * cut between two frames is detected. Tools that read several frames in a row, such as `lz4 -d`,
 * read the sequence.
 */

import { textOf } from '../core/errors.ts';
import {
  CODEC_BLOCK_BYTES,
  blockCodec,
  type BlockFormat,
  type BlockReader,
  type ByteSource,
  type CodecSource,
  DamagedData,
  lazySource,
  loadLz4,
  type Lz4Package,
} from './codec.ts';

const MAGIC = 0x184d2204;
/** Magic, flags, block size and the checksum of the header. */
const HEADER_BYTES = 7;
const CHECKSUM_BYTES = 4;
const SIZE_BYTES = 4;
const CONTENT_SIZE_BYTES = 8;
const VERSION = 0x40;
const VERSION_MASK = 0xc0;
const HAS_BLOCK_CHECKSUM = 0x10;
const HAS_CONTENT_SIZE = 0x08;
const HAS_CONTENT_CHECKSUM = 0x04;
const HAS_DICTIONARY = 0x01;
/** As CODEC_BLOCK_BYTES of codec.ts and docs/reference/body-format.md say. */
const BLOCK_OF_64_KIB = 0x40;
/** More than our writer makes of 64 KiB, and few enough to be unpacked without risk. */
const BLOCKS_MAX = 4;
const NOTHING = Buffer.alloc(0);

/** `load` is a parameter only for tests. */
export function lz4Source(load: () => Promise<Lz4Package> = loadLz4): CodecSource {
  return lazySource(async () => blockCodec(formatOf(await load())));
}

function formatOf(lz4: Lz4Package): BlockFormat {
  const pack = (plain: Buffer): Buffer => lz4.compressFrameSync(plain, { contentChecksum: true });
  const empty = pack(NOTHING);
  return {
    head: NOTHING,
    pack,
    tail: (isLastFull) => (isLastFull ? empty : NOTHING),
    sample: (plain) => pack(plain).length,
    createReader: () => new Lz4Reader(lz4, empty),
  };
}

class Lz4Reader implements BlockReader {
  readonly #lz4: Lz4Package;
  /** An empty frame. */
  readonly #empty: Buffer;
  #isOver = false;

  constructor(lz4: Lz4Package, empty: Buffer) {
    this.#lz4 = lz4;
    this.#empty = empty;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  measure(packed: Buffer): number | undefined {
    if (packed.length < HEADER_BYTES) return undefined;
    const flags = checkHeader(packed);
    const blockChecksumBytes = flags & HAS_BLOCK_CHECKSUM ? CHECKSUM_BYTES : 0;
    let at = HEADER_BYTES + (flags & HAS_CONTENT_SIZE ? CONTENT_SIZE_BYTES : 0);
    for (let blocks = 0; blocks <= BLOCKS_MAX; blocks += 1) {
      if (packed.length < at + SIZE_BYTES) return undefined;
      // The highest bit says that the block is stored as it is.
      const blockBytes = packed.readUInt32LE(at) & 0x7fffffff;
      at += SIZE_BYTES;
      if (blockBytes === 0) return at + CHECKSUM_BYTES;
      if (blockBytes > CODEC_BLOCK_BYTES) throw new DamagedData('a block of it is too long');
      at += blockBytes + blockChecksumBytes;
    }
    throw new DamagedData('a frame of it has too many blocks');
  }

  read(frame: Buffer): ByteSource {
    // A body of just 64 KiB ends with one; a call for it would cost a tenth of its time.
    const plain = frame.equals(this.#empty) ? NOTHING : this.#unpack(frame);
    if (plain.length > CODEC_BLOCK_BYTES) throw new DamagedData('a frame of it is too long');
    this.#isOver = plain.length < CODEC_BLOCK_BYTES;
    return plain;
  }

  #unpack(frame: Buffer): ByteSource {
    try {
      return this.#lz4.decompressFrameSync(frame);
    } catch (error) {
      throw new DamagedData(textOf(error), { cause: error });
    }
  }
}

/** The flags of a frame that our writer could have written. */
function checkHeader(packed: Buffer): number {
  const flags = packed[4] ?? 0;
  const isOurs =
    packed.readUInt32LE(0) === MAGIC &&
    (flags & VERSION_MASK) === VERSION &&
    (flags & HAS_CONTENT_CHECKSUM) !== 0 &&
    (flags & HAS_DICTIONARY) === 0 &&
    packed[5] === BLOCK_OF_64_KIB;
  if (!isOurs) throw new DamagedData('a frame of it does not begin as ours do');
  return flags;
}
