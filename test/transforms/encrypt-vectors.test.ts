/**
 * The test vectors, read by a reader that was written from docs/reference/body-format.md alone, by
 * our own, and made again by our writer.
 */

import { createDecipheriv, createHash, createHmac, hkdfSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import {
  brotliDecompressSync,
  gunzipSync,
  inflateRawSync,
  inflateSync,
  zstdDecompressSync,
} from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { decrypt, readCompressed, type Transform } from 'respool/transforms';
import { gather, refusal } from './encrypt-setup.ts';
import {
  makeVectors,
  plainOf,
  type Refused,
  type Vector,
  type Vectors,
} from './encrypt-vectors.ts';

const FIXTURE = path.join(import.meta.dirname, '../fixtures/body-vectors.json');
const { vectors, refused } = JSON.parse(readFileSync(FIXTURE, 'utf8')) as Vectors;

/** Compressions that another language has at hand, as Node has. */
const UNPACK: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  plain: (bytes) => bytes,
  gzip: (bytes) => gunzipSync(bytes),
  zlib: (bytes) => inflateSync(bytes),
  deflate: (bytes) => inflateRawSync(bytes),
  brotli: (bytes) => brotliDecompressSync(bytes),
  zstd: (bytes) => zstdDecompressSync(bytes),
};

/** Those that need a package; our own reader reads them below. */
const NEED_PACKAGES = ['snappy', 's2', 'lz4'];

const CIPHERS = { 1: 'aes-256-gcm', 2: 'chacha20-poly1305' } as const;

interface Unlocked {
  readonly plain: Buffer;
  readonly digestKey: Buffer;
}

function demand(claim: boolean): asserts claim {
  if (!claim) throw new Error('refused');
}

/** The section "Encryption" of the page, as code. */
function unlock(stored: Buffer, encoding: string, id: string, key: string): Unlocked {
  demand(stored.length >= 51 && stored.toString('latin1', 0, 4) === 'RSPE' && stored[4] === 1);
  const cipher = CIPHERS[stored[5] as 1 | 2];
  const flags = stored[6] ?? 0;
  const chunkSize = stored.readUInt32BE(7);
  const idLength = stored[50] ?? 0;
  demand(cipher !== undefined && flags <= 1 && chunkSize >= 1 && chunkSize <= 1_048_576);
  demand(idLength >= 1 && idLength <= 64 && stored.length >= 51 + idLength);
  const header = stored.subarray(0, 51 + idLength);
  demand(encoding === `${cipher};key=${header.toString('latin1', 51)}`);
  const info = `respool/v1|${id}`;
  const master = Buffer.from(key, 'hex');
  const derived = Buffer.from(hkdfSync('sha256', master, header.subarray(11, 43), info, 64));
  const parts: Buffer[] = [];
  for (let at = header.length, number = 0; ; number += 1) {
    const block = stored.subarray(at, at + chunkSize + 16);
    at += block.length;
    const isLast = at === stored.length;
    demand(block.length >= 16 && (block.length > 16 || number === 0));
    const nonce = Buffer.alloc(12);
    header.copy(nonce, 0, 43, 50);
    nonce.writeUInt32BE(number, 7);
    nonce[11] = isLast ? 1 : 0;
    const name = cipher as 'aes-256-gcm';
    const work = createDecipheriv(name, derived.subarray(0, 32), nonce, { authTagLength: 16 });
    work.setAAD(Buffer.concat([header, Buffer.from(id, 'utf8')]));
    work.setAuthTag(block.subarray(-16));
    const plain = work.update(block.subarray(0, -16));
    work.final();
    parts.push(plain);
    if (isLast) break;
  }
  const padded = Buffer.concat(parts);
  return { plain: flags === 1 ? unpad(padded) : padded, digestKey: derived.subarray(32) };
}

function unpad(padded: Buffer): Buffer {
  let end = padded.length;
  while (end > 0 && padded[end - 1] === 0) end -= 1;
  demand(padded[end - 1] === 0x80);
  return padded.subarray(0, end - 1);
}

