/**
 * raw-sqlite — the honest rival: the tables, indexes, pragmas and row bytes of our own file, driven by
 * a bare loop in batches of the number in flight. No counters, no checks, no promises, one thread.
 *
 * The rows are copied from one that our store wrote, so that they weigh the same.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { createSpool } from 'respool';
import { memoryBodies } from 'respool/stores/memory';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import type { Sample } from './measure.ts';
import { bytes, type Load, limitsOf, WARM_UP_SHARE } from './ours.ts';
import type { RawBodies, RawEntries } from './raw.ts';

type Row = Record<string, unknown>;

/** Rows per second: one durable transaction per batch. */
export function rawInsertRate(load: Load): Promise<Sample> {
  return withFile(load, ({ database, insertBatch }) => {
    database.pragma('synchronous = FULL');
    return () => insertBatch(load.inFlight);
  });
}

/** Whole lives per second: a durable insert, a claim and a delete, each one transaction per batch. */
export function rawLifecycleRate(load: Load): Promise<Sample> {
  return withFile(load, ({ database, insertBatch }) => {
    const { claim, remove } = lives(database);
    return () => {
      // The same promises as ours: what is accepted is on disk; claims and removals follow lazily.
      database.pragma('synchronous = FULL');
      insertBatch(load.inFlight);
      database.pragma('synchronous = NORMAL');
      remove(claim(load.inFlight));
    };
  });
}

/** Entries for the rival of a pair. */
export async function rawSqliteEntries(path: string, load: Load): Promise<RawEntries> {
  const { entry, content } = await template(path, load);
  const database = openFile(path, 'respool.db');
  const insert = inserter(database, entry, content);
  const { claim, remove } = lives(database);
  return {
    isSingle: false,
    async insert(count) {
      database.pragma('synchronous = FULL');
      insert(count);
      database.pragma('synchronous = NORMAL');
      return Array.from({ length: count });
    },
    claim: async (inserted) => claim(inserted.length),
    remove: async (claimed) => remove(claimed as readonly Numbered[]),
    close: async () => void database.close(),
  };
}

/** Bodies in the tables of ours, one chunk each. */
export async function rawSqliteBodies(path: string, load: Load): Promise<RawBodies> {
  const store = sqliteBodies({ path });
  await store.open();
  await store.close();
  const database = openFile(path, 'bodies.db');
  const body = bytes(load.bodyBytes);
  const begin = database.prepare('INSERT INTO bodies VALUES (?, ?, 0, 1)');
  const chunk = database.prepare('INSERT INTO chunks (ref, at, bytes) VALUES (?, 0, ?)');
  const find = database.prepare('SELECT bytes FROM chunks WHERE ref = ? AND at = 0');
  const dropBody = database.prepare('DELETE FROM bodies WHERE ref = ?');
  const dropChunks = database.prepare('DELETE FROM chunks WHERE ref = ?');
  const putAll = database.transaction((refs: readonly string[]) => {
    for (const ref of refs) {
      begin.run(ref, body.length);
      chunk.run(ref, body);
    }
  });
  const removeAll = database.transaction((refs: readonly string[]) => {
    for (const ref of refs) {
      dropChunks.run(ref);
      dropBody.run(ref);
    }
  });
  return {
    async put(refs) {
      database.pragma('synchronous = FULL');
      putAll.immediate(refs);
      database.pragma('synchronous = NORMAL');
    },
    async read(refs) {
      for (const ref of refs) find.get(ref);
    },
    remove: async (refs) => removeAll.immediate(refs),
    close: async () => void database.close(),
  };
}

interface Numbered {
  readonly seq: number;
}

