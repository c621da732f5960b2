/** A body far larger than memory should hold, compressed and encrypted on its way in and back. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { longOr } from '../long.ts';

const BODY_MIB = longOr(1_024, 256);
/** On a machine with a load of 20 it was 155, otherwise 127; a longer run has a machine of its own. */
const MEMORY_MAX_MB = longOr(150, 200);
const CHILD = join(import.meta.dirname, 'transforms-large-child.mjs');
const ROOT = join(import.meta.dirname, '../..');
const run = promisify(execFile);

test(`${BODY_MIB} MiB go through zstd and AES-256-GCM and come back, in little memory`, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'respool-large-'));
  // Inside the repository, so that what is built finds its dependencies.
  await mkdir(join(ROOT, '.cache'), { recursive: true });
  const built = await mkdtemp(join(ROOT, '.cache', 'large-'));
  try {
    await run(process.execPath, [join(ROOT, 'scripts/build.ts'), built]);
    // No flags: memory is what a program has that asks for nothing.
    const { stdout } = await run(process.execPath, [
      CHILD,
      join(folder, 'spool'),
      built,
      String(BODY_MIB),
    ]);
    const found = JSON.parse(stdout) as { readonly peakMB: number; readonly info: object };
    expect(found).toMatchObject({
      isSame: true,
      info: { size: BODY_MIB * 2 ** 20, encodings: ['zstd', 'aes-256-gcm;key=k1'] },
    });
    expect(found.peakMB).toBeGreaterThan(0);
    expect(found.peakMB).toBeLessThan(MEMORY_MAX_MB);
  } finally {
    await rm(folder, { recursive: true, force: true });
    await rm(built, { recursive: true, force: true });
  }
});
