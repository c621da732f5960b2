/**
 * records — the tables behind the record store, and the store itself.
 *
 * Writes go in the batches of the entries: a record costs no transaction of its own under load.
 */

import type { RecordStore } from '../../ports/record-store.ts';
import { checkedRecords, recordText } from '../shared/operations.ts';
import type { Connection } from './connection.ts';
import type { EntryReplies, EntryRequest, EntryResult, RecordOp } from './protocol.ts';
import { BOUND_LIMIT } from './schema.ts';

/** Records over one connection. */
export interface Records {
  write(op: RecordOp): number | boolean;
  readLog(of: string, after: number, max: number): EntryReplies['readLog'];
  readMap(of: string, key?: string): EntryReplies['readMap'];
}

export function createRecords(connection: Connection): Records {
  const { database } = connection;
  const raise = database
    .prepare(
      `INSERT INTO {log_heads} (kind, last) VALUES (?, 1)
      ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last`,
    )
    .pluck();
  const append = database.prepare('INSERT INTO {logs} (kind, sequence, record) VALUES (?, ?, ?)');
  const trim = database.prepare('DELETE FROM {logs} WHERE kind = ? AND sequence <= ?');
  const revisionOf = database
    .prepare('SELECT revision FROM {maps} WHERE kind = ? AND key = ?')
    .pluck();
  const put = database.prepare(
    `INSERT INTO {maps} (kind, key, value, revision) VALUES (?, ?, ?, 1)
    ON CONFLICT DO UPDATE SET value = excluded.value, revision = revision + 1`,
  );
  const forget = database.prepare('DELETE FROM {maps} WHERE kind = ? AND key = ?');
  const readLog = database.prepare(
    `SELECT sequence, record AS text FROM {logs} WHERE kind = ? AND sequence > ?
    ORDER BY sequence LIMIT ${BOUND_LIMIT}`,
  );
  const listMap = database.prepare(
    'SELECT key, value AS text, revision FROM {maps} WHERE kind = ? ORDER BY key',
  );
  const readKey = database.prepare(
    'SELECT key, value AS text, revision FROM {maps} WHERE kind = ? AND key = ?',
  );

  function write(op: RecordOp): number | boolean {
    connection.wrote(1);
    switch (op.kind) {
      case 'append': {
        const sequence = Number(raise.get(op.of));
        append.run(op.of, sequence, op.text);
        return sequence;
      }
      case 'trim':
        return trim.run(op.of, op.upTo).changes > 0;
      case 'put': {
        const present = (revisionOf.get(op.of, op.key) as number | undefined) ?? 0;
        if (op.revision !== undefined && op.revision !== present) return false;
        put.run(op.of, op.key, op.text);
        return true;
      }
      default:
        return forget.run(op.of, op.key).changes > 0;
    }
  }

  return {
    write,
    readLog: (of, after, max) => readLog.all(of, after, max) as EntryReplies['readLog'],
    readMap: (of, key) =>
      (key === undefined ? listMap.all(of) : readKey.all(of, key)) as EntryReplies['readMap'],
  };
}

/** The record store, over whatever carries questions and batches to the file. */
export function createRecordStore(file: {
  readonly write: (op: RecordOp) => Promise<EntryResult | undefined>;
  readonly ask: <K extends keyof EntryReplies>(
    request: Extract<EntryRequest, { kind: K }>,
  ) => Promise<EntryReplies[K]>;
}): RecordStore {
  return checkedRecords({
    async append(kind, record) {
      return Number(await file.write({ kind: 'append', of: kind, text: recordText(record) }));
    },
    async read(kind, after, max) {
      const rows = await file.ask({ kind: 'readLog', of: kind, after, max });
      return rows.map(({ sequence, text }) => ({ sequence, record: JSON.parse(text) as unknown }));
    },
    async trim(kind, upTo) {
      await file.write({ kind: 'trim', of: kind, upTo });
    },
    async put(kind, key, value, revision) {
      const op: RecordOp = { kind: 'put', of: kind, key, text: recordText(value), revision };
      return (await file.write(op)) === true ? 'done' : 'stale';
    },
    async get(kind, key) {
      const [row] = await file.ask({ kind: 'readMap', of: kind, key });
      return row && { key, value: JSON.parse(row.text) as unknown, revision: row.revision };
    },
    async list(kind) {
      const rows = await file.ask({ kind: 'readMap', of: kind });
      return rows.map(({ key, text, revision }) => ({
        key,
        value: JSON.parse(text) as unknown,
        revision,
      }));
    },
    async remove(kind, key) {
      await file.write({ kind: 'forget', of: kind, key });
    },
  });
}
