/**
 * order-keys — messages of one key are delivered one after the other: which row blocks which.
 *
 *   due, but another row of its key is ahead ─claim─▶ behind: due later, when that may have changed
 *   the row ahead ends ─commit, and again after it─▶ the first row of the key is due
 *
 * A claim never takes a row with a blocker ahead of it in the claim's own snapshot. Putting a row
 * behind only keeps claims from walking over it, so it is done if the row ahead could be locked and
 * still blocks, and left undone otherwise. A commit that ends the row ahead waits for that lock and
 * releases the row behind: in its own statement as far as its snapshot reaches, then with a new
 * snapshot. If the process dies in between, the row is found at its later due time.
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
import { textArray } from './row.ts';
import type { QueryRequest } from './connection.ts';
import type { Names } from './options.ts';

/** n.b. As an expression for the same reason as `FLOW_KEY_SQL`: only `entries_order` fits it. */
export function blockingSql(alias: string): string {
  return `(${alias}slot + 0) IN (${BLOCKING_KEYS.join(', ')})`;
}

/** State keys of messages that wait to be claimed for a delivery. */
const DUE_KEYS: readonly StateKey[] = WAITING_KEYS.filter((slot) => BLOCKING_KEYS.includes(slot));
export const DUE_KEYS_SQL: string = DUE_KEYS.join(', ');

// The same times and the same limit: sqlite/order-keys.ts.

/**
 * How long a row waits behind one that is not claimed, until it is looked at again. Also in
 * docs/reference/stores/postgres.md and docs/how-to/transactional-outbox.md.
 */
const BEHIND_NEXT_MS = 60_000;
/** The same behind one that is on hold, or that waits itself. Also in the same two pages. */
const BEHIND_LONG_MS = 10 * 60_000;

/**
 * The most rows behind the first of a key that are reported: promised by `KeyHead`. Also in
 * docs/reference/http-api.md.
 */
const BEHIND_COUNT_MAX = 1_000;

/** Whether a row is free, in one search: no row of its key that blocks is ahead of it. */
export interface KeyOrder {
  /** For a row of `entries`. */
  readonly free: (alias: string) => string;
  /** For a row of a bounded scan, which has the row `ahead` of it. */
  readonly freeSeen: (alias: string) => string;
}

/**
 * `wakesAfter`, a literal: also rows that are behind until a later time; they end a scan that only
 * asks for the next due time.
 */
export function orderOf({ table }: Names, wakesAfter?: string): KeyOrder {
  const orBehind = (alias: string): string =>
    wakesAfter === undefined ? '' : ` OR (${alias}.behind AND ${alias}.due_at > ${wakesAfter})`;
  return {
    free: (alias) => `(${alias}.order_key IS NULL${orBehind(alias)}
      OR NOT EXISTS (SELECT FROM ${table.entries} b WHERE ${aheadSql('b', alias)}))`,
    freeSeen: (alias) => `(${alias}.ahead IS NULL${orBehind(alias)})`,
  };
}

/** A row of the same key that was inserted before, and blocks. */
function aheadSql(one: string, row: string): string {
  return `${one}.order_key = ${row}.order_key AND ${one}.order_key IS NOT NULL
        AND ${blockingSql(`${one}.`)} AND ${one}.seq < ${row}.seq`;
}

/** The ctid of the nearest row ahead; null for none. */
export function nearestAheadSql({ table }: Names, row: string): string {
  return `CASE WHEN ${row}.order_key IS NOT NULL THEN (
    SELECT b.ctid FROM ${table.entries} b WHERE ${aheadSql('b', row)} ORDER BY b.seq DESC LIMIT 1
  ) END`;
}

/**
 * CTEs that put behind the rows of bounded scans `g…` that have a row ahead. n.b. `waits` is read
 * as a whole before the first row is written: a row may be in it twice, as one that waits and as
 * one that is ahead. The condition is written so that no index fits it, as in `lockedRowsSql`:
 * before the first ANALYZE the planner would walk all keys. (10,000 rows: 1.5 s)
 */
