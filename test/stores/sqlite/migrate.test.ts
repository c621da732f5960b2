/** migrate — tables through a handle of the user's, as SQL, and older ones brought up to date. */

import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { migrateSqlite, sqlite, sqliteSchema } from 'respool/stores/sqlite';
import { SCHEMA_VERSION } from '../../../src/stores/sqlite/schema.ts';
import { claimOf } from './requests.ts';
import { makeApp, makeFolder, openFile, openStore, transact } from './setup.ts';

const tables = 'outbox_';

type Database = Awaited<ReturnType<typeof openFile>>;

function schemaOf(database: Database): unknown[] {
  return database.prepare('SELECT name, sql FROM sqlite_schema ORDER BY name').all();
}

/** What a program of the first format would have left. */
async function makeVersion1(): Promise<string> {
  const file = path.join(await makeFolder(), 'old.db');
  const store = await openStore({ path: file });
  await store.insert([sampleEntry('a'), sampleEntry('b')]);
  await store.claim(claimOf(store, { max: 1 }));
  await store.close();
  const database = await openFile(file);
  database.exec(`DROP INDEX entries_by_key;
    ALTER TABLE entries DROP COLUMN order_key;
    ALTER TABLE entries DROP COLUMN behind;
    UPDATE meta SET value = 1 WHERE key = 'version'`);
  database.close();
  return file;
}

