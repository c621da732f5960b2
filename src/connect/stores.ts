/**
 * stores — from `sqlite:./respool` to stores. Nothing is opened here.
 */

import path from 'node:path';
import type { BodyStore } from '../ports/body-store.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { SqliteOptions } from '../stores/sqlite/options.ts';
import type { Config } from './define-config.ts';
import { checkKeys, within } from './problems.ts';
import { parseStoreUrl, type StoreUrl } from './store-url.ts';

/** Where a store keeps what it keeps. */
export interface StorePlace {
  readonly kind: 'sqlite' | 'file' | 'memory' | 'given';
  /** Absolute; none for memory and for a store that was given. */
  readonly path?: string;
}

/** The stores of a configuration. */
export interface ConfiguredStores {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  /** Where the entries are. */
  readonly place: StorePlace;
  readonly bodiesPlace: StorePlace;
}

/** What an unset `store`, `entries` or `bodies` means. */
export const STORE_DEFAULTS = {
  store: 'sqlite:./respool',
  entries: 'sqlite:./respool',
  bodies: 'file:./respool/bodies',
} as const;

const SQLITE_OPTIONS = [
  'busyTimeout',
  'cacheBytes',
  'thread',
  'synchronous',
  'autoCheckpointPages',
] as const satisfies readonly (keyof SqliteOptions)[];

type Options = Readonly<Record<string, string | number | boolean>>;

/** Makes the stores; relative paths start from `folder`. */
export async function storesOf(
  { store, entries, bodies }: Pick<Config, 'store' | 'entries' | 'bodies'>,
  folder: string,
): Promise<ConfiguredStores> {
  if (entries === undefined && bodies === undefined) {
    return pairOf(parseStoreUrl(store ?? STORE_DEFAULTS.store, 'store'), folder);
  }
  const ofEntries = await entriesOf(entries ?? STORE_DEFAULTS.entries, folder);
  const ofBodies = await bodiesOf(bodies ?? STORE_DEFAULTS.bodies, folder);
  return { ...ofEntries, ...ofBodies };
}

async function pairOf(url: StoreUrl, folder: string): Promise<ConfiguredStores> {
  const { kind } = url;
  const base = path.resolve(folder, url.path);
  if (kind === 'memory') {
    return {
      ...(await makeEntries(url, base, 'store')),
      ...(await makeBodies(url, base, 'store')),
    };
  }
  if (kind === 'sqlite') {
    // As createSpool without options: rows in SQLite, large bodies as files beside it.
    const files = { kind: 'file' as const, path: '', options: {} };
    return {
      ...(await makeEntries(url, base, 'store')),
      ...(await makeBodies(files, path.join(base, 'bodies'), 'store')),
    };
  }
  // Spare files are the entries' alone.
  const { spareFiles: _, ...shared } = url.options;
  return {
    ...(await makeEntries(url, path.join(base, 'entries'), 'store')),
    ...(await makeBodies({ ...url, options: shared }, path.join(base, 'bodies'), 'store')),
  };
}

type OfEntries = Pick<ConfiguredStores, 'entries' | 'place'>;
type OfBodies = Pick<ConfiguredStores, 'bodies' | 'bodiesPlace'>;

async function entriesOf(given: string | EntryStore, folder: string): Promise<OfEntries> {
  if (typeof given !== 'string') return { entries: given, place: { kind: 'given' } };
  const url = parseStoreUrl(given, 'entries');
  return makeEntries(url, path.resolve(folder, url.path), 'entries');
}

async function bodiesOf(given: string | BodyStore, folder: string): Promise<OfBodies> {
  if (typeof given !== 'string') return { bodies: given, bodiesPlace: { kind: 'given' } };
  const url = parseStoreUrl(given, 'bodies');
  return makeBodies(url, path.resolve(folder, url.path), 'bodies');
}

async function makeEntries(url: StoreUrl, at: string, key: string): Promise<OfEntries> {
  const options = { ...typed(url.options), path: at };
  const place = { kind: url.kind, path: at };
  if (url.kind === 'sqlite') {
    checkOptions(url, key, SQLITE_OPTIONS);
    const { sqlite } = await import('../stores/sqlite/entry-store.ts');
    return { entries: within(key, () => sqlite(options), '?'), place };
  }
  if (url.kind === 'file') {
    checkOptions(url, key, ['sync', 'spareFiles']);
    const { filesystem } = await import('../stores/filesystem/entry-store.ts');
    return { entries: within(key, () => filesystem(options), '?'), place };
  }
  checkOptions(url, key, []);
  const { memory } = await import('../stores/memory/entry-store.ts');
  return { entries: memory(), place: { kind: 'memory' } };
}

async function makeBodies(url: StoreUrl, at: string, key: string): Promise<OfBodies> {
  const options = { ...typed(url.options), path: at };
  const bodiesPlace = { kind: url.kind, path: at };
  if (url.kind === 'sqlite') {
    checkOptions(url, key, SQLITE_OPTIONS);
    const { sqliteBodies } = await import('../stores/sqlite/body-store.ts');
    return { bodies: within(key, () => sqliteBodies(options), '?'), bodiesPlace };
  }
  if (url.kind === 'file') {
    checkOptions(url, key, ['sync']);
    const { filesystemBodies } = await import('../stores/filesystem/body-store.ts');
    return { bodies: within(key, () => filesystemBodies(options), '?'), bodiesPlace };
  }
  checkOptions(url, key, []);
  const { memoryBodies } = await import('../stores/memory/body-store.ts');
  return { bodies: memoryBodies(), bodiesPlace: { kind: 'memory' } };
}

/** An option of an address is a text; numbers and truth are meant as such. */
function typed(options: Readonly<Record<string, string>>): Options {
  const pairs = Object.entries(options).map(([name, text]) => {
    if (/^\d+$/.test(text)) return [name, Number(text)];
    return [name, text === 'true' || text === 'false' ? text === 'true' : text];
  });
  return Object.fromEntries(pairs) as Options;
}

/** Only what is meant for an address: a path, say, is there already. */
function checkOptions({ options }: StoreUrl, key: string, known: readonly string[]): void {
  checkKeys(`${key}?`, options, known);
}
