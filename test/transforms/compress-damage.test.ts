/** compress-damage.test — stored bytes that were changed are an error, never a crash or a hang. */
import fc from 'fast-check';
import { isRespoolError } from 'respool';
import { type CompressionCodec, readCompressed } from 'respool/transforms';
import * as zlib from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { DamagedData } from '../../src/transforms/codec.ts';
import { zlibSource } from '../../src/transforms/codec-zlib.ts';
import { CODECS as SOURCES } from '../../src/transforms/compress.ts';
import {
  chunkings,
  CODECS,
  collect,
  KIB,
  noise,
  pack,
  refusal,
  type Stored,
  text,
  tries,
  unpack,
  WAYS,
} from './compress-setup.ts';

/** Their format holds a checksum over the plain bytes; the others rely on the digest above. */
const CHECKED: readonly CompressionCodec[] = ['gzip', 'zlib', 'zstd', 'snappy', 'lz4'];

/** One body of each codec in each size: one call, several blocks, a stream. */
const SIZES = [200, 5_000, 70 * KIB, 128 * KIB, 600 * KIB];
const places = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const sizes = fc.constantFrom(...SIZES);

async function storedText(codec: CompressionCodec, bytes: number): Promise<Stored> {
  return pack(codec, text(bytes), { way: bytes > 256 * KIB ? 'stream' : 'bytes' });
}

/** What comes of changed bytes on every way: plain bytes, or undefined for `body.corrupt`. */
async function read(
  stored: Stored,
  maxBytes: number,
  partSizes: readonly number[],
): Promise<readonly (Buffer | undefined)[]> {
  const results: (Buffer | undefined)[] = [];
  for (const way of WAYS) {
    for (const known of [maxBytes, Number.POSITIVE_INFINITY]) {
      try {
        results.push(await unpack(stored, { way, sizes: partSizes, maxBytes: known }));
      } catch (error) {
        if (!isRespoolError(error, 'body.corrupt')) throw error;
        expect(error.cause).toBeInstanceOf(Error);
        results.push(undefined);
      }
    }
  }
  return results;
}

