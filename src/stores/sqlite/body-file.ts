/**
 * body-file — the synchronous heart of the body store: chunks in rows, committed as they come.
 *
 *   first write ─▶ write … write ─▶ last write   visible from here, on the disk with all chunks
 *
 * Only the last write waits for the disk: it takes along what was written before it. A body without
 * it is seen by nobody but `refs`, which hands it to the caretaker.
 */

import { unreachable } from '../../core/errors.ts';
import type { OpenDatabase, SqliteDatabase, SqliteStatement } from '../shared/client.ts';
import type { BodyOp, BodyRequest, Bytes, BatchJoiner, OpenFile, WriteOp } from './protocol.ts';
import { type Connection, type FileSettings, openConnection, prepareSync } from './connection.ts';
import { BOUND_LIMIT } from './schema.ts';
import { runBatches, type Work } from './transaction.ts';

export function openBodyFile(
  openDatabase: OpenDatabase,
  settings: FileSettings,
  options: { readonly check: boolean },
): OpenFile<BodyRequest> {
  const connection = openConnection(openDatabase, settings, options);
  try {
    return new BodyFile(connection);
  } catch (error) {
    connection.close();
    throw error;
  }
}

class BodyFile implements OpenFile<BodyRequest> {
  readonly #connection: Connection;
  readonly #sql: ReturnType<typeof prepare>;
  readonly #sync: SqliteStatement;
  readonly #work: Work<BodyOp, boolean>;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#sql = prepare(connection.database);
    this.#sync = prepareSync(connection);
    this.#work = {
      begin: () => undefined,
      run: (op, bytes) => this.#run(op, bytes),
      end: () => undefined,
      needsDisk,
    };
  }

  handle(request: BodyRequest, joiner?: BatchJoiner<BodyOp>): unknown {
    switch (request.kind) {
      case 'batch':
        return runBatches(this.#connection, request, joiner, this.#work);
      case 'size':
        return this.#sql.size.get(request.ref) ?? null;
      case 'read':
        return this.#sql.read.get(request.ref, request.at) ?? null;
      case 'refs':
        return this.#sql.refs.all(request.after, request.writtenBefore, request.max);
      default:
        return unreachable(request);
    }
  }

  checkpoint(): void {
    this.#connection.checkpoint();
  }

  makeRoom(): void {
    this.#connection.makeRoom();
  }

  close(): void {
    this.#connection.close();
  }

  #run(op: BodyOp, bytes: Bytes): boolean {
    const rows = this.#perform(op, bytes);
    this.#connection.wrote(rows);
    return rows > 0;
  }

  #perform(op: BodyOp, bytes: Bytes): number {
    switch (op.kind) {
      case 'write':
        return this.#write(op, bytes);
      case 'remove':
        return this.#sql.removeChunks.run(op.ref).changes + this.#sql.remove.run(op.ref).changes;
      case 'sync':
        return this.#connection.isDirty() ? this.#sync.run().changes : 0;
      default:
        return unreachable(op);
    }
  }

  #write({ ref, now, isFirst, at, size }: WriteOp, bytes: Bytes): number {
    const { begin, chunk, finish } = this.#sql;
    if (isFirst && begin.run(ref, now).changes === 0) return 0;
    if (bytes && chunk.run(at, bytes, ref).changes === 0) return 0;
    return size === null ? 1 : finish.run(size, now, ref).changes;
  }
}

function prepare(database: SqliteDatabase) {
  return {
    begin: database.prepare(
      `INSERT INTO {bodies} (ref, size, written_at, complete) VALUES (?, 0, ?, 0)
      ON CONFLICT DO NOTHING`,
    ),
    chunk: database.prepare(
      `INSERT INTO {chunks} (ref, at, bytes)
      SELECT ref, ?, ? FROM {bodies} WHERE ref = ? AND complete = 0`,
    ),
    finish: database.prepare(
      'UPDATE {bodies} SET size = ?, written_at = ?, complete = 1 WHERE ref = ? AND complete = 0',
    ),
    remove: database.prepare('DELETE FROM {bodies} WHERE ref = ?'),
    removeChunks: database.prepare('DELETE FROM {chunks} WHERE ref = ?'),
    size: database.prepare('SELECT size FROM {bodies} WHERE ref = ? AND complete = 1').pluck(),
    read: database.prepare('SELECT bytes FROM {chunks} WHERE ref = ? AND at = ?').pluck(),
    refs: database.prepare(
      `SELECT ref, written_at AS writtenAt FROM {bodies} WHERE ref > ? AND written_at < ?
      ORDER BY ref LIMIT ${BOUND_LIMIT}`,
    ),
  };
}

function needsDisk(op: BodyOp): boolean {
  return op.kind === 'sync' || (op.kind === 'write' && op.size !== null);
}
