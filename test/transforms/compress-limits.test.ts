/** compress-limits.test — bodies that unpack to more than they should are stopped on the way. */
import { readCompressed } from 'respool/transforms';
import * as zlib from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { CODECS, KIB, MIB, pack, refusal, text, unpack, WAYS } from './compress-setup.ts';

const UNBOUNDED = Number.POSITIVE_INFINITY;

describe.each(CODECS)('%s', (codec) => {
  test.each([100, 300 * KIB, 1_200 * KIB])(
    'a body of %i bytes is read where so many are allowed, and not with one less',
    async (bytes) => {
      const body = text(bytes);
      for (const wayIn of WAYS) {
        const stored = await pack(codec, body, { way: wayIn });
        for (const way of WAYS) {
          expect((await unpack(stored, { way, maxBytes: bytes })).equals(body)).toBe(true);
          const { message } = await refusal(
            () => unpack(stored, { way, maxBytes: bytes - 1 }),
            'body.corrupt',
          );
          expect(message).toContain(String(bytes - 1));
        }
      }
    },
  );

  test('an honest body of zeros comes back, because its ratio is recorded', async () => {
    const body = Buffer.alloc(4 * MIB);
    for (const wayIn of WAYS) {
      const stored = await pack(codec, body, { way: wayIn });
      const ratio = Number(/;ratio=(\d+)$/.exec(stored.encoding)?.[1] ?? 0);
      const real = body.length / stored.bytes.length;
      // Snappy never gets there: a chunk of 64 KiB takes three.
      expect(ratio > 0).toBe(real > 200);
      if (ratio > 0) expect(ratio).toBeGreaterThanOrEqual(Math.ceil(real));
      for (const way of WAYS) {
        const back = await unpack(stored, { way, maxBytes: body.length, sizes: [1_000] });
        expect(back.equals(body)).toBe(true);
        expect((await unpack(stored, { way })).length).toBe(body.length);
      }
    }
  });

  test('zeros before, between or after text come back in any parts', async () => {
    const zeros = Buffer.alloc(2 * MIB);
    const some = text(300 * KIB);
    for (const body of [
      Buffer.concat([zeros, some]),
      Buffer.concat([some, zeros]),
      Buffer.concat([some, zeros, some, zeros]),
    ]) {
      for (const wayIn of WAYS) {
        const stored = await pack(codec, body, { way: wayIn, sizes: [70_000] });
        for (const sizes of [[999], [10 * MIB]]) {
          const back = await unpack(stored, { way: 'stream', sizes, maxBytes: body.length });
          expect(back.equals(body)).toBe(true);
        }
      }
    }
  });

  test('a MiB of zeros needs no record', async () => {
    const body = Buffer.alloc(MIB);
    for (const wayIn of WAYS) {
      const stored = await pack(codec, body, { way: wayIn });
      expect(stored.encoding).toBe(codec);
      for (const way of WAYS) expect((await unpack(stored, { way })).equals(body)).toBe(true);
    }
  });
});

describe('plain', () => {
  test('a body that was left as it was is limited, too', async () => {
    for (const way of WAYS) {
      const stored = { encoding: 'plain', bytes: Buffer.alloc(100) };
      expect(await unpack(stored, { way, maxBytes: 100, sizes: [7] })).toEqual(Buffer.alloc(100));
      await refusal(() => unpack(stored, { way, maxBytes: 99, sizes: [7] }), 'body.corrupt');
    }
  });
});

describe('a bomb', () => {
  test('of 100 MiB of zeros without a record is stopped after the first MiB', async () => {
    const zeros = Buffer.alloc(100 * MIB);
    for (const [encoding, bytes] of [
      ['zstd', zlib.zstdCompressSync(zeros)],
      ['gzip', zlib.gzipSync(zeros, { level: 1 })],
      ['brotli', brotliOf(zeros)],
    ] as const) {
      for (const way of WAYS) {
        await refusal(() => unpack({ encoding, bytes }, { way }), 'body.corrupt');
      }
      expect(await readUntilStopped(encoding, [bytes], UNBOUNDED)).toBeLessThan(
        Math.max(2 * MIB, 201 * 64 * KIB),
      );
    }
  });

  test('that goes on for ever is stopped early, whatever its record claims to be', async () => {
    const { head, rest } = endlessZstd();
    async function* endless(): AsyncGenerator<Uint8Array, void, undefined> {
      yield head;
      for (;;) yield rest;
    }
    // 64 KiB hold 16,384 blocks of 128 KiB each: 2 GiB.
    expect(await readUntilStopped('zstd', endless(), UNBOUNDED)).toBeLessThan(14 * MIB);
    expect(await readUntilStopped('zstd;ratio=99999999', endless(), 3 * MIB)).toBeLessThan(4 * MIB);
  });

  test('with a ratio above its record is stopped, and one below 200 counts as 200', async () => {
    const body = Buffer.alloc(20 * MIB);
    const { bytes, encoding } = await pack('gzip', body);
    const ratio = Number(encoding.split('=')[1]);
    expect(ratio).toBeGreaterThan(500);
    for (const way of WAYS) {
      expect((await unpack({ encoding: `gzip;ratio=${ratio}`, bytes }, { way })).length).toBe(
        body.length,
      );
      await refusal(
        () => unpack({ encoding: `gzip;ratio=${ratio - 30}`, bytes }, { way }),
        'body.corrupt',
      );
      const modest = await pack('gzip', text(2 * MIB));
      const claimed = { encoding: 'gzip;ratio=1', bytes: modest.bytes };
      expect((await unpack(claimed, { way })).length).toBe(2 * MIB);
    }
  });
});

function brotliOf(body: Buffer): Buffer {
  return zlib.brotliCompressSync(body, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } });
}

/** How many plain bytes come out before the error. */
async function readUntilStopped(
  encoding: string,
  packed: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  maxBytes: number,
): Promise<number> {
  async function* stream(): AsyncGenerator<Uint8Array, void, undefined> {
    yield* packed;
  }
  let bytes = 0;
  await refusal(async () => {
    for await (const part of readCompressed(encoding, { id: 'a', maxBytes })?.decode(stream()) ??
      []) {
      bytes += part.length;
    }
  }, 'body.corrupt');
  return bytes;
}

/** A zstd frame of blocks that repeat one byte 128 Ki times, and that has no last block. */
function endlessZstd(): { readonly head: Buffer; readonly rest: Buffer } {
  const block = Buffer.alloc(4);
  block.writeUIntLE((1 << 1) | ((128 * KIB) << 3), 0, 3);
  return {
    // Magic, no flags, a window of 1 MiB.
    head: Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x50]),
    rest: Buffer.concat(Array.from({ length: 4 * KIB }, () => block)),
  };
}
