/** Any body in any pieces through any chain comes back equal; any damage is found, none crashes. */
import fc from 'fast-check';
import { createSpool, type Spool } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { compress, encrypt, type Transform } from 'respool/transforms';
import { expect, test } from 'vitest';
import { flip } from './sample-transforms.ts';
import { bytesOf } from './setup.ts';

const { RESPOOL_PROPERTY_RUNS: runs = '100', RESPOOL_PROPERTY_SEED: seed } = process.env;
const RUNS = { numRuns: Number(runs), ...(seed === undefined ? {} : { seed: Number(seed) }) };

const codecs = ['gzip', 'zlib', 'deflate', 'brotli', 'zstd', 'snappy', 'lz4'] as const;
const ciphers = ['aes-256-gcm', 'chacha20-poly1305'] as const;
const keys = { k1: Buffer.alloc(32, 1) };

const compression = fc.option(fc.constantFrom(...codecs), { nil: undefined });
const encryption = fc.option(
  fc.record({ cipher: fc.constantFrom(...ciphers), pad: fc.boolean() }),
  { nil: undefined },
);

/** Flips before, between and after, as it comes. */
const chain: fc.Arbitrary<readonly Transform[]> = fc
  .tuple(compression, encryption, fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }))
  .map(([codec, cipher, flips]) => [
    ...(flips[0] === true ? [flip(1)] : []),
    ...(codec === undefined ? [] : [compress(codec, levelOf(codec))]),
    ...(flips[1] === true ? [flip(2, { isSlow: true })] : []),
    ...(cipher === undefined ? [] : [encrypt({ keys, ...cipher })]),
    ...(flips[2] === true ? [flip(4)] : []),
  ]);

/** Noise, or one byte many times: so that some of it compresses, and a failure can be read. */
type Piece = { readonly noise: Uint8Array } | { readonly size: number; readonly byte: number };

const pieces: fc.Arbitrary<readonly Piece[]> = fc.array(
  fc.oneof(
    fc.record({ noise: fc.uint8Array({ maxLength: 300 }) }),
    fc.record({ size: fc.nat(100_000), byte: fc.nat(255) }),
  ),
  { maxLength: 6 },
);

function bytesIn(piece: Piece): Buffer {
  return 'noise' in piece ? Buffer.from(piece.noise) : Buffer.alloc(piece.size, piece.byte);
}

function levelOf(codec: string): { readonly level?: 'fastest' } {
  return codec === 'brotli' || codec === 'zstd' ? { level: 'fastest' } : {};
}

interface World {
  readonly spool: Spool;
  readonly entries: ReturnType<typeof memory>;
  readonly bodies: ReturnType<typeof memoryBodies>;
}

async function within<T>(
  transforms: readonly Transform[],
  work: (world: World) => Promise<T>,
): Promise<T> {
  const entries = memory();
  const bodies = memoryBodies();
  const spool = createSpool({ entries, bodies, transforms });
  try {
    return await work({ spool, entries, bodies });
  } finally {
    await spool.stop();
  }
}

async function* streamOf(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* parts;
}

test('any body in any pieces through any chain comes back equal', async () => {
  await fc.assert(
    fc.asyncProperty(chain, pieces, async (transforms, given) => {
      const parts = given.map(bytesIn);
      const whole = Buffer.concat(parts);
      await within(transforms, async ({ spool }) => {
        const { id } = await spool.enqueue({ topic: 'a', body: whole });
        const streamed = await spool.enqueue({ topic: 'a', body: streamOf(parts) });
        for (const one of [id, streamed.id]) {
          expect((await bytesOf(await spool.body(one))).equals(whole)).toBe(true);
        }
      });
    }),
    RUNS,
  );
});

type Damage = (stored: Buffer, at: number, byte: number) => Buffer;

const damages: Record<string, Damage> = {
  flipped: (stored, at, byte) => {
    const copy = Buffer.from(stored);
    copy[at] = (copy[at] ?? 0) ^ (byte === 0 ? 1 : byte);
    return copy;
  },
  cut: (stored, at) => stored.subarray(0, at),
  doubled: (stored, at) => Buffer.concat([stored.subarray(0, at + 1), stored.subarray(at)]),
  appended: (stored, _, byte) => Buffer.concat([stored, Buffer.of(byte)]),
};

test.each(Object.entries(damages))(
  'of a stored body that is %s no wrong byte comes out',
  async (name, damage) => {
    await fc.assert(
      fc.asyncProperty(chain, pieces, fc.nat(), fc.nat(255), async (list, given, where, byte) => {
        const whole = Buffer.concat([...given.map(bytesIn), Buffer.from('never empty')]);
        await within(list, async (world) => {
          const { id } = await world.spool.enqueue({ topic: 'a', body: whole });
          await spoil(world, id, (stored) => damage(stored, where % stored.byteLength, byte));
          const read = await world.spool
            .body(id)
            .then(bytesOf)
            .catch((error: unknown) => error);
          // The header of a gzip file has bytes that mean nothing: then what comes out is right.
          const mayBeRight = name === 'flipped' && list.every(({ kind }) => kind !== 'encryption');
          if (mayBeRight && Buffer.isBuffer(read)) expect(read.equals(whole)).toBe(true);
          else expect(read).toMatchObject({ name: 'RespoolError', code: 'body.corrupt' });
        });
      }),
      RUNS,
    );
  },
);

/** Writes other bytes where the body lies. */
async function spoil(
  { entries, bodies }: World,
  id: string,
  damage: (stored: Buffer) => Buffer,
): Promise<void> {
  const entry = await entries.get(id);
  if (entry === undefined) throw new Error('gone');
  const { envelope, status, inlineBody } = entry;
  const { ref, place } = envelope.body;
  if (place === 'store') {
    const stored = await bytesOf(bodies.get(ref));
    await bodies.remove([ref]);
    await bodies.put(ref, streamOf([damage(stored)]));
    return;
  }
  const { revision } = status;
  const to = { ...status, revision: revision + 1 };
  const spoilt = damage(Buffer.from(inlineBody ?? ''));
  await entries.commit([{ id, revision, to, envelope, inlineBody: spoilt }]);
}
