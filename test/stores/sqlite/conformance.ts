/** conformance — the shared suites over the SQLite stores; three files run them side by side. */

import Sqlite from 'better-sqlite3';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { BodyStore, Clock, EntryStore } from 'respool';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import {
  type BodiesUnderTest,
  bodyStoreSuite,
  entryStoreSuite,
  type StoreUnderTest,
} from 'respool/testkit';
import { casesOnTheWay } from '../../long.ts';
import { runSuite } from '../../suite.ts';
import { systemClock } from '../../time.ts';

/**
 * How the stores are made: in the caller's thread, in a file with tables of somebody else, or moving
 * to a thread of their own at once.
 */
export type Place = 'own' | 'tables' | 'moving';

const PREFIX = 'outbox_';

/** On this clock everything takes long. */
function slowClock(): Clock {
  let lateMs = 0;
  return {
    ...systemClock,
    monotonic() {
      lateMs += 200;
      return systemClock.monotonic() + lateMs;
    },
  };
}

function placeOf(place: Place): [{ thread: false | 'auto' }, { clock: Clock }] {
  if (place !== 'moving') return [{ thread: false }, { clock: systemClock }];
  return [{ thread: 'auto' }, { clock: slowClock() }];
}

function makeEntries(place: Place): () => Promise<StoreUnderTest> {
  return async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'respool-sqlite-'));
    const stores: EntryStore[] = [];
    const isShared = place === 'tables';
    const file = path.join(folder, isShared ? 'app.db' : 'respool.db');
    const tables = isShared ? PREFIX : '';
    if (isShared) await makeForeign(file);
    const open = async () => {
      const [options, parts] = placeOf(place);
      const where = isShared ? { path: file, tables } : { path: folder };
      const store = sqlite({ ...where, ...options }, parts);
      stores.push(store);
      await store.open();
      return store;
    };
    const store = await open();
    return {
      store,
      async reopen() {
        await store.close();
        return open();
      },
      second: open,
      damage: (id) => damage(file, tables, id),
      async dispose() {
        for (const opened of stores) await opened.close();
        await rm(folder, { recursive: true, force: true });
      },
    };
  };
}

/** A database of somebody else, with tables that have our names, but not our prefix. */
async function makeForeign(file: string): Promise<void> {
  const database = new Sqlite(file);
  database.pragma('journal_mode = WAL');
  database.exec(
    'CREATE TABLE entries (a); CREATE TABLE orders (b); CREATE INDEX entries_id ON orders (b)',
  );
  database.close();
}

async function damage(file: string, tables: string, id: string): Promise<void> {
  const database = new Sqlite(file, { timeout: 5_000 });
  const sql = `UPDATE ${tables}contents SET envelope = substr(envelope, 1, 20)
    WHERE seq = (SELECT seq FROM ${tables}entries WHERE id = ?)`;
  database.prepare(sql).run(id);
  database.close();
}

function makeBodies(place: Place): () => Promise<BodiesUnderTest> {
  return async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'respool-sqlite-bodies-'));
    const stores: BodyStore[] = [];
    const open = async () => {
      const [options, parts] = placeOf(place);
      const bodies = sqliteBodies({ path: folder, ...options }, parts);
      stores.push(bodies);
      await bodies.open();
      return bodies;
    };
    const bodies = await open();
    return {
      bodies,
      async reopen() {
        await bodies.close();
        return open();
      },
      async dispose() {
        for (const opened of stores) await opened.close();
        await rm(folder, { recursive: true, force: true });
      },
    };
  };
}

const can = {
  canReopen: true,
  canShare: true,
  canDamage: true,
  canExpireLost: true,
  canOrder: true,
} as const;

/** Every promise of both doors, with or without a thread. */
export function runConformance(where: string, place: Place): void {
  runEntryConformance(where, place);
  runSuite(
    `the SQLite body store ${where} keeps the promises of a body store:`,
    bodyStoreSuite(makeBodies(place), { canReopen: true }),
  );
}

/** Those of entries alone. */
export function runEntryConformance(where: string, place: Place): void {
  const cases = entryStoreSuite(makeEntries(place), can);
  runSuite(
    `the SQLite store ${where} keeps the promises of an entry store:`,
    // Each case starts a thread, which takes longer than the case; the statements are the same.
    place === 'moving' ? casesOnTheWay(cases) : cases,
  );
}
