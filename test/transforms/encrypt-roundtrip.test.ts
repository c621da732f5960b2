/** Bodies come back as they were, whatever their size and however they are cut into pieces. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decrypt, encrypt, generateKey } from 'respool/transforms';
import {
  BLOCK_BYTES,
  CHUNK_BYTES,
  CIPHERS,
  gather,
  KEY,
  load,
  loadStream,
  pieces,
  readerOf,
  refusal,
  reused,
  type Stored,
  smallChunks,
  someBytes,
  store,
  writerOf,
} from './encrypt-setup.ts';

const body = fc.oneof(
  fc.uint8Array({ maxLength: 5 * CHUNK_BYTES }),
  // What padding has to be told from.
  fc.array(fc.constantFrom(0, 0x80), { maxLength: 5 * CHUNK_BYTES }).map((a) => Uint8Array.from(a)),
  fc.integer({ min: 0, max: 4 }).map((chunks) => someBytes(chunks * CHUNK_BYTES)),
);
const sizes = fc.array(fc.integer({ min: 1, max: 3 * CHUNK_BYTES }), {
  minLength: 1,
  maxLength: 5,
});
const way = fc.constantFrom('bytes' as const, 'stream' as const);

test('any body in any pieces comes back equal through every combination', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        plain: body,
        cipher: fc.constantFrom(...CIPHERS),
        pad: fc.boolean(),
        wayIn: way,
        wayOut: way,
        sizesIn: sizes,
        sizesOut: sizes,
        id: fc.stringMatching(/^[0-9a-z][0-9a-z_-]{0,63}$/),
      }),
      async ({ plain, cipher, pad, wayIn, wayOut, sizesIn, sizesOut, id }) => {
        const transform = smallChunks({ cipher, pad });
        const writer = writerOf(transform, id);
        const bytes =
          wayIn === 'bytes'
            ? await writer.encodeBytes(plain)
            : await gather(writer.encode(reused(plain, sizesIn)));
        const stored: Stored = { id, bytes, encoding: writer.encoding };
        const reader = readerOf(transform, stored);
        const back =
          wayOut === 'bytes'
            ? await reader.decodeBytes(bytes)
            : await gather(reader.decode(pieces(bytes, sizesOut)));
        expect(Buffer.compare(back, plain)).toBe(0);
        expect(stored.encoding).toBe(`${cipher};key=k1`);
        expect(reader.digestKey).toEqual(writer.digestKey);
        expect(reader.digestKey).toHaveLength(32);
      },
    ),
    { numRuns: 500 },
  );
});

describe.each(CIPHERS)('%s', (cipher) => {
  test.each([0, 1, 524_287, 524_288, 524_289, 1_048_576, 1_048_577, 3_000_000])(
    'a body of %d bytes comes back from chunks of 512 KiB, at once and as a stream',
    async (length) => {
      const transform = encrypt({ keys: { k1: KEY }, cipher });
      const plain = someBytes(length);
      const stored = await store(transform, plain);
      const chunks = Math.max(1, Math.ceil(length / 524_288));
      expect(stored.bytes).toHaveLength(51 + 'k1'.length + length + 16 * chunks);
      expect(Buffer.compare(await load(transform, stored), plain)).toBe(0);
      expect(Buffer.compare(await loadStream(transform, stored, [65_536]), plain)).toBe(0);
      const writer = writerOf(transform, 'm1');
      const bytes = await gather(writer.encode(reused(plain, [65_536])));
      expect(Buffer.compare(await load(transform, { ...stored, bytes }), plain)).toBe(0);
    },
  );
});

test('a body up to 1 MiB is encrypted and decrypted at once where the key is there', () => {
  const transform = encrypt({ keys: { k1: KEY } });
  const writer = writerOf(transform, 'm1');
  const bytes = writer.encodeBytes(someBytes(1_000_000));
  expect(bytes).toBeInstanceOf(Uint8Array);
  const stored = { id: 'm1', bytes: bytes as Uint8Array, encoding: writer.encoding };
  expect(readerOf(transform, stored).decodeBytes(stored.bytes)).toBeInstanceOf(Uint8Array);
});

test('others run while a long body out of memory is worked on', async () => {
  const transform = encrypt({ keys: { k1: KEY } });
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const stored = await store(transform, new Uint8Array(8 * 1_048_576));
  const afterWriting = turns;
  await load(transform, stored);
  isOver = true;
  expect(afterWriting).toBeGreaterThanOrEqual(7);
  expect(turns - afterWriting).toBeGreaterThanOrEqual(7);
});

test('AES-256-GCM is the default, and both are read whichever writes', async () => {
  const aes = encrypt({ keys: { k1: KEY } });
  const chacha = encrypt({ keys: { k1: KEY }, cipher: 'chacha20-poly1305' });
  const [one, other] = [await store(aes, someBytes(9)), await store(chacha, someBytes(9))];
  expect(one.encoding).toBe('aes-256-gcm;key=k1');
  expect(other.encoding).toBe('chacha20-poly1305;key=k1');
  for (const transform of [aes, chacha, decrypt({ keys: { k1: KEY } })]) {
    expect(Buffer.compare(await load(transform, one), someBytes(9))).toBe(0);
    expect(Buffer.compare(await load(transform, other), someBytes(9))).toBe(0);
  }
});

test('bodies of every old key are readable, and only the primary writes', async () => {
  const keys = { k1: generateKey(), k2: generateKey(), k3: generateKey() };
  const bodies: Stored[] = [];
  for (const primary of ['k1', 'k2', 'k3'] as const) {
    const known = { k1: keys.k1, [primary]: keys[primary] };
    bodies.push(await store(smallChunks({ keys: known, primary }), someBytes(50)));
  }
  expect(bodies.map(({ encoding }) => encoding)).toEqual(
    ['k1', 'k2', 'k3'].map((id) => `aes-256-gcm;key=${id}`),
  );
  for (const reading of [smallChunks({ keys, primary: 'k3' }), decrypt({ keys })]) {
    for (const stored of bodies) {
      expect(Buffer.compare(await load(reading, stored), someBytes(50))).toBe(0);
      expect(Buffer.compare(await loadStream(reading, stored), someBytes(50))).toBe(0);
    }
  }
});

test('two bodies of the same message never share salt, nonce or derived keys', () => {
  const transform = smallChunks();
  const writers = Array.from({ length: 200 }, () => writerOf(transform, 'm1'));
  const starts = writers.map((writer) =>
    Buffer.from(writer.encodeBytes(new Uint8Array(0)) as Uint8Array),
  );
  const distinct = (texts: string[]): number => new Set(texts).size;
  expect(distinct(starts.map((bytes) => bytes.toString('hex', 11, 43)))).toBe(200);
  expect(distinct(starts.map((bytes) => bytes.toString('hex', 43, 50)))).toBe(200);
  expect(
    distinct(writers.map(({ digestKey = '' }) => Buffer.from(digestKey).toString('hex'))),
  ).toBe(200);
});

test('a writer refuses a second body: it would have the nonces of the first', async () => {
  const writer = writerOf(smallChunks(), 'm1');
  await writer.encodeBytes(someBytes(3));
  expect(() => writer.encodeBytes(someBytes(3))).toThrow('two bodies');
  expect(() => writer.encode(reused(someBytes(3), [1]))).toThrow('two bodies');
});

test('a body with more chunks than there are numbers is refused on both ways', async () => {
  const last = 0xffff_ffff;
  const fits = smallChunks({}, { firstCounter: last });
  expect((await store(fits, someBytes(CHUNK_BYTES))).bytes).toHaveLength(53 + BLOCK_BYTES);
  const tooLong = someBytes(CHUNK_BYTES + 1);
  const one = await refusal(() => writerOf(fits, 'm1').encodeBytes(tooLong));
  const other = await refusal(() => gather(writerOf(fits, 'm1').encode(reused(tooLong, [5]))));
  for (const error of [one, other]) {
    expect(error.code).toBe('limit.exceeded');
    expect(error.message).toContain('"m1"');
  }
});

test('what a source fails with passes, and a reader who leaves closes the source', async () => {
  const transform = smallChunks();
  const failing = async function* (): AsyncGenerator<Uint8Array> {
    yield someBytes(100);
    throw new Error('the source broke');
  };
  await expect(gather(writerOf(transform, 'm1').encode(failing()))).rejects.toThrow('source broke');
  const stored = await store(transform, someBytes(100));
  let isClosed = false;
  const watched = async function* (): AsyncGenerator<Uint8Array> {
    try {
      yield* pieces(stored.bytes, [50]);
    } finally {
      isClosed = true;
    }
  };
  for await (const part of readerOf(transform, stored).decode(watched())) {
    expect(part).toHaveLength(CHUNK_BYTES);
    break;
  }
  expect(isClosed).toBe(true);
});

test('an encoding of somebody else is left to them', () => {
  const context = { id: 'm1', maxBytes: 1 };
  for (const transform of [smallChunks(), decrypt({ keys: { k1: KEY } })]) {
    for (const encoding of ['zstd', 'plain', 'aes-128-gcm;key=k1', 'aes-256-gcmx', '']) {
      expect(transform.reader(encoding, context)).toBeUndefined();
    }
    expect(transform.kind).toBe('encryption');
  }
  expect('writer' in decrypt({ keys: { k1: KEY } })).toBe(false);
});
