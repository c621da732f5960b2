/**
 * file — the synchronous side of a store: one open file (`StoreFile`), its batches and its
 * requests, in whatever thread it is used; and what each kind of file does with them (`EntryWork`,
 * `BodyWork`).
 *
 *   closed ─handle()─▶ open ─disk error─▶ closed, to be checked ─handle()─▶ open
 *
 * A batch is one transaction: acks, new messages and the next claim share one wait for the disk.
 * Promise: after a failed write nothing of the old connection is trusted: not its cache, not its
 * log.
 */

import { threadId } from 'node:worker_threads';
import { unreachable } from '../../core/errors.ts';
import type { OpenDatabase, SqliteDatabase } from '../shared/client.ts';
import { Claims } from './claim.ts';
import { Changes } from './commit.ts';
import { type Connection, type FileSettings, openConnection } from './connection.ts';
import { createTally } from './count.ts';
import { type AttemptedWork, isDiskError, isFullError, storeError } from './errors.ts';
import { TopicFlows, sweepFlows } from './topic-flows.ts';
import { Lists } from './list.ts';
import { KeyOrder } from './order-keys.ts';
import type {
  BatchJoiner,
  BatchReply,
  BatchRequest,
  BodyOp,
  BodyRequest,
  SharedBytes,
  EntryOp,
  EntryRequest,
  EntryResult,
  FileKind,
  FileRequest,
  WriteOp,
} from './protocol.ts';
import { createRecords, type Records } from './records.ts';
import { BOUND_LIMIT } from './schema.ts';

/** What one kind of file does over an open connection. */
interface FileWork {
  /** First in every transaction. */
  begin(): void;
  run(op: FileRequest, bytes: SharedBytes): unknown;
  /** Last in every transaction. */
  end(): void;
  /** The transaction was rolled back. */
  forget(): void;
  /** Whether a power cut must not forget the operation. */
  needsDisk(op: FileRequest): boolean;
  answer(request: FileRequest): unknown;
}

/** A connection, and the work over it. */
interface OpenFile {
  readonly connection: Connection;
  readonly work: FileWork;
}

/** By name: a function cannot go to a thread. */
const WORKS: Readonly<Record<FileKind, (connection: Connection) => FileWork>> = {
  entries: (connection) => {
    if (!connection.readsOnly) connection.write(false, () => sweepFlows(connection));
    return new EntryWork(connection);
  },
  bodies: (connection) => new BodyWork(connection),
};

/** The most operations of different batches in one transaction. */
const JOIN_MAX = 1_000;

/** One file, opened with its first request and again after a disk error. */
export class StoreFile {
  readonly #kind: FileKind;
  readonly #openDatabase: OpenDatabase;
  readonly #settings: FileSettings;
  #file: OpenFile | undefined;
  #needsCheck: boolean;
  /** Whether the disk was full, and the log has not been moved into the file since. */
  #isShort = false;

  constructor(kind: FileKind, openDatabase: OpenDatabase, settings: FileSettings) {
    this.#kind = kind;
    this.#openDatabase = openDatabase;
    this.#settings = settings;
    this.#needsCheck = settings.needsCheck === true;
  }

  /** Whether there was a disk error, and the file has to be checked when it is opened again. */
  get needsCheck(): boolean {
    return this.#needsCheck;
  }

  /**
   * Answers a request, or throws what errors.ts makes of an error. With a joiner, a batch takes
   * others along; their results follow its own.
   */
  handle<Request extends FileRequest>(request: Request, joiner?: BatchJoiner<never>): unknown {
    try {
      this.#file ??= this.#open();
      this.#needsCheck = false;
      if (request.kind === 'moveLog') return this.#file.connection.checkpoint();
      return this.#answer(this.#file, request, joiner);
    } catch (error) {
      const attempted = this.#attempted(request.kind);
      if (isDiskError(error)) this.#giveUp();
      throw storeError(error, attempted);
    }
  }

  close(): void {
    const present = this.#file;
    this.#file = undefined;
    present?.connection.close();
  }