describe.each(CODECS)('%s', (codec) => {
  test('a flipped bit is an error, or at least no crash where there is no checksum', async () => {
    await fc.assert(
      fc.asyncProperty(sizes, places, fc.nat(7), chunkings, async (bytes, place, bit, cuts) => {
        const { encoding, bytes: stored } = await storedText(codec, bytes);
        const at = Math.floor(place * stored.length);
        stored[at] = (stored[at] ?? 0) ^ (1 << bit);
        for (const back of await read({ encoding, bytes: stored }, bytes, cuts)) {
          // A bit that nobody looks at, such as the time in a gzip header, may differ.
          const isAsBefore = back === undefined || back.equals(text(bytes));
          if (CHECKED.includes(codec)) expect(isAsBefore).toBe(true);
          else expect(back?.length ?? 0).toBeLessThanOrEqual(200 * stored.length + 1024 * KIB);
        }
      }),
      tries(40),
    );
  });

  test('a cut at any place is an error', async () => {
    await fc.assert(
      fc.asyncProperty(sizes, places, chunkings, async (bytes, place, cuts) => {
        const { encoding, bytes: whole } = await storedText(codec, bytes);
        const stored = whole.subarray(0, Math.floor(place * whole.length));
        const results = await read({ encoding, bytes: stored }, bytes, cuts);
        expect(results).toEqual([undefined, undefined, undefined, undefined]);
      }),
      tries(40),
    );
  });

  test('a cut at each of the last and of the first bytes is an error', async () => {
    for (const bytes of [5_000, 128 * KIB]) {
      const { encoding, bytes: whole } = await storedText(codec, bytes);
      const lengths = Array.from({ length: 20 }, (_, at) => [at, whole.length - 1 - at]).flat();
      for (const length of lengths) {
        const stored = { encoding, bytes: whole.subarray(0, length) };
        const results = await read(stored, bytes, [64 * KIB]);
        expect(results, `cut to ${length}`).toEqual([undefined, undefined, undefined, undefined]);
      }
    }
  });

  test('appended bytes are an error', async () => {
    const garbage = fc.oneof(
      fc.constant(new Uint8Array(1)),
      fc.constant(new Uint8Array(200 * KIB)),
      fc.uint8Array({ minLength: 1, maxLength: 40 }),
      fc.constant(noise(100 * KIB)),
    );
    await fc.assert(
      fc.asyncProperty(sizes, garbage, chunkings, async (bytes, more, cuts) => {
        const { encoding, bytes: whole } = await storedText(codec, bytes);
        const stored = { encoding, bytes: Buffer.concat([whole, more]) };
        const results = await read(stored, bytes, cuts);
        expect(results).toEqual([undefined, undefined, undefined, undefined]);
      }),
      tries(25),
    );
  });

  test('appended bytes are an error where they come as a piece of their own', async () => {
    const { bytes } = await storedText(codec, 5_000);
    const source = await SOURCES[codec].load();
    for (const more of [Buffer.alloc(1), Buffer.from('more'), bytes.subarray(0, 10), noise(99)]) {
      async function* pieces(): AsyncGenerator<Uint8Array, void, undefined> {
        yield bytes;
        yield more;
      }
      await expect(collect(source.unpackStream(pieces()))).rejects.toBeInstanceOf(DamagedData);
    }
  });

  test('a second body behind the first is never taken for a part of it', async () => {
    const { encoding, bytes } = await storedText(codec, 5_000);
    const stored = { encoding, bytes: Buffer.concat([bytes, bytes]) };
    for (const way of WAYS) {
      await refusal(() => unpack(stored, { way, maxBytes: 5_000 }), 'body.corrupt');
    }
  });

  test('bytes of any kind are an error or bytes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), chunkings, async (bytes, cuts) => {
        const stored = { encoding: codec, bytes: Buffer.from(bytes) };
        for (const back of await read(stored, 1_000, cuts)) {
          expect(back === undefined || Buffer.isBuffer(back)).toBe(true);
        }
      }),
      tries(100),
    );
  });

  test('the error names the message and keeps what the codec said', async () => {
    const { encoding, bytes } = await storedText(codec, 5_000);
    const cut = { encoding, bytes: bytes.subarray(0, 100) };
    const { message, cause } = await refusal(() => unpack(cut), 'body.corrupt');
    expect(message).toContain('message "a"');
    expect(message).toContain(codec);
    expect(cause).toBeInstanceOf(Error);
  });

  test('an error of the stream that is read comes out as it is', async () => {
    const { encoding, bytes } = await storedText(codec, 600 * KIB);
    const broken = new Error('the disk is gone');
    async function* failing(): AsyncGenerator<Uint8Array, void, undefined> {
      yield bytes.subarray(0, 100);
      throw broken;
    }
    for (const maxBytes of [1_000, Number.POSITIVE_INFINITY]) {
      const reader = readCompressed(encoding, { id: 'a', maxBytes });
      await expect(async () => {
        for await (const part of reader?.decode(failing()) ?? []) expect(part).toBeDefined();
      }).rejects.toBe(broken);
    }
  });
});

