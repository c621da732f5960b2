/**
 * storage-checks — where stores keep messages (durability, disk space, permissions, settings) and
 * what is done to bodies: whether the packages are installed, which keys are available, who can
 * read the key files, and what the length of a body reveals.
 *
 * Keys are loaded as the service loads them, and only their ids are printed.
 */

import { access, constants, stat, statfs } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { type DoctorFinding, okFinding, unsafe, infoFinding } from './finding.ts';
import { withKeyFiles } from '../../../config/load/encryption-keys.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import {
  type ConfiguredStores,
  refuseFiles,
  type StorePlace,
} from '../../../config/open/stores.ts';
import { isRespoolError, textOf } from '../../../core/errors.ts';
import { isPlainObject } from '../../../core/limits.ts';
import type { Durability } from '../../../ports/entry-store.ts';
import type { Transform } from '../../../ports/transform.ts';
import { loadSqlite, sqliteCode, type SqliteDatabase } from '../../../stores/shared/client.ts';
import type { Diagnosis } from '../../../stores/shared/finding.ts';
import { refusedFileSystem } from '../../../stores/shared/local-disk.ts';
import type { Keys } from '../../../transforms/index.ts';
import { locationOf } from '../../../transforms/key-ring.ts';

const MIB: number = 2 ** 20;
const FREE_UNSAFE_BYTES: number = 100 * MIB;
const FREE_NOTE_BYTES: number = 1_024 * MIB;
const INODES_UNSAFE = 1_000;
const INODES_NOTE = 50_000;

/** What to do about a place that is not a store. */
const OTHER = 'name the folder of a store: --store, or "store" in the configuration';

const MEANINGS: Readonly<Record<Durability, string>> = {
  none: 'everything is lost when its process ends',
  process: 'survives a crash of its process; a power cut may take the last moments',
  server: 'survives a restart of its server; a power cut may take the last moments',
  'power-loss': 'what was accepted survives a power cut',
  'node-loss': 'what was accepted survives the loss of a machine',
};

/** File systems that people know by name, as `statfs` numbers them. */
const FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [0xef53, 'ext4'],
  [0x58465342, 'XFS'],
  [0x9123683e, 'Btrfs'],
  [0x2fc12fc1, 'ZFS'],
  [0xf2f52010, 'F2FS'],
  [0x01021994, 'tmpfs'],
  [0x794c7630, 'overlayfs'],
]);

/** What was found of both stores. */
export interface StoresFound {
  readonly findings: readonly DoctorFinding[];
  /** Whether there are entries to look at; opening the store would make them. */
  readonly hasEntries: boolean;
}

/** A file where the folder of a store should be. */
export async function examineFiles(stores: ConfiguredStores): Promise<DoctorFinding[]> {
  try {
    await refuseFiles(stores);
    return [];
  } catch (error) {
    return [unsafe('store.place', textOf(error), OTHER)];
  }
}

/** Both stores; one line about the disk, or the server, when they share it. */
export async function examineStores(
  stores: ConfiguredStores,
  required: Durability | undefined,
): Promise<StoresFound> {
  const { entries, bodies, place, bodiesPlace, diagnoseEntries, diagnoseBodies } = stores;
  const isOneDisk = (await deviceOf(place)) === (await deviceOf(bodiesPlace));
  const ofEntries = await examineServer('store.entries', diagnoseEntries);
  // One database has both, and is looked at once.
  const isOneServer = place.kind === 'postgres' && isSame(place, bodiesPlace);
  const ofBodies = isOneServer
    ? { ...ofEntries, findings: [] }
    : await examineServer('store.bodies', diagnoseBodies);
  const promises = [promiseOf(ofEntries, entries.traits), promiseOf(ofBodies, bodies.traits)];
  const findings = [
    ...durability('store.entries', place, promises[0]),
    ...ofEntries.findings,
    ...(await examinePlace('store.entries', place, true)),
    ...durability('store.bodies', bodiesPlace, promises[1]),
    ...ofBodies.findings,
    ...(await examinePlace('store.bodies', bodiesPlace, !isOneDisk)),
    ...pair(promises, required),
  ];
  const hasEntries = ofEntries.isThere ?? (await stores.isThere?.()) ?? place.kind === 'given';
  return { findings, hasEntries };
}

