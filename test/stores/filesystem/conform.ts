/** The suites of the doors, over the filesystem stores. */
import { mkdtemp, open, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'vitest';
import type { BodyStore, EntryStore } from 'respool';
import { filesystem, filesystemBodies, type SyncMode } from 'respool/stores/filesystem';
import { bodyStoreSuite, entryStoreSuite, type SuiteCase } from 'respool/testkit';
import { casesOnTheWay } from '../../long.ts';

/** A crowd is made of files, and with "full" each waits for the disk on its own. */
const CROWDS: Readonly<Record<SyncMode, number>> = { full: 1_000, batch: 5_000, none: 5_000 };

/** The contract of an entry store, for one sync mode; each mode has a file, so that they run at once. */
export function entriesConform(sync: SyncMode): void {
  describe(`entries as files, sync "${sync}"`, () => {
    const cases = entryStoreSuite(() => makeStore(sync), {
      canReopen: true,
      canShare: false,
      canDamage: true,
      canExpireLost: true,
      crowd: CROWDS[sync],
    });
    for (const { name, run } of casesOf(sync, cases)) test(name, run);
  });
}

/** What is found does not depend on when the disk is asked to sync: "batch", the default, shows it. */
function casesOf(sync: SyncMode, cases: readonly SuiteCase[]): readonly SuiteCase[] {
  return sync === 'batch' ? cases : casesOnTheWay(cases);
}

/** The contract of a body store, for one sync mode. */
export function bodiesConform(sync: SyncMode): void {
  describe(`bodies as files, sync "${sync}"`, () => {
    const cases = bodyStoreSuite(() => makeBodies(sync), { canReopen: true });
    for (const { name, run } of cases) test(name, run);
  });
}

async function makeStore(sync: SyncMode) {
  const path = await mkdtemp(join(tmpdir(), 'respool-fs-'));
  const opened: EntryStore[] = [];
  const open = async (): Promise<EntryStore> => {
    const store = filesystem({ path, sync });
    await store.open();
    opened.push(store);
    return store;
  };
  const store = await open();
  return {
    store,
    async reopen() {
      await opened.at(-1)?.close();
      return open();
    },
    async damage(id: string) {
      await flipByte(path, id);
      // A file is only looked at when it is needed; a look is what finds the damage.
      await opened
        .at(-1)
        ?.get(id)
        .catch(() => undefined);
    },
    async dispose() {
      for (const each of opened) await each.close();
      await rm(path, { recursive: true, force: true });
    },
  };
}

async function makeBodies(sync: SyncMode) {
  const path = await mkdtemp(join(tmpdir(), 'respool-bodies-'));
  let bodies: BodyStore;
  const open = async (): Promise<BodyStore> => {
    bodies = filesystemBodies({ path, sync });
    await bodies.open();
    return bodies;
  };
  return {
    bodies: await open(),
    async reopen() {
      await bodies.close();
      return open();
    },
    async dispose() {
      await bodies.close();
      await rm(path, { recursive: true, force: true });
    },
  };
}

async function flipByte(path: string, id: string): Promise<void> {
  const names = await readdir(path, { recursive: true });
  const name = names.find((each) => each.split('/').at(-1)?.startsWith(`${id},`));
  const file = await open(join(path, name ?? ''), 'r+');
  await file.write('#', 3);
  await file.close();
}
