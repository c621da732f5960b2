/** What the tests of the seal share: keys, folders that go away, stores that are closed. */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach } from 'vitest';
import { generateKey, seal, type SealedStore, type SealOptions } from 'respool/transforms';
import {
  type EntryStoreAbilities,
  entryStoreSuite,
  SAMPLE_AT,
  sampleEntry,
  type SampleParts,
} from 'respool/testkit';
import { createMemoryData, memory, type MemoryData } from 'respool/stores/memory';
import { type ClaimRequest, type Entry, type EntryStore, failure } from 'respool';
import { runSuite } from '../suite.ts';

/** One key for everybody; the tests that mind make their own. */
export const KEYS: Readonly<Record<'k1' | 'k2', string>> = { k1: generateKey(), k2: generateKey() };

const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

/** Runs after the test, the last one first. */
export function atEnd(end: () => Promise<unknown>): void {
  endings.push(end);
}

export async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-seal-'));
  atEnd(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** A sealed store, opened; with the key `k1` unless said otherwise. */
export async function openSealed(
  inner: EntryStore,
  options: SealOptions = { keys: { k1: KEYS.k1 } },
): Promise<SealedStore> {
  const store = seal(inner, options);
  await store.open();
  atEnd(() => store.close());
  return store;
}

/** How the store below is opened and damaged, in a folder of its own. */
export interface Below {
  readonly open: (folder: string) => EntryStore;
  readonly damage: (folder: string, id: string, store: EntryStore) => Promise<void>;
}

/** The contract of an entry store, over a sealed one; a file each, so that they run at once. */
export function sealedConforms(
  what: string,
  { open, damage }: Below,
  can: Partial<EntryStoreAbilities>,
): void {
  const make = async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'respool-seal-'));
    const stores: EntryStore[] = [];
    const openOne = async () => {
      const store = seal(open(folder), { keys: KEYS, primary: 'k2' });
      stores.push(store);
      await store.open();
      return store;
    };
    const store = await openOne();
    return {
      store,
      async reopen() {
        await store.close();
        return openOne();
      },
      second: openOne,
      damage: (id: string) => damage(folder, id, stores.at(-1) ?? store),
      async dispose() {
        for (const opened of stores) await opened.close();
        await rm(folder, { recursive: true, force: true });
      },
    };
  };
  const abilities = { canReopen: true, canShare: true, canDamage: true, crowd: 2_000, ...can };
  runSuite(
    `a sealed ${what} keeps the promises of an entry store:`,
    entryStoreSuite(make, { ...abilities, refusesSearch: true }),
  );
}

/** A memory store to be sealed, and another over the same data that sees what lies there. */
export async function openWith(): Promise<{
  raw: EntryStore;
  inner: EntryStore;
  shared: MemoryData;
}> {
  const shared = createMemoryData();
  const [raw, inner] = [memory({ shared }), memory({ shared })];
  await raw.open();
  return { raw, inner, shared };
}

/** A deferred sample that is due and has something to hide in every place. */
export function speaking(id: string, parts: SampleParts = {}): Entry {
  return sampleEntry(id, {
    state: 'deferred',
    headers: { tenant: 'acme', trace: '1' },
    notes: { tried: 'mx1' },
    because: { code: 'smtp.451', text: 'greylisted', by: 'handler' },
    lastFailure: failure('permanent', 'smtp.550', 'no such user'),
    history: [
      { at: SAMPLE_AT, tookMs: 3, by: 'x', lane: 'delivery', attempt: 1, code: 'smtp.451' },
    ],
    ...parts,
  });
}

/** A claim of all that is due, under the holder `h:1`. */
export function claimOf(parts: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    lane: 'delivery',
    states: ['incoming', 'deferred', 'active'],
    max: 100,
    now: SAMPLE_AT,
    leaseMs: 1_000,
    holder: 'h:1',
    ...parts,
  };
}
