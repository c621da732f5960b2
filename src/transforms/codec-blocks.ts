/**
 * codec-blocks — codecs whose package knows whole blocks only: snappy and lz4.
 *
 * A stream is a row of blocks of 64 KiB plain bytes, packed one by one in the calling thread with
 * turns of the event loop in between. How a row begins, and how it says that it is over, is the
 * format's.
 */

import { type Bytes, type Codec, Damaged } from './codec.ts';
import { bufferOf, CODEC_TURN_BYTES, joined, pieces } from './codec-pieces.ts';
import { EventLoopTurns } from './event-loop.ts';

/** Plain bytes of every block but the last. */
export const BLOCK_BYTES: number = 64 * 1024;

/** So much in one go: about 1 ms of work. Above, a stream is as quick and copies less. */
const PACK_MAX_BYTES = 256 * 1024;
const UNPACK_MAX_BYTES = 512 * 1024;

const NOTHING = Buffer.alloc(0);

/** How blocks are written and read. */
export interface BlockFormat {
  /** What stands before the first block; may be empty. */
  readonly head: Bytes;
  pack(plain: Buffer): Bytes;
  /** What says that the row is over; may be empty. */
  tail(isLastFull: boolean): Bytes;
  sample(plain: Buffer): number;
  createReader(): BlockReader;
}

/** Walks along a row of blocks. */
export interface BlockReader {
  /** How long the part at the front is; undefined where more bytes are needed to tell. */
  measure(packed: Buffer): number | undefined;
  /** The plain bytes of such a part; may be none. */
  read(part: Buffer): Bytes;
  /** True when nothing may follow. */
  readonly isOver: boolean;
}

/** The codec of a format. */
export function blockCodec(format: BlockFormat): Codec {
  const all = PACK_MAX_BYTES;
  return {
    packMaxBytes: { fastest: all, default: all, better: all, best: all },
    unpackMaxBytes: UNPACK_MAX_BYTES,
    pack: (plain) => pack(format, bufferOf(plain)),
    sample: (plain) => format.sample(bufferOf(plain)),
    packStream: (plain) => packStream(format, plain),
    unpack: (packed, maxBytes) => unpack(format, packed, maxBytes),
    unpackStream: (packed) => unpackStream(format, packed),
    // What was stored as it is comes out as it is.
    isDoneWithPieces: false,
  };
}

function pack(format: BlockFormat, plain: Buffer): Bytes {
  const parts: Bytes[] = [format.head];
  for (let at = 0; at < plain.length; at += BLOCK_BYTES) {
    parts.push(format.pack(plain.subarray(at, at + BLOCK_BYTES)));
  }
  parts.push(format.tail(plain.length % BLOCK_BYTES === 0));
  return joined(parts.filter((part) => part.length > 0));
}

async function* packStream(
  format: BlockFormat,
  plain: AsyncIterable<Bytes>,
): AsyncGenerator<Bytes, void, undefined> {
  const turns = new EventLoopTurns(CODEC_TURN_BYTES);
  let isLastFull = true;
  // With the first block: who stops at an output must find the source begun, to close it.
  let head = format.head;
  for await (const block of pieces(plain, BLOCK_BYTES)) {
    isLastFull = block.length === BLOCK_BYTES;
    const packed = format.pack(bufferOf(block));
    yield head.length === 0 ? packed : Buffer.concat([head, packed]);
    head = NOTHING;
    await turns.after(block.length);
  }
  const end = joined([head, format.tail(isLastFull)]);
  if (end.length > 0) yield end;
}

function unpack(format: BlockFormat, packed: Bytes, maxBytes: number): Bytes {
  const row = new Row(format.createReader());
  const parts: Bytes[] = [];
  let plainBytes = 0;
  row.push(packed);
  for (let part = row.next(); part !== undefined; part = row.next()) {
    plainBytes += part.length;
    if (plainBytes > maxBytes) throw new Damaged(`it holds more than ${maxBytes} bytes`);
    parts.push(part);
  }
  row.end();
  return joined(parts);
}

async function* unpackStream(
  format: BlockFormat,
  packed: AsyncIterable<Bytes>,
): AsyncGenerator<Bytes, void, undefined> {
  const row = new Row(format.createReader());
  const turns = new EventLoopTurns(CODEC_TURN_BYTES);
  for await (const piece of packed) {
    row.push(piece);
    for (let part = row.next(); part !== undefined; part = row.next()) {
      yield part;
      await turns.after(part.length);
    }
  }
  row.end();
}

/** What has come and is not read yet. */
class Row {
  readonly #reader: BlockReader;
  #rest: Buffer = Buffer.alloc(0);

  constructor(reader: BlockReader) {
    this.#reader = reader;
  }

  push(piece: Bytes): void {
    this.#rest = bufferOf(this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece]));
  }

  /** The next plain bytes; undefined when more has to come. */
  next(): Bytes | undefined {
    while (this.#rest.length > 0) {
      if (this.#reader.isOver) throw new Damaged('there are bytes after its end');
      const length = this.#reader.measure(this.#rest);
      if (length === undefined || length > this.#rest.length) return undefined;
      const plain = this.#reader.read(this.#rest.subarray(0, length));
      this.#rest = this.#rest.subarray(length);
      if (plain.length > 0) return plain;
    }
    return undefined;
  }

  end(): void {
    if (this.#rest.length > 0 || !this.#reader.isOver) throw new Damaged('it ends too early');
  }
}
