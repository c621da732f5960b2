/** free-space — how much room there is where a store lies. */

import { statfs } from 'node:fs/promises';
import path from 'node:path';
import type { DiskSpace } from '../../../observe/alerts/external-measures.ts';

/** What is free there; some file systems have no size, and look full. */
export async function freeBytesAt(place: string): Promise<number> {
  const { freeBytes, totalBytes } = await spaceAt(place);
  if (!(totalBytes > 0)) throw new Error(`the size of the disk of "${place}" is unknown`);
  return freeBytes;
}

/** The space of the disk that this lies on, or will lie on. */
export async function spaceAt(place: string): Promise<DiskSpace> {
  try {
    const { bavail, blocks, bsize } = await statfs(place);
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  } catch (error) {
    const above = path.dirname(place);
    if ((error as { readonly code?: unknown }).code !== 'ENOENT' || above === place) throw error;
    return spaceAt(above);
  }
}
