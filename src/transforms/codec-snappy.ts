/**
 * codec-snappy — compression in the snappy framing format, which readers of S2 read too; and its
 * checksum, CRC-32C.
 *
 *   identifier, then chunks of up to 64 KiB plain bytes, then one empty chunk of padding
 *
 * The format: docs/reference/body-format.md. We add the padding: other readers skip it, and without
 * it a stream that is cut between two chunks would look whole. Reading is done here, because the
 * package starts a thread for each body; so is writing of whole bodies, which the package does only
 * asynchronously.
 */

import { endianness } from 'node:os';
import { textOf } from '../core/errors.ts';
import {
  CODEC_BLOCK_BYTES,
  blockCodec,
  type BlockFormat,
  type BlockReader,
  bufferOf,
  type ByteSource,
  CODEC_TURN_BYTES,
  type CodecSource,
  createJoin,
  DamagedData,
  lazySource,
  loadSnappy,
  type SnappyPackage,
} from './codec.ts';
import { EventLoopTurns } from './event-loop.ts';

const IDENTIFIER = Buffer.from('\xff\x06\x00\x00sNaPpY', 'latin1');
const END = Buffer.from('\xfe\x00\x00\x00', 'latin1');
const NOTHING = Buffer.alloc(0);
const COMPRESSED = 0x00;
const STORED = 0x01;
const HEADER_BYTES = 4;
const CHECKSUM_BYTES = 4;
/** The size of one call, about 1.5 ms of work: fewer calls are faster, longer ones block others. */
const UPDATE_MAX_BYTES = 1024 * 1024;
/** The longest chunk: by how much snappy lengthens bytes that do not compress. */
const CHUNK_MAX_BYTES: number =
  CHECKSUM_BYTES + 32 + CODEC_BLOCK_BYTES + Math.ceil(CODEC_BLOCK_BYTES / 6);

/** `load` is a parameter only for tests. */
export function snappySource(load: () => Promise<SnappyPackage> = loadSnappy): CodecSource {
  return lazySource(async () => {
    const snappy = await load();
    const format = formatOf(snappy);
    return { ...blockCodec(format), packStream: (plain) => packStream(snappy, format, plain) };
  });
}

/** n.b. All streams share this memory: nothing is awaited between joining and packing. */
const join = createJoin(UPDATE_MAX_BYTES);

/**
 * Packs a stream with the package's own class, whose checksum is faster. n.b. The class compresses
 * a chunk only if that saves an eighth, `pack` of the format if it saves a byte; so a long body
 * that saves 5 to 12.5 % is recorded as snappy, but stored in uncompressed chunks. Its finish()
 * uses another thread, so it is called only if the class still holds bytes; a short rest is never
 * passed to it.
 */
async function* packStream(
  snappy: SnappyPackage,
  format: BlockFormat,
  plain: AsyncIterable<ByteSource>,
): AsyncGenerator<ByteSource, void, undefined> {
  const compressor = new snappy.Compressor();
  const turns = new EventLoopTurns(CODEC_TURN_BYTES);
  // The class writes the identifier itself, before its first chunk.
  let head: ByteSource = IDENTIFIER;
  let keptBytes = 0;
  const pack = (bytes: ByteSource): ByteSource => {
    const packed = bufferOf(compressor.update(bytes));
    if (packed.length > 0) head = NOTHING;
    keptBytes += bytes.length - plainBytesOf(packed);
    return packed;
  };
  let held: ByteSource[] = [];
  let heldBytes = 0;
  for await (const part of plain) {
    for (let at = 0; at < part.length; ) {
      const piece = part.subarray(at, at + UPDATE_MAX_BYTES - heldBytes);
      held.push(piece);
      heldBytes += piece.length;
      at += piece.length;
      if (heldBytes < UPDATE_MAX_BYTES) continue;
      const packed = pack(join(held));
      held = [];
      heldBytes = 0;
      if (packed.length > 0) yield packed;
      await turns.after(UPDATE_MAX_BYTES);
    }
  }
  const isShort = heldBytes <= CODEC_BLOCK_BYTES && keptBytes === 0;
  const long = isShort ? NOTHING : pack(join(held));
  const kept = keptBytes === 0 ? NOTHING : await compressor.finish();
  if (kept.length > 0) head = NOTHING;
  const short = isShort && heldBytes > 0 ? format.pack(bufferOf(join(held))) : NOTHING;
  yield Buffer.concat([head, long, kept, short, END]);
}

