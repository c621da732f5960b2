/**
 * Looks beside many destinations of which nothing is due, while messages that are due are left out:
 * what they read does not grow with the destinations. Rows and probes are counted as SQLite visits
 * them.
 */
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ClaimFilter, Entry, EntryStore } from 'respool';
import { migrateSqlite } from 'respool/stores/sqlite';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import { entryChange, later } from '../requests.ts';
import { claimOf } from './requests.ts';
import { makeApp, makeFolder, openFile, openStore } from './setup.ts';
import { countVisitedRows, type VisitedRows } from './visited-rows.ts';

const FEW = 500;
const MANY = 5_000;
/** What is due and left out: more than a look passes over before it goes by flow. */
const LEFT_OUT = 200;
const LOOKS = 4;
/** Looks that leave early bounds alone after one that could not raise them. */
const LOOKS_WITHOUT_RAISE = 100;

let rows: VisitedRows;
let stopCounting: () => void;

beforeEach(() => {
  ({ rows, stop: stopCounting } = countVisitedRows());
});

afterEach(() => {
  stopCounting();
});

const WORK = { lane: 'delivery', states: ['deferred', 'incoming'] } as const;
const FULL: ClaimFilter = { ...WORK, exceptDestinations: ['down'] };
const PAUSED: ClaimFilter = {
  ...WORK,
  topics: [
    { pattern: 'big.#', take: false },
    { pattern: '#', take: true },
  ],
};

type Database = Awaited<ReturnType<typeof openFile>>;

/** Destinations of which nothing is due. */
function waiting(count: number): Entry[] {
  return sampleEntries(count, 'waiting', (at) => ({
    topic: `mail.${at % 100}`,
    destination: `d${at}`,
    state: at % 2 === 0 ? 'incoming' : 'deferred',
    dueAt: later(86_400_000 + (at % 10)),
  }));
}

function leftOut(count = LEFT_OUT): Entry[] {
  const parts = { topic: 'big.a', destination: 'down', dueAt: later(-10_000) };
  return sampleEntries(count, 'left-out', parts);
}

async function insertAll(store: EntryStore, entries: readonly Entry[]): Promise<void> {
  for (let at = 0; at < entries.length; at += 1_000) {
    await store.insert(entries.slice(at, at + 1_000));
  }
}

async function openCrowd(count: number, tables?: string) {
  const file =
    tables === undefined ? path.join(await makeFolder(), 'x.db') : (await makeApp()).file;
  const options = { path: file, ...(tables === undefined ? {} : { tables }) };
  const store = await openStore(options);
  await insertAll(store, [...waiting(count), ...leftOut()]);
  return { file, store, database: await openFile(file) };
}

/** What a claim takes, and the rows that it visits. */
async function claimed(store: EntryStore, filter: ClaimFilter) {
  rows.count = 0;
  const taken = await store.claim(claimOf(store, { ...filter, max: 10 }));
  return { ids: taken.map(({ envelope: { id } }) => id), taken, visited: rows.count };
}

/** When something is due next, and the rows that this visits. */
async function looked(store: EntryStore, filter: ClaimFilter) {
  rows.count = 0;
  const next = await store.nextDueAt(filter);
  return { next, visited: rows.count };
}

function hasBounds(database: Database, tables = ''): boolean {
  const sql = 'SELECT count(*) FROM sqlite_schema WHERE name = ?';
  return database.prepare(sql).pluck().get(`${tables}due_bounds`) === 1;
}

/** What claims and looks visit in rounds, while messages come and go. */
async function visitedInRounds(count: number, filter: ClaimFilter, due: number, tables?: string) {
  const { store } = await openCrowd(count, tables);
  // The first looks may read, to make what later ones need.
  await claimed(store, filter);
  await claimed(store, filter);
  await looked(store, filter);
  const visited: number[] = [];
  for (let round = 0; round < LOOKS; round += 1) {
    const live = sampleEntries(due, `live-${round}`, (at) => ({
      topic: 'live',
      destination: `live-${at}`,
    }));
    await store.insert(live);
    const before = await looked(store, filter);
    expect(before.next).toBe(due === 0 ? later(86_400_000) : SAMPLE_AT);
    const claim = await claimed(store, filter);
    expect(claim.ids).toEqual(live.map(({ envelope: { id } }) => id));
    await store.commit(claim.taken.map((entry) => entryChange(entry, 'remove')));
    const after = await looked(store, filter);
    expect(after.next).toBe(later(86_400_000));
    visited.push(before.visited, claim.visited, after.visited);
  }
  return visited;
}

