/**
 * entry-file — the synchronous heart of the entry store: one open file, one request at a time.
 *
 * Runs in the thread of worker.ts or in the caller's own; reopening-file.ts opens it. A batch is
 * one transaction: acks, new messages and the next claim share one wait for the disk.
 */

import { threadId } from 'node:worker_threads';
import { unreachable } from '../../core/errors.ts';
import type { OpenDatabase, SqliteStatement } from '../shared/client.ts';
import type {
  BatchRequest,
  Bytes,
  EntryOp,
  EntryReplies,
  EntryRequest,
  EntryResult,
  BatchJoiner,
  OpenFile,
} from './protocol.ts';
import { Changes } from './commit.ts';
import { Claims } from './claim.ts';
import { type Connection, type FileSettings, openConnection, prepareSync } from './connection.ts';
import { Flows, sweepFlows } from './flows.ts';
import { Lists } from './list.ts';
import { KeyOrder } from './order-keys.ts';
import { createRecords, type Records } from './records.ts';
import { createTally } from './count.ts';
import { runBatches, type Work } from './transaction.ts';

export function openEntryFile(
  openDatabase: OpenDatabase,
  settings: FileSettings,
  options: { readonly check: boolean },
): OpenFile<EntryRequest> {
  const connection = openConnection(openDatabase, settings, options);
  try {
    if (settings.readsOnly !== true) connection.write(false, () => sweepFlows(connection));
    return new EntryFile(connection);
  } catch (error) {
    connection.close();
    throw error;
  }
}

let connections = 0;

class EntryFile implements OpenFile<EntryRequest> {
  readonly #connection: Connection;
  /** No other connection of this process has it. */
  readonly #name: string;
  readonly #flows: Flows;
  readonly #order: KeyOrder;
  readonly #changes: Changes;
  readonly #claims: Claims;
  readonly #lists: Lists;
  readonly #tally: ReturnType<typeof createTally>;
  readonly #records: Records;
  readonly #sync: SqliteStatement;
  readonly #work: Work<EntryOp, EntryResult>;

  constructor(connection: Connection) {
    this.#connection = connection;
    connections += 1;
    this.#name = `${threadId}.${connections}`;
    this.#flows = new Flows(connection);
    this.#order = new KeyOrder(connection, this.#flows);
    this.#changes = new Changes(connection, this.#flows, this.#order);
    this.#claims = new Claims(connection, this.#flows, this.#order);
    this.#lists = new Lists(connection, this.#flows);
    this.#tally = createTally(connection, this.#flows);
    this.#records = createRecords(connection);
    this.#sync = prepareSync(connection);
    this.#work = {
      begin: () => this.#flows.begin(),
      run: (op, bytes) => this.#run(op, bytes),
      end: () => this.#flows.settle(),
      needsDisk,
    };
  }

  handle(request: EntryRequest, joiner?: BatchJoiner<EntryOp>): unknown {
    switch (request.kind) {
      case 'batch':
        return this.#runBatch(request, joiner);
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

  checkpoint(): void {
    this.#connection.checkpoint();
  }

  makeRoom(): void {
    this.#connection.makeRoom();
  }

  close(): void {
    this.#connection.close();
  }

  #runBatch(batch: BatchRequest<EntryOp>, joiner?: BatchJoiner<EntryOp>): EntryReplies['batch'] {
    if (!this.#connection.isDirty() && batch.ops.every(({ kind }) => kind === 'sync')) {
      const unmovedPages = this.#connection.walPages();
      return { results: batch.ops.map(() => null), isDirty: false, walPages: unmovedPages };
    }
    try {
      return runBatches(this.#connection, batch, joiner, this.#work);
    } catch (error) {
      this.#flows.drop();
      this.#claims.drop();
      this.#order.drop();
      throw error;
    }
  }

  #run(op: EntryOp, bytes: Bytes): EntryResult {
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
        // A transaction that writes nothing is not synced either.
        if (this.#connection.isDirty()) this.#connection.wrote(this.#sync.run().changes);
        return null;
      default:
        return this.#records.write(op);
    }
  }
}

/** Claims, expiries and lazy settles may be forgotten by a power cut; everything else may not. */
function needsDisk(op: EntryOp): boolean {
  if (op.kind === 'change') return op.isDurable;
  return op.kind !== 'claim' && op.kind !== 'expire';
}