describe('migrateSqlite', () => {
  test('makes the tables once, and is done when they are there', async () => {
    const { app } = await makeApp();
    migrateSqlite(app, { tables });
    const made = schemaOf(app);
    migrateSqlite(app, { tables });
    expect(schemaOf(app)).toEqual(made);
    expect(made).toContainEqual(expect.objectContaining({ name: 'outbox_entries_by_key' }));
    expect(app.inTransaction).toBe(false);
  });

  test('is part of a transaction that is open', async () => {
    const { app } = await makeApp();
    const before = schemaOf(app);
    app.exec('BEGIN');
    migrateSqlite(app, { tables });
    expect(app.inTransaction).toBe(true);
    app.exec('ROLLBACK');
    expect(schemaOf(app)).toEqual(before);
  });

  test('that fails leaves nothing, and the transaction around it goes on', async () => {
    const { app } = await makeApp();
    app.exec('CREATE INDEX outbox_entries_due ON orders (what)');
    expect(() =>
      transact(app, () => {
        app.exec("INSERT INTO orders (what) VALUES ('milk')");
        expect(() => {
          migrateSqlite(app, { tables });
        }).toThrow(/not ours/);
      }),
    ).not.toThrow();
    expect(app.prepare('SELECT count(*) FROM orders').pluck().get()).toBe(2);
  });

  // Regression: what it had left itself was refused as a table of another program.
  test('makes the tables anew where all but that of due bounds were dropped', async () => {
    const { app } = await makeApp();
    migrateSqlite(app, { tables, dueBounds: true });
    const made = schemaOf(app);
    app.exec("INSERT INTO outbox_due_bounds VALUES (1, 0, 5, 1, 'a')");
    const names = app
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'outbox_%'")
      .pluck()
      .all() as string[];
    for (const name of names) if (name !== 'outbox_due_bounds') app.exec(`DROP TABLE ${name}`);
    migrateSqlite(app, { tables });
    expect(schemaOf(app)).not.toContainEqual(
      expect.objectContaining({ name: 'outbox_due_bounds' }),
    );
    migrateSqlite(app, { tables, dueBounds: true });
    expect(schemaOf(app)).toEqual(made);
    expect(app.prepare('SELECT * FROM outbox_due_bounds').all()).toEqual([]);
  });

  test('makes due bounds in tables that are there, only where their names are free', async () => {
    const { app } = await makeApp();
    migrateSqlite(app, { tables });
    app.exec('CREATE TABLE outbox_due_bounds (what TEXT)');
    const before = schemaOf(app);
    expect(() => {
      migrateSqlite(app, { tables, dueBounds: true });
    }).toThrow(/"outbox_due_bounds".* is there and not ours/);
    expect(schemaOf(app)).toEqual(before);
    app.exec('DROP TABLE outbox_due_bounds');
    migrateSqlite(app, { tables, dueBounds: true });
    migrateSqlite(app, { tables, dueBounds: true });
    expect(schemaOf(app)).toContainEqual(expect.objectContaining({ name: 'outbox_due_bounds' }));
  });

  test('leaves due bounds that are there where they are not asked for', async () => {
    const { app } = await makeApp();
    migrateSqlite(app, { tables, dueBounds: true });
    const made = schemaOf(app);
    migrateSqlite(app, { tables });
    expect(schemaOf(app)).toEqual(made);
  });

  test('refuses options it does not know', async () => {
    const { app } = await makeApp();
    expect(() => {
      migrateSqlite(app, { table: 'x' } as object);
    }).toThrow(/no option "table"/);
  });

  test('refuses tables of a newer program', async () => {
    const { app } = await makeApp();
    migrateSqlite(app, { tables });
    app.exec("UPDATE outbox_meta SET value = 99 WHERE key = 'version'");
    expect(() => {
      migrateSqlite(app, { tables });
    }).toThrow(/newer Respool \(format 99/);
  });

  test('works through a handle that gives whole numbers as bigint', async () => {
    const { app } = await makeApp();
    (app as unknown as { defaultSafeIntegers(on: boolean): void }).defaultSafeIntegers(true);
    migrateSqlite(app, { tables });
    migrateSqlite(app, { tables });
    const version = app
      .prepare("SELECT value FROM outbox_meta WHERE key = 'version'")
      .pluck()
      .get();
    expect(version).toBe(BigInt(SCHEMA_VERSION));
  });
});

describe('sqliteSchema', () => {
  const kinds = ['', tables].flatMap((prefix) =>
    [false, true].map((bounds) => ({ prefix, bounds })),
  );
  test.each(kinds)(
    'with prefix "$prefix", due bounds: $bounds, makes the same tables as migrateSqlite',
    async ({ prefix, bounds }) => {
      const options = { tables: prefix, dueBounds: bounds };
      const folder = await makeFolder();
      const byText = await openFile(path.join(folder, 'text.db'));
      byText.exec(sqliteSchema(options));
      const byHandle = await openFile(path.join(folder, 'handle.db'));
      migrateSqlite(byHandle, options);
      expect(schemaOf(byText)).toEqual(schemaOf(byHandle));
      expect(byText.prepare(`SELECT * FROM ${prefix}meta ORDER BY key`).all()).toEqual(
        byHandle.prepare(`SELECT * FROM ${prefix}meta ORDER BY key`).all(),
      );
      // It is up to date: nothing is left to do.
      migrateSqlite(byText, options);
      expect(sqliteSchema(options)).not.toMatch(/[{}]/);
    },
  );

  test('is that of due bounds alone for tables that are up to date', async () => {
    const { app } = await makeApp();
    migrateSqlite(app, { tables });
    app.exec(sqliteSchema({ tables, from: SCHEMA_VERSION, dueBounds: true }));
    const made = schemaOf(app);
    migrateSqlite(app, { tables, dueBounds: true });
    expect(schemaOf(app)).toEqual(made);
    expect(() => sqliteSchema({ tables, from: SCHEMA_VERSION })).toThrow(/as "from"/);
    expect(() => sqliteSchema({ tables, dueBounds: 1 as never })).toThrow(/as "dueBounds"/);
  });
});

describe('a file of the first format', () => {
  test('keeps its messages, and keeps order from then on', async () => {
    const file = await makeVersion1();
    const store = await openStore({ path: file });
    expect((await store.get('a'))?.status.state).toBe('active');
    const keyed = ['x', 'y'].map((id) => sampleEntry(id, { orderKey: 'k' }));
    await store.insert(keyed);
    const taken = await store.claim(claimOf(store));
    expect(taken.map(({ envelope }) => envelope.id)).toEqual(['b', 'x']);
    const version = (await openFile(file)).prepare("SELECT value FROM meta WHERE key = 'version'");
    expect(version.pluck().get()).toBe(SCHEMA_VERSION);
  });

  test('is left as it is where migrate is false', async () => {
    const file = await makeVersion1();
    const store = sqlite({ path: file, migrate: false, thread: false });
    await expect(store.open()).rejects.toMatchObject({
      code: 'store.version',
      message: expect.stringMatching(/are of version 1, needed is version 2/) as unknown,
    });
  });

  test('is brought up to date through a handle', async () => {
    const file = await makeVersion1();
    const database = await openFile(file);
    migrateSqlite(database);
    const columns = database.prepare("SELECT name FROM pragma_table_info('entries')").pluck().all();
    expect(columns).toEqual(expect.arrayContaining(['order_key', 'behind']));
  });
});
