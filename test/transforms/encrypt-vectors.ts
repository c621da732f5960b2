/**
 * encrypt-vectors — bodies as they are stored, for whoever reads or writes them in another language.
 *
 * scripts/body-vectors.ts writes them to test/fixtures/body-vectors.json. Salt and nonce prefix
 * come from the name of a vector here; anywhere else they must be random.
 */

import { createHash, createHmac, createSecretKey, hash } from 'node:crypto';
import { type BodyWriter, type Cipher, compress, type Transform } from 'respool/transforms';
import type { StoredCodec } from '../../src/transforms/compress.ts';
import { encryptWith } from '../../src/transforms/encrypt.ts';
import { Chunks, createHeader, parseHeader } from '../../src/transforms/encrypt-format.ts';

/** One body as it is stored; bytes in base64, keys in hex. */
export interface Vector {
  readonly name: string;
  readonly id: string;
  readonly encodings: readonly string[];
  /** Byte i of the plain body is i mod 251. */
  readonly size: number;
  readonly storedSize: number;
  readonly digest: string;
  readonly key?: string;
  readonly cipherKey?: string;
  readonly digestKey?: string;
  readonly stored: string;
}

/** Bytes that no reader may accept. */
export interface Refused {
  readonly name: string;
  readonly id: string;
  readonly encodings: readonly string[];
  readonly key: string;
  readonly stored: string;
}

export interface Vectors {
  readonly about: string;
  readonly vectors: readonly Vector[];
  readonly refused: readonly Refused[];
}

interface Encryption {
  readonly cipher: Cipher;
  readonly keyId?: string;
  readonly pad?: boolean;
  readonly chunkBytes?: number;
}

interface Recipe {
  readonly name: string;
  readonly id?: string;
  readonly size: number;
  readonly codec?: StoredCodec;
  readonly encryption?: Encryption;
}

const ABOUT =
  'Bodies as respool stores them; see docs/reference/body-format.md. Byte i of each plain body is ' +
  'i mod 251. "key" is the key of the ring, "cipherKey" and "digestKey" are derived from it.';

const AES: Encryption = { cipher: 'aes-256-gcm' };
const CHACHA: Encryption = { cipher: 'chacha20-poly1305' };
const SMALL = { chunkBytes: 16 };

const ENCRYPTED: readonly Recipe[] = [AES, CHACHA].flatMap((encryption) => {
  const { cipher } = encryption;
  const small = { ...encryption, ...SMALL };
  return [
    { name: `${cipher}, empty`, size: 0, encryption },
    { name: `${cipher}, one byte`, size: 1, encryption },
    { name: `${cipher}, one chunk`, size: 200, encryption },
    { name: `${cipher}, chunks of 16 bytes, the last one whole`, size: 48, encryption: small },
    { name: `${cipher}, chunks of 16 bytes, the last one not`, size: 50, encryption: small },
    { name: `${cipher}, padded`, size: 20, encryption: { ...encryption, pad: true } },
    { name: `${cipher}, empty, padded`, size: 0, encryption: { ...encryption, pad: true } },
    {
      name: `${cipher}, chunks of 16 bytes, padding over several`,
      size: 1_024,
      encryption: { ...small, pad: true },
    },
  ];
});

const OTHERS: readonly Recipe[] = [
  { name: 'as it is', size: 20 },
  {
    name: 'a chunk of 64 KiB, as they were first, and five bytes',
    size: 65_541,
    encryption: { ...AES, chunkBytes: 65_536 },
  },
  {
    name: 'part of a chunk of 256 KiB, as they were then',
    size: 300,
    encryption: { ...AES, chunkBytes: 262_144 },
  },
  {
    name: 'the longest ids',
    id: 'm'.repeat(64),
    size: 3,
    encryption: { ...AES, keyId: 'K-_.'.repeat(16) },
  },
  { name: 'left uncompressed, then encrypted', size: 20, codec: 'gzip', encryption: AES },
  { name: 'compressed, then encrypted', size: 2_000, codec: 'gzip', encryption: AES },
  {
    name: 'compressed, then padded',
    size: 2_000,
    codec: 'zstd',
    encryption: { ...CHACHA, pad: true },
  },
];

const COMPRESSED: readonly Recipe[] = (
  ['gzip', 'zlib', 'deflate', 'brotli', 'zstd', 'snappy', 's2', 'lz4'] as const
).map((codec) => ({ name: codec, size: 2_000, codec }));

/** Makes all of them anew. */
export async function makeVectors(): Promise<Vectors> {
  const vectors: Vector[] = [];
  for (const recipe of [...ENCRYPTED, ...OTHERS, ...COMPRESSED]) vectors.push(await make(recipe));
  return { about: ABOUT, vectors, refused: makeRefused(vectors) };
}

/** The plain bytes of a vector. */
export function plainOf(size: number): Uint8Array {
  return Uint8Array.from({ length: size }, (_, at) => at % 251);
}

