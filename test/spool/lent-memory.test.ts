/** Copies of a caller's stream take turns in the same memory; nothing of it may be mixed up. */

import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool } from 'respool';
import { compress, encrypt, type Transform } from 'respool/transforms';
import { expect, test } from 'vitest';

const KIB = 1_024;
const PARTS_BYTES = [64 * KIB, 17 * KIB, 300 * KIB, 100, 128 * KIB, 2_048 * KIB, 16 * KIB] as const;
const PARTS = 70;
const encrypted = encrypt({ keys: { k1: Buffer.alloc(32, 7) } });
const padded = encrypt({ keys: { k1: Buffer.alloc(32, 7) }, pad: true });
const LISTS: readonly (readonly Transform[])[] = [
  [],
  [compress('zstd')],
  [compress('snappy')],
  [encrypted],
  [compress('zstd'), encrypted],
  [compress('gzip', { level: 'fastest' }), padded],
  [compress('lz4'), encrypted],
];
const CASES = LISTS.flatMap((transforms) =>
  [true, false].map((isNoise) => ({
    words: transforms.map(({ name }) => name).join(', ') || 'nothing',
    content: isNoise ? 'noise' : 'text',
    isNoise,
    transforms,
  })),
);

test.each(CASES)('$content out of one buffer comes back, through $words', async (given) => {
  const path = await mkdtemp(join(tmpdir(), 'respool-lent-'));
  const spool = createSpool({ path, transforms: given.transforms });
  try {
    const written = createHash('sha256');
    const { id } = await spool.enqueue({ topic: 'large', body: refilled(given.isNoise, written) });
    const kept: Uint8Array[] = [];
    // Kept until the end: what a reader is given stays as it is.
    for await (const part of await spool.body(id)) kept.push(part);
    const read = createHash('sha256');
    for (const part of kept) read.update(part);
    expect(read.digest('hex')).toBe(written.digest('hex'));
  } finally {
    await spool.stop();
    await rm(path, { recursive: true, force: true });
  }
});

/** One buffer for all parts, as a reader of files may have. */
async function* refilled(
  isNoise: boolean,
  written: ReturnType<typeof createHash>,
): AsyncGenerator<Uint8Array> {
  const buffer = Buffer.alloc(2_048 * KIB);
  for (let part = 0; part < PARTS; part += 1) {
    const bytes = buffer.subarray(0, PARTS_BYTES[part % PARTS_BYTES.length]);
    if (isNoise) crypto.getRandomValues(bytes.subarray(0, 64 * KIB));
    else bytes.fill(`line ${part} of a text that comes again and again\n`);
    written.update(bytes);
    yield bytes;
  }
}