/** The number of plain bytes in written chunks. */
function plainBytesOf(chunks: Buffer): number {
  let bytes = 0;
  for (let at = 0; at < chunks.length; ) {
    const dataBytes = chunks.readUIntLE(at + 1, 3);
    const data = chunks.subarray(at + HEADER_BYTES + CHECKSUM_BYTES, at + HEADER_BYTES + dataBytes);
    if (chunks[at] === STORED) bytes += data.length;
    else if (chunks[at] === COMPRESSED) bytes += claimedBytes(data);
    at += HEADER_BYTES + dataBytes;
  }
  return bytes;
}

function formatOf(snappy: SnappyPackage): BlockFormat {
  const checksum = createChecksum();
  // n.b. Copying is faster: taking over memory of the package costs five times as much.
  const compress = (plain: Buffer): Buffer => snappy.compressSync(plain, { copyOutputData: true });
  return {
    head: IDENTIFIER,
    tail: () => END,
    sample: (plain) => compress(plain).length,
    pack: (plain) => {
      const packed = compress(plain);
      const isSmaller = packed.length < plain.length;
      const data = isSmaller ? packed : plain;
      const chunk = Buffer.allocUnsafe(HEADER_BYTES + CHECKSUM_BYTES + data.length);
      chunk[0] = isSmaller ? COMPRESSED : STORED;
      chunk.writeUIntLE(CHECKSUM_BYTES + data.length, 1, 3);
      chunk.writeUInt32LE(checksum(plain), HEADER_BYTES);
      chunk.set(data, HEADER_BYTES + CHECKSUM_BYTES);
      return chunk;
    },
    createReader: () => new SnappyReader(snappy, checksum),
  };
}

class SnappyReader implements BlockReader {
  readonly #snappy: SnappyPackage;
  readonly #checksum: (bytes: ByteSource) => number;
  #isBegun = false;
  #isOver = false;

  constructor(snappy: SnappyPackage, checksum: (bytes: ByteSource) => number) {
    this.#snappy = snappy;
    this.#checksum = checksum;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  measure(packed: Buffer): number | undefined {
    if (packed.length < HEADER_BYTES) return undefined;
    const dataBytes = packed.readUIntLE(1, 3);
    if (dataBytes > CHUNK_MAX_BYTES) throw new DamagedData('a chunk of it is too long');
    return HEADER_BYTES + dataBytes;
  }

  read(part: Buffer): ByteSource {
    if (!this.#isBegun) {
      if (!part.equals(IDENTIFIER)) throw new DamagedData('it does not begin as snappy does');
      this.#isBegun = true;
      return NOTHING;
    }
    if (part.equals(END)) {
      this.#isOver = true;
      return NOTHING;
    }
    const kind = part[0];
    const isKnown = kind === COMPRESSED || kind === STORED;
    if (!isKnown || part.length < HEADER_BYTES + CHECKSUM_BYTES) {
      throw new DamagedData('a chunk of it has no known kind');
    }
    const data = part.subarray(HEADER_BYTES + CHECKSUM_BYTES);
    const plain = kind === STORED ? data : this.#unpack(data);
    if (plain.length > CODEC_BLOCK_BYTES) throw new DamagedData('a chunk of it is too long');
    if (this.#checksum(plain) !== part.readUInt32LE(HEADER_BYTES)) {
      throw new DamagedData('a checksum in it does not fit');
    }
    return plain;
  }

  #unpack(data: Buffer): ByteSource {
    // The package reserves what the data claim: a hostile claim must not reach it.
    if (claimedBytes(data) > CODEC_BLOCK_BYTES) throw new DamagedData('a chunk of it is too long');
    try {
      return this.#snappy.uncompressSync(data, { asBuffer: true, copyOutputData: true });
    } catch (error) {
      throw new DamagedData(textOf(error), { cause: error });
    }
  }
}

