/**
 * changes — inserts, guarded writes, removals and quarantine, inside the transaction of a batch.
 */

import { assert } from '../../core/errors.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import type { Bytes } from './batch.ts';
import type { Connection } from './connection.ts';
import type { Flows } from './flows.ts';
import type { ChangeOp, ExpireOp, InsertOp, QuarantineOp, Refusal } from './protocol.ts';
import type { EnvelopeColumns } from './rows.ts';
import { ACTIVE_SQL, SLOT_COUNT, type Slot } from './schema.ts';

/** What the guard of a change looks at: seq, slot, flow, revision, holder. */
type Guarded = readonly [
  seq: number,
  slot: Slot,
  flow: number,
  revision: number,
  holder: string | null,
];

/** Writes over one connection; every one of them only in a transaction. */
export class Changes {
  readonly #connection: Connection;
  readonly #flows: Flows;
  readonly #sql: ReturnType<typeof prepare>;

  constructor(connection: Connection, flows: Flows) {
    this.#connection = connection;
    this.#flows = flows;
    this.#sql = prepare(connection.database);
  }

  /** Null when it was stored, else the id it duplicates. */
  insert({ id, status, envelope }: InsertOp, body: Bytes): string | null {
    const [topic, destination, priority, enqueuedAt, dedupeKey, text] = envelope;
    const flow = this.#flows.numberOf(topic, destination, priority);
    const sql = this.#sql.inserts.get(status.length) ?? this.#sql.insert;
    const { changes } = sql.run(id, flow, priority, enqueuedAt, dedupeKey, ...status);
    if (changes === 0) return this.#duplicateOf(id, dedupeKey);
    this.#sql.addContents.run(text, body ?? null);
    this.#flows.count(flow, status[0], 1);
    this.#connection.wrote(1);
    return null;
  }

  /** Whether the guard fitted. */
  change(op: ChangeOp, body: Bytes): boolean | Refusal {
    const row = this.#sql.guard.get(op.id) as Guarded | undefined;
    if (row === undefined) return false;
    const [seq, slot, flow, revision, holder] = row;
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
    return true;
  }

  /** Moves a row out of reach, as it is. */
  quarantine({ seq, reason }: QuarantineOp): void {
    const row = this.#sql.wholeRow.get(seq) as
      | { readonly id: string; readonly flow: number; readonly slot: Slot }
      | undefined;
    if (row === undefined) return;
    this.#sql.moveToQuarantine.run(row.id, reason, JSON.stringify(row), seq);
    this.#remove(seq);
    this.#connection.wrote(1);
    // What is damaged may name a flow or a slot that does not exist.
    const { flow, slot } = row;
    const isCounted = this.#flows.get(flow) !== undefined && slot >= 0 && slot < SLOT_COUNT;
    if (isCounted) this.#flows.count(flow, slot, -1);
  }

  /** How many leases ended. */
  expire({ instance, now }: ExpireOp): number {
    const { changes } = this.#sql.expire.run(now, now, instance.length, instance);
    this.#connection.wrote(changes);
    return changes;
  }

  #duplicateOf(id: string, dedupeKey: string | null): string {
    const other = this.#sql.duplicate.get(id, dedupeKey);
    assert(typeof other === 'string', `the insert of "${id}" met nothing and stored nothing`);
    return other;
  }

  #keyTaken(dedupeKey: string | null, id: string): string | undefined {
    if (dedupeKey === null) return undefined;
    return this.#sql.keyTaken.get(dedupeKey, id) as string | undefined;
  }

  #setEnvelope(seq: number, envelope: EnvelopeColumns, body: Bytes): number {
    const [topic, destination, priority, enqueuedAt, dedupeKey, text] = envelope;
    const flow = this.#flows.numberOf(topic, destination, priority);
    this.#sql.setEnvelope.run(flow, priority, enqueuedAt, dedupeKey, seq);
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
    insert: sql(
      `INSERT INTO entries (id, flow, priority, enqueued_at, dedupe_key, slot, due_at, revision,
        attempts, notices, lost, postponed, replays, holder, claimed_from, updated_at, fingerprint,
        memory)
      VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
    ),
    /** Of new entries, by how many columns they bring. */
    inserts: new Map([
      [
        4,
        sql(
          `INSERT INTO entries (id, flow, priority, enqueued_at, dedupe_key, slot, due_at, revision,
            updated_at, attempts, notices, lost, postponed, replays)
          VALUES (?,?,?,?,?,?,?,?,?,0,0,0,0,0) ON CONFLICT DO NOTHING`,
        ),
      ],
      [
        7,
        sql(
          `INSERT INTO entries (id, flow, priority, enqueued_at, dedupe_key, slot, due_at, revision,
            updated_at, attempts, holder, claimed_from, notices, lost, postponed, replays)
          VALUES (?,?,?,?,?,?,?,?,?,?,?,?,0,0,0,0) ON CONFLICT DO NOTHING`,
        ),
      ],
    ]),
    // Right after the entry it belongs to.
    addContents: sql(
      'INSERT INTO contents (seq, envelope, body) VALUES (last_insert_rowid(), ?, ?)',
    ),
    duplicate: sql(
      'SELECT id FROM entries WHERE id = ? UNION ALL SELECT id FROM entries WHERE dedupe_key = ?',
    ).pluck(),
    guard: sql('SELECT seq, slot, flow, revision, holder FROM entries WHERE id = ?').raw(),
    keyTaken: sql('SELECT id FROM entries WHERE dedupe_key = ? AND id <> ?').pluck(),
    update: sql(
      `UPDATE entries SET slot = ?, due_at = ?, revision = ?, attempts = ?, notices = ?, lost = ?,
        postponed = ?, replays = ?, holder = ?, claimed_from = ?, updated_at = ?, fingerprint = ?,
        memory = ? WHERE seq = ?`,
    ),
    setEnvelope: sql(
      'UPDATE entries SET flow = ?, priority = ?, enqueued_at = ?, dedupe_key = ? WHERE seq = ?',
    ),
    setText: sql('UPDATE contents SET envelope = ? WHERE seq = ?'),
    setContents: sql('UPDATE contents SET envelope = ?, body = ? WHERE seq = ?'),
    removeEntry: sql('DELETE FROM entries WHERE seq = ?'),
    removeContents: sql('DELETE FROM contents WHERE seq = ?'),
    wholeRow: sql('SELECT * FROM entries WHERE seq = ?'),
    moveToQuarantine: sql(
      `INSERT INTO quarantine (id, reason, row, envelope, body)
      SELECT ?, ?, ?, c.envelope, c.body
      FROM (SELECT ? AS seq) s LEFT JOIN contents c ON c.seq = s.seq`,
    ),
    // The process is gone, so nobody can settle these: the claim that follows raises the revision.
    expire: sql(
      `UPDATE entries SET due_at = ? WHERE ${ACTIVE_SQL} AND due_at > ?
        AND substr(holder, 1, ?) = ?`,
    ),
  };
}
