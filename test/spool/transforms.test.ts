/** Transforms inside a spool: applied as listed, undone in reverse, recorded with each body. */
import { createHash, createHmac } from 'node:crypto';
import { createSpool } from 'respool';
import { memory } from 'respool/stores/memory';
import type { Transform } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { flip, lock, readsOnly } from './sample-transforms.ts';
import { all, bytesOf, codeOf, rejection, setup, type World, type WorldOptions } from './setup.ts';

const SMALL = Buffer.from('a small body');
const LARGE: Buffer = Buffer.alloc(100_000, 'a large body ');
const sha = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** A spool that keeps what it is given. */
const keeping = (transforms: readonly Transform[], more: WorldOptions = {}): Promise<World> =>
  setup({ transforms, isStarted: false, ...more });

async function stored({ data, spool, bodies }: World, id: string): Promise<Buffer> {
  const body = (await spool.get(id))?.envelope.body;
  if (body?.place === 'store') return bytesOf(bodies.get(body.ref));
  const store = memory({ shared: data });
  await store.open();
  return Buffer.from((await store.get(id))?.inlineBody ?? '');
}

const infoOf = async ({ spool }: World, id: string) => (await spool.get(id))?.envelope.body;

describe.each([
  ['that rides with its entry', SMALL, 'inline'],
  ['in the body store', LARGE, 'store'],
] as const)('a body %s', (_, plain, place) => {
  test('is stored as the transforms made it, in their order, and read back as it was', async () => {
    const grow = flip(1, { name: 'grow', growsBy: 7 });
    const world = await keeping([grow, flip(6)]);
    const { id } = await world.spool.enqueue({ topic: 'a', body: plain });
    expect(await infoOf(world, id)).toMatchObject({
      place,
      size: plain.byteLength,
      storedSize: plain.byteLength + 7,
      digest: sha(plain),
      encodings: ['grow', 'flip-6'],
    });
    const expected = Buffer.concat([Buffer.alloc(7, 6), plain.map((byte) => byte ^ 7)]);
    expect((await stored(world, id)).equals(expected)).toBe(true);
    expect((await bytesOf(await world.spool.body(id))).equals(plain)).toBe(true);
  });

  test('has a keyed digest where a transform gives the key', async () => {
    const world = await keeping([flip(1), lock({ k1: 9 }, 'k1')]);
    const { id } = await world.spool.enqueue({ topic: 'a', body: plain });
    const key = Buffer.alloc(32, 'k1-9');
    const digest = `hmac-sha256:${createHmac('sha256', key).update(plain).digest('hex')}`;
    expect(await infoOf(world, id)).toMatchObject({ digest, encodings: ['flip-1', 'lock;key=k1'] });
    expect((await bytesOf(await world.spool.body(id))).equals(plain)).toBe(true);
  });

  test('is readable by its record, whatever the list has become', async () => {
    const before = await keeping([flip(1), lock({ k1: 9 }, 'k1')]);
    const { id } = await before.spool.enqueue({ topic: 'a', body: plain });
    const transforms = [flip(2), lock({ k1: 9, k2: 8 }, 'k2'), readsOnly(flip(1))];
    const after = await keeping(transforms, { with: before });
    const { id: next } = await after.spool.enqueue({ topic: 'a', body: plain });
    expect((await infoOf(after, next))?.encodings).toEqual(['flip-2', 'lock;key=k2']);
    for (const one of [id, next]) {
      expect((await bytesOf(await after.spool.body(one))).equals(plain)).toBe(true);
    }
  });

  test('whose transform is no longer there is refused with what to add', async () => {
    const before = await keeping([flip(1)]);
    const { id } = await before.spool.enqueue({ topic: 'a', body: plain });
    const after = await keeping([], { with: before });
    const error = await rejection(after.spool.body(id).then(bytesOf));
    expect(error).toMatchObject({ code: 'transform.missing' });
    expect(error.message).toContain('"flip-1"');
  });

  test('that decodes to something else is refused, whatever the decoder says', async () => {
    const before = await keeping([flip(1, { name: 'x' })]);
    const { id } = await before.spool.enqueue({ topic: 'a', body: plain });
    for (const wrong of [flip(2, { name: 'x' }), flip(1, { name: 'x', growsBy: 1 })]) {
      const after = await keeping([wrong], { with: before });
      expect(await codeOf(after.spool.body(id).then(bytesOf))).toBe('body.corrupt');
    }
  });

  test('comes through a streamed enqueue and through many at once', async () => {
    const world = await keeping([flip(1, { isSlow: true }), lock({ k1: 9 }, 'k1')]);
    const { spool } = world;
    const tx = await spool.begin({ topic: 'a' });
    for (let at = 0; at < plain.byteLength; at += 1_000) {
      await tx.write(plain.subarray(at, at + 1_000));
    }
    const streamed = await tx.commit();
    const many = await spool.enqueueMany([
      { topic: 'a', body: plain },
      { topic: 'a', body: new Blob([plain]) },
    ]);
    for (const { id } of [streamed, ...many]) {
      expect((await infoOf(world, id))?.encodings).toEqual(['flip-1', 'lock;key=k1']);
      expect((await bytesOf(await spool.body(id))).equals(plain)).toBe(true);
    }
  });

  test.each(['handed over', 'found later'])('%s reaches the handler as it was', async (way) => {
    const { spool, clock } = await setup({
      transforms: [flip(1), lock({ k1: 9 }, 'k1')],
      immediate: way === 'handed over',
      poll: '1s',
    });
    const seen: Buffer[] = [];
    spool.handle('a', async (delivery) => {
      seen.push(Buffer.from(await delivery.body()), await bytesOf(delivery.stream()));
    });
    await spool.enqueue({ topic: 'a', body: plain });
    await clock.advance('10s');
    expect(seen.map((bytes) => bytes.equals(plain))).toEqual([true, true]);
  });
});

