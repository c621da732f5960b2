/** compress.test — what goes in comes out, on every way; what gains nothing stays plain. */
import fc from 'fast-check';
import {
  compress,
  type CompressionCodec,
  type CompressionLevel,
  type CompressOptions,
  readCompressed,
} from 'respool/transforms';
import * as zlib from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { zlibSource } from '../../src/transforms/codec-zlib.ts';
import { CODECS as SOURCES, compressWith } from '../../src/transforms/compress.ts';
import {
  bodyOf,
  chunkings,
  CODECS,
  KIB,
  LEVELED,
  LEVELS,
  noise,
  pack,
  recipes,
  refusal,
  text,
  tries,
  unpack,
  WAYS,
} from './compress-setup.ts';

/** The slowest levels take seconds for what the others do in milliseconds. */
const bodyMaxBytes = (level: CompressionLevel): number => (level === 'best' ? 3 : 1_100) * KIB;

describe.each(CODECS)('%s', (codec) => {
  const levels = LEVELED.includes(codec) ? LEVELS : [undefined];

  test.each(levels)('any body in any parts comes back equal at level %s', async (level) => {
    await fc.assert(
      fc.asyncProperty(
        recipes(bodyMaxBytes(level ?? 'default')),
        chunkings,
        chunkings,
        fc.boolean(),
        async (recipe, sizesIn, sizesOut, isSizeKnown) => {
          const body = bodyOf(recipe);
          for (const wayIn of WAYS) {
            const options = level === undefined ? {} : { level };
            const stored = await pack(codec, body, { way: wayIn, sizes: sizesIn, ...options });
            for (const way of WAYS) {
              const maxBytes = isSizeKnown ? body.length : Number.POSITIVE_INFINITY;
              const back = await unpack(stored, { way, sizes: sizesOut, maxBytes });
              expect(back.equals(body)).toBe(true);
            }
          }
        },
      ),
      tries(30),
    );
  });

  test('text gets smaller, and the encoding is its name on every way', async () => {
    for (const bytes of [KIB, 64 * KIB, 600 * KIB]) {
      for (const way of WAYS) {
        const stored = await pack(codec, text(bytes), { way });
        expect(stored.bytes.length).toBeLessThan(bytes * 0.6);
        expect(stored.encoding).toBe(codec);
      }
    }
  });

  test('a body of less than 64 bytes stays plain, however well it would compress', async () => {
    for (const way of WAYS) {
      const small = await pack(codec, Buffer.alloc(63), { way });
      expect(small).toEqual({ encoding: 'plain', bytes: Buffer.alloc(63) });
      expect((await pack(codec, Buffer.alloc(64), { way })).encoding).toBe(codec);
      expect((await pack(codec, Buffer.alloc(0), { way })).encoding).toBe('plain');
    }
  });

  test('what does not get 5 % smaller stays plain, of any size, on every way', async () => {
    for (const bytes of [64, 5_000, 64 * KIB, 100 * KIB, 300 * KIB, 600 * KIB]) {
      for (const way of WAYS) {
        const body = noise(bytes);
        const { encoding, bytes: stored } = await pack(codec, body, { way });
        expect(encoding).toBe('plain');
        expect(stored.equals(body)).toBe(true);
      }
    }
  });

  test('the first 64 KiB decide about the rest', async () => {
    const noiseFirst = Buffer.concat([noise(64 * KIB), text(300 * KIB)]);
    const textFirst = Buffer.concat([text(64 * KIB), noise(300 * KIB)]);
    for (const way of WAYS) {
      expect((await pack(codec, noiseFirst, { way })).encoding).toBe('plain');
      expect((await pack(codec, textFirst, { way })).encoding).toBe(codec);
    }
  });

  test('a small body is packed and unpacked at once, without a promise', async () => {
    const transform = compress(codec);
    await transform.open?.();
    const body = text(16 * KIB);
    const writer = transform.writer?.({ id: 'a' });
    const packed = writer?.encodeBytes(body);
    if (!(packed instanceof Uint8Array)) throw new Error('a promise');
    const reader = readCompressed(codec, { id: 'a', maxBytes: body.length });
    const back = reader?.decodeBytes(packed);
    expect(back instanceof Uint8Array && body.equals(back)).toBe(true);
  });
});

test('a gain of 5 % is enough, and less is not', async () => {
  const half = (share: number) =>
    Buffer.concat([noise(Math.round(20_000 * (1 - share))), Buffer.alloc(20_000 * share)]);
  expect((await pack('zstd', half(0.06))).encoding).toBe('zstd');
  expect((await pack('zstd', half(0.04))).encoding).toBe('plain');
});

test.each(LEVELED)('a higher level of %s makes text smaller', async (codec) => {
  const body = text(40 * KIB);
  const sizes: number[] = [];
  for (const level of LEVELS) sizes.push((await pack(codec, body, { level })).bytes.length);
  const [fastest = 0, usual = 0, , best = 0] = sizes;
  expect(best).toBeLessThan(usual);
  expect(best).toBeLessThan(fastest);
  expect((await pack(codec, body)).bytes.length).toBe(usual);
});

