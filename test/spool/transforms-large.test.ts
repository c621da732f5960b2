/** A body far larger than memory should hold, compressed and encrypted on its way in and back. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

/** A quarter of the body. A busy machine collects garbage later, so the peak varies: 127 to 155. */
const MEMORY_MAX_MB = 256;
const CHILD = join(import.meta.dirname, 'transforms-large-child.mjs');
const ROOT = join(import.meta.dirname, '../..');
const run = promisify(execFile);

test('1 GiB goes through zstd and AES-256-GCM and comes back, in little memory', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'respool-large-'));
  // Inside the repository, so that what is built finds its dependencies.
  await mkdir(join(ROOT, '.cache'), { recursive: true });
  const built = await mkdtemp(join(ROOT, '.cache', 'large-'));
  try {
    await run(process.execPath, [join(ROOT, 'scripts/build.ts'), built]);
    // No flags: memory is what a program has that asks for nothing.
    const { stdout } = await run(process.execPath, [CHILD, join(folder, 'spool'), built]);
    const found = JSON.parse(stdout) as { readonly peakMB: number; readonly info: object };
    expect(found).toMatchObject({
      isSame: true,
      info: { size: 2 ** 30, encodings: ['zstd', 'aes-256-gcm;key=k1'] },
    });
    expect(found.peakMB).toBeGreaterThan(0);
    expect(found.peakMB).toBeLessThan(MEMORY_MAX_MB);
  } finally {
    await rm(folder, { recursive: true, force: true });
    await rm(built, { recursive: true, force: true });
  }
});