/** Whether both have the same address, as it is shown; without an address it is not known. */
function isSame(one: StorePlace, other: StorePlace): boolean {
  return one.kind === other.kind && one.address === other.address && one.address !== undefined;
}

/** What a server was found to promise; of one that cannot be reached, nothing is known. */
function promiseOf(
  { isAway, durability: found }: ServerCheck,
  traits: { readonly durability: Durability },
): Durability | undefined {
  return isAway ? undefined : (found ?? traits.durability);
}

const RANKS: readonly Durability[] = ['none', 'process', 'server', 'power-loss', 'node-loss'];

/** What entries and bodies promise together: the lesser of the two. */
function pair(
  promises: readonly (Durability | undefined)[],
  required: Durability | undefined,
): DoctorFinding[] {
  const ranks = promises.map((promise) => (promise === undefined ? -1 : RANKS.indexOf(promise)));
  const lesser = RANKS[Math.min(...ranks)];
  if (lesser === undefined) return [];
  const id = 'store.durability';
  const text = `entries and bodies together: ${lesser}`;
  if (required === undefined) return [okFinding(id, `${text}, the lesser of the two`)];
  if (RANKS.indexOf(lesser) >= RANKS.indexOf(required)) {
    return [okFinding(id, `${text}, and requireDurability is ${required}`)];
  }
  return [
    unsafe(
      id,
      `${text}, but requireDurability is ${required}: the spool does not open`,
      'change the settings that are named above, or take another store',
    ),
  ];
}

function durability(
  id: string,
  { kind, path: at, address }: StorePlace,
  what: Durability | undefined,
): DoctorFinding[] {
  if (what === undefined) return [];
  const where = address ?? `${kind}${at === undefined ? '' : ` ${at}`}`;
  const name = `${id.split('.')[1]} in ${where}`;
  const text = `${name}: ${what}, ${MEANINGS[what]}`;
  const full = `${id}.durability`;
  if (what === 'none') return [unsafe(full, text, 'use sqlite:DIR or file:DIR')];
  if (what !== 'process') return [okFinding(full, text)];
  const isServer = address !== undefined;
  const todo = isServer
    ? 'keep it on the disk of the server: see the lines below'
    : 'take synchronous=normal or sync=none out of its address';
  return [infoFinding(full, text, todo)];
}

/** The device of a path, also of one that does not exist yet. */
async function deviceOf({ path: at }: StorePlace): Promise<number | undefined> {
  if (at === undefined) return undefined;
  const found = await stat(at).catch(async () => stat(await nearestFolder(at)));
  return found.dev;
}

async function examinePlace(
  id: string,
  place: StorePlace,
  withDisk: boolean,
): Promise<DoctorFinding[]> {
  const { kind, path: at } = place;
  if (at === undefined) return [];
  const found = await stat(at).catch(() => undefined);
  if (found === undefined) {
    const above = await nearestFolder(at);
    return [
      infoFinding(`${id}.there`, `nothing there yet; it is made with the first message`),
      ...(withDisk ? await examineDisk(id, above) : []),
    ];
  }
  const folder = found.isDirectory() ? at : path.dirname(at);
  return [
    ...(withDisk ? await examineDisk(id, folder) : []),
    ...(await examineRights(id, folder)),
    ...(kind === 'sqlite' ? await examineSqlite(id, place) : []),
  ];
}

/** The nearest folder above that is there. */
export async function nearestFolder(at: string): Promise<string> {
  let folder = path.dirname(at);
  while (folder !== path.dirname(folder)) {
    if ((await stat(folder).catch(() => undefined))?.isDirectory() === true) break;
    folder = path.dirname(folder);
  }
  return folder;
}

