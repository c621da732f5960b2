/** Compression and encryption in a spool, on real stores: what one configuration wrote, any reads. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool, type Spool } from 'respool';
import { filesystemBodies } from 'respool/stores/filesystem';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { sqlite } from 'respool/stores/sqlite';
import { compress, decrypt, encrypt, generateKey, seal, type Transform } from 'respool/transforms';
import { afterEach, describe, expect, test } from 'vitest';
import { all, bytesOf, codeOf } from './setup.ts';

const KEYS = { k1: generateKey(), k2: generateKey(), k3: generateKey() };
const { k1, k2 } = KEYS;

/** Compresses to about half. */
const TEXT: Buffer = Buffer.from(Array.from({ length: 9_000 }, (_, at) => `${at * 7919}`).join());
const BODIES: readonly Buffer[] = [
  Buffer.alloc(0),
  Buffer.from('{"tiny":true}'),
  TEXT.subarray(0, 9_000),
  TEXT,
  Buffer.alloc(300_000),
];

type Make = (options: { readonly transforms: readonly Transform[] }) => Spool;

const undo: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const one of undo.splice(0).toReversed()) await one();
});

const places: Record<string, () => Promise<Make>> = {
  memory: async () => {
    const shared = createMemoryData();
    return made((options) => ({
      ...options,
      entries: memory({ shared }),
      bodies: memoryBodies({ shared }),
    }));
  },
  'sqlite and files': async () => {
    const path = await mkdtemp(join(tmpdir(), 'respool-transforms-'));
    undo.push(() => rm(path, { recursive: true, force: true }));
    return made((options) => ({ ...options, path }));
  },
};

function made(complete: (options: { readonly transforms: readonly Transform[] }) => object): Make {
  return (options) => {
    const spool = createSpool(complete(options));
    undo.push(() => spool.stop());
    return spool;
  };
}

/** What bodies were written with, in the order of the years; each can read what it wrote. */
const HISTORY: readonly (readonly [string, () => readonly Transform[]])[] = [
  ['nothing', () => []],
  ['gzip', () => [compress('gzip')]],
  ['zlib', () => [compress('zlib', { level: 'best' })]],
  ['deflate', () => [compress('deflate')]],
  ['brotli', () => [compress('brotli', { level: 'fastest' })]],
  ['zstd', () => [compress('zstd', { level: 'better' })]],
  ['snappy', () => [compress('snappy')]],
  ['lz4', () => [compress('lz4')]],
  ['aes', () => [encrypt({ keys: { k1 } })]],
  ['chacha, padded', () => [encrypt({ keys: { k1 }, cipher: 'chacha20-poly1305', pad: true })]],
  ['zstd and aes', () => [compress('zstd'), encrypt({ keys: { k1 } })]],
  [
    'snappy and chacha',
    () => [compress('snappy'), encrypt({ keys: { k2 }, cipher: 'chacha20-poly1305' })],
  ],
  ['a second key', () => [compress('gzip'), encrypt({ keys: { k1, k2 }, primary: 'k2' })]],
  ['keys by a function', () => [encrypt({ keys: async (id) => KEYS[id as 'k1'], primary: 'k3' })]],
];

/** What they are read with: each knows all keys, and compresses in its own way or not at all. */
const TODAY: readonly (readonly [string, () => readonly Transform[]])[] = [
  ['keys alone', () => [decrypt({ keys: KEYS })]],
  [
    'another codec and another cipher',
    () => [compress('lz4'), encrypt({ keys: KEYS, primary: 'k3', cipher: 'chacha20-poly1305' })],
  ],
  [
    'keys by a function',
    () => [compress('brotli'), encrypt({ keys: (id) => KEYS[id as 'k1'], primary: 'k1' })],
  ],
];

/** Five bodies in four ways. */
async function fill(spool: Spool): Promise<Map<string, Buffer>> {
  const ids = new Map<string, Buffer>();
  for (const body of BODIES) ids.set((await spool.enqueue({ topic: 'a', body })).id, body);
  const many = await spool.enqueueMany(BODIES.map((body) => ({ topic: 'a', body })));
  for (const [at, { id }] of many.entries()) ids.set(id, BODIES[at] ?? TEXT);
  for (const body of BODIES) {
    const { id } = await spool.enqueue({ topic: 'a', body: new Blob([body]) });
    ids.set(id, body);
    const tx = await spool.begin({ topic: 'a' });
    for (let at = 0; at < body.byteLength; at += 50_000) {
      await tx.write(body.subarray(at, at + 50_000));
    }
    ids.set((await tx.commit()).id, body);
  }
  return ids;
}

