/**
 * local-disk — refuses folders on network and user-space file systems.
 *
 * Stores that keep files call it when they open. Locks, renames and fsync over a network mean less
 * than our promises need, and that would go unnoticed until the first crash.
 */

import { statfs } from 'node:fs/promises';
import { RespoolError, textOf } from '../../core/errors.ts';

/** The magic numbers `statfs` answers with, and the names people know them by. */
const REFUSED: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x01021997, '9p'],
  [0x65735546, 'FUSE'],
]);

/** Refuses a folder that is not on a local disk, with `store.unavailable`. */
export async function checkLocalDisk(path: string): Promise<void> {
  let type: number;
  try {
    ({ type } = await statfs(path));
  } catch (error) {
    throw new RespoolError(
      'store.unavailable',
      `cannot look at the file system of "${path}": ${textOf(error)}; check the path`,
      { cause: error },
    );
  }
  const name = refusedFileSystem(type);
  if (name === undefined) return;
  throw new RespoolError(
    'store.unavailable',
    `cannot open a store in "${path}": it is on ${name}, where locks and fsync cannot be ` +
      'relied on; use a folder on a local disk',
  );
}

/** The name of a file system we refuse, by its `statfs` type; undefined for all others. */
export function refusedFileSystem(type: number): string | undefined {
  // Some platforms answer with a signed number.
  return REFUSED.get(type >>> 0);
}
