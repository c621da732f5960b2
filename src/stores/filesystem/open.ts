/**
 * open — makes a folder ours and learns what is in it. entry-store.ts calls it once.
 *
 *   folder ─▶ local disk? ─▶ lock ─▶ layout version ─▶ thread ─▶ read everything ─▶ catalog
 *
 * Promises: two processes never hold the folder at once; of two revisions of a message, which a
 * crash may leave, the higher one counts; and nobody else's newer layout is touched.
 */

import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import {
  clearLockLeftovers,
  type LifetimeLock,
  readLockNote,
  takeLifetimeLock,
} from '../shared/lifetime-lock.ts';
import { checkLocalDisk } from '../shared/local-disk.ts';
import { type Catalog, createHeldEntry, type HeldEntry, pathOf } from './catalog.ts';
import type { Damage, FoundFile, SyncMode } from './disk-protocol.ts';
import { makeFolder, writeWhole } from './durable-writes.ts';
import { storeError } from './errors.ts';
import { errnoOf } from './files.ts';
import { LAYOUT_VERSION, parseFileName } from './layout.ts';
import { type DiskThread, startDiskThread } from './thread.ts';

/** What a store was asked to be. */
export interface Settings {
  readonly path: string;
  readonly sync: SyncMode;
  readonly spareMax: number;
}

/** A folder that is ours. */
export interface Opened {
  readonly thread: DiskThread;
  readonly lock: LifetimeLock;
  /** What was put aside, now and before; grows while the store is open. */
  readonly damages: Damage[];
  /** What was active under an owner that is gone: there is one owner, and it is new. */
  readonly lost: readonly HeldEntry[];
}

const LAYOUT_FILE = 'layout.json';
const LOCK_FILE = 'lock';

/** Opens the folder and fills the catalog. */
export async function openFolder(
  settings: Settings,
  into: { readonly catalog: Catalog; readonly clock: Clock; readonly instance: string },
): Promise<Opened> {
  const { path } = settings;
  await makeOwnFolder(path);
  await checkLocalDisk(path);
  const lock = await takeLock(path, into);
  let thread: DiskThread | undefined;
  try {
    await checkLayout(path);
    thread = startDiskThread(settings);
    const { catalog } = into;
    const superseded: string[] = [];
    const damages = [
      ...(await thread.scan((group) => {
        for (const one of group) superseded.push(...admit(catalog, one));
      })),
    ];
    if (superseded.length > 0) await thread.discard(superseded);
    const lost = [...catalog.byId.values()].filter(({ state }) => state === 'active');
    return { thread, lock, damages, lost };
  } catch (error) {
    await thread?.close().catch(() => undefined);
    await lock.release();
    throw storeError(`open the store "${path}"`, error);
  }
}

async function makeOwnFolder(path: string): Promise<void> {
  try {
    await makeFolder(path, true);
    const { uid } = await stat(path);
    const ours = process.getuid?.() ?? uid;
    if (uid === ours || ours === 0) return;
    throw new RespoolError(
      'store.unavailable',
      `cannot open the store "${path}": it belongs to user ${uid}, we are ${ours}; ` +
        'run as its owner or use another folder',
    );
  } catch (error) {
    throw storeError(`make the folder "${path}"`, error);
  }
}

async function takeLock(
  path: string,
  { instance, clock }: { readonly instance: string; readonly clock: Clock },
): Promise<LifetimeLock> {
  const lockPath = join(path, LOCK_FILE);
  const lock = await takeLifetimeLock(lockPath);
  if (lock === undefined) {
    const owner = (await readLockNote(lockPath)) ?? 'a process that left no name';
    throw new RespoolError(
      'store.unavailable',
      `cannot open the store "${path}": it is open in ${owner.trim()}, and files have one ` +
        'owner at a time; use its service, stop it, or share a store that allows several ' +
        'processes, such as SQLite',
    );
  }
  try {
    await clearLockLeftovers(path, LOCK_FILE);
    await lock.note(`${ownerLine(instance, clock)}\n`);
    return lock;
  } catch (error) {
    await lock.release();
    throw storeError(`open the store "${path}"`, error);
  }
}

function ownerLine(instance: string, clock: Clock): string {
  const since = new Date(clock.now()).toISOString();
  return `process ${process.pid} (instance ${instance}, since ${since})`;
}

/** Adds the address of the owner's service to its word beside the lock. */
export async function announceService(
  { lock }: Pick<Opened, 'lock'>,
  address: string,
  { instance, clock }: { readonly instance: string; readonly clock: Clock },
): Promise<void> {
  await lock.note(`${ownerLine(instance, clock)}, whose service is at ${address}\n`);
}

/** Where the service of a folder's owner answers; undefined without one, or when it is gone. */
export async function serviceAddress(path: string): Promise<string | undefined> {
  const lockPath = join(path, LOCK_FILE);
  const note = await readLockNote(lockPath);
  const address = /whose service is at (?<address>\S+)/.exec(note ?? '')?.groups?.['address'];
  if (address === undefined) return undefined;
  // Who is gone left its word behind, and by now another service may answer there.
  const lock = await takeLifetimeLock(lockPath);
  if (lock === undefined) return address;
  await lock.release();
  return undefined;
}

async function checkLayout(path: string): Promise<void> {
  const file = join(path, LAYOUT_FILE);
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    await writeWhole(file, `{"respool":"filesystem","layout":${LAYOUT_VERSION}}\n`, true);
    return;
  }
  const layout = readLayout(text);
  if (layout === LAYOUT_VERSION) return;
  throw new RespoolError(
    'store.version',
    `cannot open the store "${path}": its layout is ${layout ?? 'not readable'}, this version of ` +
      `respool knows ${LAYOUT_VERSION}; use the version that wrote it, or a newer one`,
  );
}

function readLayout(text: string): number | undefined {
  try {
    const { layout } = JSON.parse(text) as { layout?: unknown };
    return typeof layout === 'number' ? layout : undefined;
  } catch {
    // Not readable is a refusal too: whatever lies there, we do not know its rules.
    return undefined;
  }
}

/** Takes a find into the catalog; returns the paths of what it replaces or is replaced by. */
function admit(catalog: Catalog, found: FoundFile): readonly string[] {
  const parsed = parseFileName(found.name);
  if (parsed === undefined) return [];
  const held = createHeldEntry(parsed.id, parsed.status, found.facts, found);
  const other = catalog.byId.get(held.id);
  if (other !== undefined && other.revision >= held.revision) return [pathOf(held)];
  catalog.put(held);
  return other === undefined ? [] : [pathOf(other)];
}
