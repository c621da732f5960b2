/** folder — a folder of its own for each fault, gone afterwards. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Runs `work` in a fresh folder and removes it; RESPOOL_TORTURE_KEEP keeps it as evidence. */
export async function inFolder<Value>(work: (path: string) => Promise<Value>): Promise<Value> {
  const path = await mkdtemp(join(tmpdir(), 'respool-fault-'));
  try {
    return await work(path);
  } finally {
    if (process.env['RESPOOL_TORTURE_KEEP'] === undefined) {
      await rm(path, { recursive: true, force: true });
    }
  }
}