export function putBehindSql({ table }: Names, scans: readonly string[], now: string): string {
  const { entries } = table;
  const seen = scans.map((name) => `SELECT at, ahead FROM ${name} WHERE ahead IS NOT NULL`);
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

/** Makes rows due that were put behind; `lastClaimAt`, a placeholder, may be null. */
export function letGoSql({ table }: Names, ids: string, lastClaimAt: string): string {
  // At the time of the last claim, by the clock of those who claim, which is not ours. But no later
  // than the server's time, mostly the same clock: it may have been set back since that claim.
  const serverNow = 'floor(extract(epoch FROM clock_timestamp()) * 1000)::int8';
  return `UPDATE ${table.entries} e SET behind = false, due_at = CASE WHEN e.behind
    THEN greatest(e.updated_at, least(e.due_at, coalesce(${lastClaimAt}, 0), ${serverNow}))
    ELSE e.due_at END
  WHERE e.id = ANY(ARRAY(${ids}))`;
}

/** The first blocking row of a key, with `more` conditions on it. */
export function firstSql({ table }: Names, key: string, more = ''): string {
  return `SELECT b.id, b.seq, b.slot, b.behind FROM ${table.entries} b
    WHERE b.order_key = ${key} AND b.order_key IS NOT NULL AND ${blockingSql('b.')}${more}
    ORDER BY b.seq LIMIT 1`;
}

/** As `keyHeads` promises: what blocks for long is first, so that a limit does not cut it off. */
const STANDING_SQL: string = `CASE e.slot
  WHEN ${stateKeyOf('active', 'delivery')} THEN 2 WHEN ${stateKeyOf('incoming', 'delivery')} THEN 1
  ELSE 0 END`;

/** The first rows of keys that others wait behind. Reads all rows that have a key. */
export async function findKeyHeads(
  ask: QueryRequest,
  names: Names,
  max: number,
): Promise<readonly KeyHead[]> {
  const { entries } = names.table;
  const rows = await ask(
    `SELECT h.order_key, e.id, e.slot, e.due_at, least(h.n - 1, ${BEHIND_COUNT_MAX})
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

// Whether a store has ever had a message with an order key, and releasing the next one.
//
// The sequence `turns` tells: every insert with a key draws from it before the row becomes visible,
// and it never goes back. So a statement that finds it untouched may ignore order keys, and stores
// without keys pay next to nothing. Releases draw from that of entries, so that others notice.

/**
 * True in a statement of a store without keys. n.b. A function call, since one more table has to be
 * planned. It is volatile, so it belongs where it is evaluated once. It costs a claim of one
 * message a hundredth of its time, half of what a sub-select costs. (PostgreSQL 15, 2026-11-16)
 */
export function noOrderKeysSql({ turns }: Names): string {
  return `pg_sequence_last_value('${turns}'::regclass) IS NULL`;
}

/** What one store knows about its order keys. */
export class OrderKeys {
  readonly #names: Names;
  #isOrdered = false;
  #lastClaimAt: number | null = null;

  constructor(names: Names) {
    this.#names = names;
  }

  /** Whether there are keys, as far as this process knows; once true it stays so. */
  get isOrdered(): boolean {
    return this.#isOrdered;
  }

  /** The time of the last claim, by the clock of those who claim. */
  get lastClaimAt(): number | null {
    return this.#lastClaimAt;
  }

  /** Not the latest of all: after the clock was set back, that would be in the future. */
  noteClaim(now: number): void {
    this.#lastClaimAt = now;
  }

  note(): void {
    this.#isOrdered = true;
  }

  /** Asks the server whether there are keys. */
  async learn(ask: QueryRequest): Promise<boolean> {
    if (this.#isOrdered) return true;
    const [[isCalled] = []] = await ask(`SELECT is_called FROM ${this.#names.turns}`);
    this.#isOrdered = isCalled === true;
    return this.#isOrdered;
  }

  /**
   * Releases the first row of each key: again, with a new snapshot, after the commit that ended the
   * row ahead. Returns how many can be claimed now; other processes notice.
   */
  async letGo(ask: QueryRequest, keys: readonly string[]): Promise<number> {
    const names = this.#names;
    const ids = `SELECT id FROM heads WHERE behind`;
    const [[count] = []] = await ask(
      `WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
heads AS MATERIALIZED (
  SELECT h.* FROM lazy, unnest($1::text[]) AS k(key) CROSS JOIN LATERAL (
    ${firstSql(names, 'k.key')}
  ) h WHERE h.slot IN (${DUE_KEYS_SQL})
), woken AS (${letGoSql(names, ids, '$2::int8')} RETURNING 1)
SELECT n, CASE WHEN n > 0 THEN nextval('${names.sequence}') END FROM (
  SELECT count(*)::int4 AS n FROM heads WHERE (SELECT count(*) FROM woken) >= 0
) c`,
      [textArray(keys), this.#lastClaimAt],
    );
    return Number(count);
  }
}
