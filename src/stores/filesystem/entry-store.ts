/**
 * entry-store — entries as files that a person can read with `ls` and `cat`.
 *
 *   insert(), claim(), commit() ─▶ writer ─▶ thread ─▶ files
 *   nextDueAt(), tally() ─▶ catalog ◀─┘                  ▲
 *   get(), list() ─────────────▶ list ───────────────────┘
 *
 * One process owns the folder, by a lock that dies with it. So what is due is known from memory,
 * and the disk is only asked to make it last. Promise: an insert that resolved survives a power cut
 * (unless `sync: 'none'`), and every step that resolved survives the death of the process.
 *
 * Also here: the lock, the version of the layout, and the address that the owner leaves for
 * others.
 */

import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Millis } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkId } from '../../core/limits.ts';
import { STATES } from '../../core/state.ts';
import type { Clock } from '../../ports/clock.ts';
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  Duplicate,
  EntryQuery,
  EntryStore,
  EntryStoreTraits,
  ListPage,
  ListQuery,
  TallyBy,
  TallyRow,
} from '../../ports/entry-store.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import {
  clearLockLeftovers,
  type LifetimeLock,
  readLockNote,
  takeLifetimeLock,
} from '../shared/lifetime-lock.ts';
import { checkLocalDisk } from '../shared/local-disk.ts';
import { itemsOf, Operations } from '../shared/operations.ts';
import { Catalog, createHeldEntry, type HeldEntry, pathOf } from './catalog.ts';
import type { Damage, FoundFile, SyncMode } from './disk-protocol.ts';
import { errnoOf, storeError } from './errors.ts';
import { makeFolder, writeWhole } from './files.ts';
import { CORRUPT, LAYOUT_VERSION, parseFileName, SPARE } from './row.ts';
import { getEntry, listEntries, type OpenedEntries } from './list.ts';
import { checkOptions, type FilesystemOptions } from './options.ts';
import { fitsFilter } from './claim.ts';
import { tallyEntries } from './count.ts';
import { createRecords, type FileRecords } from './records.ts';
import { type DiskThread, startDiskThread } from './thread.ts';
import { Writer } from './writer.ts';

/**
 * The largest body that rides with its entry here; a larger one goes to a body store. Also in
 * docs/reference/limits.md, docs/how-to/choose-a-store.md and test/stores/filesystem/store.test.ts.
 */
const INLINE_MAX_BYTES = 256 * 1024;

/** Keeps entries as files below `path`, for one process at a time. */
export function filesystem(options: FilesystemOptions): EntryStore {
  const { path, sync, spareFiles } = checkOptions(options);
  return new FilesystemStore({ path, sync, spareMax: spareFiles }, options.clock ?? systemClock);
}

class FilesystemStore implements EntryStore {
  readonly name = 'filesystem';
  readonly instance: string = randomName(systemDice);
  readonly traits: EntryStoreTraits;
  readonly records: RecordStore;
  readonly onOperation: NonNullable<EntryStore['onOperation']>;
  readonly #operations: Operations;
  readonly #records: FileRecords;
  readonly #settings: Settings;
  readonly #clock: Clock;
  #catalog = new Catalog();
  #opening: Promise<void> | undefined;
  #closing: Promise<void> = Promise.resolve();
  #opened: (OpenedFolder & OpenedEntries) | undefined;
  #lost: readonly HeldEntry[] = [];

