/**
 * insert-within — inserts in a transaction of the user's, through the user's own better-sqlite3
 * handle.
 *
 * Synchronous, and without our own connection: the messages come and go with the transaction.
 * Promise: nothing is remembered from one call to the next but prepared statements. The number of a
 * flow that a transaction made is gone with its rollback, so it is asked for each time.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Duplicate } from '../../ports/entry-store.ts';
import { type SqliteDatabase, sqliteCode } from '../shared/client.ts';
import { STATE_KEY_COUNT } from '../shared/sql-row.ts';
import { createInserts } from './insert.ts';
import { insertItem } from './insert-batch.ts';
import { checkVersion, COUNT_COLUMNS, fileOf } from './schema.ts';
import { withNames } from './names.ts';

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
      // Tables that went with a rollback, or that another program has changed, are told as such.
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
