/** A filesystem store in a folder of its own, for the tests beside this file. */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach } from 'vitest';
import type { EntryStore } from 'respool';
import { filesystem, type FilesystemOptions } from 'respool/stores/filesystem';
import { SAMPLE_AT } from 'respool/testkit';

const STATES = ['incoming', 'active', 'deferred', 'hold', 'bounce', 'archived'];
/** What has to be tidied up after a test, the last first. */
export const cleanups: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

export async function setup(options: Partial<FilesystemOptions> = {}) {
  const path = await mkdtemp(join(tmpdir(), 'respool-store-'));
  cleanups.push(() => rm(path, { recursive: true, force: true }));
  const world = { path, store: await openStore(path, options) };
  return {
    ...world,
    /** Closes the store, lets something happen to its files and opens it again. */
    reopen: async (meanwhile: () => Promise<unknown> = async () => undefined) => {
      await world.store.close();
      await meanwhile();
      world.store = await openStore(path, options);
      return world.store;
    },
  };
}

export async function openStore(path: string, options: Partial<FilesystemOptions> = {}) {
  const store = filesystem({ path, ...options });
  cleanups.push(() => store.close());
  await store.open();
  return store;
}

/** The files of entries, below the path. */
export async function entryFiles(path: string): Promise<readonly string[]> {
  const names = await readdir(path, { recursive: true });
  return names
    .filter((name) => STATES.includes(name.split('/')[0] ?? '') && name.includes(','))
    .sort();
}

export async function fileOf(path: string, id: string): Promise<string> {
  const found = (await entryFiles(path)).find((name) => basename(name).startsWith(`${id},`));
  return join(path, found ?? 'missing');
}

export function claimAll(store: EntryStore, max = 10) {
  const states = ['incoming', 'deferred', 'active'] as const;
  const holder = `${store.instance}:1`;
  return store.claim({ lane: 'delivery', states, max, now: SAMPLE_AT, leaseMs: 1_000, holder });
}

export async function listed(store: EntryStore) {
  const { entries, corrupt } = await store.list({ limit: 100 });
  return { ids: entries.map(({ envelope }) => envelope.id), corrupt };
}
