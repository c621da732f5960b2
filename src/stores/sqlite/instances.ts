/**
 * instances — which open stores share a file, which of them are gone, and where their service
 * answers.
 *
 * Each holds a lifetime lock named after it in a folder beside the file. A lock that can be taken
 * belongs to a process that is gone, in whatever way; nothing is judged by age or pid.
 */

import { mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import { clearLockLeftovers, readLockNote, takeLifetimeLock } from '../shared/lifetime-lock.ts';
import { storeError } from './errors.ts';
import { ENTRY_FILE, filePathOf } from './options.ts';

/** The instances on one file, seen from one of them. */
export interface Instances {
  /** Calls `end` for each instance that is gone and forgets it; the sum of what it returns. */
  expire(end: (instance: string) => Promise<number>): Promise<number>;
  /** Leaves the address of our service for other processes. */
  announce(address: string): Promise<void>;
  /** Lets go of our own lock; with `keepFile` others see that we are gone. Idempotent. */
  leave(options: { readonly keepFile: boolean }): Promise<void>;
}

/** What `randomName` of system/ids.ts makes. */
const INSTANCE_PATTERN = /^[0-9a-z]{12}$/;

/** Which tables of which file, and who. */
export interface InstancePlace {
  readonly path: string;
  /** Two stores with tables in one file do not share locks: each ends leases in its own only. */
  readonly tables: string;
  readonly instance: string;
}

export async function openInstances(place: InstancePlace): Promise<Instances> {
  const { path: filePath, instance } = place;
  const folder = folderOf(place);
  await inFolder(folder, 'make', () => mkdir(folder, { recursive: true, mode: 0o700 }));
  const own = await takeLifetimeLock(path.join(folder, instance));
  if (own === undefined) {
    throw new RespoolError(
      'store.unavailable',
      `cannot open "${filePath}": another store has the name "${instance}"; try again`,
    );
  }
  return {
    async expire(end) {
      let count = 0;
      for (const other of await inFolder(folder, 'read', () => readdir(folder))) {
        if (other === instance || !INSTANCE_PATTERN.test(other)) continue;
        const lock = await takeLifetimeLock(path.join(folder, other));
        if (lock === undefined) continue;
        let isDone = false;
        try {
          count += await end(other);
          isDone = true;
        } finally {
          // Only what is ended is forgotten; otherwise the next one tries again.
          await lock.release({ keepFile: !isDone });
        }
      }
      await inFolder(folder, 'read', () => clearLockLeftovers(folder));
      return count;
    },
    announce: (address) => own.note(`${address}\n`),
    leave: (options) => own.release(options),
  };
}

/**
 * Where a service of a living process answers that has these tables open; undefined when there is
 * none. The store itself is not opened.
 */
export async function serviceAddress(text: string, tables = ''): Promise<string | undefined> {
  const folder = folderOf({ path: await filePathOf(path.resolve(text), ENTRY_FILE), tables });
  for (const name of await readdir(folder).catch(() => [])) {
    if (!INSTANCE_PATTERN.test(name)) continue;
    const address = (await readLockNote(path.join(folder, name)))?.trim();
    if (address === undefined) continue;
    const lock = await takeLifetimeLock(path.join(folder, name));
    if (lock === undefined) return address;
    // Gone, and its address with it; its messages are ended by the process that delivers.
    await lock.release({ keepFile: true });
  }
  return undefined;
}

function folderOf({ path: filePath, tables }: Omit<InstancePlace, 'instance'>): string {
  return `${filePath}.${tables}locks`;
}

async function inFolder<T>(folder: string, what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw storeError(error, { doing: `${what} the folder "${folder}"`, path: folder });
  }
}
