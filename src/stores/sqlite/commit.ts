/**
 * commit — inserts, guarded changes, removals and quarantine, inside the transaction of a batch.
 */

import type { Change } from '../../ports/entry-store.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import { BLOCKING_KEYS, checkInline, STATE_KEY_COUNT, type StateKey } from '../shared/sql-row.ts';
import type {
  SharedBytes,
  ChangeOp,
  ExpireOp,
  InsertOp,
  QuarantineOp,
  Refusal,
} from './protocol.ts';
import type { Connection } from './connection.ts';
import type { TopicFlows } from './topic-flows.ts';
import { createInserts, type EncodedOp, type Inserts } from './insert.ts';
import type { KeyOrder } from './order-keys.ts';
import { type EnvelopeColumns, envelopeColumns, statusColumns } from './row.ts';
import { ACTIVE_SQL } from './schema.ts';

/** A change as an operation, encoded and checked as an insert is. */
export function changeItem(change: Change, isDurable: boolean): EncodedOp<ChangeOp> {
  const { id, revision, holder = null, to, envelope, inlineBody } = change;
  const op: ChangeOp = {
    kind: 'change',
    id,
    revision,
    holder,
    isDurable,
    status: to === 'remove' ? null : statusColumns(to, id),
    envelope: envelope === undefined ? null : envelopeColumns(envelope),
  };
  if (envelope === undefined) return { op };
  return { op, bytes: envelope.body.place === 'inline' ? checkInline(inlineBody, id) : null };
}

/** What the guard of a change looks at, and the key whose next one it may let go. */
type Guarded = readonly [
  seq: number,
  slot: StateKey,
  flow: number,
  revision: number,
  holder: string | null,
  orderKey: string | null,
];

/** Writes over one connection; every one of them only in a transaction. */
export class Changes {
  readonly #connection: Connection;
  readonly #flows: TopicFlows;
  readonly #order: KeyOrder;
  readonly #inserts: Inserts;
  readonly #sql: ReturnType<typeof prepare>;

  constructor(connection: Connection, flows: TopicFlows, order: KeyOrder) {
    this.#connection = connection;
    this.#flows = flows;
    this.#order = order;
    this.#inserts = createInserts(connection.database);
    this.#sql = prepare(connection.database);
  }

  /** Null when it was stored, else the id it duplicates. */
  insert(op: InsertOp, body: SharedBytes): string | null {
    const { status, envelope } = op;
    const flow = this.#flows.numberOf(envelope[0], envelope[1], envelope[2]);
    const duplicate = this.#inserts.insert(op, flow, body);
    if (duplicate !== null) return duplicate;
    if (envelope[6] !== undefined) this.#order.noteKey();
    this.#flows.count(flow, status[0], 1);
    this.#connection.wrote(1);
    return null;
  }

  /** Whether the guard fitted. */
  change(op: ChangeOp, body: SharedBytes): boolean | Refusal {
    const row = this.#sql.guard.get(op.id) as Guarded | undefined;
    if (row === undefined) return false;
    const [seq, slot, flow, revision, holder, orderKey] = row;
    if (revision !== op.revision || holder !== op.holder) return false;
    if (op.status === null) {
      // Not one statement with RETURNING: that keeps a table of its own, and is slower than two.
      this.#remove(seq);
    } else {
      const taken = op.envelope === null ? undefined : this.#keyTaken(op.envelope[4], op.id);
      if (taken !== undefined) return { refused: `its dedupe key belongs to "${taken}"` };
      const next = op.envelope === null ? flow : this.#setEnvelope(seq, op.envelope, body);
      this.#sql.update.run(op.status, seq);
      this.#flows.count(next, op.status[0], 1);
    }
    this.#flows.count(flow, slot, -1);
    this.#connection.wrote(1);
    if (orderKey !== null) this.#passOn(orderKey, slot, op);
    return true;
  }

