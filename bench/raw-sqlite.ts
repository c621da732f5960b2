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
import { sqlite } from 'respool/stores/sqlite';
import type { Sample } from './measure.ts';
import { type Load, WARM_UP_SHARE } from './ours.ts';

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
    return () => {
      // The same promises as ours: what is accepted is on disk; claims and removals follow lazily.
      database.pragma('synchronous = FULL');
      insertBatch(load.inFlight);
      database.pragma('synchronous = NORMAL');
      removeBatch.immediate(claimBatch.immediate(load.inFlight));
    };
  });
}

interface RawFile {
  readonly database: Database.Database;
  readonly insertBatch: (count: number) => void;
}

async function withFile(load: Load, prepare: (file: RawFile) => () => void): Promise<Sample> {
  const path = mkdtempSync(join(tmpdir(), 'respool-raw-'));
  try {
    const { entry, content } = await template(path, load.bodyBytes);
    const database = new Database(join(path, 'respool.db'));
    database.pragma('journal_mode = WAL');
    // As ours, by default.
    database.pragma('wal_autocheckpoint = 2000');
    database.pragma('cache_size = -32768');
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

/** A file of ours with its tables, and the rows of one message. */
async function template(path: string, bodyBytes: number): Promise<{ entry: Row; content: Row }> {
  const spool = createSpool({ entries: sqlite({ path }), bodies: memoryBodies() });
  await spool.enqueue({
    topic: 'bench',
    body: new Uint8Array(bodyBytes).fill(7),
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
