/**
 * order-keys — messages of one order key go one after the other, in the order of `seq`.
 *
 *   insert, another before it ───────────▶ behind ─wake(), when the one before it has ended─▶ due
 *   due, another before it ─putBehind()──▶ behind
 *
 * What waits behind another is not walked over by every claim: its due time is moved to when it is
 * worth a check again. If nothing wakes it, that check finds it. Entries without a key pay nothing:
 * whether any entry has one is queried once, and again only after a write.
 */

import type { KeyHead } from '../../ports/entry-store.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import { isActiveKey, type StateKey, stateKeyOf, stateOfKey } from '../shared/sql-row.ts';
import type { Connection } from './connection.ts';
import type { TopicFlows } from './topic-flows.ts';
import { BOUND_LIMIT, KEYED_SQL } from './schema.ts';

// The same times and the same limit: postgres/order-keys.ts.

/**
 * When the next of a key is checked again if its head may be taken at any time. Also in
 * docs/how-to/transactional-outbox.md and test/stores/sqlite/order-keys.test.ts.
 */
const SOON_MS = 60_000;
/**
 * The same where the head waits for an operator, and for those behind the next. Also in the same
 * two files.
 */
const LATE_MS = 600_000;
/**
 * The most rows behind the first of a key that are reported: promised by `KeyHead`. Also in
 * docs/reference/http-api.md.
 */
const BEHIND_MAX = 1_000;

/** The first of a key, as far as it decides when those behind it are looked at. */
export type KeyHeadRow = readonly [seq: number, slot: StateKey, dueAt: number | null];

/** The entries of a key that block, or are blocked. */
const OF_KEY_SQL: string = `FROM {entries} INDEXED BY {entries_by_key}
  WHERE order_key = ? AND ${KEYED_SQL}`;

/** The first two of a key: enough to tell what comes next from what comes later. */
export const FIRST_TWO_SQL: string = `SELECT seq, slot, due_at ${OF_KEY_SQL} ORDER BY seq LIMIT 2`;

/** The order keys over one connection. */
export class KeyOrder {
  readonly #connection: Connection;
  readonly #flows: TopicFlows;
  readonly #sql: ReturnType<typeof prepare>;
  /** At this version of the data there were none. */
  #noneAt: number | undefined;

  constructor(connection: Connection, flows: TopicFlows) {
    this.#connection = connection;
    this.#flows = flows;
    this.#sql = prepare(connection.database);
  }

  /** Whether an entry with a key may be in the way; after `flows.begin()`. */
  hasKeys(): boolean {
    const { version } = this.#flows;
    if (this.#noneAt === version) return false;
    const isNone = this.#sql.any.get() === undefined;
    this.#noneAt = isNone ? version : undefined;
    return !isNone;
  }

  /** Called for every entry with a key that is written. */
  noteKey(): void {
    this.#noneAt = undefined;
  }

  /** After a rollback. */
  drop(): void {
    this.#noneAt = undefined;
  }

  /**
   * Makes a function that says whether another of its key comes before an entry; it looks up each
   * key once.
   */
  createIsBlocked(): (orderKey: string, seq: number) => boolean {
    const heads = new Map<string, number>();
    return (orderKey, seq) => {
      let head = heads.get(orderKey);
      if (head === undefined) {
        head = (this.#sql.head.get(orderKey) as KeyHeadRow | undefined)?.[0] ?? seq;
        heads.set(orderKey, head);
      }
      return head < seq;
    };
  }

  /** Puts off what is due of a key and not its head; returns how many. */
  putBehind(orderKey: string, now: number): number {
    const head = this.#sql.head.get(orderKey) as KeyHeadRow | undefined;
    if (head === undefined) return 0;
    const [seq] = head;
    const next = this.#sql.putNext.run(recheckTime(head, true, now), orderKey, seq, now).changes;
    const lateAt = recheckTime(head, false, now);
    const others = this.#sql.putOthers.run(lateAt, orderKey, seq, now).changes;
    this.#connection.wrote(next + others);
    return next + others;
  }

  /** Lets the first of a key go, if it waited; called when one of the key has ended. */
  wake(orderKey: string): void {
    this.#connection.wrote(this.#sql.wake.run(orderKey).changes);
  }

  /** The first of each key with others behind it; those that hold them up for long first. */
  heads(max: number): KeyHead[] {
    const rows = this.#sql.heads.all(max) as [string, string, StateKey, number | null, number][];
    return rows.map(([orderKey, id, slot, dueAt, behind]) => ({
      orderKey,
      id,
      state: stateOfKey(slot) ?? 'incoming',
      dueAt,
      behind: Math.min(behind, BEHIND_MAX),
    }));
  }
}

const INCOMING_SLOT: StateKey = stateKeyOf('incoming', 'delivery');
const ACTIVE_SLOT: StateKey = stateKeyOf('active', 'delivery');
const HOLD_SLOT: StateKey = stateKeyOf('hold', 'delivery');
const DEFERRED_SLOT: StateKey = stateKeyOf('deferred', 'delivery');

/** When an entry behind a head is checked again, unless it is woken before. */
export function recheckTime([, slot, dueAt]: KeyHeadRow, isNext: boolean, now: number): number {
  const lateAt = now + LATE_MS;
  if (slot === HOLD_SLOT || dueAt === null) return lateAt;
  const hasTime = isActiveKey(slot) || slot === DEFERRED_SLOT;
  // A due time in the past says only that the head has not gone yet: its topic may be paused.
  const nextAt = hasTime && dueAt > now ? dueAt : now + SOON_MS;
  // The third in line waits for the second as well; and a crowd must not come due all at once.
  return isNext ? nextAt : Math.max(nextAt, lateAt);
}

function prepare(database: SqliteDatabase) {
  const ofKey = OF_KEY_SQL;
  return {
    any: database.prepare(
      `SELECT 1 FROM {entries} INDEXED BY {entries_by_key} WHERE ${KEYED_SQL} LIMIT 1`,
    ),
    head: database.prepare(`SELECT seq, slot, due_at ${ofKey} ORDER BY seq LIMIT 1`).raw(),
    putNext: database.prepare(
      `UPDATE {entries} SET due_at = ?, behind = 1
      WHERE seq = (SELECT seq ${ofKey} AND seq > ? ORDER BY seq LIMIT 1) AND due_at <= ?`,
    ),
    putOthers: database.prepare(
      `UPDATE {entries} SET due_at = ?, behind = 1 WHERE seq IN
        (SELECT seq ${ofKey} AND seq > ? AND due_at <= ?)`,
    ),
    // The time of its last write is in the past for every claim, whatever clock the claim goes by.
    wake: database.prepare(
      `UPDATE {entries} SET due_at = min(due_at, updated_at), behind = 0
      WHERE seq = (SELECT seq ${ofKey} ORDER BY seq LIMIT 1) AND behind = 1`,
    ),
    heads: database
      .prepare(
        `SELECT h.order_key, e.id, e.slot, e.due_at, h.number - 1 FROM
          (SELECT order_key, min(seq) AS seq, count(*) AS number
          FROM {entries} INDEXED BY {entries_by_key} WHERE ${KEYED_SQL}
          GROUP BY order_key HAVING count(*) > 1) h
        JOIN {entries} e ON e.seq = h.seq
        ORDER BY CASE e.slot WHEN ${ACTIVE_SLOT} THEN 2 WHEN ${INCOMING_SLOT} THEN 1 ELSE 0 END,
          h.seq LIMIT ${BOUND_LIMIT}`,
      )
      .raw(),
  };
}
