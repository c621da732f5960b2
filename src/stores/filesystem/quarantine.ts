/**
 * quarantine — puts files aside that cannot be read as an entry, with the reason beside them.
 *
 * Called by disk.ts and worker.ts, in the thread. Promise: never delivered, never deleted; the
 * neighbours do not notice.
 */

import { systemClock } from '../../system/clock.ts';
import { errnoOf } from './errors.ts';
import { type Directories, type Files } from './files.ts';
import type { Damage } from './disk-protocol.ts';
import { CORRUPT } from './row.ts';

/** So much of the old name is kept in the new one; the whole stands in the reason. */
const NAME_KEPT_CHARS = 200;

/**
 * This many reasons are read when the store opens; a person looks into the directory for the rest.
 */
const LISTED_MAX = 1_000;

const REASON = '.reason';

/** Moves a file to `corrupt/` and writes down why. */
export function setAside(
  files: Files,
  directories: Directories,
  {
    path,
    id,
    reason,
  }: { readonly path: string; readonly id?: string | undefined; readonly reason: string },
): Damage {
  const name = path.slice(path.lastIndexOf('/') + 1).slice(0, NAME_KEPT_CHARS);
  const at = new Date(systemClock.now()).toISOString();
  const damage = { ...(id === undefined ? {} : { id }), reason };
  for (let number = 0; ; number += 1) {
    const target = `${CORRUPT}/${name}${number === 0 ? '' : `,${number}`}`;
    // The reason comes first and must not exist: so no earlier find is ever written over.
    if (!writeReason(files, target + REASON, { ...damage, from: path, at })) continue;
    try {
      files.rename(path, target);
    } catch (error) {
      files.unlink(target + REASON);
      if (errnoOf(error) !== 'ENOENT') throw error;
      return { ...damage, where: path, reason: 'the file is gone' };
    }
    directories.moved(path.slice(0, path.lastIndexOf('/')), CORRUPT);
    return { ...damage, where: target };
  }
}

/** What was put aside before. */
export function listAside(files: Files): readonly Damage[] {
  const damages: Damage[] = [];
  for (const { name } of files.names(CORRUPT)) {
    if (!name.endsWith(REASON) || damages.length >= LISTED_MAX) continue;
    const where = `${CORRUPT}/${name.slice(0, -REASON.length)}`;
    damages.push({ ...readReason(files, `${CORRUPT}/${name}`), where });
  }
  return damages;
}

function readReason(files: Files, path: string): { readonly id?: string; readonly reason: string } {
  try {
    const { id, reason } = JSON.parse(files.read(path).toString('utf8')) as Record<string, unknown>;
    return { ...(typeof id === 'string' ? { id } : {}), reason: String(reason) };
  } catch {
    // The find counts, not the note on it.
    return { reason: 'put aside; the reason cannot be read' };
  }
}

/** Whether the file is new; a disk without room for the words must not keep the find in its way. */
function writeReason(files: Files, path: string, value: object): boolean {
  let fd: number;
  try {
    fd = files.create(path);
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false;
    throw error;
  }
  try {
    files.write(fd, Buffer.from(`${JSON.stringify(value)}\n`));
    files.sync(fd);
  } catch (error) {
    if (errnoOf(error) !== 'ENOSPC') throw error;
  } finally {
    files.close(fd);
  }
  return true;
}
