/** A stream through snappy is whole, whatever of it the package keeps back until its end. */

import { buffer } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { loadSnappy, type SnappyPackage } from '../../src/transforms/codec.ts';
import { snappySource } from '../../src/transforms/codec-snappy.ts';
import { KIB, MIB } from './compress-setup.ts';

const SIZES = [
  0,
  1,
  64 * KIB - 1,
  64 * KIB,
  64 * KIB + 1,
  MIB - 1,
  MIB,
  MIB + 1,
  MIB + 64 * KIB,
  MIB + 64 * KIB + 1,
  2 * MIB,
];

/** Packages that differ in what they give out before they are asked for the rest. */
const PACKAGES: Readonly<Record<string, (own: SnappyPackage) => SnappyPackage>> = {
  'as it is': (own) => own,
  'that keeps everything back': (own) => ({
    ...own,
    Compressor: class {
      readonly #inner = new own.Compressor();
      readonly #kept: Buffer[] = [];

      update(plain: Uint8Array): Buffer {
        this.#kept.push(this.#inner.update(plain));
        return Buffer.alloc(0);
      }

      async finish(): Promise<Buffer> {
        return Buffer.concat([...this.#kept, await this.#inner.finish()]);
      }
    },
  }),
  'that keeps a block back': (own) => ({
    ...own,
    Compressor: class {
      readonly #inner = new own.Compressor();
      #rest = Buffer.alloc(0);

      update(plain: Uint8Array): Buffer {
        const all = Buffer.concat([this.#rest, plain]);
        const goes = all.subarray(0, Math.max(0, all.length - 64 * KIB));
        this.#rest = all.subarray(goes.length);
        return goes.length === 0 ? Buffer.alloc(0) : this.#inner.update(goes);
      }

      async finish(): Promise<Buffer> {
        return Buffer.concat([this.#inner.update(this.#rest), await this.#inner.finish()]);
      }
    },
  }),
};

async function* partsOf(bytes: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 50_000) yield bytes.subarray(at, at + 50_000);
}

describe.each(Object.entries(PACKAGES))('a package %s', (_, made) => {
  test.each(SIZES)('%i bytes come back as they were', async (size) => {
    const codec = await snappySource(async () => made(await loadSnappy())).load();
    const plain = Buffer.alloc(size, 'some text that is not quite the same \u{e9}');
    for (let at = 0; at < size; at += 999) plain.writeUInt8(at % 256, at);
    const packed = await buffer(codec.packStream(partsOf(plain), 'default'));
    const read = Buffer.from(codec.unpack(packed, size));
    expect(read.equals(plain)).toBe(true);
    expect(packed.subarray(0, 10).toString('latin1')).toBe('\xff\x06\x00\x00sNaPpY');
  });
});
