import { open, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { migrateSqlite, sqlite } from 'respool/stores/sqlite';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { loadSqlite, type OpenDatabase } from '../../../src/stores/shared/client.ts';
import { type FileSettings, openConnection } from '../../../src/stores/sqlite/connection.ts';
import { StoreFile } from '../../../src/stores/sqlite/file.ts';
import { SCHEMA_VERSION } from '../../../src/stores/sqlite/schema.ts';
import { claimOf } from './requests.ts';
import { atEnd, makeFolder, openFile, openStore } from './setup.ts';

async function setup() {
  const folder = await makeFolder();
  const store = await openStore({ path: folder });
  const beside = await openFile(path.join(folder, 'respool.db'));
  return { folder, store, beside };
}

const WAYS: Readonly<Record<string, string>> = {
  'an envelope that is no JSON': "UPDATE contents SET envelope = '{' WHERE seq = 2",
  'an envelope of another message':
    'UPDATE contents SET envelope = (SELECT envelope FROM contents WHERE seq = 1) WHERE seq = 2',
  'an envelope that is not whole': `UPDATE contents SET envelope = '{"id":"m-00001"}' WHERE seq = 2`,
  'no contents': 'DELETE FROM contents WHERE seq = 2',
  'a memory that is no JSON': "UPDATE entries SET memory = '{' WHERE seq = 2",
};

describe('a row that cannot be read', () => {
  test.each(Object.entries(WAYS))('%s: is put aside by the claim that meets it', async (_, sql) => {
    const { store, beside } = await setup();
    await store.insert(sampleEntries(3, 'm'));
    beside.exec(sql);
    const taken = await store.claim(claimOf(store));
    expect(taken.map(({ envelope }) => envelope.id)).toEqual(['m-00000', 'm-00002']);
    expect(await store.claim(claimOf(store, { now: 9e15, leaseMs: 0 }))).toHaveLength(2);
    const { corrupt, entries } = await store.list({ limit: 10 });
    expect(entries).toHaveLength(2);
    expect(corrupt).toEqual([
      { id: 'm-00001', where: 'quarantine row 1', reason: expect.any(String) as unknown },
    ]);
    await expect(store.get('m-00001')).rejects.toMatchObject({ code: 'store.corrupt' });
    expect(await store.tally('state', {})).toMatchObject([{ key: 'active', count: 2 }]);
  });

  test('keeps everything that was there, for whoever comes to help', async () => {
    const { store, beside } = await setup();
    await store.insert([sampleEntry('a', { bytes: Uint8Array.of(7, 7) })]);
    beside.exec("UPDATE entries SET memory = '{oops'");
    await store.list({ limit: 1 });
    const kept = beside.prepare('SELECT * FROM quarantine').get() as Record<string, unknown>;
    expect(JSON.parse(String(kept['row']))).toMatchObject({ id: 'a', memory: '{oops' });
    expect(JSON.parse(String(kept['envelope']))).toMatchObject({ id: 'a', topic: 'mail.send' });
    expect([...(kept['body'] as Uint8Array)]).toEqual([7, 7]);
  });

  test('is reported by a search that reads it, which goes on behind it', async () => {
    const { store, beside } = await setup();
    await store.insert(sampleEntries(3, 'm', { headers: { tenant: 'x' } }));
    beside.exec("UPDATE contents SET envelope = '{' WHERE seq = 2");
    const page = await store.list({ limit: 10, header: { name: 'tenant' } });
    expect(page.entries).toHaveLength(2);
    expect(page.corrupt).toMatchObject([{ id: 'm-00001' }]);
  });

  test('in a slot or flow that does not exist does no harm to the counts', async () => {
    const { store, beside } = await setup();
    await store.insert(sampleEntries(3, 'm'));
    beside.exec('UPDATE entries SET slot = 99, flow = 77 WHERE seq = 2');
    await expect(store.get('m-00001')).rejects.toMatchObject({ code: 'store.corrupt' });
    expect((await store.list({ limit: 10, ids: ['m-00000', 'm-00002'] })).entries).toHaveLength(2);
  });
});

describe('a file', () => {
  test('of a newer Respool is refused with both versions', async () => {
    const { folder, store, beside } = await setup();
    await store.close();
    beside.prepare("UPDATE meta SET value = ? WHERE key = 'version'").run(SCHEMA_VERSION + 1);
    const again = sqlite({ path: folder });
    await expect(again.open()).rejects.toMatchObject({
      code: 'store.version',
      message: expect.stringContaining(`format ${SCHEMA_VERSION + 1}`) as unknown,
    });
  });

  test('of something else is refused, and left as it is', async () => {
    const file = path.join(await makeFolder(), 'app.db');
    const database = await openFile(file);
    database.exec('CREATE TABLE users (id); CREATE TABLE meta (key, value)');
    for (const thread of [true, false]) {
      const store = sqlite({ path: file, thread });
      await expect(store.open()).rejects.toMatchObject({ code: 'config.invalid' });
    }
    const tables = database.prepare('SELECT name FROM sqlite_schema ORDER BY name').pluck().all();
    expect(tables).toEqual(['meta', 'users']);
    // A write-ahead log would stay with it, and its own program may not expect one.
    expect(database.pragma('journal_mode', { simple: true })).toBe('delete');
  });

  test('that is no database is said to be no store, before a backup is named', async () => {
    const file = path.join(await makeFolder(), 'x.db');
    await writeFile(file, 'once upon a time '.repeat(1_000));
    for (const thread of [true, false]) {
      const store = sqlite({ path: file, thread });
      await expect(store.open()).rejects.toMatchObject({
        code: 'store.corrupt',
        message: expect.stringMatching(
          /x\.db": it is not a Respool store.* If it was one/,
        ) as string,
      });
    }
  });

  test('that is full refuses with store.full and goes on when there is room again', async () => {
    const folder = await makeFolder();
    const store = await openStore({ path: folder }, { maxPages: 100 });
    const stored: string[] = [];
    const fill = async (): Promise<never> => {
      for (;;) {
        const id = `m-${String(stored.length).padStart(5, '0')}`;
        await store.insert([sampleEntry(id, { bytes: new Uint8Array(4_000) })]);
        stored.push(id);
      }
    };
    await expect(fill()).rejects.toMatchObject({ code: 'store.full' });
    // What was acknowledged is there, what was refused is not, and the counts agree.
    expect((await store.list({ limit: 500 })).entries).toHaveLength(stored.length);
    expect(await store.tally('state', {})).toMatchObject([{ count: stored.length }]);
    const changes = stored.slice(0, 20).map((id) => ({ id, revision: 1, to: 'remove' }) as const);
    await store.commit(changes);
    expect(await store.insert([sampleEntry('again')])).toEqual(['stored']);
  });
});

/** Opens databases whose next commit fails as if the disk had. */
async function failing(code: string) {
  const open = await loadSqlite();
  const faults = { isDue: false, opened: 0, checks: 0 };
  const openDatabase: OpenDatabase = (file, options) => {
    const database = open(file, options);
    faults.opened += 1;
    const prepare = database.prepare.bind(database);
    database.prepare = (sql) => {
      const statement = prepare(sql);
      if (sql !== 'COMMIT') return statement;
      const run = statement.run.bind(statement);
      statement.run = (...values) => {
        if (!faults.isDue) return run(...values);
        faults.isDue = false;
        throw Object.assign(new Error('disk I/O error'), { code });
      };
      return statement;
    };
    const pragma = database.pragma.bind(database);
    database.pragma = (sql, how) => {
      if (sql.startsWith('quick_check')) faults.checks += 1;
      return pragma(sql, how);
    };
    return database;
  };
  return { openDatabase, faults };
}

function settingsOf(file: string): FileSettings {
  return {
    path: file,
    cacheBytes: 1_000_000,
    synchronous: 'full',
    autoCheckpointPages: 1_000,
    standstillMs: 100,
  };
}

describe('a disk error', () => {
  async function keeperSetup(code: string) {
    const { openDatabase, faults } = await failing(code);
    const file = path.join(await makeFolder(), 'x.db');
    const settings = settingsOf(file);
    const keeper = new StoreFile('entries', openDatabase, settings);
    atEnd(async () => keeper.close());
    const append = () => {
      const op = { kind: 'append', of: 'k', text: '1' } as const;
      return keeper.handle({ kind: 'batch', ops: [op], bytes: [] });
    };
    return { keeper, append, faults };
  }

  test('in a commit is never acknowledged; the file is reopened and checked', async () => {
    const { keeper, append, faults } = await keeperSetup('SQLITE_IOERR_FSYNC');
    append();
    expect(faults).toMatchObject({ opened: 1, checks: 0 });
    faults.isDue = true;
    expect(append).toThrow(expect.objectContaining({ code: 'store.unavailable' }));
    append();
    expect(faults).toMatchObject({ opened: 2, checks: 1 });
    const log = keeper.handle({ kind: 'readLog', of: 'k', after: 0, max: 10 });
    expect(log).toMatchObject([{ sequence: 1 }, { sequence: 2 }]);
  });

  test('ends the log, also while others have the file open: nothing is written behind it', async () => {
    const file = path.join(await makeFolder(), 'x.db');
    const settings = settingsOf(file);
    const openDatabase = await loadSqlite();
    const other = openConnection(openDatabase, settings, { check: false });
    atEnd(async () => other.close());
    other.write(true, () => other.database.exec("UPDATE meta SET value = 7 WHERE key = 'syncs'"));
    expect(other.walPages()).toBeGreaterThan(0);
    const again = openConnection(openDatabase, settings, { check: true });
    expect(other.walPages()).toBe(0);
    again.close();
    // A reader that still needs the log: not yet, and whoever asks is told to try again.
    const reader = openDatabase(file);
    atEnd(async () => reader.close());
    other.write(true, () => other.database.exec("UPDATE meta SET value = 8 WHERE key = 'syncs'"));
    reader.exec('BEGIN');
    reader.prepare('SELECT * FROM meta').all();
    expect(() => openConnection(openDatabase, settings, { check: true })).toThrow(
      expect.objectContaining({ code: 'SQLITE_BUSY' }),
    );
    reader.exec('COMMIT');
    openConnection(openDatabase, settings, { check: true }).close();
    // Whoever met the error may be gone: it is tried at every opening, if nobody is in the way.
    other.write(true, () => other.database.exec("UPDATE meta SET value = 9 WHERE key = 'syncs'"));
    openConnection(openDatabase, settings, { check: false }).close();
    expect(other.walPages()).toBe(0);
  });

  test.each([
    'meta',
    'entries',
    'contents',
    'flows',
    'due_bounds',
    'quarantine',
    'log_heads',
    'logs',
    'maps',
    'bodies',
    'chunks',
  ])('shows that %s is damaged, also in a file of the user', async (table) => {
    const file = path.join(await makeFolder(), 'app.db');
    const settings = { ...settingsOf(file), tables: 'r_' };
    const openDatabase = await loadSqlite();
    const app = openDatabase(file);
    app.pragma('journal_mode = WAL');
    migrateSqlite(app, { tables: 'r_', dueBounds: true });
    const rootOf = app.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').pluck();
    const at = Number(rootOf.get(`r_${table}`)) - 1;
    const pageBytes = Number(app.pragma('page_size', { simple: true }));
    app.close();
    openConnection(openDatabase, settings, { check: true }).close();
    const bytes = await open(file, 'r+');
    // A sound header, and cells that lie where there are none.
    await bytes.write(Uint8Array.of(0, 9, 255, 255), 0, 4, at * pageBytes + 3);
    await bytes.close();
    expect(() => openConnection(openDatabase, settings, { check: true })).toThrow(
      expect.objectContaining({ code: 'store.corrupt' }),
    );
  });

  test('that says the disk is full rolls back, without opening the file again', async () => {
    const { append, faults } = await keeperSetup('SQLITE_FULL');
    append();
    faults.isDue = true;
    // Moving the log made room: the second try of the same request goes through.
    append();
    expect(faults).toMatchObject({ opened: 1, checks: 0 });
  });
});