test('other readers of the same formats read what is written', async () => {
  const body = text(600 * KIB);
  const read = async (codec: CompressionCodec, call: (bytes: Buffer) => Buffer) =>
    expect(call((await pack(codec, body, { way: 'stream' })).bytes).equals(body)).toBe(true);
  await read('gzip', zlib.gunzipSync);
  await read('zlib', zlib.inflateSync);
  await read('deflate', zlib.inflateRawSync);
  await read('brotli', zlib.brotliDecompressSync);
  await read('zstd', zlib.zstdDecompressSync);
});

test('the streams of the snappy package read our snappy, and we read theirs', async () => {
  const { Compressor, Decompressor } = await import('snappy');
  const body = text(300 * KIB);
  const theirs = new Decompressor();
  const head = theirs.update((await pack('snappy', body)).bytes);
  expect(Buffer.concat([head, await theirs.finish()]).equals(body)).toBe(true);
  const writer = new Compressor();
  const bytes = Buffer.concat([
    writer.update(body),
    await writer.finish(),
    // All that is ours: the empty chunk of padding that says that it is over.
    Buffer.from([0xfe, 0, 0, 0]),
  ]);
  expect((await unpack({ encoding: 'snappy', bytes })).equals(body)).toBe(true);
});

test.each(['bytes', 'stream'] as const)(
  'bodies that former versions stored as s2 hold snappy, and are read as %s',
  async (way) => {
    const body = text(300 * KIB);
    const { bytes } = await pack('snappy', body);
    expect((await unpack({ encoding: 's2', bytes }, { way })).equals(body)).toBe(true);
    expect((await unpack({ encoding: 's2;ratio=500', bytes }, { way })).equals(body)).toBe(true);
  },
);

describe('options', () => {
  test('a codec that does not exist is refused with the list of those that do', async () => {
    const wrong = 'lzma' as CompressionCodec;
    const { message } = await refusal(() => compress(wrong), 'config.invalid');
    expect(message).toContain('"lzma"');
    for (const codec of CODECS) expect(message).toContain(codec);
  });

  test.each([
    [null, 'null'],
    ['best', 'string'],
  ])('%j in place of options is refused', async (wrong, type) => {
    const options = wrong as unknown as CompressOptions;
    const { message } = await refusal(() => compress('gzip', options), 'config.invalid');
    expect(message).toBe(
      `cannot use a value of type ${type} as options of compress: allowed is an object with level`,
    );
  });

  test('a level that does not exist is refused', async () => {
    const level = 'highest' as CompressionLevel;
    const { message } = await refusal(() => compress('zstd', { level }), 'config.invalid');
    expect(message).toContain('fastest | default | better | best');
  });

  test.each([{}, { level: 'best' as const }])('s2 with %j is refused', async (options) => {
    const s2 = 's2' as CompressionCodec;
    const { message } = await refusal(() => compress(s2, options), 'config.invalid');
    expect(message).toContain('the S2 format and its levels are not implemented; use snappy');
    expect(message).toContain('stored under the name s2 stay readable');
  });

  test.each(['snappy', 'lz4'] as const)('%s has no levels', async (codec) => {
    const { message } = await refusal(() => compress(codec, { level: 'best' }), 'config.invalid');
    expect(message).toContain(codec);
  });

  test('an option that does not exist is refused', async () => {
    const options = { levle: 'best' } as object;
    const { message } = await refusal(() => compress('gzip', options), 'config.invalid');
    expect(message).toContain('levle');
  });

  test('a Node without zstd is told so when the transform is made', async () => {
    const old = { ...zlib, zstdCompressSync: undefined } as unknown as typeof zlib;
    const codecs = { ...SOURCES, zstd: zlibSource('zstd', old) };
    const { message } = await refusal(() => compressWith(codecs, 'zstd'), 'config.invalid');
    expect(message).toContain('22.15');
    expect(compressWith(codecs, 'gzip').name).toBe('gzip');
  });
});

describe('readCompressed', () => {
  test('knows every encoding that compress() writes, whichever it is asked of', () => {
    for (const codec of CODECS) {
      for (const encoding of [codec, `${codec};ratio=900`, 'plain']) {
        const context = { id: 'a', maxBytes: 1 };
        expect(readCompressed(encoding, context)).toBeDefined();
        expect(compress('gzip').reader(encoding, context)).toBeDefined();
      }
    }
  });

  test.each(['', 'lzma', 'GZIP', 'gzip;level=9', 'gzip;ratio=', 'gzip;ratio=0x9', 'plain;ratio=2'])(
    'leaves "%s" to others',
    (encoding) => {
      expect(readCompressed(encoding, { id: 'a', maxBytes: 1 })).toBeUndefined();
    },
  );
});

test('the transform says what it is', () => {
  expect(compress('lz4')).toMatchObject({ name: 'lz4', kind: 'compression' });
});

test('the encoding cannot be asked for before the bytes are out', () => {
  const writer = compress('gzip').writer?.({ id: 'a' });
  expect(() => writer?.encoding).toThrow('known when the bytes are out');
});

test('bytes that are given are not changed', async () => {
  const body = text(100 * KIB);
  const copy = Buffer.from(body);
  for (const codec of CODECS) {
    const stored = await pack(codec, body);
    const storedCopy = Buffer.from(stored.bytes);
    await unpack(stored, { maxBytes: body.length });
    expect(body.equals(copy) && stored.bytes.equals(storedCopy)).toBe(true);
  }
});