  constructor(settings: Settings, clock: Clock) {
    this.#settings = settings;
    this.#clock = clock;
    this.traits = {
      processes: 'one',
      wakes: false,
      ordered: false,
      inlineMaxBytes: INLINE_MAX_BYTES,
      durability: settings.sync === 'none' ? 'process' : 'power-loss',
    };
    this.#operations = new Operations('entries', clock);
    this.onOperation = this.#operations.on;
    this.#records = createRecords({
      path: join(settings.path, 'records'),
      isDurable: settings.sync !== 'none',
      checkOpen: () => void this.#checkOpen(),
    });
    this.records = this.#operations.records(this.#records);
  }

  open(): Promise<void> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      // Not final: what was in the way may be gone at the next try.
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  /** Idempotent; afterwards the store can be opened again. */
  close(): Promise<void> {
    const opening = this.#opening;
    if (opening === undefined) return this.#closing;
    this.#opening = undefined;
    this.#closing = this.#close(opening);
    return this.#closing;
  }

  async insert(entries: readonly Entry[]): Promise<readonly ('stored' | Duplicate)[]> {
    for (const { envelope, inlineBody } of entries) {
      // The id is part of a file's name: asked here too, the caller that calls.
      checkId(envelope.id);
      if ((inlineBody?.length ?? 0) <= INLINE_MAX_BYTES) continue;
      throw new RespoolError(
        'limit.exceeded',
        `cannot keep the body of "${envelope.id}" with its entry: it has ${inlineBody?.length} ` +
          `bytes, allowed are ${INLINE_MAX_BYTES}; use a body store`,
      );
    }
    return this.#checkOpen().writer.ask({ kind: 'insert', entries });
  }

  async claim(request: ClaimRequest): Promise<readonly Entry[]> {
    return this.#checkOpen().writer.ask({ kind: 'claim', request });
  }

  async commit(
    changes: readonly Change[],
    options: { readonly durable?: boolean } = {},
  ): Promise<readonly ('done' | 'stale')[]> {
    const isDurable = options.durable !== false;
    return this.#checkOpen().writer.ask({ kind: 'commit', changes, isDurable });
  }

  async flush(): Promise<void> {
    await this.#checkOpen().writer.ask({ kind: 'flush' });
  }

  async nextDueAt(filter: ClaimFilter): Promise<Millis | null> {
    this.#checkOpen();
    if (filter.ids === undefined) return this.#catalog.tree.nextDueAt(filter);
    let next: Millis | null = null;
    for (const id of filter.ids) {
      const held = this.#catalog.byId.get(id);
      if (held === undefined || held.isBusy || !fitsFilter(held, filter)) continue;
      next = Math.min(next ?? held.due, held.due);
    }
    return next;
  }

  async expireLost(now: Millis): Promise<number> {
    this.#checkOpen();
    const lost = this.#lost.filter((item) => this.#catalog.byId.get(item.id) === item);
    this.#lost = [];
    for (const held of lost) this.#catalog.expire(held, now);
    return lost.length;
  }

  async get(id: string): Promise<Entry | undefined> {
    return this.#read((opened) => getEntry(opened, id));
  }

  async list(query: ListQuery): Promise<ListPage> {
    return this.#read((opened) => listEntries(opened, query));
  }

  async tally(by: TallyBy, query: EntryQuery): Promise<readonly TallyRow[]> {
    return this.#read((opened) => tallyEntries(opened, by, query));
  }

  async announce(address: string): Promise<void> {
    const { lock } = this.#checkOpen();
    await announceService({ lock }, address, { instance: this.instance, clock: this.#clock });
  }

  #read<T>(read: (opened: OpenedEntries) => Promise<T>): Promise<T> {
    return this.#operations.time('read', itemsOf, async () => read(this.#checkOpen()));
  }

  async #open(): Promise<void> {
    await this.#closing.catch(() => undefined);
    const { path } = this.#settings;
    const catalog = new Catalog();
    this.#catalog = catalog;
    const opened = await openFolder(this.#settings, {
      catalog,
      clock: this.#clock,
      instance: this.instance,
    });
    const { thread, damages } = opened;
    const parts = { thread, catalog, damages, clock: this.#clock, path };
    const writer = new Writer({ ...parts, operations: this.#operations });
    this.#lost = opened.lost;
    this.#opened = { ...opened, path, catalog, writer };
  }

  async #close(opening: Promise<void>): Promise<void> {
    // A store that could not be opened has nothing to close.
    await opening.catch(() => undefined);
    const opened = this.#opened;
    if (opened === undefined) return;
    this.#opened = undefined;
    await Promise.all([opened.writer.idle(), this.#records.idle()]);
    try {
      await opened.thread.close();
    } finally {
      await opened.lock.release();
    }
  }

  #checkOpen(): Pick<OpenedFolder, 'lock'> & OpenedEntries {
    if (this.#opened !== undefined) return this.#opened;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the store "${this.#settings.path}": it is not open; call open() first`,
    );
  }
}

// Opening: takes the lock of the folder and reads what is in it.
//
//   folder ─▶ local disk? ─▶ lock ─▶ layout version ─▶ thread ─▶ read everything ─▶ catalog
//
// Promises: two processes never hold the folder at once; of two revisions of a message, which a
// crash may leave, the higher one counts; a newer layout is never touched.

/** What a store was asked to be. */
export interface Settings {
  readonly path: string;
  readonly sync: SyncMode;
  readonly spareMax: number;
}

/** A folder that is ours. */
interface OpenedFolder {
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
async function openFolder(
  settings: Settings,
  into: { readonly catalog: Catalog; readonly clock: Clock; readonly instance: string },
): Promise<OpenedFolder> {
  const { path } = settings;
  await makeOwnFolder(path);
  await checkLocalDisk(path);
  await checkOwnFiles(path);
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

/** The files of a store (row.ts) and of file bodies in it, and what may be beside them. */
const OWN_NAME = new RegExp(
  `^(?:${[...STATES, SPARE, CORRUPT, 'records'].join('|')}|[\\da-f]{2}|layout\\.json.*|lock.*)$`,
);
const NEUTRAL_NAME = /^(?:\..*|lost\+found|respool\.config\..*|bodies(?:\..*)?)$/;

/** Refuses a folder of other things: a store made among them is mostly a mistyped path. */
async function checkOwnFiles(path: string): Promise<void> {
  const names = await readdir(path).catch((error: unknown) => {
    throw storeError(`read the folder "${path}"`, error);
  });
  if (names.includes(LAYOUT_FILE)) return;
  const others = names.filter((name) => !OWN_NAME.test(name) && !NEUTRAL_NAME.test(name));
  const [first] = others.toSorted();
  if (first === undefined) return;
  const more = others.length === 1 ? '' : ` and ${others.length - 1} more`;
  throw new RespoolError(
    'config.invalid',
    `cannot open the store "${path}": it is not a Respool store of this kind, and the folder has ` +
      `other files (${show(first)}${more}); name the folder of the store, or an empty or new one`,
  );
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

/** Printed by openers that are refused; `serviceAddress` reads the address that follows it. */
function ownerLine(instance: string, clock: Clock): string {
  const since = new Date(clock.now()).toISOString();
  return `process ${process.pid} (instance ${instance}, since ${since})`;
}

/** Adds the address of the owner's service to its word beside the lock. */
async function announceService(
  { lock }: Pick<OpenedFolder, 'lock'>,
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
  // A process that is gone left its address behind, and another service may answer there now.
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
    // Not readable is a refusal too: whatever is there, we do not know its rules.
    return undefined;
  }
}

/** Takes a find into the catalog; returns the paths of what it replaces or is replaced by. */
function admit(catalog: Catalog, file: FoundFile): readonly string[] {
  const parsed = parseFileName(file.name);
  if (parsed === undefined) return [];
  const held = createHeldEntry(parsed.id, parsed.status, file.facts, file);
  const other = catalog.byId.get(held.id);
  if (other !== undefined && other.revision >= held.revision) return [pathOf(held)];
  catalog.put(held);
  return other === undefined ? [] : [pathOf(other)];
}