async function make({ name, id = 'order-1', size, codec, encryption }: Recipe): Promise<Vector> {
  const key = hash('sha256', `key of ${name}`, 'hex');
  const writers: BodyWriter[] = [];
  // Former versions stored snappy under the name s2, too.
  const isS2 = codec === 's2';
  if (codec !== undefined) writers.push(await writerOf(compress(isS2 ? 'snappy' : codec), id));
  if (encryption !== undefined) writers.push(await writerOf(encrypting(name, key, encryption), id));
  const plain = plainOf(size);
  let bytes = plain;
  for (const writer of writers) bytes = await writer.encodeBytes(bytes);
  const what = {
    name,
    id,
    encodings: isS2 ? ['s2'] : writers.map(({ encoding }) => encoding),
    size,
    storedSize: bytes.length,
  };
  const stored = base64(bytes);
  const digestKey = writers.at(-1)?.digestKey;
  if (digestKey === undefined) {
    return { ...what, digest: `sha256:${hash('sha256', plain, 'hex')}`, stored };
  }
  const keyed = createHmac('sha256', digestKey).update(plain).digest('hex');
  return {
    ...what,
    digest: `hmac-sha256:${keyed}`,
    key,
    cipherKey: derive(key, bytes.subarray(11, 43), id),
    digestKey: Buffer.from(digestKey).toString('hex'),
    stored,
  };
}

/** The first 32 bytes of HKDF-SHA-256, from HMACs alone: not by the code that is tested. */
function derive(key: string, salt: Uint8Array, id: string): string {
  const middle = createHmac('sha256', salt).update(key, 'hex').digest();
  return createHmac('sha256', middle).update(`respool/v1|${id}`).update('\x01').digest('hex');
}

function encrypting(
  name: string,
  key: string,
  { cipher, keyId = 'k1', pad = false, chunkBytes }: Encryption,
): Transform {
  const random = (length: number): Uint8Array =>
    createHash('sha512').update(`random bytes of ${name}`).digest().subarray(0, length);
  return encryptWith(
    { keys: { [keyId]: key }, cipher, pad },
    chunkBytes === undefined ? { random } : { random, chunkBytes },
  );
}

async function writerOf(transform: Transform, id: string): Promise<BodyWriter> {
  await transform.open?.();
  const writer = transform.writer?.({ id });
  if (writer === undefined) throw new Error('this transform does not write');
  return writer;
}

function makeRefused(vectors: readonly Vector[]): Refused[] {
  const of = (name: string): Refused & { readonly bytes: Buffer } => {
    const { id, encodings, key = '', stored } = vectors.find((one) => one.name === name) as Vector;
    return { name, id, encodings, key, stored, bytes: Buffer.from(stored, 'base64') };
  };
  const good = of('aes-256-gcm, chunks of 16 bytes, the last one not');
  const { bytes } = good;
  const header = bytes.subarray(0, 53);
  const chunk = (number: number): Buffer =>
    bytes.subarray(53 + number * 32, 53 + (number + 1) * 32);
  const [first, second, third, last] = [chunk(0), chunk(1), chunk(2), chunk(3)];
  const changed = (at: number, value: number): Buffer => {
    const copy = Buffer.from(bytes);
    copy[at] = value;
    return copy;
  };
  const refused = (name: string, list: readonly Uint8Array[], more: Partial<Refused> = {}) => {
    const { id, encodings, key } = good;
    return { name, id, encodings, key, ...more, stored: base64(Buffer.concat(list)) };
  };
  return [
    refused('a bit of the ciphertext flipped', [changed(60, (bytes[60] ?? 0) ^ 1)]),
    refused('a bit of a tag flipped', [changed(53 + 20, (bytes[73] ?? 0) ^ 1)]),
    refused('the last chunk missing', [header, first, second, third]),
    refused('two chunks exchanged', [header, second, first, third, last]),
    refused('a chunk doubled', [header, first, first, second, third, last]),
    refused('a byte behind the end', [bytes, Buffer.of(0)]),
    refused('the tag of the last chunk cut to four bytes', [bytes.subarray(0, -12)]),
    refused('the body of another message', [bytes], { id: 'order-2' }),
    refused('another cipher in the entry', [bytes], { encodings: ['chacha20-poly1305;key=k1'] }),
    refused('a newer version', [changed(4, 2)]),
    refused('an unknown flag', [changed(6, 2)]),
    refused('marked as padded', [changed(6, 1)]),
    refused('an unknown cipher', [changed(5, 9)]),
    refused('nothing but a header', [header]),
    refused('nothing', []),
    refused('an empty last chunk that is not needed', forged(good, false, [16, 0])),
    refused('padding promised and missing', forged(good, true, [16, 5])),
  ];
}

/** What only the holder of the key could write, and still no reader accepts. */
function forged(
  { id, key, bytes }: Refused & { readonly bytes: Buffer },
  isPadded: boolean,
  sizes: readonly number[],
): Uint8Array[] {
  const parsed = parseHeader(bytes.subarray(0, 53));
  if (typeof parsed === 'string') throw new Error(parsed);
  const header = createHeader({ ...parsed, isPadded });
  const chunks = new Chunks(header, createSecretKey(key, 'hex'), id);
  const written = sizes.flatMap((size, at) =>
    chunks.encrypt(plainOf(size), at === sizes.length - 1),
  );
  return [header.bytes, ...written];
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}