describe('a small body', () => {
  test('is accepted in the same turn where every transform answers at once', async () => {
    const { spool, calls } = await setup({ transforms: [flip(1), lock({ k1: 9 }, 'k1')] });
    const accepted = spool.enqueue({ topic: 'a', body: SMALL });
    expect(calls.map(({ operation }) => operation)).toContain('insert');
    await accepted;
  });

  test('that takes longer is accepted when it is encoded, and a stop waits for it', async () => {
    const { spool, calls, data } = await setup({ transforms: [flip(1, { isSlow: true })] });
    const accepted = spool.enqueue({ topic: 'a', body: SMALL });
    expect(calls.map(({ operation }) => operation)).not.toContain('insert');
    const stopped = spool.stop();
    const { id } = await accepted;
    await stopped;
    const store = memory({ shared: data });
    await store.open();
    expect((await store.get(id))?.envelope.body.encodings).toEqual(['flip-1']);
  });

  test('that grows beyond what its entry may carry goes to the body store', async () => {
    const world = await keeping([flip(1, { name: 'grow', growsBy: 10 })], {
      traits: { inlineMaxBytes: 100 },
    });
    const fits = await world.spool.enqueue({ topic: 'a', body: Buffer.alloc(90) });
    const grown = await world.spool.enqueue({ topic: 'a', body: Buffer.alloc(91) });
    expect(await infoOf(world, fits.id)).toMatchObject({ place: 'inline', storedSize: 100 });
    expect(await infoOf(world, grown.id)).toMatchObject({ place: 'store', storedSize: 101 });
    expect(await bytesOf(await world.spool.body(grown.id))).toEqual(Buffer.alloc(91));
  });

  test('is empty and comes back empty', async () => {
    const world = await keeping([flip(1, { growsBy: 3 }), lock({ k1: 9 }, 'k1')]);
    const { id } = await world.spool.enqueue({ topic: 'a' });
    expect(await infoOf(world, id)).toMatchObject({ size: 0, storedSize: 3 });
    expect(await bytesOf(await world.spool.body(id))).toEqual(Buffer.alloc(0));
  });
});

test('the limit of a body counts the bytes as they were given', async () => {
  const world = await keeping([flip(1, { growsBy: 5 })], { limits: { bodyBytes: 100_000 } });
  const { id } = await world.spool.enqueue({ topic: 'a', body: Buffer.alloc(100_000) });
  expect((await infoOf(world, id))?.storedSize).toBe(100_005);
  const over = world.spool.enqueue({ topic: 'a', body: Buffer.alloc(100_001) });
  expect(await codeOf(over)).toBe('limit.exceeded');
});