/** The plain length that compressed data begin with: seven bits a byte, the lowest first. */
function claimedBytes(data: Buffer): number {
  let bytes = 0;
  for (let at = 0; at < 3; at += 1) {
    const byte = data[at] ?? 0;
    bytes += (byte & 0x7f) * 2 ** (7 * at);
    if (byte < 0x80) return bytes;
  }
  return Number.POSITIVE_INFINITY;
}

// The checksum of the snappy framing format (CRC-32C, Castagnoli).
//
// Node has only the other CRC-32. Sixteen bytes a step by sixteen tables: 1.3 GB/s, against 0.7
// with eight bytes read one by one.

/** The reversed polynomial. */
const POLYNOMIAL = 0x82f63b78;
const MASK_DELTA = 0xa282ead8;
const STEP_WORDS = 4;
const WORD_BYTES = 4;
const STEP_BYTES: number = STEP_WORDS * WORD_BYTES;
const TABLES = 16;

/** A function that gives the masked checksum, as the format stores it. */
function createChecksum(): (bytes: ByteSource) => number {
  const steps = createSteps();
  const { first } = steps;
  // The steps take words as they lie in memory, the lowest byte first.
  const canStep = endianness() === 'LE';
  return (bytes) => {
    // Words can be read only if they are aligned; otherwise a copy is faster.
    const aligned = bytes.byteOffset % WORD_BYTES === 0 ? bytes : new Uint8Array(bytes);
    const stepCount = canStep ? Math.floor(aligned.length / STEP_BYTES) : 0;
    const words = new Int32Array(aligned.buffer, aligned.byteOffset, stepCount * STEP_WORDS);
    let crc = steps.run(words);
    for (let at = words.byteLength; at < bytes.length; at += 1) {
      crc = (first[(crc ^ (bytes[at] ?? 0)) & 0xff] ?? 0) ^ (crc >>> 8);
    }
    const sum = ~crc >>> 0;
    return (((sum >>> 15) | (sum << 17)) + MASK_DELTA) >>> 0;
  };
}

/** The checksum over whole steps. */
function createSteps(): {
  readonly first: Int32Array;
  readonly run: (words: Int32Array) => number;
} {
  const tables = createTables();
  const [t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15] = tables;
  // Without a loop over the tables, because that is faster.
  /* oxlint-disable typescript/no-non-null-assertion -- every index is below 256 or the length. */
  const run = (words: Int32Array): number => {
    let crc = -1;
    for (let at = 0; at < words.length; at += STEP_WORDS) {
      const a = words[at]! ^ crc;
      const b = words[at + 1]!;
      const c = words[at + 2]!;
      const d = words[at + 3]!;
      crc =
        t15![a & 0xff]! ^
        t14![(a >>> 8) & 0xff]! ^
        t13![(a >>> 16) & 0xff]! ^
        t12![a >>> 24]! ^
        t11![b & 0xff]! ^
        t10![(b >>> 8) & 0xff]! ^
        t9![(b >>> 16) & 0xff]! ^
        t8![b >>> 24]! ^
        t7![c & 0xff]! ^
        t6![(c >>> 8) & 0xff]! ^
        t5![(c >>> 16) & 0xff]! ^
        t4![c >>> 24]! ^
        t3![d & 0xff]! ^
        t2![(d >>> 8) & 0xff]! ^
        t1![(d >>> 16) & 0xff]! ^
        t0![d >>> 24]!;
    }
    return crc;
  };
  return { first: t0!, run };
  /* oxlint-enable typescript/no-non-null-assertion */
}

function createTables(): readonly Int32Array[] {
  const first = new Int32Array(256);
  for (let byte = 0; byte < 256; byte += 1) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
    first[byte] = crc;
  }
  const tables = [first];
  for (let table = first; tables.length < TABLES; tables.push(table)) {
    // Each table is the one before, moved on by one zero byte.
    table = table.map((crc) => (crc >>> 8) ^ (first[crc & 0xff] ?? 0));
  }
  return tables;
}
