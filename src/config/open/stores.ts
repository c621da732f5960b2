/**
 * stores — from `sqlite:./respool` to stores. Nothing is opened here. Stores on servers:
 * server-stores.ts; how a text is taken apart: load/store-url.ts.
 *
 * load/load-config.ts makes stores at every load, only to check their options: making one must have
 * no effect.
 */

import { stat } from 'node:fs/promises';
import path from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import { urlNames } from '../../core/option-table.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import type { Logger } from '../../ports/logger.ts';
import { FILESYSTEM_BODY_OPTIONS, FILESYSTEM_OPTIONS } from '../../stores/filesystem/options.ts';
import type { Diagnosis } from '../../stores/shared/finding.ts';
import { SQLITE_OPTIONS } from '../../stores/sqlite/options.ts';
import type { Config } from '../schema/define-config.ts';
import { STORE_DEFAULTS } from '../schema/options.ts';
import { checkKeys, inSection } from '../load/config-errors.ts';
import {
  type ServerEntries,
  type ServerStore,
  serverBodies,
  serverEntries,
  typedValue,
} from './server-stores.ts';
import { parseStore, type StoreKind, type StoreUrl } from '../load/store-url.ts';

/** Where a store keeps what it keeps. */
export interface StorePlace {
  readonly kind: StoreKind | 'given';
  /** Absolute; none for memory, for servers and for a store that was given. */
  readonly path?: string;
  /** Of a server, as it may be shown. */
  readonly address?: string;
}

/** The stores of a configuration. */
export interface ConfiguredStores {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  /** Where the entries are. */
  readonly place: StorePlace;
  readonly bodiesPlace: StorePlace;
  /** Whether the entries are there already; opening the store would make their place. */
  readonly isThere?: () => Promise<boolean>;
  /** Looks at the server of the entries, if they are on one. */
  readonly diagnoseEntries?: () => Promise<Diagnosis>;
  /** Where the tables of the entries are, if they are on PostgreSQL. */
  readonly postgresTables?: ServerEntries['tables'];
  /** Looks at the server of the bodies, if they are on one. */
  readonly diagnoseBodies?: () => Promise<Diagnosis>;
}

/**
 * Makes the stores; relative paths start from `folder`. When the store of a server opens, it logs
 * the dangers of that server.
 */
export async function storesOf(
  { store, entries, bodies }: Pick<Config, 'store' | 'entries' | 'bodies'>,
  folder: string,
  logger?: Logger,
): Promise<ConfiguredStores> {
  if (entries === undefined && bodies === undefined) {
    return pairOf(parseStore(store ?? STORE_DEFAULTS.store, 'store'), folder, logger);
  }
  const ofEntries = await entriesOf(entries ?? STORE_DEFAULTS.entries, folder, logger);
  const ofBodies = await bodiesOf(bodies ?? STORE_DEFAULTS.bodies, folder, logger);
  return { ...ofEntries, ...ofBodies };
}

async function pairOf(
  url: StoreUrl,
  folder: string,
  logger: Logger | undefined,
): Promise<ConfiguredStores> {
  const { kind } = url;
  const base = path.resolve(folder, url.path);
  if (kind !== 'sqlite' && kind !== 'file') {
    return {
      ...(await makeEntries(url, base, 'store', logger)),
      ...(await makeBodies(url, base, 'store', logger)),
    };
  }
  if (kind === 'sqlite') {
    // As createSpool without options (spool/runtime.ts): rows in SQLite, large bodies as files
    // beside it. Only stores of servers log.
    const files = { kind: 'file' as const, path: '', options: {} };
    return {
      ...(await makeEntries(url, base, 'store')),
      ...(await makeBodies(files, path.join(base, 'bodies'), 'store')),
    };
  }
  // Some options, such as spare files, are for entries alone.
  const ofBodies = urlNames(FILESYSTEM_BODY_OPTIONS);
  const shared = Object.fromEntries(
    Object.entries(url.options).filter(([name]) => ofBodies.includes(name)),
  );
  return {
    ...(await makeEntries(url, path.join(base, 'entries'), 'store')),
    ...(await makeBodies({ ...url, options: shared }, path.join(base, 'bodies'), 'store')),
  };
}

/**
 * Refuses a file where the folder of a store should be: it is no store, and none can be made of it.
 * What is inside a database is looked at by the store that opens it.
 */
export async function refuseFiles({
  place,
  bodiesPlace,
}: Pick<ConfiguredStores, 'place' | 'bodiesPlace'>): Promise<void> {
  for (const { kind, path: at } of [place, bodiesPlace]) {
    if (kind !== 'file' || at === undefined) continue;
    const file = await fileAbove(at);
    // Of `sqlite:my.db` a file is made (stores/sqlite/options.ts): no folder my.db/bodies fits.
    const future = place.kind === 'sqlite' && place.path === path.dirname(at) ? place.path : '';
    if (file !== undefined) throw notAFolder(file, place);
    if (/\.(?:db|sqlite3?)$/.test(future) && !(await isFolder(future))) {
      throw notAFolder(future, place);
    }
  }
}

function notAFolder(file: string, { kind }: StorePlace): RespoolError {
  const { dir, base } = path.parse(file);
  const folder = base === 'respool.db' ? dir : './respool';
  return new RespoolError(
    'store.unavailable',
    `cannot use "${file}" as a store: it is a file, and a Respool store is a folder; name the ` +
      `folder of a store, or of one to be made, such as ${kind}:${folder}`,
  );
}