/** A claim and a removal, each one transaction per batch. */
function lives(database: Database.Database): {
  readonly claim: (max: number) => readonly Numbered[];
  readonly remove: (rows: readonly Numbered[]) => void;
} {
  const due = database.prepare(
    'SELECT seq FROM entries WHERE slot = 0 AND slot < 10 AND priority = 5 AND due_at <= ? ' +
      'ORDER BY priority, due_at, id LIMIT ?',
  );
  const claim = database.prepare(
    'UPDATE entries SET slot = 2, claimed_from = 0, holder = ?, due_at = ?, ' +
      'revision = revision + 1, attempts = attempts + 1, updated_at = ? WHERE seq = ? RETURNING *',
  );
  const content = database.prepare('SELECT envelope, body FROM contents WHERE seq = ?');
  const removeEntry = database.prepare('DELETE FROM entries WHERE seq = ?');
  const removeContent = database.prepare('DELETE FROM contents WHERE seq = ?');
  const claimBatch = database.transaction((max: number) => {
    const now = Date.now();
    const rows = due.all(now, max) as { seq: number }[];
    for (const { seq } of rows) {
      claim.get('bench0000000/1', now + 60_000, now, seq);
      content.get(seq);
    }
    return rows;
  });
  const removeBatch = database.transaction((rows: readonly { seq: number }[]) => {
    for (const { seq } of rows) {
      removeEntry.run(seq);
      removeContent.run(seq);
    }
  });
  return {
    claim: (max) => claimBatch.immediate(max),
    remove: (rows) => removeBatch.immediate(rows),
  };
}

interface RawFile {
  readonly database: Database.Database;
  readonly insertBatch: (count: number) => void;
}

async function withFile(load: Load, prepare: (file: RawFile) => () => void): Promise<Sample> {
  const path = mkdtempSync(join(tmpdir(), 'respool-raw-'));
  try {
    const { entry, content } = await template(path, load);
    const database = openFile(path, 'respool.db');
    const batch = prepare({ database, insertBatch: inserter(database, entry, content) });
    const beganAt = performance.now();
    let batches = 0;
    let countsFrom = beganAt;
    const warmAt = beganAt + load.forMs * WARM_UP_SHARE;
    while (performance.now() < beganAt + load.forMs) {
      batch();
      if (performance.now() < warmAt) countsFrom = performance.now();
      else batches += 1;
    }
    const value = ((batches * load.inFlight) / (performance.now() - countsFrom)) * 1_000;
    database.close();
    return { value };
  } finally {
    rmSync(path, { recursive: true, force: true });
  }
}

function openFile(path: string, name: string): Database.Database {
  const database = new Database(join(path, name));
  database.pragma('journal_mode = WAL');
  // As ours, by default.
  database.pragma('wal_autocheckpoint = 2000');
  database.pragma('cache_size = -32768');
  return database;
}

/** Our own file with its tables, and the rows of one message. */
async function template(path: string, load: Load): Promise<{ entry: Row; content: Row }> {
  const spool = createSpool({
    entries: sqlite({ path }),
    bodies: memoryBodies(),
    limits: limitsOf(load),
  });
  await spool.enqueue({
    topic: 'bench',
    body: new Uint8Array(load.bodyBytes).fill(7),
    headers: { caller: '1' },
  });
  await spool.stop();
  const database = new Database(join(path, 'respool.db'));
  const entry = database.prepare('SELECT * FROM entries').get() as Row;
  const content = database.prepare('SELECT * FROM contents').get() as Row;
  database.exec('DELETE FROM entries; DELETE FROM contents');
  database.close();
  return { entry, content };
}

function inserter(
  database: Database.Database,
  { seq: _seq, ...entry }: Row,
  { seq: _contentSeq, ...content }: Row,
): (count: number) => void {
  const names = Object.keys(entry);
  const insertEntry = database.prepare(
    `INSERT INTO entries (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`,
  );
  const insertContent = database.prepare(
    'INSERT INTO contents (seq, envelope, body) VALUES (?, ?, ?)',
  );
  const idAt = names.indexOf('id');
  const dueAt = names.indexOf('due_at');
  const values = Object.values(entry);
  const idBytes = String(entry['id']).length;
  let made = 0;
  const insertAll = database.transaction((count: number) => {
    const now = Date.now();
    for (let at = 0; at < count; at += 1) {
      made += 1;
      values[idAt] = now.toString(16) + String(made).padStart(idBytes - 11, '0');
      values[dueAt] = now;
      const { lastInsertRowid } = insertEntry.run(values);
      insertContent.run(lastInsertRowid, content['envelope'], content['body']);
    }
  });
  return (count) => insertAll.immediate(count);
}
