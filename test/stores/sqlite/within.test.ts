/** within — messages that are inserted in a transaction of the user's, through the user's handle. */

import type Sqlite from 'better-sqlite3';
import { describe, expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { migrateSqlite, sqlite, type SqliteStore } from 'respool/stores/sqlite';
import type { Entry, EntryStore } from 'respool';
import { claimOf } from './requests.ts';
import { makeApp, openFile, openStore, transact } from './setup.ts';
import { entryChange } from '../requests.ts';

const tables = 'outbox_';

/** A program with its tables and ours in one file; the store is open, as that of a relay. */
async function setup(): Promise<{ file: string; app: Sqlite.Database; store: SqliteStore }> {
  const { file, app } = await makeApp();
  migrateSqlite(app, { tables });
  return { file, app, store: await openStore({ path: file, tables, migrate: false }) };
}

async function idsIn(store: EntryStore): Promise<string[]> {
  const { entries } = await store.list({ limit: 500 });
  return entries.map(({ envelope }) => envelope.id);
}

/** The counts that flows keep, against those of the rows. */
function assertCounted(app: Sqlite.Database): void {
  const slots = Array.from({ length: 12 }, (_, slot) => slot);
  const rows = app
    .prepare('SELECT flow, slot, count(*) AS n FROM outbox_entries GROUP BY flow, slot')
    .all() as { flow: number; slot: number; n: number }[];
  const flows = app.prepare('SELECT * FROM outbox_flows').all() as Record<string, number>[];
  const kept = flows.flatMap((flow) =>
    slots
      .map((slot) => ({ flow: flow['flow'], slot, n: flow[`n${slot}`] }))
      .filter(({ n }) => n !== 0),
  );
  expect(kept).toEqual(rows);
}

describe('insertWithin', () => {
  test('a message is there when the transaction commits, and nowhere before', async () => {
    const { app, store } = await setup();
    app.exec('BEGIN');
    const entry = sampleEntry('a', { bytes: Uint8Array.of(1, 2) });
    expect(store.insertWithin(app, [entry])).toEqual(['stored']);
    expect(await store.get('a')).toBeUndefined();
    app.exec('COMMIT');
    expect((await store.get('a'))?.inlineBody).toEqual(Uint8Array.of(1, 2));
    expect(await store.claim(claimOf(store))).toHaveLength(1);
    assertCounted(app);
  });

  test('a message of a transaction that is rolled back was never there', async () => {
    const { app, store } = await setup();
    app.exec('BEGIN');
    store.insertWithin(app, sampleEntries(3, 'm'));
    app.exec('ROLLBACK');
    expect(await idsIn(store)).toEqual([]);
    expect(app.prepare('SELECT count(*) FROM outbox_flows').pluck().get()).toBe(0);
    expect(app.prepare('SELECT count(*) FROM outbox_contents').pluck().get()).toBe(0);
  });

  test('a kind of message that was rolled back before is counted under its own number', async () => {
    const { app, store } = await setup();
    const of = (id: string, topic: string): Entry[] => [sampleEntry(id, { topic })];
    expect(() =>
      transact(app, () => {
        store.insertWithin(app, of('gone', 'first'));
        throw new Error('the order is wrong');
      }),
    ).toThrow(/wrong/);
    // Another kind takes the number that was free again.
    transact(app, () => store.insertWithin(app, of('b', 'second')));
    transact(app, () => store.insertWithin(app, of('a', 'first')));
    assertCounted(app);
    expect(await store.tally('topic', {})).toMatchObject([
      { key: 'first', count: 1 },
      { key: 'second', count: 1 },
    ]);
    expect(await store.list({ topic: 'first', limit: 10 })).toMatchObject({
      entries: [{ envelope: { id: 'a' } }],
    });
  });

  test('a savepoint that is undone takes its messages along, and no others', async () => {
    const { app, store } = await setup();
    transact(app, () => {
      store.insertWithin(app, [sampleEntry('kept')]);
      app.exec('SAVEPOINT mine');
      store.insertWithin(app, [sampleEntry('gone', { topic: 'gone' })]);
      app.exec('ROLLBACK TO mine');
      store.insertWithin(app, [sampleEntry('later', { topic: 'later' })]);
    });
    expect(await idsIn(store)).toEqual(['kept', 'later']);
    assertCounted(app);
  });

  test('a duplicate is told and does not fail the transaction', async () => {
    const { app, store } = await setup();
    await store.insert([sampleEntry('a', { dedupeKey: 'k' })]);
    const results = transact(app, () => {
      app.exec("INSERT INTO orders (what) VALUES ('milk')");
      return store.insertWithin(app, [
        sampleEntry('a'),
        sampleEntry('b', { dedupeKey: 'k' }),
        sampleEntry('c'),
        sampleEntry('c'),
      ]);
    });
    expect(results).toEqual([
      { duplicateOf: 'a' },
      { duplicateOf: 'a' },
      'stored',
      { duplicateOf: 'c' },
    ]);
    expect(app.prepare('SELECT count(*) FROM orders').pluck().get()).toBe(2);
    expect(await idsIn(store)).toEqual(['a', 'c']);
    assertCounted(app);
  });

  test('a message that cannot be stored is refused before the transaction is touched', async () => {
    const { app, store } = await setup();
    transact(app, () => {
      const wrong = sampleEntry('b', { dueAt: 0.5 });
      expect(() => store.insertWithin(app, [sampleEntry('a'), wrong])).toThrow(
        /not a whole number/,
      );
      const large = sampleEntry('c', { bytes: new Uint8Array(1024 * 1024 + 1) });
      expect(() => store.insertWithin(app, [large])).toThrow(/inline body/);
    });
    expect(await idsIn(store)).toEqual([]);
  });

  test('an error in the middle leaves none of the call, and the rest of the transaction', async () => {
    const { app, store } = await setup();
    app.exec(`CREATE TRIGGER no BEFORE INSERT ON outbox_contents
      WHEN new.envelope LIKE '%"id":"b"%' BEGIN SELECT raise(ABORT, 'no room for b'); END`);
    transact(app, () => {
      expect(() => store.insertWithin(app, sampleOf('a', 'b', 'c'))).toThrow(/no room for b/);
      store.insertWithin(app, sampleOf('d'));
    });
    expect(await idsIn(store)).toEqual(['d']);
    assertCounted(app);
  });

  test('works without open(), and many times over one handle and several', async () => {
    const { file, app } = await makeApp();
    migrateSqlite(app, { tables });
    const store = sqlite({ path: file, tables });
    const other = await openFile(file);
    for (let round = 0; round < 20; round += 1) {
      transact(app, () => store.insertWithin(app, sampleOf(`a${round}`)));
      transact(other, () => store.insertWithin(other, sampleOf(`b${round}`)));
    }
    expect(app.prepare('SELECT count(*) FROM outbox_entries').pluck().get()).toBe(40);
    assertCounted(app);
  });

  test('keeps the order of keys among messages of transactions and of the store', async () => {
    const { app, store } = await setup();
    const keyed = (id: string): Entry => sampleEntry(id, { orderKey: 'k' });
    transact(app, () => store.insertWithin(app, [keyed('c'), keyed('b')]));
    await store.insert([keyed('a')]);
    const taken: string[] = [];
    for (let turn = 0; turn < 3; turn += 1) {
      const [entry, ...more] = await store.claim(claimOf(store));
      expect(more).toEqual([]);
      if (entry === undefined) break;
      taken.push(entry.envelope.id);
      await store.commit([entryChange(entry, 'remove')]);
    }
    expect(taken).toEqual(['c', 'b', 'a']);
  });

  test('works through a handle that gives whole numbers as bigint', async () => {
    const { app, store } = await setup();
    const handle = app as unknown as { defaultSafeIntegers(on: boolean): void };
    handle.defaultSafeIntegers(true);
    const keyed = ['a', 'b', 'c'].map((id) => sampleEntry(id, { orderKey: 'k' }));
    transact(app, () => store.insertWithin(app, keyed));
    handle.defaultSafeIntegers(false);
    expect(await idsIn(store)).toEqual(['a', 'b', 'c']);
    assertCounted(app);
  });

  test('an empty list needs nothing but a transaction', async () => {
    const { file, app } = await makeApp();
    const store = sqlite({ path: file, tables });
    expect(transact(app, () => store.insertWithin(app, []))).toEqual([]);
  });
});

function sampleOf(...ids: readonly string[]): Entry[] {
  return ids.map((id) => sampleEntry(id));
}

describe('insertWithin refuses', () => {
  test('a handle that is in no transaction, and says what to do', async () => {
    const { app, store } = await setup();
    expect(() => store.insertWithin(app, sampleOf('a'))).toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringContaining('database.transaction(') as unknown,
      }) as Error,
    );
    expect(await idsIn(store)).toEqual([]);
  });

  test('what is no database', async () => {
    const { store } = await setup();
    for (const wrong of [undefined, {}, 'app.db']) {
      expect(() => store.insertWithin(wrong as unknown as Sqlite.Database, [])).toThrow(
        /not a better-sqlite3 database/,
      );
    }
  });

  test('a database without our tables, and says what makes them', async () => {
    const { file, app } = await makeApp();
    const store = sqlite({ path: file, tables });
    const missing = expect.objectContaining({
      code: 'store.version',
      message: expect.stringContaining('migrateSqlite(database, { tables: "outbox_" })') as unknown,
    }) as Error;
    expect(() => transact(app, () => store.insertWithin(app, sampleOf('a')))).toThrow(missing);
    migrateSqlite(app, { tables });
    expect(transact(app, () => store.insertWithin(app, sampleOf('a')))).toEqual(['stored']);
  });

  test('tables that a rollback took back, and takes them when they are there again', async () => {
    const { file, app } = await makeApp();
    const store = sqlite({ path: file, tables });
    app.exec('BEGIN');
    migrateSqlite(app, { tables });
    store.insertWithin(app, sampleOf('a'));
    app.exec('ROLLBACK');
    expect(() => transact(app, () => store.insertWithin(app, sampleOf('a')))).toThrow(
      /migrateSqlite\(/,
    );
    migrateSqlite(app, { tables });
    expect(transact(app, () => store.insertWithin(app, sampleOf('a')))).toEqual(['stored']);
  });

  test('tables of a newer program', async () => {
    const { app, store } = await setup();
    app.exec("UPDATE outbox_meta SET value = 99 WHERE key = 'version'");
    expect(() => transact(app, () => store.insertWithin(app, sampleOf('a')))).toThrow(
      /newer Respool/,
    );
  });
});

describe('what a transaction brought', () => {
  test('is noticed by a store that watches the same file', async () => {
    const { app, store } = await setup();
    const noticed = new Promise<void>((resolve) => {
      const stop = store.watch?.(() => {
        stop?.();
        resolve();
      });
    });
    // The watch compares with what it saw first.
    await store.get('x');
    await store.get('x');
    transact(app, () => store.insertWithin(app, sampleOf('a')));
    await noticed;
    expect(await store.claim(claimOf(store))).toHaveLength(1);
  });

  test('is told at once by wake(), to those who watch and no longer to those who stopped', async () => {
    const { store } = await setup();
    let calls = 0;
    const stop = store.watch?.(() => {
      calls += 1;
    });
    store.wake();
    expect(calls).toBe(1);
    stop?.();
    store.wake();
    expect(calls).toBe(1);
  });

  test('wake() of a store that is not open does nothing', () => {
    expect(() => {
      sqlite({ path: 'x.db', tables }).wake();
    }).not.toThrow();
  });
});
