/** tables — a store with a prefix, in a database file that belongs to somebody else. */

import { chmod, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { migrateSqlite, sqlite, sqliteBodies, sqliteSchema } from 'respool/stores/sqlite';
import { serviceAddress } from '../../../src/stores/sqlite/instances.ts';
import { sampleEntry } from 'respool/testkit';
import { loadSqlite } from '../../../src/stores/shared/client.ts';
import { openConnection } from '../../../src/stores/sqlite/connection.ts';
import { checkStoreOptions } from '../../../src/stores/sqlite/options.ts';
import { claimOf } from './requests.ts';
import { atEnd, makeApp, makeFolder, openFile, openStore, othersIn } from './setup.ts';

const tables = 'outbox_';

function namesIn(database: Awaited<ReturnType<typeof openFile>>): unknown[] {
  return database.prepare('SELECT name FROM sqlite_schema ORDER BY name').pluck().all();
}

describe('a store with tables in a file of somebody else', () => {
  test('leaves what else is there as it was: tables, rows, pragmas and rights', async () => {
    const { file, app } = await makeApp();
    await chmod(file, 0o640);
    const pragmas = ['page_size', 'auto_vacuum', 'journal_mode', 'user_version', 'application_id'];
    const seen = () => [
      pragmas.map((name) => app.pragma(name, { simple: true })),
      app.prepare('SELECT * FROM orders').all(),
    ];
    const before = [...seen(), othersIn(app, tables)];
    const store = await openStore({ path: file, tables });
    await store.insert([sampleEntry('a')]);
    expect(await store.claim(claimOf(store))).toHaveLength(1);
    await store.close();
    expect([...seen(), othersIn(app, tables)]).toEqual(before);
    expect((await stat(file)).mode & 0o777).toBe(0o640);
    expect(
      (await readdir(path.dirname(file))).filter((name) => !/^app\.db(?:-|$)/.test(name)),
    ).toEqual(['app.db.outbox_locks']);
  });

  test('keeps the size of its pages', async () => {
    const { file, app } = await makeApp();
    expect(app.pragma('page_size', { simple: true })).toBe(4_096);
    await openStore({ path: file, tables });
    expect((await openFile(file)).pragma('page_size', { simple: true })).toBe(4_096);
  });

  test('two prefixes, and a store without one, do not see each other', async () => {
    const file = path.join(await makeFolder(), 'all.db');
    const alone = await openStore({ path: file });
    const one = await openStore({ path: file, tables: 'one_' });
    const two = await openStore({ path: file, tables: 'two_' });
    for (const store of [alone, one, two]) {
      expect(await store.insert([sampleEntry('same')])).toEqual(['stored']);
    }
    expect(await one.claim(claimOf(one))).toHaveLength(1);
    expect(await one.claim(claimOf(one))).toEqual([]);
    expect(await two.claim(claimOf(two))).toHaveLength(1);
    expect((await alone.get('same'))?.status.state).toBe('incoming');
  });

  test('one store does not forget the lost instances of another', async () => {
    const { file } = await makeApp();
    const lost = await openStore({ path: file, tables: 'one_' });
    await lost.insert([sampleEntry('a')]);
    await lost.claim(claimOf(lost));
    // What is still active keeps its lock file, which tells that its holder is gone.
    await lost.close();
    const two = await openStore({ path: file, tables: 'two_' });
    expect(await two.expireLost?.(claimOf(two).now)).toBe(0);
    const one = await openStore({ path: file, tables: 'one_' });
    expect(await one.expireLost?.(claimOf(one).now)).toBe(1);
  });

  test('an announced service is found by its tables', async () => {
    const { file } = await makeApp();
    const store = await openStore({ path: file, tables });
    await store.announce?.('http://127.0.0.1:1');
    expect(await serviceAddress(file, tables)).toBe('http://127.0.0.1:1');
    expect(await serviceAddress(file)).toBeUndefined();
  });

  test('bodies may live there too', async () => {
    const { file, app } = await makeApp();
    const bodies = sqliteBodies({ path: file, tables, thread: false });
    await bodies.open();
    atEnd(() => bodies.close());
    await bodies.put('r', chunks(Uint8Array.of(1, 2)));
    expect(app.prepare('SELECT ref, size FROM outbox_bodies').all()).toEqual([
      { ref: 'r', size: 2 },
    ]);
  });

  test('opens, and is checked after a disk error, beside what only the program of the user can read', async () => {
    const { file, app } = await makeApp();
    const named = app as unknown as {
      function(name: string, options: object, work: (value: unknown) => unknown): void;
    };
    named.function('mine', { deterministic: true }, (value) => value);
    app.exec(`CREATE INDEX by_mine ON orders (mine(what)); CREATE VIEW v AS SELECT mine(1);
      CREATE TABLE gone (x); CREATE VIEW broken AS SELECT x FROM gone; DROP TABLE gone`);
    const { settings } = checkStoreOptions('the store', { path: file, tables });
    const openDatabase = await loadSqlite();
    // The first time before our tables are made, the second time with them.
    for (let time = 0; time < 2; time += 1) {
      const own = { ...settings, path: file, standstillMs: 100 };
      openConnection(openDatabase, own, { check: true }).close();
    }
    const store = await openStore({ path: file, tables, migrate: false });
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test('works in a thread as well', async () => {
    const { file } = await makeApp();
    const store = await openStore({ path: file, tables, thread: true });
    await store.insert([sampleEntry('a', { orderKey: 'k' }), sampleEntry('b', { orderKey: 'k' })]);
    expect(await store.keyHeads(1)).toMatchObject([{ id: 'a', behind: 1 }]);
  });
});

async function* chunks(...bytes: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* bytes;
}

describe('a file that does not fit', () => {
  test('has no write-ahead log: it is refused with what to do, and left as it is', async () => {
    const { file, app } = await makeApp('delete');
    await expect(sqlite({ path: file, tables, thread: false }).open()).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(
        /journal mode is "delete".*PRAGMA journal_mode = WAL.*"switchToWal"/,
      ) as unknown,
    });
    expect(app.pragma('journal_mode', { simple: true })).toBe('delete');
    expect(namesIn(app)).toEqual(['orders']);
  });

  test('is given a write-ahead log where switchToWal says so; default false', async () => {
    const { file, app } = await makeApp('delete');
    await openStore({ path: file, tables, switchToWal: true });
    // A handle that was open before sees it with its next read.
    app.prepare('SELECT 1 FROM orders').get();
    expect(app.pragma('journal_mode', { simple: true })).toBe('wal');
  });

  test('is not there, or a folder: nothing is made', async () => {
    const folder = await makeFolder();
    await mkdir(path.join(folder, 'sub'));
    for (const [name, word] of [
      ['none.db', /it is not there/],
      ['sub', /it is a folder/],
    ] as const) {
      const store = sqlite({ path: path.join(folder, name), tables, thread: false });
      await expect(store.open()).rejects.toThrow(word);
    }
    expect(await readdir(folder)).toEqual(['sub']);
    expect(await readdir(path.join(folder, 'sub'))).toEqual([]);
  });

  test('has a table of somebody else under one of our names: it is refused by that name', async () => {
    const { file, app } = await makeApp();
    app.exec('CREATE TABLE Outbox_Flows (x)');
    const store = sqlite({ path: file, tables, thread: false });
    await expect(store.open()).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringContaining('"outbox_flows" is there and not ours') as unknown,
    });
    expect(namesIn(app)).toEqual(['Outbox_Flows', 'orders']);
  });

  test('is of something else: without a prefix it is refused, and the prefix is named', async () => {
    const { file } = await makeApp();
    await expect(sqlite({ path: file, thread: false }).open()).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(
        /not a Respool store but a database of another program.*"tables"/,
      ) as unknown,
    });
  });

  test('is no database: it is refused as damaged', async () => {
    const file = path.join(await makeFolder(), 'x.db');
    await writeFile(file, 'no database at all, but long enough to look at'.repeat(20));
    const store = sqlite({ path: file, tables, thread: false });
    await expect(store.open()).rejects.toMatchObject({ code: 'store.corrupt' });
  });
});