async function examineDisk(id: string, folder: string): Promise<DoctorFinding[]> {
  const { type, bavail, bsize, blocks, ffree, files } = await statfs(folder);
  return [fileSystem(id, type), ...freeSpace(id, { bavail, bsize, blocks, ffree, files })];
}

/** What the type of a file system means for a store. */
export function fileSystem(id: string, type: number): DoctorFinding {
  const full = `${id}.file-system`;
  const refused = refusedFileSystem(type);
  if (refused !== undefined) {
    const text = `it is on ${refused}, where locks and fsync cannot be relied on`;
    return unsafe(full, text, 'use a folder on a local disk');
  }
  const name = FILE_SYSTEMS.get(type >>> 0);
  if (name === 'tmpfs') {
    return unsafe(full, 'it is in memory (tmpfs): a restart empties it', 'use a disk');
  }
  if (name === 'overlayfs') {
    const text = 'it is in the layer of a container (overlayfs), and goes with the container';
    return infoFinding(full, text, 'mount a volume there');
  }
  return okFinding(full, `file system ${name ?? `of type 0x${(type >>> 0).toString(16)}`}`);
}

/** How much room is left, in bytes and in files. */
export function freeSpace(
  id: string,
  disk: Readonly<Record<'bavail' | 'bsize' | 'blocks' | 'ffree' | 'files', number>>,
): DoctorFinding[] {
  const freeBytes = disk.bavail * disk.bsize;
  const share = disk.blocks === 0 ? 1 : disk.bavail / disk.blocks;
  const text = `${size(freeBytes)} free, ${Math.round(share * 100)} % of the disk`;
  const todo = 'make room on this disk';
  const findings = [
    freeBytes < FREE_UNSAFE_BYTES
      ? unsafe(`${id}.free`, text, todo)
      : freeBytes < FREE_NOTE_BYTES
        ? infoFinding(`${id}.free`, text, todo)
        : okFinding(`${id}.free`, text),
  ];
  // Some file systems make inodes as they go, and say zero.
  if (disk.files === 0) return findings;
  const inodes = `${disk.ffree.toLocaleString('en')} inodes free`;
  const level =
    disk.ffree < INODES_UNSAFE ? unsafe : disk.ffree < INODES_NOTE ? infoFinding : undefined;
  return [...findings, level?.(`${id}.inodes`, inodes, todo) ?? okFinding(`${id}.inodes`, inodes)];
}

function size(bytes: number): string {
  if (bytes >= 1_024 * MIB) return `${(bytes / (1_024 * MIB)).toFixed(1)} GiB`;
  return bytes >= MIB ? `${Math.floor(bytes / MIB)} MiB` : `${Math.ceil(bytes / 1_024)} KiB`;
}

