/** compress-setup — bodies, chunkings and short ways through compression, for its tests. */
import fc from 'fast-check';
import { isRespoolError, type ErrorCode } from 'respool';
import { compress, readCompressed } from 'respool/transforms';
import type { CompressionCodec, CompressionLevel, CompressOptions } from 'respool/transforms';
import { expect } from 'vitest';

export const KIB = 1024;
export const MIB: number = 1024 * KIB;
export const CODECS = [
  'gzip',
  'zlib',
  'deflate',
  'brotli',
  'zstd',
  'snappy',
  'lz4',
] as const satisfies readonly CompressionCodec[];
export const LEVELED: readonly CompressionCodec[] = ['gzip', 'zlib', 'deflate', 'brotli', 'zstd'];
export const LEVELS = [
  'fastest',
  'default',
  'better',
  'best',
] as const satisfies readonly CompressionLevel[];

/** A way that bytes take: through memory or through a stream. */
export const WAYS = ['bytes', 'stream'] as const;
export type Way = (typeof WAYS)[number];

/** A body as it lies in a store. */
export interface Stored {
  readonly encoding: string;
  readonly bytes: Buffer;
}

const { RESPOOL_PROPERTY_RUNS: runs, RESPOOL_PROPERTY_SEED: seed } = process.env;
const RUNS_DEFAULT = 1_000;

/** Tries a property so many times, more or less by RESPOOL_PROPERTY_RUNS. */
export function tries(usual: number): fc.Parameters<unknown> {
  return {
    numRuns: Math.max(1, Math.round((usual * Number(runs ?? RUNS_DEFAULT)) / RUNS_DEFAULT)),
    ...(seed === undefined ? {} : { seed: Number(seed) }),
  };
}

/** Lines of text that differ a little from each other: about what messages are. */
export function text(bytes: number): Buffer {
  const lines: string[] = [];
  for (let at = 0, length = 0; length < bytes; at += 1) {
    const line = `{"id":${(at * 7_919) % 100_003},"to":"user${(at * 31) % 997}@example.org"}\n`;
    lines.push(line);
    length += line.length;
  }
  return Buffer.from(lines.join('')).subarray(0, bytes);
}

/** Bytes that no codec makes smaller; the same every time. */
export function noise(bytes: number): Buffer {
  const made = Buffer.alloc(bytes);
  let state = 0x9e3779b9;
  for (let at = 0; at < bytes; at += 1) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    made[at] = state >>> 11;
  }
  return made;
}

/** A body by its recipe, so that a counterexample is a line and not a megabyte. */
export interface Recipe {
  readonly kind: 'any' | 'text' | 'zeros' | 'mixed';
  readonly bytes: number;
  readonly at: number;
  readonly content: Uint8Array;
}

/** Bodies of any content, and compressible ones around every size where something changes. */
export function recipes(maxBytes: number): fc.Arbitrary<Recipe> {
  const borders = [0, 63, 64, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB].flatMap((border) =>
    [border - 1, border, border + 1].filter((size) => size >= 0 && size <= maxBytes),
  );
  return fc.record({
    kind: fc.constantFrom('any', 'text', 'zeros', 'mixed'),
    bytes: fc.oneof(fc.constantFrom(...borders), fc.integer({ min: 0, max: maxBytes })),
    at: fc.nat(MIB),
    content: fc.uint8Array({ maxLength: 300 }),
  });
}

/** The body of a recipe. */
export function bodyOf({ kind, bytes, at, content }: Recipe): Buffer {
  if (kind === 'any') return Buffer.from(content);
  if (kind === 'text') return text(bytes);
  return kind === 'zeros' ? Buffer.alloc(bytes) : mixed(bytes, at);
}

/** Text with a stretch of noise in it. */
function mixed(bytes: number, at: number): Buffer {
  const body = Buffer.from(text(bytes));
  noise(Math.min(bytes, 40 * KIB)).copy(body, bytes === 0 ? 0 : at % bytes);
  return body;
}

/** Sizes of parts, used again and again; empty parts among them. */
export const chunkings: fc.Arbitrary<readonly number[]> = fc
  .array(fc.oneof(fc.constantFrom(0, 1, 64 * KIB), fc.nat(100 * KIB)), {
    minLength: 1,
    maxLength: 5,
  })
  // A large body in parts of one byte takes minutes.
  .map((sizes) => [...sizes, 16 * KIB]);

/** The bytes in such parts. */
export async function* parts(
  bytes: Uint8Array,
  sizes: readonly number[],
): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 0;
    yield bytes.subarray(at, at + size);
    at += size;
  }
  yield new Uint8Array(0);
}

export async function collect(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const held: Uint8Array[] = [];
  for await (const part of stream) held.push(part);
  return Buffer.concat(held);
}

/** Compresses a body on one of the ways. */
export async function pack(
  codec: CompressionCodec,
  body: Uint8Array,
  {
    way = 'bytes',
    sizes = [64 * KIB],
    ...options
  }: CompressOptions & { readonly way?: Way; readonly sizes?: readonly number[] } = {},
): Promise<Stored> {
  const writer = compress(codec, options).writer?.({ id: 'a' });
  if (writer === undefined) throw new Error('compress() can write');
  const bytes =
    way === 'bytes'
      ? Buffer.from(await writer.encodeBytes(body))
      : await collect(writer.encode(parts(body, sizes)));
  return { encoding: writer.encoding, bytes };
}

/** Reads it back on one of the ways. */
export async function unpack(
  { encoding, bytes }: Stored,
  {
    way = 'bytes',
    sizes = [64 * KIB],
    maxBytes = Number.POSITIVE_INFINITY,
  }: { readonly way?: Way; readonly sizes?: readonly number[]; readonly maxBytes?: number } = {},
): Promise<Buffer> {
  const reader = readCompressed(encoding, { id: 'a', maxBytes });
  if (reader === undefined) throw new Error(`nobody reads ${encoding}`);
  return way === 'bytes'
    ? Buffer.from(await reader.decodeBytes(bytes))
    : collect(reader.decode(parts(bytes, sizes)));
}

/** That the work fails with this code; gives the error. */
export async function refusal(
  work: () => unknown,
  code: ErrorCode,
): Promise<{ readonly message: string; readonly cause?: unknown }> {
  try {
    await work();
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    expect(error.code).toBe(code);
    return error;
  }
  throw new Error(`${code} was expected, and nothing failed`);
}