/** The section "What the entry says", as code. */
function readFromThePage(vector: Vector): Buffer {
  let bytes: Buffer = Buffer.from(vector.stored, 'base64');
  let digestKey: Buffer | undefined;
  demand(bytes.length === vector.storedSize);
  for (const encoding of vector.encodings.toReversed()) {
    const unpack = UNPACK[encoding];
    if (unpack === undefined) {
      const unlocked = unlock(bytes, encoding, vector.id, vector.key ?? '');
      bytes = unlocked.plain;
      digestKey = unlocked.digestKey;
    } else bytes = unpack(bytes);
  }
  const digest =
    digestKey === undefined
      ? `sha256:${createHash('sha256').update(bytes).digest('hex')}`
      : `hmac-sha256:${createHmac('sha256', digestKey).update(bytes).digest('hex')}`;
  demand(bytes.length === vector.size && digest === vector.digest);
  return bytes;
}

type Way = 'bytes' | 'stream';

/** The same with our own readers. */
async function readWithOurs(
  { id, encodings, stored }: Vector | Refused,
  transform: Transform,
  way: Way,
): Promise<Uint8Array> {
  let bytes: Uint8Array = Buffer.from(stored, 'base64');
  for (const encoding of encodings.toReversed()) {
    const context = { id, maxBytes: Number.POSITIVE_INFINITY };
    const reader = transform.reader(encoding, context) ?? readCompressed(encoding, context);
    if (reader === undefined) throw new Error(`nobody reads ${encoding}`);
    bytes =
      way === 'bytes' ? await reader.decodeBytes(bytes) : await gather(reader.decode(cut(bytes)));
  }
  return bytes;
}

async function* cut(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 1_000) yield bytes.subarray(at, at + 1_000);
}

function ringOf({ encodings, key = 'f0'.repeat(32) }: Vector | Refused): Transform {
  const keyId = encodings.at(-1)?.split(';key=')[1] ?? 'none';
  return decrypt({ keys: { [keyId]: key } });
}

const readable = vectors.filter(({ encodings }) => !NEED_PACKAGES.includes(encodings[0] ?? ''));

describe.each(vectors.map((vector) => [vector.name, vector] as const))(
  'vector "%s"',
  (_, vector) => {
    test.each<Way>(['bytes', 'stream'])('is read by our own reader as %s', async (way) => {
      const plain = await readWithOurs(vector, ringOf(vector), way);
      expect(Buffer.compare(plain, plainOf(vector.size))).toBe(0);
    });
  },
);

test.each(readable.map((vector) => [vector.name, vector] as const))(
  'vector "%s" is read by a reader written from the page',
  (_, vector) => {
    expect(Buffer.compare(readFromThePage(vector), plainOf(vector.size))).toBe(0);
  },
);

describe.each(refused.map((one) => [one.name, one] as const))('refused: "%s"', (_, one) => {
  test.each<Way>(['bytes', 'stream'])('by our own reader as %s', async (way) => {
    const error = await refusal(() => readWithOurs(one, ringOf(one), way));
    expect(error.code).toBe('body.corrupt');
  });

  test('by a reader written from the page', () => {
    const stored = Buffer.from(one.stored, 'base64');
    expect(() => unlock(stored, one.encodings[0] ?? '', one.id, one.key)).toThrow(
      /refused|authenticate/,
    );
  });
});

test('the vectors are what our writer makes today, where nothing is compressed', async () => {
  const made = await makeVectors();
  const isPlain = ({ encodings }: Vector): boolean =>
    encodings.every((encoding) => encoding === 'plain' || encoding.includes(';key='));
  expect(made.vectors.filter(isPlain)).toEqual(vectors.filter(isPlain));
  expect(vectors.filter(isPlain).length).toBeGreaterThan(15);
  expect(made.refused).toEqual(refused);
  expect(made.vectors.map(({ name }) => name)).toEqual(vectors.map(({ name }) => name));
});
