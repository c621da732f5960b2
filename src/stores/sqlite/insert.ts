/**
 * insert — the statements that put a new entry into its two tables, for our own connection
 * (commit.ts) and for a transaction of the user's (insert-within.ts).
 *
 * A duplicate is an answer and not an error: it must fail nothing that shares the transaction.
 */

import { assert } from '../../core/errors.ts';
import type { SqliteDatabase, SqliteStatement } from '../shared/client.ts';
import { type StateKey, stateKeyOf } from '../shared/sql-row.ts';
import type { Bytes, InsertOp } from './protocol.ts';
import { FIRST_TWO_SQL, type KeyHeadRow, lookAt } from './order-keys.ts';

/** Inserts through one database; only in a transaction. */
export interface Inserts {
  /** Null when it was stored, else the id it duplicates. */
  insert(op: InsertOp, flow: number, body: Bytes): string | null;
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
    const at = lookAt(head, second === undefined, now);
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

/** What is active has a lease, and what is held no due time. */
const PUT_BEHIND_SLOTS: readonly StateKey[] = [
  stateKeyOf('incoming', 'delivery'),
  stateKeyOf('deferred', 'delivery'),
];

/** How many columns a whole status has. */
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
