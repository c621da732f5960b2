/** What the tests of the SQLite store share: folders that go away, open stores that are closed. */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach } from 'vitest';
import type { EntryStore } from '../../../src/ports/entry-store.ts';
import { loadSqlite, type SqliteDatabase } from '../../../src/stores/shared/client.ts';
import type { LineParts } from '../../../src/stores/sqlite/file-line.ts';
import { type SqliteOptions, sqlite } from '../../../src/stores/sqlite/index.ts';

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
  parts: Partial<LineParts> = {},
): Promise<EntryStore> {
  const store = sqlite({ thread: false, ...options }, parts);
  await store.open();
  atEnd(() => store.close());
  return store;
}

/** The file of a store, opened beside it. */
export async function openFile(file: string): Promise<SqliteDatabase> {
  const database = (await loadSqlite())(file, { timeout: 2_000 });
  atEnd(async () => database.close());
  return database;
}