  #open(): OpenFile {
    const options = { check: this.#needsCheck };
    const connection = openConnection(this.#openDatabase, this.#settings, options);
    try {
      return { connection, work: WORKS[this.#kind](connection) };
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  /**
   * A log that was not moved into the file yet may be what fills the disk. As SQLite moves it after
   * commits only, and needs room for that too, it is moved when the disk is full, and again with
   * the first request that gets through: else the log takes the room that came back, and all stands
   * still.
   */
  #answer(file: OpenFile, request: FileRequest, joiner: BatchJoiner<never> | undefined): unknown {
    const answer = (): unknown =>
      request.kind === 'batch'
        ? runBatches(file, request as AnyBatch, joiner)
        : file.work.answer(request);
    try {
      const answered = answer();
      if (this.#isShort) this.#isShort = !hasMadeRoom(file.connection);
      return answered;
    } catch (error) {
      if (!isFullError(error)) throw error;
      this.#isShort = true;
      if (!hasMadeRoom(file.connection)) throw error;
      return answer();
    }
  }

  /** n.b. `storeError` of errors.ts tells an opening by the first word. */
  #attempted(kind: string): AttemptedWork {
    const { path } = this.#settings;
    if (this.#file === undefined) return { doing: `open "${path}"`, path };
    if (kind === 'batch') return { doing: `write to "${path}"`, path };
    return { doing: `${kind === 'moveLog' ? 'move the log into' : 'read from'} "${path}"`, path };
  }

  /** Closing after a disk error may fail for the same reason; the connection is gone either way. */
  #giveUp(): void {
    this.#needsCheck = true;
    try {
      this.close();
    } catch {
      // See above.
    }
  }
}

function hasMadeRoom(connection: Connection): boolean {
  try {
    connection.makeRoom();
    return true;
  } catch {
    // No room for that either; the write that fails reports it.
    return false;
  }
}

type AnyBatch = BatchRequest<FileRequest>;

/**
 * Runs a batch in one transaction, and with it the batches that came while it ran: so the callers
 * of one turn of the event loop need not all have called before the work begins, and still share
 * one wait for the disk. The results of all, one after the other.
 */
function runBatches(
  { connection, work }: OpenFile,
  first: AnyBatch,
  joiner: BatchJoiner<never> | undefined,
): BatchReply<unknown> {
  if (!connection.isDirty() && first.ops.every(({ kind }) => kind === 'sync')) {
    const results = first.ops.map(() => null);
    return { results, isDirty: false, walPages: connection.walPages() };
  }
  const needsDisk = (op: FileRequest): boolean => work.needsDisk(op);
  const isDurable = first.ops.some(needsDisk);
  // How a commit is synced is settled before its transaction begins: what needs more has to wait.
  const fits = ({ ops }: AnyBatch): boolean => isDurable || !ops.some(needsDisk);
  try {
    const results = connection.write(isDurable, () => {
      work.begin();
      joiner?.rewind();
      const done: unknown[] = [];
      for (let batch: AnyBatch | undefined = first; batch !== undefined; ) {
        const { ops, bytes } = batch;
        let at = 0;
        for (const op of ops) {
          done.push(work.run(op, bytes[at]));
          at += 1;
        }
        batch = done.length < JOIN_MAX ? joiner?.next(fits) : undefined;
      }
      work.end();
      return done;
    });
    return { results, isDirty: connection.isDirty(), walPages: connection.walPages() };
  } catch (error) {
    work.forget();
    throw error;
  }
}

let connections = 0;

/** The work on entries and records. */
class EntryWork implements FileWork {
  readonly #connection: Connection;
  /** No other connection of this process has it. */
  readonly #name: string;
  readonly #flows: TopicFlows;
  readonly #order: KeyOrder;
  readonly #changes: Changes;
  readonly #claims: Claims;
  readonly #lists: Lists;
  readonly #tally: ReturnType<typeof createTally>;
  readonly #records: Records;

  constructor(connection: Connection) {
    this.#connection = connection;
    connections += 1;
    this.#name = `${threadId}.${connections}`;
    this.#flows = new TopicFlows(connection);
    this.#order = new KeyOrder(connection, this.#flows);
    this.#changes = new Changes(connection, this.#flows, this.#order);
    this.#claims = new Claims(connection, this.#flows, this.#order);
    this.#lists = new Lists(connection, this.#flows);
    this.#tally = createTally(connection, this.#flows);
    this.#records = createRecords(connection);
  }

  begin(): void {
    this.#flows.begin();
  }

  end(): void {
    this.#flows.settle();
  }

  forget(): void {
    this.#flows.drop();
    this.#claims.drop();
    this.#order.drop();
  }

  /** Claims, expiries and lazy settles may be forgotten by a power cut; everything else may not. */
  needsDisk(op: EntryOp): boolean {
    if (op.kind === 'change') return op.isDurable;
    return op.kind !== 'claim' && op.kind !== 'expire';
  }

  run(op: EntryOp, bytes: SharedBytes): EntryResult {
    switch (op.kind) {
      case 'insert':
        return this.#changes.insert(op, bytes);
      case 'change':
        return this.#changes.change(op, bytes);
      case 'claim':
        return this.#claims.claim(op.request);
      case 'expire':
        return this.#changes.expire(op);
      case 'quarantine':
        this.#changes.quarantine(op);
        return null;
      case 'sync':
        this.#connection.sync();
        return null;
      default:
        return this.#records.write(op);
    }
  }

  answer(request: Exclude<EntryRequest, AnyBatch>): unknown {
    switch (request.kind) {
      case 'nextDueAt':
        this.#flows.begin();
        return this.#claims.nextDueAt(request.filter);
      case 'get':
        return this.#lists.get(request.id);
      case 'list':
        return this.#lists.list(request.query, request.mayBeLong);
      case 'tally':
        return this.#tally(request.by, request.query, request.mayBeLong);
      case 'keyHeads':
        return this.#order.heads(request.max);
      case 'dataVersion':
        // Versions of two connections have nothing to do with each other.
        return `${this.#name}:${this.#connection.dataVersion()}`;
      case 'holdsAny':
        return this.#lists.holdsAny(request.instance);
      case 'readLog':
        return this.#records.readLog(request.of, request.after, request.max);
      case 'readMap':
        return this.#records.readMap(request.of, request.key);
      default:
        return unreachable(request);
    }
  }
}

/**
 * The work on bodies: chunks in rows, committed as they come.
 *
 *   first write ─▶ write … write ─▶ last write   visible from here, on the disk with all chunks
 *
 * Only the last write waits for the disk: it takes along what was written before it. A body without
 * it is seen by `refs` alone, through which the caretaker finds it.
 */
class BodyWork implements FileWork {
  readonly #connection: Connection;
  readonly #sql: ReturnType<typeof prepareBodies>;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#sql = prepareBodies(connection.database);
  }

  begin(): void {
    // Nothing is remembered from one transaction to the next.
  }

  end(): void {
    // As above.
  }

  forget(): void {
    // As above.
  }

  needsDisk(op: BodyOp): boolean {
    return op.kind === 'sync' || (op.kind === 'write' && op.size !== null);
  }

  run(op: BodyOp, bytes: SharedBytes): boolean {
    switch (op.kind) {
      case 'write':
        return this.#note(this.#write(op, bytes));
      case 'remove':
        return this.#note(
          this.#sql.removeChunks.run(op.ref).changes + this.#sql.remove.run(op.ref).changes,
        );
      case 'sync':
        return this.#connection.sync();
      default:
        return unreachable(op);
    }
  }

  answer(request: Exclude<BodyRequest, AnyBatch>): unknown {
    switch (request.kind) {
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

  #note(rows: number): boolean {
    this.#connection.wrote(rows);
    return rows > 0;
  }

  #write({ ref, now, isFirst, at, size }: WriteOp, bytes: SharedBytes): number {
    const { begin, chunk, finish } = this.#sql;
    if (isFirst && begin.run(ref, now).changes === 0) return 0;
    if (bytes && chunk.run(at, bytes, ref).changes === 0) return 0;
    return size === null ? 1 : finish.run(size, now, ref).changes;
  }
}

function prepareBodies(database: SqliteDatabase) {
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
