/** fsync — how long this disk takes to say that a small write is safe. */

import { open } from 'node:fs/promises';
import path from 'node:path';
import type { BenchParts, Measured } from './bench-measure.ts';
import { spreadOf } from './spread.ts';

const BLOCK_BYTES = 4_096;

/** Writes 4 KiB and syncs it, one after the other. */
export async function benchFsync({ folder, forMs, clock, signal }: BenchParts): Promise<Measured> {
  const block = Buffer.alloc(BLOCK_BYTES, 'respool');
  const handle = await open(path.join(folder, 'fsync'), 'w');
  const spansMs: number[] = [];
  const startedAt = clock.monotonic();
  try {
    while (clock.monotonic() - startedAt < forMs) {
      signal.throwIfAborted();
      const before = clock.monotonic();
      await handle.write(block);
      await handle.sync();
      spansMs.push(clock.monotonic() - before);
    }
  } finally {
    await handle.close();
  }
  const tookMs = clock.monotonic() - startedAt;
  return { name: 'fsync 4 KiB', count: spansMs.length, tookMs, ...spreadOf(spansMs) };
}
