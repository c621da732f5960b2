/** Memory is used again as soon as those who read it say that they are done, and never before. */

import { randomBytes } from 'node:crypto';
import { compress, encrypt, type Transform } from 'respool/transforms';
import {
  readWhole,
  WHOLE_HOLDS_BYTES,
  LentMemory,
  LentBuffers,
  letGo,
} from '../../src/system/memory.ts';
import { describe, expect, test } from 'vitest';
import { CODECS, KIB, MIB } from './compress-setup.ts';
import { CIPHERS, writerOf } from './encrypt-setup.ts';

const ID = 'lent';
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
    const lent = new LentMemory<string>(100, (part) => free.push(part));
    lent.give('a', 60);
    lent.give('b', 60);
    lent.asked();
    expect(free).toEqual([]);
    lent.give('c', 40);
    expect(free).toEqual([]);
    lent.asked();
    expect(free).toEqual(['a']);
    lent.give('d', 1_000);
    lent.asked();
    expect(free).toEqual(['a', 'b', 'c']);
  });

  test('is used again for the next part that fits', () => {
    const buffers = new LentBuffers(0);
    const first = buffers.take(100);
    buffers.give(first, 100);
    expect(buffers.take(80)).toBe(first);
    buffers.give(first, 80);
    expect(buffers.take(101)).not.toBe(first);
  });

  test('is let go only where it is alone in its memory', () => {
    const whole = new Uint8Array(10);
    const half = whole.subarray(0, 5);
    letGo(half);
    expect(whole).toHaveLength(10);
    letGo(whole);
    expect([whole.length, half.length]).toEqual([0, 0]);
  });
});

describe('what is gathered', () => {
  const bytes = mixed(200 * KIB);

  test.each([0, 1, 100 * KIB, 200 * KIB, 300 * KIB, Number.NaN, -1, 2 ** 40])(
    'is all that came where %d bytes were expected, of memory that is lent',
    async (expected) => {
      const lent = wiped(bytes, 33_333, WHOLE_HOLDS_BYTES);
      expect(bytes.equals(await readWhole(lent, expected))).toBe(true);
    },
  );

  test.each([1, 250 * KIB, 30 * MIB, 2 ** 40])(
    'takes little more memory than it needs where %d bytes were expected',
    async (expected) => {
      const whole = await readWhole(wiped(bytes, 33_333, undefined), expected);
      expect(whole.buffer.byteLength).toBeLessThanOrEqual(bytes.length / 0.75);
    },
  );

  test('is nothing where nothing comes, and takes no memory', async () => {
    const read = await readWhole(wiped(Buffer.alloc(0), 1, undefined), 2 ** 40);
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
        const { holdsMaxBytes } = writer;
        // The bytes that are handed on as they are have to be taken at once here.
        const stored = await copied(writer.encode(wiped(bytes, partBytes, holdsMaxBytes)));
        const read = (): ReturnType<Transform['reader']> =>
          transform.reader(writer.encoding, { id: ID, maxBytes: bytes.length });
        const reader = read();
        const lent = wiped(stored, partBytes, reader?.holdsMaxBytes);
        expect(bytes.equals(await copied(reader?.decode(lent)))).toBe(true);
      }
    });

    test.each([0, 1_000, 300 * KIB])('takes nothing back of the last %i bytes', async (held) => {
      await transform.open?.();
      for (const { bytes } of BODIES) {
        const writer = writerOf(transform, ID);
        const stored = await behind(writer.encode(wiped(bytes, 64 * KIB, undefined), held), held);
        const reader = transform.reader(writer.encoding, { id: ID, maxBytes: bytes.length });
        const parts = wiped(stored, 64 * KIB, undefined);
        expect(bytes.equals(await behind(reader?.decode(parts, held), held))).toBe(true);
      }
    });
  },
);

/** Text and noise in turns. */
function mixed(length: number): Buffer {
  const noise = randomBytes(8 * KIB);
  const text = Buffer.alloc(24 * KIB, 'a line that comes again and again\n');
  return Buffer.concat(
    Array.from({ length: Math.ceil(length / (32 * KIB)) }, () => [text, noise]).flat(),
    length,
  );
}

/** Parts whose bytes are gone as soon as the reader may no longer read them. */
async function* wiped(
  bytes: Uint8Array,
  partBytes: number,
  heldMaxBytes: number | undefined,
): AsyncGenerator<Uint8Array> {
  const lent = new LentMemory<Uint8Array>(heldMaxBytes ?? Number.POSITIVE_INFINITY, (part) => {
    part.fill(0xee);
  });
  for (let at = 0; at < bytes.length; at += partBytes) {
    const part = Uint8Array.from(bytes.subarray(at, at + partBytes));
    lent.give(part, part.length);
    yield part;
    lent.asked();
  }
}

async function copied(stream: AsyncIterable<Uint8Array> | undefined): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream ?? []) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

/** Reads every part only when so many bytes have come after it that it has to. */
async function behind(
  stream: AsyncIterable<Uint8Array> | undefined,
  heldBytes: number,
): Promise<Buffer> {
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
