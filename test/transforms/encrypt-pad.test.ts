/** Padding hides the exact length of a body, and comes off again. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  PadStripper,
  paddedLength,
  paddingAfter,
  withoutPadding,
} from '../../src/transforms/encrypt-stream.ts';
import { load, smallChunks, someBytes, store } from './encrypt-setup.ts';

test.each([
  // Length, and what it becomes with its mark.
  [0, 1],
  [1, 2],
  [2, 3],
  [8, 10],
  [9, 10],
  [15, 16],
  [16, 18],
  [99, 104],
  [1_000, 1_024],
  [1_023, 1_024],
  [1_024, 1_088],
  [65_535, 65_536],
  [65_536, 67_584],
  [1_000_000, 1_015_808],
  [1_073_741_824, 1_107_296_256],
  [2 ** 40, 2 ** 40 + 2 ** 34],
])('%d bytes are padded to %d', (length, padded) => {
  expect(paddedLength(length)).toBe(padded);
});

test('padding costs at most 12 % from 10 bytes on, and never less than its mark', () => {
  fc.assert(
    fc.property(fc.nat(2 ** 31 - 1), (length) => {
      const padded = paddedLength(length);
      expect(padded).toBeGreaterThan(length);
      expect(padded - (length + 1)).toBeLessThanOrEqual((length + 1) * 0.12);
      // Lengths stay in order: a longer body is never shorter padded.
      expect(paddedLength(length + 1)).toBeGreaterThanOrEqual(padded);
    }),
    { numRuns: 2_000 },
  );
});

test('the padding is a mark and zeros, and is all that comes off', () => {
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom(0, 1, 0x80), { maxLength: 300 }),
      fc.integer({ min: 1, max: 50 }),
      (values, size) => {
        const plain = Uint8Array.from(values);
        const padded = Buffer.concat([plain, ...paddingAfter(plain.length)]);
        expect(padded).toHaveLength(paddedLength(plain.length));
        expect(withoutPadding(padded)).toHaveLength(plain.length);
        const strip = new PadStripper();
        const out: Uint8Array[] = [];
        for (let at = 0; at < padded.length; at += size) {
          out.push(...strip.push(padded.subarray(at, at + size)));
        }
        expect(strip.isPadded).toBe(true);
        expect(Buffer.compare(Buffer.concat(out), plain)).toBe(0);
      },
    ),
    { numRuns: 500 },
  );
});

test('bytes without padding are told', () => {
  for (const bytes of [[], [0], [0, 0], [1], [0x80, 1], [0x80, 0, 0x81, 0]]) {
    expect(withoutPadding(Uint8Array.from(bytes))).toBeUndefined();
    const strip = new PadStripper();
    const out = [...strip.push(Uint8Array.from(bytes))];
    expect(strip.isPadded).toBe(false);
    expect(Buffer.concat(out)).toEqual(Buffer.from(bytes));
  }
});

test('long runs of zeros after a mark are held as a number and come out in order', () => {
  const strip = new PadStripper();
  const zeros = new Uint8Array(1_000_000);
  expect([...strip.push(Uint8Array.of(7, 0x80))].map((part) => [...part])).toEqual([[7]]);
  for (let turn = 0; turn < 5; turn += 1) expect([...strip.push(zeros)]).toEqual([]);
  const out = Buffer.concat([...strip.push(Uint8Array.of(9))]);
  expect(out).toHaveLength(5_000_002);
  expect([out[0], out[1], out.at(-2), out.at(-1)]).toEqual([0x80, 0, 0, 9]);
});

test('with pad, bodies of near lengths are stored in the same length; without, they are not', async () => {
  const lengths = async (pad: boolean | undefined): Promise<Set<number>> => {
    const transform = smallChunks(pad === undefined ? {} : { pad });
    const stored = [1_100, 1_110, 1_120, 1_130].map((size) => store(transform, someBytes(size)));
    return new Set((await Promise.all(stored)).map(({ bytes }) => bytes.length));
  };
  expect((await lengths(true)).size).toBe(1);
  expect((await lengths(false)).size).toBe(4);
  expect((await lengths(undefined)).size).toBe(4);
});

test('padded bodies are read without the option, and others with it', async () => {
  const [plain, padding] = [smallChunks(), smallChunks({ pad: true })];
  for (const [writing, reading] of [
    [plain, padding],
    [padding, plain],
  ] as const) {
    const stored = await store(writing, someBytes(100));
    expect(Buffer.compare(await load(reading, stored), someBytes(100))).toBe(0);
  }
});
