import { mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { sqlite, sqliteBodies, type SqliteOptions } from 'respool/stores/sqlite';
import { sampleEntry } from 'respool/testkit';
import { loadSqlite } from '../../../src/stores/shared/client.ts';
import { openConnection } from '../../../src/stores/sqlite/connection.ts';
import { checkStoreOptions } from '../../../src/stores/sqlite/options.ts';
import { atEnd, makeFolder, openFile, openStore } from './setup.ts';

async function pragmas(options: Partial<SqliteOptions>, name: string): Promise<unknown> {
  const { settings } = checkStoreOptions('the store', { path: 'x', ...options });
  const file = path.join(await makeFolder(), 'x.db');
  const connection = openConnection(
    await loadSqlite(),
    { ...settings, path: file, standstillMs: 100 },
    { check: false },
  );
  atEnd(async () => connection.close());
  return connection.database.pragma(name, { simple: true });
}

describe('the path of a store', () => {
  test('a folder gets a file of its own, for the owner only', async () => {
    const folder = path.join(await makeFolder(), 'deep', 'er');
    await openStore({ path: folder });
    expect(await readdir(folder)).toContain('respool.db');
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    for (const name of ['respool.db', 'respool.db-wal']) {
      expect((await stat(path.join(folder, name))).mode & 0o777, name).toBe(0o600);
    }
  });

  test('a name that ends like a database is a file', async () => {
    const folder = await makeFolder();
    for (const name of ['a.db', 'b.sqlite', 'c.sqlite3']) {
      await openStore({ path: path.join(folder, name) });
    }
    expect(await readdir(folder)).toEqual(
      expect.arrayContaining(['a.db', 'b.sqlite', 'c.sqlite3']),
    );
  });

  test('what is there decides, whatever its name', async () => {
    const folder = await makeFolder();
    await mkdir(path.join(folder, 'folder.db'));
    await writeFile(path.join(folder, 'plain'), '');
    await openStore({ path: path.join(folder, 'folder.db') });
    await openStore({ path: path.join(folder, 'plain') });
    expect(await readdir(path.join(folder, 'folder.db'))).toContain('respool.db');
    expect((await stat(path.join(folder, 'plain'))).size).toBeGreaterThan(0);
  });

  test('a body store in the same folder has a file of its own', async () => {
    const folder = await makeFolder();
    await openStore({ path: folder });
    const bodies = sqliteBodies({ path: folder, thread: false });
    await bodies.open();
    atEnd(() => bodies.close());
    expect(await readdir(folder)).toEqual(expect.arrayContaining(['bodies.db', 'respool.db']));
  });

  test('entries and bodies may share one file', async () => {
    const file = path.join(await makeFolder(), 'all.db');
    const store = await openStore({ path: file });
    const bodies = sqliteBodies({ path: file, thread: false });
    await bodies.open();
    atEnd(() => bodies.close());
    const bytes = Uint8Array.of(1, 2, 3);
    const writes = [
      bodies.put(
        'r',
        (async function* () {
          yield bytes;
        })(),
      ),
      store.insert([sampleEntry('a')]),
    ];
    await Promise.all(writes);
    for await (const read of bodies.get('r')) expect(read).toEqual(bytes);
    expect(await store.get('a')).toBeDefined();
  });

  test('a path that cannot be is refused in words', async () => {
    const folder = await makeFolder();
    await writeFile(path.join(folder, 'file'), 'x');
    const below = sqlite({ path: path.join(folder, 'file', 'below') });
    await expect(below.open()).rejects.toMatchObject({ code: 'store.unavailable' });
    expect(() => sqlite({ path: '' })).toThrow(/names no folder or file/);
    expect(() => sqlite({ path: ':memory:' })).toThrow(/use the memory store/);
  });
});

describe('an option', () => {
  test('that does not exist is refused by name', () => {
    const options = { path: 'x', cachBytes: 1 };
    expect(() => sqlite(options)).toThrow(/no option "cachBytes" of the SQLite store/);
    expect(() => sqliteBodies(options)).toThrow(/no option "cachBytes" of the SQLite body store/);
  });

  test('outside its range is refused with the range', () => {
    expect(() => sqlite({ path: 'x', cacheBytes: 1 })).toThrow(/cacheBytes/);
    expect(() => sqlite({ path: 'x', autoCheckpointPages: 0 })).toThrow(/autoCheckpointPages/);
    expect(() => sqlite({ path: 'x', busyTimeout: 'soon' })).toThrow(/busyTimeout/);
    expect(() => sqlite({ path: 'x', synchronous: 'off' as 'full' })).toThrow(/full \| normal/);
    expect(() => sqlite({ path: 'x', thread: 1 as unknown as boolean })).toThrow(
      /true \| false \| auto/,
    );
  });

  test('cacheBytes is the memory SQLite may use for pages; default 16 MiB', async () => {
    expect(await pragmas({}, 'cache_size')).toBe(-16 * 1024);
    expect(await pragmas({ cacheBytes: 64 * 1024 * 1024 }, 'cache_size')).toBe(-64 * 1024);
  });

  test('autoCheckpointPages is how long the log may get; default 2,000', async () => {
    expect(await pragmas({}, 'wal_autocheckpoint')).toBe(2_000);
    expect(await pragmas({ autoCheckpointPages: 50 }, 'wal_autocheckpoint')).toBe(50);
  });

  test('synchronous "normal" lowers what the store promises; default "full"', async () => {
    const folder = await makeFolder();
    expect(await pragmas({}, 'synchronous')).toBe(2);
    expect(await pragmas({ synchronous: 'normal' }, 'synchronous')).toBe(1);
    expect(sqlite({ path: folder }).traits.durability).toBe('power-loss');
    expect(sqlite({ path: folder, synchronous: 'normal' }).traits.durability).toBe('process');
    expect(sqliteBodies({ path: folder }).traits.durability).toBe('power-loss');
    const lower = sqliteBodies({ path: folder, synchronous: 'normal' });
    expect(lower.traits.durability).toBe('process');
  });

  test('busyTimeout is how long a write waits for another process; then store.unavailable', async () => {
    const folder = await makeFolder();
    const store = await openStore({ path: folder, busyTimeout: 50 });
    const other = await openFile(path.join(folder, 'respool.db'));
    other.exec('BEGIN IMMEDIATE');
    await expect(store.insert([sampleEntry('a')])).rejects.toMatchObject({
      code: 'store.unavailable',
      message: expect.stringContaining('another process keeps it locked') as unknown,
    });
    // Readers do not wait for writers.
    expect(await store.get('a')).toBeUndefined();
    other.exec('COMMIT');
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test('a write that another process delays goes through once it may', async () => {
    const folder = await makeFolder();
    const store = await openStore({ path: folder, busyTimeout: '30s' });
    const other = await openFile(path.join(folder, 'respool.db'));
    other.exec('BEGIN IMMEDIATE');
    const insert = store.insert([sampleEntry('a')]);
    // Its answer comes through the same event loop, which the waiting must not hold up.
    expect(await store.get('a')).toBeUndefined();
    other.exec('COMMIT');
    expect(await insert).toEqual(['stored']);
  });
});