describe('the option', () => {
  test.each(['A', '1a', 'a-b', 'a b', 'a"', 'x'.repeat(32), 'sqlite_x', 1, null])(
    'tables may not be %j',
    (wrong) => {
      const options = { path: 'x', tables: wrong as string };
      expect(() => sqlite(options)).toThrow(/as "tables" of the SQLite store/);
      expect(() => sqliteSchema({ tables: wrong as string })).toThrow(/as "tables"/);
    },
  );

  test('tables may be empty, a word, or 31 characters', () => {
    for (const right of ['', 'a', 'order', 'x'.repeat(31)]) {
      expect(sqlite({ path: 'x', tables: right }).name).toBe('sqlite');
    }
  });

  test('migrate and switchToWal are true or false', () => {
    for (const name of ['migrate', 'switchToWal']) {
      expect(() => sqlite({ path: 'x', [name]: 1 })).toThrow(
        `cannot use 1 as "${name}": allowed is true or false`,
      );
    }
  });

  test('migrate false makes no tables, and says what makes them; default true', async () => {
    const { file, app } = await makeApp();
    const store = sqlite({ path: file, tables, thread: false, migrate: false });
    await expect(store.open()).rejects.toMatchObject({
      code: 'store.version',
      message: expect.stringContaining('migrateSqlite(database, { tables: "outbox_" })') as unknown,
    });
    expect(namesIn(app)).toEqual(['orders']);
    migrateSqlite(app, { tables });
    await store.open();
    atEnd(() => store.close());
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });
});
