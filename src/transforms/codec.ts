/**
 * codec — the interface of compression codecs (`Codec`), and what they share: cutting and joining
 * streams, codecs that pack block by block (`blockCodec`: snappy, lz4), and loading their packages.
 *
 * A codec knows bytes, not messages: for bytes that it cannot read it throws `DamagedData`, and
 * compress.ts adds whose body it was. Promise: a codec holds at most a MiB of a stream's input,
 * besides the window of its algorithm, however long the stream is.
 */

import { RespoolError } from '../core/errors.ts';
import { importPeer } from '../system/peer.ts';
import { EventLoopTurns } from './event-loop.ts';
import type { CompressionLevel } from './options.ts';

/**
 * Compressed bytes are passed to a decoder in steps of this size; ratios are measured per step.
 * Stored ratios depend on it, and docs/reference/body-format.md has it.
 */
export const STEP_BYTES: number = 64 * 1024;

/** A piece of a compressed or plain stream. */
export type ByteSource = Uint8Array;

/** A codec that is ready to work: optional packages are loaded. */
export interface Codec {
  /** Compresses a whole body in the calling thread. */
  pack(plain: ByteSource, level: CompressionLevel): ByteSource;
  /**
   * Up to this size `pack` takes about 2 ms on a machine of the year 2020; larger bodies stream.
   */
  readonly packMaxBytes: Readonly<Record<CompressionLevel, number>>;
  /** When it asks for more, it still reads at most the last MiB of its input. */
  packStream(plain: AsyncIterable<ByteSource>, level: CompressionLevel): AsyncIterable<ByteSource>;
  /** The approximate compressed size of a part of a body, at the fastest level. */
  sample(plain: ByteSource): number;
  /** Decompresses a whole body in the calling thread; more than `maxBytes` is damage. */
  unpack(packed: ByteSource, maxBytes: number): ByteSource;
  /** Up to this plain size `unpack` takes about 2 ms. */
  readonly unpackMaxBytes: number;
  /** Takes pieces of `STEP_BYTES`; hands out pieces of less than a MiB. */
  unpackStream(packed: AsyncIterable<ByteSource>): AsyncIterable<ByteSource>;
  /** Whether `unpackStream` returns no part of a piece, nor reads it once it asks for the next. */
  readonly releasesInput: boolean;
}

/** How to get a codec: at once, or after loading its package. */
export interface CodecSource {
  readonly hasLevels: boolean;
  /** Undefined until `load` has resolved. */
  ready(): Codec | undefined;
  load(): Promise<Codec>;
}