describe('traps of the libraries', () => {
  const zstdBody = text(300 * KIB);
  const zstdFrame = zlib.zstdCompressSync(zstdBody, {
    params: { [zlib.constants.ZSTD_c_checksumFlag]: 1 },
  });

  test('zstd: a frame that is cut is no shorter body', async () => {
    for (const length of [
      zstdFrame.length - 1,
      zstdFrame.length - 5,
      zstdFrame.length >> 1,
      9,
      0,
    ]) {
      const stored = { encoding: 'zstd', bytes: zstdFrame.subarray(0, length) };
      for (const way of WAYS) await refusal(() => unpack(stored, { way }), 'body.corrupt');
    }
  });

  test('zstd: a frame that is cut is found out on a Node that does not tell, such as 22', async () => {
    // So told, Node 24 does as Node 22 does.
    const finishFlush = zlib.constants.ZSTD_e_flush;
    const silent: typeof zlib = {
      ...zlib,
      zstdDecompressSync: (bytes, options) =>
        zlib.zstdDecompressSync(bytes, { ...options, finishFlush }),
      createZstdDecompress: (options) => zlib.createZstdDecompress({ ...options, finishFlush }),
    };
    const codec = await zlibSource('zstd', silent).load();
    for (const length of [zstdFrame.length - 1, zstdFrame.length - 5, zstdFrame.length >> 1]) {
      const cut = zstdFrame.subarray(0, length);
      expect(() => silent.zstdDecompressSync(cut)).not.toThrow();
      expect(() => codec.unpack(cut, zstdBody.length)).toThrow(DamagedData);
      async function* stream(): AsyncGenerator<Uint8Array, void, undefined> {
        yield cut;
      }
      await expect(collect(codec.unpackStream(stream()))).rejects.toBeInstanceOf(DamagedData);
    }
  });

  test('zstd: a frame without checksum that is cut is found by its blocks', async () => {
    const frame = zlib.zstdCompressSync(zstdBody);
    const { length } = frame;
    for (const way of WAYS) {
      expect((await unpack({ encoding: 'zstd', bytes: frame }, { way })).equals(zstdBody)).toBe(
        true,
      );
      const cut = { encoding: 'zstd', bytes: frame.subarray(0, length - 1) };
      await refusal(() => unpack(cut, { way }), 'body.corrupt');
    }
  });

  test('zstd: a second frame, or one to skip, is not left out in silence', async () => {
    const skipped = Buffer.from([0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 7]);
    for (const more of [zstdFrame, skipped]) {
      const stored = { encoding: 'zstd', bytes: Buffer.concat([zstdFrame, more]) };
      for (const way of WAYS) await refusal(() => unpack(stored, { way }), 'body.corrupt');
    }
  });

  test('zstd: a window that is far too large is refused before it is reserved', async () => {
    // Magic, a window of 128 MiB, one empty last block.
    const stored = {
      encoding: 'zstd',
      bytes: Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00]),
    };
    for (const way of WAYS) await refusal(() => unpack(stored, { way }), 'body.corrupt');
  });

  test('brotli: a flipped bit that passes gives other bytes, never more than allowed', async () => {
    const { encoding, bytes } = await pack('brotli', text(5_000));
    let passed = 0;
    for (let at = 0; at < bytes.length; at += 1) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 0x10;
      try {
        const back = await unpack({ encoding, bytes: changed }, { maxBytes: 5_000 });
        passed += 1;
        expect(back.length).toBeLessThanOrEqual(5_000);
        // The digest over the plain bytes finds it.
        expect(back.equals(text(5_000))).toBe(false);
      } catch (error) {
        if (!isRespoolError(error, 'body.corrupt')) throw error;
      }
    }
    // So the trap is real, and the digest is needed.
    expect(passed).toBeGreaterThan(0);
  });

  test('lz4: every frame is read, not only the first', async () => {
    const body = text(200 * KIB);
    const stored = await pack('lz4', body);
    const { decompressFrameSync } = await import('lz4-napi');
    expect(decompressFrameSync(stored.bytes).length).toBe(64 * KIB);
    for (const way of WAYS) expect((await unpack(stored, { way })).equals(body)).toBe(true);
  });

  test('lz4: a frame without its end and checksum is an error, though the package reads it', async () => {
    const { bytes, encoding } = await pack('lz4', text(5_000));
    const { decompressFrameSync } = await import('lz4-napi');
    const cut = bytes.subarray(0, bytes.length - 5);
    expect(decompressFrameSync(cut).length).toBe(5_000);
    for (const way of WAYS)
      await refusal(() => unpack({ encoding, bytes: cut }, { way }), 'body.corrupt');
  });

  test.each(['snappy', 'lz4'] as const)(
    '%s: a row that is cut between two blocks is an error',
    async (codec) => {
      const whole = await pack(codec, Buffer.alloc(128 * KIB));
      const half = await pack(codec, Buffer.alloc(64 * KIB));
      const tailBytes = codec === 'snappy' ? 4 : 15;
      const first = half.bytes.subarray(0, half.bytes.length - tailBytes);
      expect(whole.bytes.subarray(0, first.length).equals(first)).toBe(true);
      for (const way of WAYS) {
        await refusal(() => unpack({ encoding: codec, bytes: first }, { way }), 'body.corrupt');
      }
    },
  );

  test('snappy: a chunk that claims gigabytes is refused before anything is reserved', async () => {
    const chunk = Buffer.from([0x00, 9, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    const bytes = Buffer.concat([Buffer.from('\xff\x06\x00\x00sNaPpY', 'latin1'), chunk]);
    for (const way of WAYS) {
      await refusal(() => unpack({ encoding: 'snappy', bytes }, { way }), 'body.corrupt');
    }
  });

  test('gzip: bytes of a second member count against the size', async () => {
    const bytes = Buffer.concat([zlib.gzipSync(text(5_000)), zlib.gzipSync(Buffer.from('more'))]);
    for (const way of WAYS) {
      const stored = { encoding: 'gzip', bytes };
      await refusal(() => unpack(stored, { way, maxBytes: 5_000 }), 'body.corrupt');
    }
  });
});