async function expectBodies(spool: Spool, bodies: ReadonlyMap<string, Buffer>): Promise<void> {
  for (const [id, body] of bodies) {
    const info = (await spool.get(id))?.envelope.body;
    const read = await bytesOf(await spool.body(id));
    expect(read.equals(body), `${id} of ${info?.encodings.join()}`).toBe(true);
    expect(info).toMatchObject({ size: body.byteLength });
  }
}

describe.each(Object.entries(places))('in %s', (_, place) => {
  test('what was written under any configuration is readable under any other', async () => {
    const make = await place();
    const written = new Map<string, Buffer>();
    for (const [, transforms] of HISTORY) {
      const spool = make({ transforms: transforms() });
      const bodies = await fill(spool);
      await expectBodies(spool, bodies);
      for (const [id, body] of bodies) written.set(id, body);
      await spool.stop();
    }
    expect(written.size).toBe(HISTORY.length * 4 * BODIES.length);
    for (const [, transforms] of TODAY) {
      const spool = make({ transforms: transforms() });
      await expectBodies(spool, written);
      expect((await spool.operator({ by: 'ops' }).check()).findings).toEqual([]);
      await spool.stop();
    }
  });

  test('the envelope says what was done to each body', async () => {
    const make = await place();
    const spool = make({ transforms: [compress('zstd'), encrypt({ keys: { k1 } })] });
    const told = async (body: unknown): Promise<unknown> => {
      const { id } = await spool.enqueue({ topic: 'a', body });
      return (await spool.get(id))?.envelope.body;
    };
    const digest: unknown = expect.stringMatching(/^hmac-sha256:[0-9a-f]{64}$/);
    const locked = 'aes-256-gcm;key=k1';
    expect(await told('tiny')).toMatchObject({ size: 4, digest, encodings: ['plain', locked] });
    expect(await told(TEXT)).toMatchObject({ place: 'store', digest, encodings: ['zstd', locked] });
    const zeros = (await told(Buffer.alloc(5_000_000))) as { storedSize: number };
    expect(zeros).toMatchObject({ encodings: [expect.stringMatching(/^zstd;ratio=\d+$/), locked] });
    expect(zeros.storedSize).toBeLessThan(5_000);
  });

  test('handlers get bodies as they were', async () => {
    const make = await place();
    const spool = make({ transforms: [compress('zstd'), encrypt({ keys: { k1 } })] });
    const got: Buffer[] = [];
    const isDone = new Promise<void>((resolve) => {
      spool.handle('a', async (delivery) => {
        got.push(Buffer.from(await delivery.body()));
        if (got.length === BODIES.length) resolve();
      });
    });
    await spool.enqueueMany(BODIES.map((body) => ({ topic: 'a', body })));
    await spool.start();
    await isDone;
    const bySize = (one: Buffer, other: Buffer): number => one.byteLength - other.byteLength;
    expect(got.toSorted(bySize)).toEqual(BODIES.toSorted(bySize));
  });

  test('rekeying leaves bodies of the newest key only, and then the others can go', async () => {
    const make = await place();
    const written = new Map<string, Buffer>();
    for (const [, transforms] of HISTORY) {
      const spool = make({ transforms: transforms() });
      for (const body of BODIES) {
        written.set((await spool.enqueue({ topic: 'a', body })).id, body);
      }
      await spool.stop();
    }
    const spool = make({ transforms: [compress('zstd'), encrypt({ keys: KEYS, primary: 'k2' })] });
    const report = await spool.operator({ by: 'ops' }).rekey();
    // Those that were encrypted with the same key and cipher may stay as they are.
    expect(report).toMatchObject({ left: 0, unreadable: 0, done: written.size - BODIES.length });
    await spool.stop();
    const after = make({ transforms: [encrypt({ keys: { k2 } })] });
    await expectBodies(after, written);
    await after.stop();
    const plain = make({ transforms: [decrypt({ keys: { k2 } })] });
    expect(await plain.operator({ by: 'ops' }).rekey()).toMatchObject({
      left: 0,
      unreadable: 0,
      done: written.size,
    });
    await plain.stop();
    const without = make({ transforms: [] });
    await expectBodies(without, written);
    expect((await without.operator({ by: 'ops' }).check()).findings).toEqual([]);
  });
});