async function examineRights(id: string, folder: string): Promise<DoctorFinding[]> {
  const full = `${id}.rights`;
  try {
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch {
    const todo = 'run as the account that owns it';
    return [unsafe(full, `"${folder}" cannot be read and written by this account`, todo)];
  }
  if (process.platform === 'win32') return [];
  const { mode } = await stat(folder);
  const todo = `chmod 700 "${folder}"`;
  if ((mode & 0o007) !== 0) {
    return [unsafe(full, `every user of this machine can look into "${folder}"`, todo)];
  }
  if ((mode & 0o070) !== 0) return [infoFinding(full, `the group can look into "${folder}"`, todo)];
  return [okFinding(full, 'only its owner can look into it')];
}

/** A file of a store, or one in which nothing was made yet. */
function isOurs(database: SqliteDatabase): boolean {
  const names = database
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .pluck()
    .all();
  return names.length === 0 || (names.includes('meta') && names.includes('entries'));
}

async function examineSqlite(id: string, place: StorePlace): Promise<DoctorFinding[]> {
  const at = place.path ?? '';
  const isFolder = (await stat(at)).isDirectory();
  // As stores/sqlite names its files.
  const name = id === 'store.bodies' ? 'bodies.db' : 'respool.db';
  const file = isFolder ? path.join(at, name) : at;
  if ((await stat(file).catch(() => undefined)) === undefined) {
    return [infoFinding(`${id}.there`, 'nothing there yet; it is made with the first message')];
  }
  const full = `${id}.sqlite`;
  try {
    const openDatabase = await loadSqlite();
    const database = openDatabase(file, { readonly: true, fileMustExist: true });
    try {
      if (id === 'store.entries' && !isOurs(database)) {
        const text = `"${file}" is not a Respool store but a database of another program`;
        return [unsafe(full, text, OTHER)];
      }
      const mode = String(database.pragma('journal_mode', { simple: true }));
      const pages = Number(database.pragma('page_count', { simple: true }));
      const bytes = pages * Number(database.pragma('page_size', { simple: true }));
      const text = `journal mode ${mode}, ${size(bytes)}`;
      if (mode === 'wal') return [okFinding(full, text)];
      return [
        unsafe(full, text, 'stop what else uses the file; respool sets wal when it opens it'),
      ];
    } finally {
      database.close();
    }
  } catch (error) {
    const code = sqliteCode(error);
    if (code.startsWith('SQLITE_NOTADB')) {
      return [unsafe(full, `"${file}" is not a Respool store, nor any SQLite database`, OTHER)];
    }
    return [unsafe(full, `"${file}" cannot be read: ${textOf(error)}`, 'run: respool check')];
  }
}

// What stores on servers say about those: reached or not, settings, dangers.

/** What a look at a store's server found; of a store without one, nothing. */
interface ServerCheck {
  readonly findings: readonly DoctorFinding[];
  readonly durability?: Durability;
  /** Whether our tables, stream or bucket are there; undefined where there is no server. */
  readonly isThere?: boolean;
  /** There is a server, and it cannot be reached. */
  readonly isAway: boolean;
}

/** Asks a server, if there is one. */
async function examineServer(
  id: string,
  diagnose: (() => Promise<Diagnosis>) | undefined,
): Promise<ServerCheck> {
  if (diagnose === undefined) return { findings: [], isAway: false };
  try {
    const { findings, durability, isThere } = await diagnose();
    const named = findings.map((finding) => ({ ...finding, id: `${id}.${finding.id}` }));
    return { findings: named, durability, isThere, isAway: false };
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    const todo = error.code === 'peer.missing' ? 'install it' : 'fix what the message names';
    const finding = unsafe(`${id}.reached`, textOf(error), todo);
    return { findings: [finding], isThere: false, isAway: true };
  }
}

const OTHERS_READ = 0o004;
const GROUP_READ = 0o040;
const KEYS_TODO =
  'where the service runs the key must be there: look from its environment, or correct its path';

/** Keys at one place of the configuration. */
interface Holder {
  /** Such as `transforms[1]`; findings begin with it. */
  readonly id: string;
  /** Who uses them: `encrypt`, `decrypt` or `the seal`. */
  readonly owner: string;
  readonly keys: unknown;
  readonly primary?: unknown;
}

/** Everything about the transforms and the seal; nothing where there is none. */
export async function examineTransforms(loaded: LoadedConfig): Promise<DoctorFinding[]> {
  const { config, folder } = loaded;
  const { transformsOf } = await import('../../../config/open/transforms.ts');
  const made = await transformsOf(config, folder);
  const { transforms: given = [] } = config;
  const list: readonly unknown[] = Array.isArray(given) ? given : [given];
  const findings: DoctorFinding[] = [];
  for (const [at, transform] of made.entries()) {
    findings.push(...(await examineOne(`transforms[${at}]`, transform)));
  }
  for (const holder of holdersIn(list, config.seal, folder)) {
    findings.push(...(await examineKeys(holder)), ...(await examineKeyFiles(holder)));
  }
  return [...findings, ...examineLengths(list, made)];
}

/** Compression only: whether encryption can work is reported with its keys. */
async function examineOne(id: string, transform: Transform): Promise<DoctorFinding[]> {
  const { name, kind } = transform;
  if (kind !== 'compression') return [];
  try {
    await transform.open?.();
    return [okFinding(id, `bodies are compressed with ${name}`)];
  } catch (error) {
    return [
      unsafe(id, textOf(error), 'fix it, or use another codec: gzip and zstd are always there'),
    ];
  }
}

function holdersIn(list: readonly unknown[], seal: unknown, folder: string): Holder[] {
  const holders = list.flatMap((one, at) =>
    ['encrypt', 'decrypt'].flatMap((owner): Holder[] => {
      const options = isPlainObject(one) ? withKeyFiles(one[owner], folder) : undefined;
      if (!isPlainObject(options)) return [];
      return [
        { id: `transforms[${at}]`, owner, keys: options['keys'], primary: options['primary'] },
      ];
    }),
  );
  const sealed = withKeyFiles(seal, folder);
  if (!isPlainObject(sealed)) return holders;
  const { keys, primary } = sealed;
  return [...holders, { id: 'seal', owner: 'the seal', keys, primary }];
}

async function examineKeys({ id, owner, keys, primary }: Holder): Promise<DoctorFinding[]> {
  if (!isPlainObject(keys)) {
    return [
      infoFinding(
        `${id}.keys`,
        `the keys of ${owner} come from a function: they are not looked at`,
      ),
    ];
  }
  const { KeyRing } = await import('../../../transforms/key-ring.ts');
  const ring = new KeyRing(owner, { keys: keys as Keys });
  const names = Object.keys(keys);
  // One key alone writes; what only reads has no key for that.
  const only = owner !== 'decrypt' && names.length === 1 ? names[0] : undefined;
  const writing = primary ?? only;
  const there: string[] = [];
  const missing: DoctorFinding[] = [];
  for (const name of names) {
    try {
      await ring.fetch(name);
      there.push(name === writing ? `${name} (primary)` : name);
    } catch (error) {
      if (!isRespoolError(error)) throw error;
      // Without the key that writes, nothing can be stored.
      const find = name === writing ? unsafe : infoFinding;
      missing.push(find(`${id}.keys.${name}`, error.message, KEYS_TODO));
    }
  }
  const found = okFinding(
    `${id}.keys`,
    `keys of ${owner} that can be had here: ${there.join(', ')}`,
  );
  return [...(there.length === 0 ? [] : [found]), ...missing];
}

/** A key that stands in the configuration itself is found with the other secrets of that file. */
async function examineKeyFiles({ id, keys }: Holder): Promise<DoctorFinding[]> {
  if (!isPlainObject(keys) || process.platform === 'win32') return [];
  const findings: DoctorFinding[] = [];
  for (const [name, source] of Object.entries(keys)) {
    const place = typeof source === 'string' ? locationOf(source.trim()) : undefined;
    const file = place?.kind === 'file' ? place.name : undefined;
    const mode = file === undefined ? 0 : await modeOf(file);
    if ((mode & (OTHERS_READ | GROUP_READ)) === 0) continue;
    const key = `${id}.keys.${name}.file`;
    const todo = `chmod 600 "${file}"`;
    findings.push(
      (mode & OTHERS_READ) === 0
        ? infoFinding(key, `"${file}" holds a key and its group can read it`, todo)
        : unsafe(key, `"${file}" holds a key and every user of this machine can read it`, todo),
    );
  }
  return findings;
}

async function modeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ mode }) => mode,
    () => 0,
  );
}

function examineLengths(
  list: readonly unknown[],
  transforms: readonly Transform[],
): DoctorFinding[] {
  const isCompressed = transforms.some(({ kind }) => kind === 'compression');
  const encrypted = list
    .map((one) => (isPlainObject(one) ? one['encrypt'] : undefined))
    .find(isPlainObject);
  if (!isCompressed || encrypted === undefined || encrypted['pad'] === true) return [];
  const text =
    'bodies are compressed, then encrypted: their length reveals something about their content';
  return [infoFinding('transforms.length', text, 'pad: true hides most of it, where that matters')];
}
