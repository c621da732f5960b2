/**
 * insert — a new entry as an operation, and the statements that put it into its two tables: for our
 * own connection (commit.ts), and for a transaction of the user's.
 *
 * A duplicate is an answer and not an error: it must fail nothing that shares the transaction.
 */

import type { Entry } from '../../core/entry.ts';
import { assert, RespoolError } from '../../core/errors.ts';
import type { Duplicate } from '../../ports/entry-store.ts';
import { sqliteCode, type SqliteDatabase, type SqliteStatement } from '../shared/client.ts';
import { STATE_KEY_COUNT, type StateKey, stateKeyOf, checkInline } from '../shared/sql-row.ts';
import { envelopeColumns, newColumns, statusColumns } from './row.ts';
import { FIRST_TWO_SQL, type KeyHeadRow, recheckTime } from './order-keys.ts';
import type { SharedBytes, InsertOp } from './protocol.ts';
import { checkVersion, COUNT_COLUMNS, fileOf, withNames } from './schema.ts';

/** An operation and the bytes that go with it. */
export interface EncodedOp<Op> {
  readonly op: Op;
  readonly bytes?: SharedBytes;
}

/**
 * An entry as an operation: encoded and checked before it goes into a batch, since a wrong one must
 * not fail the others in it.
 */
export function insertItem({ envelope, status, inlineBody }: Entry): EncodedOp<InsertOp> {
  const { id } = envelope;
  const op: InsertOp = {
    kind: 'insert',
    id,
    status: newColumns(status, id) ?? statusColumns(status, id),
    envelope: envelopeColumns(envelope),
  };
  return { op, bytes: checkInline(inlineBody, id) };
}

/** Inserts through one database; only in a transaction. */
export interface Inserts {
  /** Null when it was stored, else the id it duplicates. */
  insert(op: InsertOp, flow: number, body: SharedBytes): string | null;
}

export function createInserts(database: SqliteDatabase): Inserts {
  const plain = createStatements(database, '');
  const keyed = createStatements(database, 'order_key, behind, ');
  const firstTwo = database.prepare(FIRST_TWO_SQL).raw();
  // Right after the entry it belongs to.
  const addContents = database.prepare(
    'INSERT INTO {contents} (seq, envelope, body) VALUES (last_insert_rowid(), ?, ?)',
  );
  const duplicate = database
    .prepare(
      `SELECT id FROM {entries} WHERE id = ?
      UNION ALL SELECT id FROM {entries} WHERE dedupe_key = ?`,
    )
    .pluck();

  function duplicateOf(id: string, dedupeKey: string | null): string {
    const other = duplicate.get(id, dedupeKey);
    assert(typeof other === 'string', `the insert of "${id}" met nothing and stored nothing`);
    return other;
  }

  /** One that is due but not first of its key goes behind at once: no claim has to meet it. */
  function inTurn(orderKey: string, status: InsertOp['status']): [number, InsertOp['status']] {
    const [slot, dueAt] = status;
    const now = status.length === WHOLE ? status[10] : status[3];
    if (dueAt === null || dueAt > now || !PUT_BEHIND_SLOTS.includes(slot)) return [0, status];
    const [head, second] = firstTwo.all(orderKey) as KeyHeadRow[];
    if (head === undefined) return [0, status];
    const at = recheckTime(head, second === undefined, now);
    return [1, [slot, at, ...status.slice(2)] as unknown as InsertOp['status']];
  }

  function run({ id, status, envelope }: InsertOp, flow: number): number {
    const [, , priority, enqueuedAt, dedupeKey, , orderKey] = envelope;
    const length = status.length;
    if (orderKey === undefined) {
      return plain(length).run(id, flow, priority, enqueuedAt, dedupeKey, ...status).changes;
    }
    const [behind, columns] = inTurn(orderKey, status);
    return keyed(length).run(
      orderKey,
      behind,
      id,
      flow,
      priority,
      enqueuedAt,
      dedupeKey,
      ...columns,
    ).changes;
  }

  return {
    insert(op, flow, body) {
      const [, , , , dedupeKey, text] = op.envelope;
      if (run(op, flow) === 0) return duplicateOf(op.id, dedupeKey);
      addContents.run(text, body ?? null);
      return null;
    },
  };
}

/** As `DUE_KEYS` in PostgreSQL: what is active has a lease, what is held no due time. */
const PUT_BEHIND_SLOTS: readonly StateKey[] = [
  stateKeyOf('incoming', 'delivery'),
  stateKeyOf('deferred', 'delivery'),
];

/**
 * How many columns `StatusColumns` has; `NewColumns` has 4, or 7 with a claim (row.ts). By it
 * `inTurn` finds `updatedAt`: at 10, or at 3 in `NewColumns`.
 */
const WHOLE = 13;
const FIRST = 'id, flow, priority, enqueued_at, dedupe_key, slot, due_at, revision';

/** Prepared when they are needed, by how many columns of its status an entry brings. */
function createStatements(
  database: SqliteDatabase,
  key: string,
): (columns: number) => SqliteStatement {
  const texts = new Map([
    [4, `${FIRST}, updated_at`],
    [7, `${FIRST}, updated_at, attempts, holder, claimed_from`],
  ]);
  const whole =
    `${FIRST}, attempts, notices, lost, postponed, replays, holder, claimed_from, updated_at, ` +
    'fingerprint, memory';
  const prepared = new Map<number, SqliteStatement>();
  function prepare(columns: number): SqliteStatement {
    const names = (key + (texts.get(columns) ?? whole)).split(', ');
    const zeros = ZEROS.filter((name) => !names.includes(name));
    const values = [...names.map(() => '?'), ...zeros.map(() => '0')];
    return database.prepare(
      `INSERT INTO {entries} (${[...names, ...zeros].join(', ')})
      VALUES (${values.join(',')}) ON CONFLICT DO NOTHING`,
    );
  }
  return (columns) => {
    let statement = prepared.get(columns);
    if (statement === undefined) {
      statement = prepare(columns);
      prepared.set(columns, statement);
    }
    return statement;
  };
}