describe('bodies that were exchanged', () => {
  test.each([
    ['without encryption', () => [compress('zstd')]],
    ['with encryption', () => [compress('zstd'), encrypt({ keys: { k1 } })]],
  ] as [string, () => Transform[]][])('between two messages hold both, %s', async (_, list) => {
    const shared = createMemoryData();
    const bodies = memoryBodies({ shared });
    const spool = createSpool({ entries: memory({ shared }), bodies, transforms: list() });
    undo.push(() => spool.stop());
    const one = await spool.enqueue({ topic: 'a', body: TEXT });
    const other = await spool.enqueue({ topic: 'a', body: TEXT.map((byte) => byte ^ 1) });
    const refs: string[] = [];
    for (const { id } of [one, other]) refs.push((await spool.get(id))?.envelope.body.ref ?? '');
    const [first, second] = await Promise.all(refs.map((ref) => bytesOf(bodies.get(ref))));
    await bodies.remove(refs);
    await bodies.put(refs[0] ?? '', parts(second));
    await bodies.put(refs[1] ?? '', parts(first));
    const held = new Promise<void>((resolve) => {
      let count = 0;
      spool.on('held', () => {
        count += 1;
        if (count === 2) resolve();
      });
    });
    spool.handle('a', async (delivery) => {
      await delivery.body().catch(() => undefined);
    });
    await spool.start();
    await held;
    for (const { id } of [one, other]) {
      const status = (await spool.get(id))?.status;
      expect(status).toMatchObject({
        state: 'hold',
        attempts: 0,
        because: { code: 'body.corrupt' },
      });
    }
  });

  async function* parts(bytes: Uint8Array | undefined): AsyncGenerator<Uint8Array> {
    yield bytes ?? new Uint8Array(0);
  }
});

test('encryption that was taken out of the list is asked for by its name', async () => {
  const shared = createMemoryData();
  const make = (transforms: readonly Transform[]): Spool => {
    const spool = createSpool({
      entries: memory({ shared }),
      bodies: memoryBodies({ shared }),
      transforms,
    });
    undo.push(() => spool.stop());
    return spool;
  };
  const { id } = await make([encrypt({ keys: { k1 } })]).enqueue({ topic: 'a', body: 'secret' });
  const codes = new Map<string, string>();
  for (const [name, transforms] of Object.entries({
    none: [],
    compression: [compress('zstd')],
    'another key': [decrypt({ keys: { k2 } })],
    'a wrong key': [decrypt({ keys: { k1: k2 } })],
  })) {
    codes.set(name, await codeOf(make(transforms).body(id).then(bytesOf)));
  }
  expect(Object.fromEntries(codes)).toEqual({
    none: 'transform.missing',
    compression: 'transform.missing',
    'another key': 'key.unavailable',
    'a wrong key': 'body.corrupt',
  });
});

test('rekeying seals entries with the newest key as well', async () => {
  const path = await mkdtemp(join(tmpdir(), 'respool-transforms-'));
  undo.push(() => rm(path, { recursive: true, force: true }));
  const make = (keys: Record<string, string>, primary: string): Spool => {
    const spool = createSpool({
      entries: seal(sqlite({ path }), { keys, primary }),
      bodies: filesystemBodies({ path: join(path, 'bodies') }),
      transforms: [encrypt({ keys, primary })],
    });
    undo.push(() => spool.stop());
    return spool;
  };
  const before = make({ k1 }, 'k1');
  const headers = { subject: 'secret' };
  await before.enqueueMany(BODIES.map((body) => ({ topic: 'a', body, headers })));
  await before.stop();
  const shown = [TEXT.subarray(100, 120), Buffer.from('secret')];
  expect(await filesWith(path, shown)).toEqual([]);
  const between = make({ k1, k2 }, 'k2');
  expect(await between.operator({ by: 'ops' }).rekey()).toMatchObject({
    done: BODIES.length,
    left: 0,
    unreadable: 0,
  });
  expect(await between.operator({ by: 'ops' }).rekey()).toMatchObject({ count: 0 });
  await between.stop();
  const after = make({ k2 }, 'k2');
  expect(await filesWith(path, shown)).toEqual([]);
  const found = await all(after.list());
  expect(found.map(({ envelope }) => envelope.headers)).toEqual(BODIES.map(() => headers));
  expect((await after.operator({ by: 'ops' }).check()).findings).toEqual([]);
});

/** The files below a folder that hold any of these bytes. */
async function filesWith(path: string, wanted: readonly Buffer[]): Promise<string[]> {
  const found: string[] = [];
  const names = await readdir(path, { recursive: true, withFileTypes: true });
  expect(names.length).toBeGreaterThan(2);
  for (const file of names.filter((one) => one.isFile())) {
    const bytes = await readFile(join(file.parentPath, file.name));
    if (wanted.some((some) => bytes.includes(some))) found.push(file.name);
  }
  return found;
}