  /** Moves a row out of reach, as it is. */
  quarantine({ seq, reason }: QuarantineOp): void {
    const row = this.#sql.wholeRow.get(seq) as
      | {
          readonly id: string;
          readonly flow: number;
          readonly slot: StateKey;
          readonly order_key: string | null;
        }
      | undefined;
    if (row === undefined) return;
    this.#sql.moveToQuarantine.run(row.id, reason, JSON.stringify(row), seq);
    this.#remove(seq);
    this.#connection.wrote(1);
    if (row.order_key !== null) this.#order.wake(row.order_key);
    // What is damaged may name a flow or a slot that does not exist.
    const { flow, slot } = row;
    const isCounted = this.#flows.get(flow) !== undefined && slot >= 0 && slot < STATE_KEY_COUNT;
    if (isCounted) this.#flows.count(flow, slot, -1);
  }

  /** How many leases ended: of holders that begin with the instance. */
  expire({ instance, now }: ExpireOp): number {
    const { changes } = this.#sql.expire.run(now, now, instance.length, instance);
    this.#connection.wrote(changes);
    return changes;
  }

  /** Lets the next of a key go when this change ends what blocked it, or brings another key. */
  #passOn(orderKey: string, from: StateKey, { status, envelope }: ChangeOp): void {
    // It may block others from now on.
    this.#order.noteKey();
    if (!BLOCKING_KEYS.includes(from)) return;
    const isSame = envelope === null || envelope[6] === orderKey;
    if (status !== null && BLOCKING_KEYS.includes(status[0]) && isSame) return;
    this.#order.wake(orderKey);
  }

  #keyTaken(dedupeKey: string | null, id: string): string | undefined {
    if (dedupeKey === null) return undefined;
    return this.#sql.keyTaken.get(dedupeKey, id) as string | undefined;
  }

  #setEnvelope(seq: number, envelope: EnvelopeColumns, body: SharedBytes): number {
    const [topic, destination, priority, enqueuedAt, dedupeKey, text, orderKey] = envelope;
    const flow = this.#flows.numberOf(topic, destination, priority);
    if (orderKey !== undefined) this.#order.noteKey();
    this.#sql.setEnvelope.run(flow, priority, enqueuedAt, dedupeKey, orderKey ?? null, seq);
    if (body === undefined) this.#sql.setText.run(text, seq);
    else this.#sql.setContents.run(text, body, seq);
    return flow;
  }

  #remove(seq: number): void {
    this.#sql.removeEntry.run(seq);
    this.#sql.removeContents.run(seq);
  }
}

function prepare(database: SqliteDatabase) {
  const sql = (text: string) => database.prepare(text);
  return {
    guard: sql(
      'SELECT seq, slot, flow, revision, holder, order_key FROM {entries} WHERE id = ?',
    ).raw(),
    keyTaken: sql('SELECT id FROM {entries} WHERE dedupe_key = ? AND id <> ?').pluck(),
    update: sql(
      `UPDATE {entries} SET slot = ?, due_at = ?, revision = ?, attempts = ?, notices = ?, lost = ?,
        postponed = ?, replays = ?, holder = ?, claimed_from = ?, updated_at = ?, fingerprint = ?,
        memory = ?, behind = 0 WHERE seq = ?`,
    ),
    setEnvelope: sql(
      `UPDATE {entries} SET flow = ?, priority = ?, enqueued_at = ?, dedupe_key = ?, order_key = ?
      WHERE seq = ?`,
    ),
    setText: sql('UPDATE {contents} SET envelope = ? WHERE seq = ?'),
    setContents: sql('UPDATE {contents} SET envelope = ?, body = ? WHERE seq = ?'),
    removeEntry: sql('DELETE FROM {entries} WHERE seq = ?'),
    removeContents: sql('DELETE FROM {contents} WHERE seq = ?'),
    wholeRow: sql('SELECT * FROM {entries} WHERE seq = ?'),
    moveToQuarantine: sql(
      `INSERT INTO {quarantine} (id, reason, row, envelope, body)
      SELECT ?, ?, ?, c.envelope, c.body
      FROM (SELECT ? AS seq) s LEFT JOIN {contents} c ON c.seq = s.seq`,
    ),
    // The process is gone and cannot settle these: the next claim raises the revision.
    expire: sql(
      `UPDATE {entries} SET due_at = ? WHERE ${ACTIVE_SQL} AND due_at > ?
        AND substr(holder, 1, ?) = ?`,
    ),
  };
}