describe('a transform', () => {
  test.each([
    ['small', SMALL],
    ['large', LARGE],
  ])('that fails leaves nothing of a %s body, and the caller knows', async (_, body) => {
    const fail = (): never => {
      throw new Error('no');
    };
    const broken: Transform = {
      ...flip(1),
      writer: () => ({ encoding: 'flip-1', encode: fail, encodeBytes: fail }),
    };
    const { spool, bodies } = await keeping([broken]);
    const isEnded: boolean[] = [];
    const stream = async function* (): AsyncGenerator<Uint8Array> {
      try {
        yield body;
      } finally {
        isEnded.push(true);
      }
    };
    await expect(spool.enqueue({ topic: 'a', body })).rejects.toThrow('no');
    await expect(spool.enqueue({ topic: 'a', body: stream() })).rejects.toThrow('no');
    expect(isEnded).toEqual([true]);
    expect(await spool.count()).toMatchObject({ incoming: 0, active: 0 });
    expect(await all(bodies.refs(Number.MAX_SAFE_INTEGER))).toEqual([]);
  });

  test('that does not read a body to its end is found out, and nothing is kept', async () => {
    const lazy: Transform = {
      ...flip(1),
      writer: () => ({
        encoding: 'flip-1',
        async *encode() {
          yield SMALL;
        },
        encodeBytes: () => SMALL,
      }),
    };
    const { spool, bodies } = await keeping([lazy]);
    expect(await codeOf(spool.enqueue({ topic: 'a', body: LARGE }))).toBe('config.invalid');
    expect(await all(bodies.refs(Number.MAX_SAFE_INTEGER))).toEqual([]);
  });

  test('whose record is no visible text is refused before anything is kept', async () => {
    const nameless: Transform = {
      ...flip(1),
      writer: (context) => ({ ...flip(1).writer?.(context), encoding: 'a\nb' }) as never,
    };
    const { spool } = await keeping([nameless]);
    expect(await codeOf(spool.enqueue({ topic: 'a', body: SMALL }))).toBe('config.invalid');
    expect((await spool.page()).entries).toEqual([]);
  });

  test('is opened once, before the first body, and keeps the spool closed if it fails', async () => {
    let opens = 0;
    const open = async (): Promise<void> => {
      opens += 1;
      if (opens === 1) throw new Error('the keys are away');
    };
    const { spool, count } = await keeping([{ ...flip(1), open }]);
    await expect(spool.enqueue({ topic: 'a' })).rejects.toThrow('the keys are away');
    expect(count('open')).toBe(0);
    await spool.enqueue({ topic: 'a' });
    await spool.stop();
    expect(await spool.count()).toMatchObject({ incoming: 1 });
    expect(opens).toBe(2);
  });

  test('is told the size that a body may have, and nothing of what lies between', async () => {
    const asked: [string, number][] = [];
    const telling = (mask: number): Transform => ({
      ...flip(mask),
      reader: (encoding, context) => {
        if (encoding === `flip-${mask}`) asked.push([encoding, context.maxBytes]);
        return flip(mask).reader(encoding, context);
      },
    });
    const { spool } = await keeping([telling(1), telling(2)]);
    const { id } = await spool.enqueue({ topic: 'a', body: SMALL });
    await bytesOf(await spool.body(id));
    expect(asked).toEqual([
      ['flip-1', SMALL.byteLength],
      ['flip-2', Number.POSITIVE_INFINITY],
    ]);
  });
});

describe('a list of transforms is refused', () => {
  const compression = flip(1, { name: 'small', kind: 'compression' });
  const encryption = lock({ k1: 1 }, 'k1');
  test.each<[string, unknown, RegExp]>([
    ['that is no list', { 0: compression }, /a list of transforms/],
    ['with something else in it', ['zstd'], /"transforms\[0\]": allowed is a transform/],
    ['with a name of capitals', [flip(1, { name: 'Zip' })], /transforms\[0\]\.name/],
    ['with a kind that does not exist', [{ ...flip(1), kind: 'magic' }], /compression \| /],
    ['without a reader', [{ ...flip(1), reader: undefined }], /transforms\[0\]\.reader/],
    ['with a writer that is none', [{ ...flip(1), writer: 1 }], /transforms\[0\]\.writer/],
    ['with an open that is none', [{ ...flip(1), open: 1 }], /transforms\[0\]\.open/],
    ['with a name twice', [flip(1), flip(1)], /"flip-1" is there twice/],
    ['with 17 of them', Array.from({ length: 17 }, (_, at) => flip(at)), /allowed are 16/],
    ['that compresses after it encrypts', [encryption, flip(9), compression], /put the compre/],
    ['that compresses twice', [compression, { ...compression, name: 'more' }], /both compress/],
    ['that encrypts twice', [encryption, { ...encryption, name: 'more' }], /both encrypt/],
  ])('%s', (_, transforms, text) => {
    const make = (): unknown => createSpool({ transforms: transforms as Transform[] });
    expect(make).toThrow(expect.objectContaining({ code: 'config.invalid' }));
    expect(make).toThrow(text);
  });

  test('but one of your own may stand anywhere', () => {
    const list = [flip(1), compression, flip(2), encryption, flip(3)];
    expect(() => createSpool({ transforms: list })).not.toThrow();
  });
});
