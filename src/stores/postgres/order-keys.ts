/**
 * order-keys — messages of one key, one after the other: who blocks whom, as SQL.
 *
 *   due, but another of its key is ahead ─claim─▶ behind: due only when that may have changed
 *   the one ahead ends ─commit, and once more after it─▶ the first of the key is due
 *
 * A claim never takes a row with a blocker ahead of it in the claim's own snapshot. Putting behind
 * only keeps claims from walking over what waits; so it is done where the one ahead could be locked
 * and still blocks, and left undone otherwise. Whoever ends that one waits for our lock, and lets
 * go what we put behind: in its commit as far as its snapshot goes, and then with a new one. If it
 * dies in between, the row is found when its time has come.
 *
 * Why: docs/decisions/: 0028 and 0029.
 */

import type { State } from '../../core/state.ts';
import type { KeyHead } from '../../ports/entry-store.ts';
import {
  BLOCKING_KEYS,
  type StateKey,
  stateKeyOf,
  stateOfKey,
  WAITING_KEYS,
} from '../shared/sql-row.ts';
import { textArray } from './arrays.ts';
import type { Ask } from './connection.ts';
import type { Names } from './names.ts';

/** n.b. As an expression for the same reason as `FLOW_KEY_SQL`: only `entries_order` fits it. */
export function blockingSql(alias: string): string {
  return `(${alias}slot + 0) IN (${BLOCKING_KEYS.join(', ')})`;
}

/** Slots whose messages wait to be claimed for a delivery. */
const DUE_KEYS: readonly StateKey[] = WAITING_KEYS.filter((slot) => BLOCKING_KEYS.includes(slot));
export const DUE_KEYS_SQL: string = DUE_KEYS.join(', ');

/** How long one waits behind one that is in nobody's hands, until it is looked at again. */
const BEHIND_NEXT_MS = 60_000;
/** The same behind one that is held, or that waits itself. */
const BEHIND_LONG_MS = 10 * 60_000;

/** How many behind the first of a key are told at most. */
const BEHIND_TOLD_MAX = 1_000;

/** The conditions under which a row may go, for one search. */
export interface KeyOrder {
  /** For a row of `entries`. */
  readonly free: (alias: string) => string;
  /** For a row of a glance, which knows who is `ahead` of it. */
  readonly freeSeen: (alias: string) => string;
}

/**
 * `tellsAfter`, a literal: also those that are behind until a time after this; they end a walk
 * that only asks when to come again.
 */
export function orderOf({ table }: Names, tellsAfter?: string): KeyOrder {
  const orBehind = (alias: string): string =>
    tellsAfter === undefined ? '' : ` OR (${alias}.behind AND ${alias}.due_at > ${tellsAfter})`;
  return {
    free: (alias) => `(${alias}.order_key IS NULL${orBehind(alias)}
      OR NOT EXISTS (SELECT FROM ${table.entries} b WHERE ${aheadSql('b', alias)}))`,
    freeSeen: (alias) => `(${alias}.ahead IS NULL${orBehind(alias)})`,
  };
}

/** What blocks a row: one of its key that came before it. */
function aheadSql(one: string, row: string): string {
  return `${one}.order_key = ${row}.order_key AND ${one}.order_key IS NOT NULL
        AND ${blockingSql(`${one}.`)} AND ${one}.seq < ${row}.seq`;
}

/** The place of the nearest one ahead of a row; null for none. */
export function nearestAheadSql({ table }: Names, row: string): string {
  return `CASE WHEN ${row}.order_key IS NOT NULL THEN (
    SELECT b.ctid FROM ${table.entries} b WHERE ${aheadSql('b', row)} ORDER BY b.seq DESC LIMIT 1
  ) END`;
}

/**
 * CTEs that put behind what glances `g…` have seen with one ahead of it. n.b. `waits` is read as a
 * whole before the first row is written: a row may be in it twice, as one that waits and as one
 * that is ahead. What they still have to be is asked in a way no index answers, as in `lockedOf`:
 * before the first ANALYZE the server would walk all keys. (10,000 rows: 1.5 s)
 */
export function putBehindSql({ table }: Names, glances: readonly string[], now: string): string {
  const { entries } = table;
  const seen = glances.map((name) => `SELECT at, ahead FROM ${name} WHERE ahead IS NOT NULL`);
  const isDeep = `(x.behind OR EXISTS (SELECT FROM ${entries} y WHERE ${aheadSql('y', 'x')}))`;
  return `blocked AS MATERIALIZED (${seen.join(' UNION ALL ')}), waits AS MATERIALIZED (
  SELECT e.ctid AS at, CASE
      WHEN x.slot = ${stateKeyOf('hold', 'delivery')} THEN ${now} + ${BEHIND_LONG_MS}
      WHEN ${isDeep} THEN greatest(x.due_at, ${now} + ${BEHIND_LONG_MS})
      WHEN x.slot <> ${stateKeyOf('incoming', 'delivery')} AND x.due_at > ${now} THEN x.due_at
      ELSE ${now} + ${BEHIND_NEXT_MS} END AS until
  FROM blocked w, ${entries} e, ${entries} x
  WHERE e.ctid = ANY(ARRAY(SELECT at FROM blocked)) AND e.ctid = w.at
    AND x.ctid = ANY(ARRAY(SELECT ahead FROM blocked)) AND x.ctid = w.ahead
    AND CASE WHEN e.slot IN (${DUE_KEYS_SQL}) AND e.due_at <= ${now}
      THEN ${aheadSql('x', 'e')} ELSE false END
  FOR UPDATE OF e SKIP LOCKED FOR SHARE OF x SKIP LOCKED
), put AS (
  UPDATE ${entries} e SET due_at = w.until, behind = true FROM waits w
  WHERE e.ctid = ANY(ARRAY(SELECT at FROM waits)) AND e.ctid = w.at RETURNING 1
)`;
}