describe('claims and looks beside destinations of which nothing is due', () => {
  const cases = [
    { why: 'full', filter: FULL },
    { why: 'paused', filter: PAUSED },
  ].flatMap((one) => [0, 3].map((due) => ({ ...one, due })));
  // Regression: each of them probed every flow that its filter permits.
  test.each(cases)('read the same beside 500 and 5,000: $why, $due due', async (one) => {
    const few = await visitedInRounds(FEW, one.filter, one.due);
    expect(await visitedInRounds(MANY, one.filter, one.due)).toEqual(few);
  });

  test('read the same beside 500 and 5,000 in tables of another database', async () => {
    const few = await visitedInRounds(FEW, FULL, 3, 'outbox_');
    expect(await visitedInRounds(MANY, FULL, 3, 'outbox_')).toEqual(few);
  });

  test('read the same where all come due at the same time, and go in the order of ids', async () => {
    const visited: number[] = [];
    for (const count of [FEW, MANY]) {
      const { store } = await openCrowd(count);
      await claimed(store, FULL);
      await store.insert(
        sampleEntries(count, 'same', (at) => ({ topic: 'same', destination: `s${at}` })),
      );
      // Flows that are new are read once.
      await looked(store, FULL);
      const claim = await claimed(store, FULL);
      expect(claim.ids).toEqual(Array.from({ length: 10 }, (_, at) => `same-0000${at}`));
      visited.push(claim.visited);
    }
    expect(visited[1]).toBe(visited[0]);
  });
});

describe('bounds that are too early', () => {
  test('are not met again and again, also by looks in no transaction', async () => {
    const { store } = await openCrowd(MANY);
    await claimed(store, FULL);
    const soon = sampleEntries(FEW, 'soon', (at) => ({
      topic: 'soon',
      destination: `d${at}`,
      dueAt: later(1_000),
    }));
    await store.insert(soon);
    expect((await looked(store, FULL)).next).toBe(later(1_000));
    await store.commit(soon.map((entry) => entryChange(entry, 'remove')));
    expect((await looked(store, FULL)).visited).toBeGreaterThan(FEW);
    // A look that meets too many of them asks every flow instead, and raises those it has met.
    for (let at = 0; at < LOOKS; at += 1) await looked(store, FULL);
    const { next, visited } = await looked(store, FULL);
    expect(next).toBe(later(86_400_000));
    expect(visited).toBeLessThan(LEFT_OUT);
  });

  // Regression: each look waited for the lock of another process, as long as a write may.
  test('are left alone for a while by looks after one that had no turn to write', async () => {
    const { store, database } = await openCrowd(FEW);
    await claimed(store, FULL);
    const soon = sampleEntries(20, 'soon', (at) => ({
      topic: 'soon',
      destination: `d${at}`,
      dueAt: later(1_000),
    }));
    await store.insert(soon);
    await store.commit(soon.map((entry) => entryChange(entry, 'remove')));
    database.exec('BEGIN IMMEDIATE');
    // Flows that are new are read once.
    await looked(store, FULL);
    const { next, visited } = await looked(store, FULL);
    expect(next).toBe(later(86_400_000));
    database.exec('COMMIT');
    for (let at = 0; at < LOOKS; at += 1) {
      expect((await looked(store, FULL)).visited).toBe(visited);
    }
    for (let at = 0; at < LOOKS_WITHOUT_RAISE; at += 1) await looked(store, FULL);
    expect((await looked(store, FULL)).visited).toBeLessThan(visited);
  });

  test('of flows that a filter leaves out cost no more than the flows that it permits', async () => {
    const { store } = await openCrowd(FEW);
    await insertAll(
      store,
      sampleEntries(MANY, 'others', (at) => ({ topic: `big.${at}`, destination: 'down' })),
    );
    await claimed(store, PAUSED);
    for (let round = 0; round < LOOKS; round += 1) {
      expect((await claimed(store, PAUSED)).visited).toBeLessThan(4 * FEW);
      const { next, visited } = await looked(store, PAUSED);
      expect(next).toBe(later(86_400_000));
      expect(visited).toBeLessThan(5 * FEW);
    }
  });
});