/** What nothing has happened to has none of these. */
const ZEROS: readonly string[] = ['attempts', 'notices', 'lost', 'postponed', 'replays'];

// Inserts in a transaction of the user's, through the user's own better-sqlite3 handle.
//
// Synchronous, and without our own connection: the messages come and go with the transaction.
// Promise: nothing is remembered from one call to the next but prepared statements. The number of a
// flow that a transaction made is gone with its rollback, so it is asked for each time.

type Statements = ReturnType<typeof prepare>;

/** Results in the order asked. */
export type InsertWithin = (
  database: SqliteDatabase,
  entries: readonly Entry[],
) => readonly ('stored' | Duplicate)[];

export function createWithin(tables: string): InsertWithin {
  const prepared = new WeakMap<SqliteDatabase, Statements>();

  function statementsOf(database: SqliteDatabase): Statements {
    const known = prepared.get(database);
    if (known !== undefined) return known;
    const statements = prepare(database, tables);
    prepared.set(database, statements);
    return statements;
  }

  return (database, entries) => {
    checkHandle(database);
    // Everything that could be wrong with them is found here, before the transaction is touched.
    const items = entries.map(insertItem);
    if (items.length === 0) return [];
    try {
      return insertAll(database, statementsOf(database), items);
    } catch (error) {
      // Tables that went with a rollback, or that another program changed, are reported as such.
      const mayBeGone = sqliteCode(error) === 'SQLITE_ERROR' && database.inTransaction;
      if (mayBeGone) checkVersion(withNames(database, tables), { where: fileOf(database), tables });
      throw error;
    }
  };
}

function checkHandle(database: SqliteDatabase): void {
  if (typeof database?.prepare !== 'function' || typeof database.exec !== 'function') {
    throw new RespoolError(
      'config.invalid',
      'cannot insert within a transaction: what was given is not a better-sqlite3 database',
    );
  }
  if (database.inTransaction) return;
  throw new RespoolError(
    'config.invalid',
    `cannot insert into "${fileOf(database)}": its handle is in no transaction, so nothing would ` +
      'tie the messages to your data; wrap it in database.transaction(() => …)()',
  );
}

/** All or none: a caller may catch an error and commit what else the transaction has. */
function insertAll(
  database: SqliteDatabase,
  sql: Statements,
  items: readonly ReturnType<typeof insertItem>[],
): ('stored' | Duplicate)[] {
  sql.begin.run();
  try {
    const flows = new FlowsOfCall(sql);
    const results = items.map(({ op, bytes }): 'stored' | Duplicate => {
      const { status, envelope } = op;
      const flow = flows.numberOf(envelope[0], envelope[1], envelope[2]);
      const duplicateOf = sql.inserts.insert(op, flow, bytes);
      if (duplicateOf !== null) return { duplicateOf };
      flows.count(flow, status[0]);
      return 'stored';
    });
    flows.settle();
    sql.release.run();
    return results;
  } catch (error) {
    // SQLite has already rolled back everything after some errors, such as a full disk.
    if (database.inTransaction) {
      sql.undo.run();
      sql.release.run();
    }
    throw error;
  }
}

/** The flows of one call, and what it adds to their counts. */
class FlowsOfCall {
  readonly #sql: Statements;
  readonly #numbers = new Map<string, number>();
  readonly #counts = new Map<number, number[]>();

  constructor(sql: Statements) {
    this.#sql = sql;
  }

  numberOf(topic: string, destination: string, priority: number): number {
    const key = `${priority}\n${topic}\n${destination}`;
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const { findFlow, addFlow } = this.#sql;
    const found = findFlow.get(topic, destination, priority);
    const flow = Number(found ?? addFlow.run(topic, destination, priority).lastInsertRowid);
    this.#numbers.set(key, flow);
    return flow;
  }

  count(flow: number, slot: number): void {
    let counts = this.#counts.get(flow);
    if (counts === undefined) {
      counts = Array.from<number>({ length: STATE_KEY_COUNT }).fill(0);
      this.#counts.set(flow, counts);
    }
    counts[slot] = (counts[slot] ?? 0) + 1;
  }

  settle(): void {
    for (const [flow, counts] of this.#counts) this.#sql.adjust.run(counts, flow);
  }
}

function prepare(bare: SqliteDatabase, tables: string) {
  const database = withNames(bare, tables);
  checkVersion(database, { where: fileOf(bare), tables });
  const adjust = COUNT_COLUMNS.map((n) => `${n} = ${n} + ?`).join(', ');
  return {
    begin: database.prepare('SAVEPOINT respool_within'),
    undo: database.prepare('ROLLBACK TO respool_within'),
    release: database.prepare('RELEASE respool_within'),
    inserts: createInserts(database),
    findFlow: database
      .prepare('SELECT flow FROM {flows} WHERE topic = ? AND destination = ? AND priority = ?')
      .pluck(),
    addFlow: database.prepare(
      'INSERT INTO {flows} (topic, destination, priority) VALUES (?, ?, ?)',
    ),
    adjust: database.prepare(`UPDATE {flows} SET ${adjust} WHERE flow = ?`),
  };
}