/** Makes a row due that was put behind; `wakeAt`, a placeholder, may be null. */
export function letGoSql({ table }: Names, ids: string, wakeAt: string): string {
  // Never later than a claim that was made: the clock of those who claim is not ours to ask.
  return `UPDATE ${table.entries} e SET behind = false, due_at = CASE WHEN e.behind
    THEN greatest(e.updated_at, least(e.due_at, coalesce(${wakeAt}, 0))) ELSE e.due_at END
  WHERE e.id = ANY(ARRAY(${ids}))`;
}

/** The first one of a key that blocks, with `more` conditions on it. */
export function firstSql({ table }: Names, key: string, more = ''): string {
  return `SELECT b.id, b.seq, b.slot, b.behind FROM ${table.entries} b
    WHERE b.order_key = ${key} AND b.order_key IS NOT NULL AND ${blockingSql('b.')}${more}
    ORDER BY b.seq LIMIT 1`;
}

/** Those that hold up others for long come first: a list may be cut off, but not before them. */
const STANDING_SQL: string = `CASE e.slot
  WHEN ${stateKeyOf('active', 'delivery')} THEN 2 WHEN ${stateKeyOf('incoming', 'delivery')} THEN 1
  ELSE 0 END`;

/** The first ones of keys that others wait behind. It passes over all that have a key. */
export async function keyHeads(ask: Ask, names: Names, max: number): Promise<readonly KeyHead[]> {
  const { entries } = names.table;
  const rows = await ask(
    `SELECT h.order_key, e.id, e.slot, e.due_at, least(h.n - 1, ${BEHIND_TOLD_MAX})
FROM (
  SELECT order_key, min(seq) AS seq, count(*) AS n FROM ${entries}
  WHERE order_key IS NOT NULL AND ${blockingSql('')}
  GROUP BY order_key HAVING count(*) > 1
) h JOIN ${entries} e ON e.order_key = h.order_key AND e.order_key IS NOT NULL
  AND ${blockingSql('e.')} AND e.seq = h.seq
ORDER BY ${STANDING_SQL}, h.seq LIMIT $1::int4`,
    [max],
  );
  return rows.map(([orderKey, id, slot, dueAt, behind]) => ({
    orderKey: String(orderKey),
    id: String(id),
    state: stateOfKey(Number(slot)) as State,
    dueAt: dueAt as number | null,
    behind: Number(behind),
  }));
}

// Whether a store has ever had a message with an order key, and letting the next one go.
//
// The sequence `turns` says so: it is drawn from by every insert that has a key, before that can be
// seen by anybody, and never goes back. So a statement that finds it untouched, in the same breath,
// has no keys to think of; stores without keys pay next to nothing for those with. It also counts
// what was let go, so that other processes notice.

/** What one store knows of its keys. */
export class OrderKeyTurns {
  readonly #names: Names;
  #isOrdered = false;
  #lastNow: number | null = null;

  constructor(names: Names) {
    this.#names = names;
  }

  /** Whether there are keys, as far as is known here; once true it stays so. */
  get isOrdered(): boolean {
    return this.#isOrdered;
  }

  /** When the last claim was made, by the clock of those who claim. */
  get lastNow(): number | null {
    return this.#lastNow;
  }

  noteClaim(now: number): void {
    this.#lastNow = Math.max(now, this.#lastNow ?? now);
  }

  note(): void {
    this.#isOrdered = true;
  }

  /** Asks whether there are keys. */
  async learn(ask: Ask): Promise<boolean> {
    if (this.#isOrdered) return true;
    const [[isCalled] = []] = await ask(`SELECT is_called FROM ${this.#names.turns}`);
    this.#isOrdered = isCalled === true;
    return this.#isOrdered;
  }

  /**
   * True in a statement of a store that has no keys. n.b. Asked by a function: one more table in a
   * statement has to be planned for. It is volatile, so it belongs where it is asked once. That
   * costs a claim of one message a hundredth of its time, half of what a sub-select would.
   * (PostgreSQL 15, 2026-11-16)
   */
  get noneSql(): string {
    return `pg_sequence_last_value('${this.#names.turns}'::regclass) IS NULL`;
  }

  /**
   * Lets the first of each key go: again, with a new snapshot, after the commit that ended the one
   * ahead. How many can be claimed now; others are made to notice.
   */
  async letGo(ask: Ask, keys: readonly string[]): Promise<number> {
    const names = this.#names;
    const ids = `SELECT id FROM heads WHERE behind`;
    const [[count] = []] = await ask(
      `WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
heads AS MATERIALIZED (
  SELECT h.* FROM lazy, unnest($1::text[]) AS k(key) CROSS JOIN LATERAL (
    ${firstSql(names, 'k.key')}
  ) h WHERE h.slot IN (${DUE_KEYS_SQL})
), woken AS (${letGoSql(names, ids, '$2::int8')} RETURNING 1)
SELECT n, CASE WHEN n > 0 THEN nextval('${names.turns}') END FROM (
  SELECT count(*)::int4 AS n FROM heads WHERE (SELECT count(*) FROM woken) >= 0
) c`,
      [textArray(keys), this.#lastNow],
    );
    return Number(count);
  }
}
