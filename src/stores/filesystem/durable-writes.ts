/**
 * durable-writes — small files written whole, folders made and brought to the disk; with promises,
 * on the event loop's threads. For what is not on the fast path: layout, records, bodies.
 */

import { mkdir, open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Makes a folder and those above it; what is new is on the disk when it resolves. */
export async function makeFolder(path: string, isDurable: boolean): Promise<void> {
  const made = await mkdir(path, { recursive: true, mode: 0o700 });
  if (made === undefined || !isDurable) return;
  // Every folder that is new is an entry of the one above it.
  for (let at = path; at.length >= made.length; at = dirname(at)) await syncFolder(dirname(at));
}

/** Brings a folder's list of names to the disk. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Writes a file so that a reader sees the old text or the new one, never half of it. */
export async function writeWhole(path: string, text: string, isDurable: boolean): Promise<void> {
  const draft = `${path}.draft`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(text);
    if (isDurable) await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
  if (isDurable) await syncFolder(dirname(path));
}