/** The first part of a path that is there and is no folder. */
async function fileAbove(at: string): Promise<string | undefined> {
  const above = path.dirname(at);
  if (above !== at) {
    const file = await fileAbove(above);
    if (file !== undefined) return file;
  }
  const found = await stat(at).catch(() => undefined);
  return found === undefined || found.isDirectory() ? undefined : at;
}

async function isFolder(at: string): Promise<boolean> {
  return (await stat(at).catch(() => undefined))?.isDirectory() === true;
}

/** Whether a place on a disk is a store already: a file, or a folder with this file of stores/. */
async function hasStore(at: string, name: string): Promise<boolean> {
  const found = await stat(at).catch(() => undefined);
  if (found?.isDirectory() !== true) return found !== undefined;
  return (await stat(path.join(at, name)).catch(() => undefined)) !== undefined;
}

type OfEntries = Pick<
  ConfiguredStores,
  'entries' | 'place' | 'isThere' | 'diagnoseEntries' | 'postgresTables'
>;
type OfBodies = Pick<ConfiguredStores, 'bodies' | 'bodiesPlace' | 'diagnoseBodies'>;

async function entriesOf(
  value: NonNullable<Config['entries']>,
  folder: string,
  logger: Logger | undefined,
): Promise<OfEntries> {
  if (isStore(value)) return { entries: value, place: { kind: 'given' } };
  const url = parseStore(value, 'entries');
  return makeEntries(url, path.resolve(folder, url.path), 'entries', logger);
}

async function bodiesOf(
  value: NonNullable<Config['bodies']>,
  folder: string,
  logger: Logger | undefined,
): Promise<OfBodies> {
  if (isStore(value)) return { bodies: value, bodiesPlace: { kind: 'given' } };
  const url = parseStore(value, 'bodies');
  return makeBodies(url, path.resolve(folder, url.path), 'bodies', logger);
}

/** A store that was made already, as a configuration that is a program can have it. */
function isStore<Store extends EntryStore | BodyStore>(text: string | object): text is Store {
  return typeof text === 'object' && 'open' in text;
}

function serverPlace({ kind }: StoreUrl, { address }: ServerStore<unknown>): StorePlace {
  return { kind, address };
}

async function makeEntries(
  url: StoreUrl,
  at: string,
  key: string,
  logger?: Logger,
): Promise<OfEntries> {
  const options = { ...typedAll(url.options), path: at };
  const place = { kind: url.kind, path: at };
  if (url.kind === 'sqlite') {
    checkOptions(url, key, urlNames(SQLITE_OPTIONS));
    const { sqlite } = await import('../../stores/sqlite/entry-store.ts');
    const isThere = (): Promise<boolean> => hasStore(at, 'respool.db');
    return { entries: inSection(key, () => sqlite(options), '?'), place, isThere };
  }
  if (url.kind === 'file') {
    checkOptions(url, key, urlNames(FILESYSTEM_OPTIONS));
    const { filesystem } = await import('../../stores/filesystem/entry-store.ts');
    const isThere = (): Promise<boolean> => hasStore(at, 'layout.json');
    return { entries: inSection(key, () => filesystem(options), '?'), place, isThere };
  }
  if (url.kind !== 'memory') {
    const made = await serverEntries(withJournalIn(at, url), key, logger);
    const { store: entries, diagnose, isThere, tables } = made;
    const place = serverPlace(url, made);
    return { entries, place, diagnoseEntries: diagnose, isThere, postgresTables: tables };
  }
  checkOptions(url, key, []);
  const { memory } = await import('../../stores/memory/entry-store.ts');
  return { entries: memory(), place: { kind: 'memory' } };
}

async function makeBodies(
  url: StoreUrl,
  at: string,
  key: string,
  logger?: Logger,
): Promise<OfBodies> {
  const options = { ...typedAll(url.options), path: at };
  const bodiesPlace = { kind: url.kind, path: at };
  if (url.kind === 'sqlite') {
    checkOptions(url, key, urlNames(SQLITE_OPTIONS));
    const { sqliteBodies } = await import('../../stores/sqlite/body-store.ts');
    return { bodies: inSection(key, () => sqliteBodies(options), '?'), bodiesPlace };
  }
  if (url.kind === 'file') {
    checkOptions(url, key, urlNames(FILESYSTEM_BODY_OPTIONS));
    const { filesystemBodies } = await import('../../stores/filesystem/body-store.ts');
    return { bodies: inSection(key, () => filesystemBodies(options), '?'), bodiesPlace };
  }
  if (url.kind !== 'memory') {
    const made = await serverBodies(url, key, logger);
    const { store: bodies, diagnose } = made;
    return { bodies, bodiesPlace: serverPlace(url, made), diagnoseBodies: diagnose };
  }
  checkOptions(url, key, []);
  const { memoryBodies } = await import('../../stores/memory/body-store.ts');
  return { bodies: memoryBodies(), bodiesPlace: { kind: 'memory' } };
}

/** The journal of a NATS bucket is a folder of this machine. */
function withJournalIn(folder: string, url: StoreUrl): StoreUrl {
  const { journal } = url.options;
  if (url.kind !== 'nats' || typeof journal !== 'string' || journal === '') return url;
  return { ...url, options: { ...url.options, journal: path.resolve(folder, journal) } };
}

function typedAll(options: StoreUrl['options']): Readonly<Record<string, never>> {
  const pairs = Object.entries(options).map(([name, value]) => [name, typedValue(value)]);
  return Object.fromEntries(pairs) as Record<string, never>;
}

/** Refuses options that an address cannot have: its path, say, is no option. */
function checkOptions({ options }: StoreUrl, key: string, texts: readonly string[]): void {
  checkKeys(`${key}?`, options, texts);
}