/** The bytes cannot be what our writer wrote. */
export class DamagedData extends Error {
  override readonly name = 'DamagedData';
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

// Cutting and joining streams to the sizes that codecs work with.
/** Bytes processed in the calling thread before the event loop turns: about 3 ms. */
export const CODEC_TURN_BYTES: number = 2 * 1024 * 1024;

/** Joins several pieces to one. */
export type JoinBytes = (parts: readonly ByteSource[]) => ByteSource;

/** Pieces of exactly `pieceBytes`, the last one shorter; none for an empty stream. */
export async function* pieces(
  stream: AsyncIterable<ByteSource>,
  pieceBytes: number,
  join: JoinBytes = joinBytes,
): AsyncGenerator<ByteSource, void, undefined> {
  let held: ByteSource[] = [];
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

/** Called with every part that is read. */
type OnPart = (part: ByteSource) => void;

/** Pieces of `pieceBytes` of bytes that are whole in memory. */
export async function* slices(
  bytes: ByteSource,
  pieceBytes: number,
  onPart?: OnPart,
): AsyncGenerator<ByteSource, void, undefined> {
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const part = bytes.subarray(at, at + pieceBytes);
    onPart?.(part);
    yield part;
  }
}

/** The parts that were read already, then the rest of the iteration. */
export async function* resumeStream(
  begun: readonly ByteSource[],
  rest: AsyncIterator<ByteSource>,
  onPart?: OnPart,
): AsyncGenerator<ByteSource, void, undefined> {
  let isOver = false;
  try {
    for (const part of begun) {
      onPart?.(part);
      yield part;
    }
    for (;;) {
      const { done, value } = await onRejection(rest.next(), () => (isOver = true));
      if (done === true) {
        isOver = true;
        return;
      }
      onPart?.(value);
      yield value;
    }
  } finally {
    // If the reader stops early, the source is ended, so that it can close its handles.
    if (!isOver) await rest.return?.();
  }
}

/** Reads to the end, or until it has more than `maxBytes`. */
export async function readUpTo(
  stream: AsyncIterator<ByteSource>,
  maxBytes: number,
): Promise<{ readonly held: ByteSource[]; readonly isWhole: boolean }> {
  const held: ByteSource[] = [];
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

/** All bytes of a stream as one piece. */
export async function collectBytes(stream: AsyncIterable<ByteSource>): Promise<ByteSource> {
  const held: ByteSource[] = [];
  for await (const part of stream) held.push(part);
  return joinBytes(held);
}

/** All parts as one piece; a single part is not copied. */
export function joinBytes(parts: readonly ByteSource[]): ByteSource {
  const [first] = parts;
  return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
}

/** Joins in reused memory: only where a joined piece is not read once the next one is made. */
export function createJoin(maxBytes: number): JoinBytes {
  let memory: Buffer | undefined;
  return (parts) => {
    if (parts.length === 1) return joinBytes(parts);
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
export function bufferOf(bytes: ByteSource): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Calls back if the promise rejects: an iterator that failed must not be asked to return. */
async function onRejection<T>(promise: Promise<T>, onFailure: () => void): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    onFailure();
    throw error;
  }
}

// Codecs whose packages pack only whole blocks: snappy and lz4.
//
// A stream is a sequence of blocks of 64 KiB plain bytes, packed one by one in the calling thread,
// with turns of the event loop between them; snappy has another `packStream`. The format says how a
// sequence begins and ends.

/** Plain bytes of every block but the last. Also in docs/reference/body-format.md. */
export const CODEC_BLOCK_BYTES: number = 64 * 1024;

/** About 1 ms of work in one call. Above this, a stream is as fast and copies less. */
const PACK_MAX_BYTES = 256 * 1024;
const UNPACK_MAX_BYTES = 512 * 1024;

const NOTHING = Buffer.alloc(0);

/** How blocks are written and read. */
export interface BlockFormat {
  /** The bytes before the first block; may be empty. */
  readonly head: ByteSource;
  pack(plain: Buffer): ByteSource;
  /** The bytes that mark the end; may be empty. */
  tail(isLastFull: boolean): ByteSource;
  sample(plain: Buffer): number;
  createReader(): BlockReader;
}

/** Reads a sequence of blocks. */
export interface BlockReader {
  /** The length of the first block; undefined if more bytes are needed to know it. */
  measure(packed: Buffer): number | undefined;
  /** The plain bytes of a block; may be none. */
  read(part: Buffer): ByteSource;
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
    // Blocks that are stored uncompressed are returned as parts of the input.
    releasesInput: false,
  };
}

function pack(format: BlockFormat, plain: Buffer): ByteSource {
  const parts: ByteSource[] = [format.head];
  for (let at = 0; at < plain.length; at += CODEC_BLOCK_BYTES) {
    parts.push(format.pack(plain.subarray(at, at + CODEC_BLOCK_BYTES)));
  }
  parts.push(format.tail(plain.length % CODEC_BLOCK_BYTES === 0));
  return joinBytes(parts.filter((part) => part.length > 0));
}

async function* packStream(
  format: BlockFormat,
  plain: AsyncIterable<ByteSource>,
): AsyncGenerator<ByteSource, void, undefined> {
  const turns = new EventLoopTurns(CODEC_TURN_BYTES);
  let isLastFull = true;
  // Together with the first block: a reader that stops there can only close a source that has
  // begun.
  let head = format.head;
  for await (const block of pieces(plain, CODEC_BLOCK_BYTES)) {
    isLastFull = block.length === CODEC_BLOCK_BYTES;
    const packed = format.pack(bufferOf(block));
    yield head.length === 0 ? packed : Buffer.concat([head, packed]);
    head = NOTHING;
    await turns.after(block.length);
  }
  const end = joinBytes([head, format.tail(isLastFull)]);
  if (end.length > 0) yield end;
}

function unpack(format: BlockFormat, packed: ByteSource, maxBytes: number): ByteSource {
  const row = new BlockQueue(format.createReader());
  const parts: ByteSource[] = [];
  let plainBytes = 0;
  row.push(packed);
  for (let part = row.next(); part !== undefined; part = row.next()) {
    plainBytes += part.length;
    if (plainBytes > maxBytes) throw new DamagedData(`it holds more than ${maxBytes} bytes`);
    parts.push(part);
  }
  row.end();
  return joinBytes(parts);
}

async function* unpackStream(
  format: BlockFormat,
  packed: AsyncIterable<ByteSource>,
): AsyncGenerator<ByteSource, void, undefined> {
  const row = new BlockQueue(format.createReader());
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

/** Bytes that have come, cut into blocks. */
class BlockQueue {
  readonly #reader: BlockReader;
  #rest: Buffer = Buffer.alloc(0);

  constructor(reader: BlockReader) {
    this.#reader = reader;
  }

  push(piece: ByteSource): void {
    this.#rest = bufferOf(this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece]));
  }

  /** The next plain bytes; undefined when more has to come. */
  next(): ByteSource | undefined {
    while (this.#rest.length > 0) {
      if (this.#reader.isOver) throw new DamagedData('there are bytes after its end');
      const length = this.#reader.measure(this.#rest);
      if (length === undefined || length > this.#rest.length) return undefined;
      const plain = this.#reader.read(this.#rest.subarray(0, length));
      this.#rest = this.#rest.subarray(length);
      if (plain.length > 0) return plain;
    }
    return undefined;
  }

  end(): void {
    if (this.#rest.length > 0 || !this.#reader.isOver) throw new DamagedData('it ends too early');
  }
}

// Loading the optional packages of compression: snappy and lz4-napi.

/** Packs a stream into frames. */
interface SnappyCompressor {
  update(plain: Uint8Array): Buffer;
  finish(): Promise<Buffer>;
}

/** The part of the package `snappy` that is used. */
export interface SnappyPackage {
  readonly Compressor: new () => SnappyCompressor;
  compressSync(plain: Buffer, options: { readonly copyOutputData: boolean }): Buffer;
  uncompressSync(
    packed: Buffer,
    options: { readonly asBuffer: boolean; readonly copyOutputData: boolean },
  ): Buffer;
}

/** The part of the package `lz4-napi` that is used. */
export interface Lz4Package {
  compressFrameSync(plain: Buffer, options: { readonly contentChecksum: boolean }): Buffer;
  decompressFrameSync(packed: Buffer): Buffer;
}

/** Loads `snappy`; `peer.missing` where it is not installed. */
export function loadSnappy(): Promise<SnappyPackage> {
  return load<SnappyPackage>('snappy', ['Compressor', 'compressSync', 'uncompressSync']);
}

/** Loads `lz4-napi`; `peer.missing` where it is not installed. */
export function loadLz4(): Promise<Lz4Package> {
  return load<Lz4Package>('lz4-napi', ['compressFrameSync', 'decompressFrameSync']);
}

/** Checks the functions, so that an old release fails now and not with the first body. */
async function load<T>(packageName: string, needed: readonly string[]): Promise<T> {
  const loaded = await importPeer(packageName, `compression with ${packageName}`);
  const missing = needed.find((name) => typeof loaded[name] !== 'function');
  if (missing === undefined) return loaded as T;
  throw new RespoolError(
    'peer.missing',
    `cannot use compression with ${packageName}: the installed package has no "${missing}"; ` +
      `run: npm install ${packageName}@latest`,
  );
}
