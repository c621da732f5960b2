/** What the tests of the SQLite store share: folders that go away, open stores that are closed. */

import Sqlite from 'better-sqlite3';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach } from 'vitest';
import { sqlite, type SqliteOptions, type SqliteStore } from 'respool/stores/sqlite';
import type { FileParts } from '../../../src/stores/sqlite/file-client.ts';

const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end();
});

/** Runs after the test, the last one first. */
export function atEnd(end: () => Promise<unknown>): void {
  endings.push(end);
}

export async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-sqlite-'));
  atEnd(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** An opened store, closed after the test. In the caller's thread unless said otherwise. */
export async function openStore(
  options: SqliteOptions,
  parts: Partial<FileParts> = {},
): Promise<SqliteStore> {
  const store = sqlite({ thread: false, ...options }, parts);
  await store.open();
  atEnd(() => store.close());
  return store;
}

/** The file of a store, opened beside it. */
export async function openFile(file: string): Promise<Sqlite.Database> {
  const database = new Sqlite(file, { timeout: 2_000 });
  atEnd(async () => database.close());
  return database;
}

/** A database of somebody's program: a table with a row, and a write-ahead log unless said. */
export async function makeApp(journal = 'wal'): Promise<{ file: string; app: Sqlite.Database }> {
  const file = path.join(await makeFolder(), 'app.db');
  const app = await openFile(file);
  app.pragma(`journal_mode = ${journal}`);
  app.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT)');
  app.exec("INSERT INTO orders (what) VALUES ('tea')");
  return { file, app };
}

/** Everything in a file that is not under a prefix. */
export function othersIn(database: Sqlite.Database, prefix: string): unknown[] {
  const sql = `SELECT name, sql FROM sqlite_schema
    WHERE tbl_name NOT LIKE ? || '%' AND name <> 'sqlite_sequence' ORDER BY name`;
  return database.prepare(sql).all(prefix);
}

/** Begins, works, commits; rolls back when `work` throws. */
export function transact<T>(database: Sqlite.Database, work: () => T): T {
  database.exec('BEGIN');
  try {
    const result = work();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    database.exec('ROLLBACK');
    throw error;
  }
}