describe('the table of bounds', () => {
  test('is not made for few destinations', async () => {
    const { store, database } = await openCrowd(100);
    await claimed(store, FULL);
    await looked(store, FULL);
    expect(hasBounds(database)).toBe(false);
  });

  test('is made by a look in no transaction as well', async () => {
    const { store, database } = await openCrowd(FEW);
    expect((await looked(store, FULL)).next).toBe(later(86_400_000));
    expect(hasBounds(database)).toBe(true);
  });

  // Regression: a table with triggers came into a file whose tables the user makes.
  test('is not made where migrate is false, and used from when the user has made it', async () => {
    const { file, app } = await makeApp();
    migrateSqlite(app, { tables: 'outbox_' });
    const store = await openStore({ path: file, tables: 'outbox_', migrate: false });
    await insertAll(store, [...waiting(MANY), ...leftOut()]);
    await store.insert([sampleEntry('live', { topic: 'live' })]);
    expect((await looked(store, FULL)).next).toBe(SAMPLE_AT);
    expect((await claimed(store, FULL)).ids).toEqual(['live']);
    expect((await looked(store, FULL)).visited).toBeGreaterThan(MANY);
    const triggers = app.prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'").pluck();
    expect([hasBounds(app, 'outbox_'), ...triggers.all()]).toEqual([false]);
    migrateSqlite(app, { tables: 'outbox_', dueBounds: true });
    await store.insert([sampleEntry('next', { topic: 'live' })]);
    expect((await claimed(store, FULL)).ids).toEqual(['next']);
    const { next, visited } = await looked(store, FULL);
    expect(next).toBe(later(86_400_000));
    expect(visited).toBeLessThan(LEFT_OUT);
  });

  test('is made anew where its triggers went with a table that was made anew', async () => {
    const { file, store, database } = await openCrowd(FEW, 'outbox_');
    await claimed(store, FULL);
    await store.close();
    // As tools do that change columns: a copy takes the name of the table.
    const [{ sql }] = database
      .prepare("SELECT sql FROM sqlite_schema WHERE name = 'outbox_entries'")
      .all() as [{ sql: string }];
    const indexes = database
      .prepare("SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'outbox_entries'")
      .pluck()
      .all();
    database.exec(`${sql.replace('outbox_entries', 'copied')};
      INSERT INTO copied SELECT * FROM outbox_entries; DROP TABLE outbox_entries;
      ALTER TABLE copied RENAME TO outbox_entries; ${indexes.join(';')};
      UPDATE outbox_entries SET due_at = ${SAMPLE_AT - 1} WHERE id = 'waiting-00077'`);
    const again = await openStore({ path: file, tables: 'outbox_' });
    expect((await looked(again, FULL)).next).toBe(SAMPLE_AT - 1);
    expect((await claimed(again, FULL)).ids).toEqual(['waiting-00077']);
    const names = "SELECT name FROM sqlite_schema WHERE name LIKE 'outbox_due_bounds_%'";
    expect(database.prepare(names).all()).toHaveLength(4);
  });

  test('is kept by every process and program that writes to the file', async () => {
    const { file, store, database } = await openCrowd(MANY);
    await claimed(store, FULL);
    const other = await openStore({ path: file });
    await other.insert([sampleEntry('by-store', { topic: 'new', destination: 'new' })]);
    expect((await claimed(store, FULL)).ids).toEqual(['by-store']);
    // As an earlier version of us does it, which knows nothing of bounds.
    database.exec(`INSERT INTO entries (id, slot, flow, priority, due_at, revision, attempts,
        notices, lost, postponed, replays, enqueued_at, updated_at)
      SELECT 'by-program', slot, flow, priority, ${SAMPLE_AT - 1}, 1, 0, 0, 0, 0, 0, 0, 0
      FROM entries WHERE id = 'waiting-00042';
      INSERT INTO contents (seq, envelope, body)
      SELECT last_insert_rowid(), replace(envelope, 'waiting-00042', 'by-program'), body
      FROM contents WHERE seq = (SELECT seq FROM entries WHERE id = 'waiting-00042');
      UPDATE entries SET due_at = ${SAMPLE_AT} WHERE id = 'waiting-00077'`);
    expect((await looked(store, FULL)).next).toBe(SAMPLE_AT - 1);
    expect((await claimed(store, FULL)).ids).toEqual(['by-program', 'waiting-00077']);
  });

  test('is gone with the transaction that made it, and nothing is missed', async () => {
    const { file, store, database } = await openCrowd(FEW);
    database.exec(`CREATE TRIGGER undo BEFORE INSERT ON entries WHEN new.id = 'bad'
      BEGIN SELECT RAISE(ABORT, 'bad'); END`);
    await store.insert([sampleEntry('live', { topic: 'live' })]);
    const both = [
      store.claim(claimOf(store, { ...FULL, max: 1 })),
      store.insert([sampleEntry('bad')]),
    ];
    expect((await Promise.allSettled(both)).map(({ status }) => status)).toEqual([
      'rejected',
      'rejected',
    ]);
    expect(hasBounds(database)).toBe(false);
    expect((await looked(store, FULL)).next).toBe(SAMPLE_AT);
    expect((await claimed(store, FULL)).ids).toEqual(['live']);
    const other = await openStore({ path: file });
    await claimed(other, FULL);
    expect(hasBounds(database)).toBe(true);
    await other.insert([sampleEntry('live-2', { topic: 'live' })]);
    expect((await claimed(store, FULL)).ids).toEqual(['live-2']);
  });

  test('is done without where the disk has no room for it, and nothing is missed', async () => {
    const { file, store, database } = await openCrowd(MANY);
    await store.insert([sampleEntry('live', { topic: 'live' })]);
    await store.close();
    const maxPages = Number(database.pragma('page_count', { simple: true })) + 4;
    const tight = await openStore({ path: file }, { maxPages });
    expect((await looked(tight, FULL)).next).toBe(SAMPLE_AT);
    expect((await claimed(tight, FULL)).ids).toEqual(['live']);
    expect((await looked(tight, FULL)).next).toBe(later(86_400_000));
    expect(hasBounds(database)).toBe(false);
    await tight.close();
    const roomy = await openStore({ path: file });
    expect((await claimed(roomy, FULL)).ids).toEqual([]);
    expect(hasBounds(database)).toBe(true);
  });

  test('is done without where another table has its name', async () => {
    const { store, database } = await openCrowd(FEW, 'outbox_');
    database.exec('CREATE TABLE outbox_due_bounds (what TEXT)');
    await store.insert([sampleEntry('live', { topic: 'live' })]);
    expect((await looked(store, FULL)).next).toBe(SAMPLE_AT);
    expect((await claimed(store, FULL)).ids).toEqual(['live']);
    expect(database.prepare('SELECT * FROM outbox_due_bounds').all()).toEqual([]);
  });

  test('loses the bounds of a flow with the flow', async () => {
    const { file, store, database } = await openCrowd(FEW);
    await store.insert([sampleEntry('live', { topic: 'live', destination: 'last' })]);
    await claimed(store, FULL);
    const [live] = [await store.get('live')];
    await store.commit([entryChange(live as Entry, 'remove')]);
    await openStore({ path: file });
    const sql = 'SELECT count(*) FROM due_bounds WHERE flow NOT IN (SELECT flow FROM flows)';
    expect(hasBounds(database)).toBe(true);
    expect(database.prepare(sql).pluck().get()).toBe(0);
    // The number of the flow goes to one of another priority.
    await store.insert([sampleEntry('next', { topic: 'next', priority: 1 })]);
    expect((await claimed(store, FULL)).ids).toEqual(['next']);
  });
});
