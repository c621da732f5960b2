/** folder — a folder of its own for each fault, gone afterwards. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Runs `work` in a fresh folder and removes it; RESPOOL_TORTURE_KEEP keeps it as evidence. What
 * `work` throws is thrown: then a spool in it may still run, and keep the folder from being removed.
 */
export async function inFolder<Value>(work: (path: string) => Promise<Value>): Promise<Value> {
  const path = await mkdtemp(join(tmpdir(), 'respool-fault-'));
  const isKept = process.env['RESPOOL_TORTURE_KEEP'] !== undefined;
  const remove = (): Promise<void> => rm(path, { recursive: true, force: true });
  let value: Value;
  try {
    value = await work(path);
  } catch (error) {
    if (!isKept) await remove().catch(() => undefined);
    throw error;
  }
  if (!isKept) await remove();
  return value;
}
