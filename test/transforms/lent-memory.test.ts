/** Memory is used again as soon as those who read it say that they are done, and never before. */

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BodyStore, createSpool } from 'respool';
import { filesystemBodies } from 'respool/stores/filesystem';
import { type BodyWriter, compress, encrypt, type Transform } from 'respool/transforms';
import {
  ReusedBuffers,
  ReusedMemory,
  detachBuffer,
  readWhole,
  type ReadWindow,
  setReadWindow,
  shareWindow,
  streamWithWindow,
} from '../../src/system/memory.ts';
import { afterAll, describe, expect, test } from 'vitest';
import { CODECS, KIB, MIB } from './compress-setup.ts';
import { CIPHERS, writerOf } from './encrypt-setup.ts';

const ID = 'lent';
const folders: string[] = [];

afterAll(async () => {
  for (const path of folders) await rm(path, { recursive: true, force: true });
});

const keys = { k1: Buffer.alloc(32, 7) };
const TRANSFORMS: readonly Transform[] = [
  ...CODECS.map((codec) => compress(codec)),
  ...CIPHERS.map((cipher) => encrypt({ keys, cipher })),
  encrypt({ keys, pad: true }),
];
const PARTS_BYTES = [1_000, 64 * KIB, 64 * KIB + 77, 700 * KIB] as const;
const BODIES = [
  { what: 'that compresses', bytes: mixed(3 * MIB + 4_321) },
  { what: 'of noise', bytes: randomBytes(2 * MIB + 77) },
  { what: 'of zeros at its end', bytes: Buffer.concat([randomBytes(MIB), Buffer.alloc(MIB)]) },
  { what: 'that is collected', bytes: mixed(500 * KIB) },
];

describe('what is lent', () => {
  test('is free when the bytes after it are all that is still read', () => {
    const free: string[] = [];
    const lent = new ReusedMemory<string>(100, (part) => free.push(part));
    lent.handOut('a', 60);
    lent.handOut('b', 60);
    lent.reclaim();
    expect(free).toEqual([]);
    lent.handOut('c', 40);
    expect(free).toEqual([]);
    lent.reclaim();
    expect(free).toEqual(['a']);
    lent.handOut('d', 1_000);
    lent.reclaim();
    expect(free).toEqual(['a', 'b', 'c']);
  });

  test('is used again for the next part that fits', () => {
    const buffers = new ReusedBuffers(0);
    const first = buffers.take(100);
    buffers.handOut(first, 100);
    expect(buffers.take(80)).toBe(first);
    buffers.handOut(first, 80);
    expect(buffers.take(101)).not.toBe(first);
  });

  test('is let go only where it is alone in its memory', () => {
    const whole = new Uint8Array(10);
    const half = whole.subarray(0, 5);
    detachBuffer(half);
    expect(whole).toHaveLength(10);
    detachBuffer(whole);
    expect([whole.length, half.length]).toEqual([0, 0]);
  });
});

describe('what is gathered', () => {
  const bytes = mixed(200 * KIB);

  test.each([0, 1, 100 * KIB, 200 * KIB, 300 * KIB, Number.NaN, -1, 2 ** 40])(
    'is all that came where %d bytes were expected, of memory that is lent',
    async (expected) => {
      const lent = wiped(bytes, 33_333);
      expect(bytes.equals(await readWhole(lent, expected))).toBe(true);
    },
  );

  test.each([1, 250 * KIB, 30 * MIB, 2 ** 40])(
    'takes little more memory than it needs where %d bytes were expected',
    async (expected) => {
      const whole = await readWhole(kept(bytes, 33_333), expected);
      expect(whole.buffer.byteLength).toBeLessThanOrEqual(bytes.length / 0.75);
    },
  );

  test('is nothing where nothing comes, and takes no memory', async () => {
    const read = await readWhole(kept(Buffer.alloc(0), 1), 2 ** 40);
    expect(read).toHaveLength(0);
  });
});

describe.each(TRANSFORMS.map((transform, at) => ({ name: `${at} ${transform.name}`, transform })))(
  '$name',
  ({ transform }) => {
    test.each(BODIES)('reads no more than it says of a body $what', async ({ bytes }) => {
      await transform.open?.();
      for (const partBytes of PARTS_BYTES) {
        const writer = writerOf(transform, ID);
        // A window of 0: the bytes that are handed on as they are have to be taken at once.
        const stored = await behind(writer.encode(wiped(bytes, partBytes)), 0);
        const read = (): ReturnType<Transform['reader']> =>
          transform.reader(writer.encoding, { id: ID, maxBytes: bytes.length });
        const reader = read();
        const lent = wiped(stored, partBytes);
        expect(bytes.equals(await behind(reader?.decode(lent), 0))).toBe(true);
      }
    });

    test.each([0, 1_000, 300 * KIB])('takes nothing back of the last %i bytes', async (held) => {
      await transform.open?.();
      for (const { bytes } of BODIES) {
        const writer = writerOf(transform, ID);
        const stored = await behind(writer.encode(kept(bytes, 64 * KIB)), held);
        const reader = transform.reader(writer.encoding, { id: ID, maxBytes: bytes.length });
        const parts = kept(stored, 64 * KIB);
        expect(bytes.equals(await behind(reader?.decode(parts), held))).toBe(true);
      }
    });
  },
);

describe('a file', () => {
  test('a reader with a window is given the same memory again, one without never', async () => {
    const bodies = await fileBodies();
    const written = Buffer.alloc(1_000_000, 'a line that differs from the one before');
    await bodies.put('b-1', chunks(written));
    for (const [maxBytes, isReused] of [
      [0, true],
      [undefined, false],
    ] as const) {
      const stream = bodies.get('b-1');
      setReadWindow(stream, maxBytes);
      const memory = new Set<unknown>();
      const read: Buffer[] = [];
      let parts = 0;
      for await (const part of stream) {
        memory.add(part.buffer);
        read.push(Buffer.from(part));
        parts += 1;
      }
      expect(Buffer.concat(read).equals(written)).toBe(true);
      expect(parts).toBeGreaterThan(1);
      expect(memory.size < parts).toBe(isReused);
    }
  });

  test('a put has written every part before it asks for the next, and says so', async () => {
    const bodies = await fileBodies();
    const buffer = Buffer.alloc(5);
    let maxBytes: number | undefined;
    const stream = streamWithWindow(async function* refilled(window) {
      maxBytes = window.maxBytes;
      for (const text of ['hello', 'world']) {
        buffer.write(text);
        yield buffer;
      }
    });
    await bodies.put('b-1', stream);
    expect(maxBytes).toBe(0);
    const read: Buffer[] = [];
    for await (const part of bodies.get('b-1')) read.push(Buffer.from(part));
    expect(Buffer.concat(read).toString()).toBe('helloworld');
  });
});

test.each([
  { words: 'nothing between', transforms: [], isReused: true },
  { words: 'encryption between', transforms: [encrypt({ keys })], isReused: true },
  { words: "a caller's transform between", transforms: [handOn()], isReused: false },
])('with $words, copies are made in the same memory: $isReused', async (given) => {
  const path = await folder();
  const memory = new Set<unknown>();
  let parts = 0;
  const first: Transform = observing((part) => {
    memory.add(part.buffer);
    parts += 1;
  });
  const spool = createSpool({ path, transforms: [first, ...given.transforms] });
  try {
    await spool.enqueue({ topic: 'large', body: noise() });
    expect(memory.size < parts / 2).toBe(given.isReused);
  } finally {
    await spool.stop();
  }
});

/** Text and noise in turns. */
function mixed(length: number): Buffer {
  const noise = randomBytes(8 * KIB);
  const text = Buffer.alloc(24 * KIB, 'a line that comes again and again\n');
  return Buffer.concat(
    Array.from({ length: Math.ceil(length / (32 * KIB)) }, () => [text, noise]).flat(),
    length,
  );
}

/** Parts whose bytes are gone as soon as they are behind the window of the reader. */
function wiped(bytes: Uint8Array, partBytes: number): AsyncIterable<Uint8Array> {
  return streamWithWindow((window) => partsOf(bytes, partBytes, window));
}

/** Parts that no window is asked of. */
function kept(bytes: Uint8Array, partBytes: number): AsyncIterable<Uint8Array> {
  return partsOf(bytes, partBytes, { maxBytes: undefined });
}

async function* partsOf(
  bytes: Uint8Array,
  partBytes: number,
  window: ReadWindow,
): AsyncGenerator<Uint8Array> {
  const lent = new ReusedMemory<Uint8Array>(window.maxBytes ?? Number.POSITIVE_INFINITY, (part) => {
    part.fill(0xee);
  });
  for (let at = 0; at < bytes.length; at += partBytes) {
    const part = Uint8Array.from(bytes.subarray(at, at + partBytes));
    lent.handOut(part, part.length);
    yield part;
    lent.reclaim();
  }
}

/** Sets this window, and reads every part only when so many bytes have come that it has to. */
async function behind(
  stream: AsyncIterable<Uint8Array> | undefined,
  heldBytes: number,
): Promise<Buffer> {
  if (stream !== undefined) setReadWindow(stream, heldBytes);
  const read: Buffer[] = [];
  const waiting: Uint8Array[] = [];
  let waitingBytes = 0;
  for await (const part of stream ?? []) {
    waiting.push(part);
    waitingBytes += part.length;
    for (let first = waiting[0]; first !== undefined && waitingBytes > heldBytes; ) {
      read.push(Buffer.from(first));
      waitingBytes -= first.length;
      waiting.shift();
      first = waiting[0];
    }
  }
  return Buffer.concat([...read, ...waiting]);
}

/** Hands on what it is given, as a transform of a caller's that knows of no window. */
function handOn(): Transform {
  return transformOf('on', async function* parts(stream) {
    yield* stream;
  });
}

/** The same, and with the window of who reads it, so that nothing differs but for the look. */
function observing(look: (part: Uint8Array) => void): Transform {
  return transformOf('observing', (stream) => shareWindow(stream, looked(stream, look)));
}

async function* looked(
  stream: AsyncIterable<Uint8Array>,
  look: (part: Uint8Array) => void,
): AsyncGenerator<Uint8Array> {
  for await (const part of stream) {
    if (part.length === 64 * KIB) look(part);
    yield part;
  }
}

function transformOf(name: string, encode: BodyWriter['encode']): Transform {
  return {
    name,
    kind: 'other',
    writer: () => ({ encoding: name, encode, encodeBytes: (bytes) => bytes }),
    reader: () => undefined,
  };
}

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'respool-lent-'));
  folders.push(path);
  return path;
}

async function fileBodies(): Promise<BodyStore> {
  const bodies = filesystemBodies({ path: await folder() });
  await bodies.open();
  return bodies;
}

async function* chunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Parts of noise in one buffer, as a reader of files may have. */
async function* noise(): AsyncGenerator<Uint8Array> {
  const buffer = Buffer.alloc(64 * KIB);
  for (let part = 0; part < 40; part += 1) yield crypto.getRandomValues(buffer);
}
