/**
 * claim-sql — the SQL of a claim (`claimSql`: a scan, and the UPDATE that makes its rows active)
 * and of the next due time; the columns of a claim's answer and how they are read back
 * (`claimedRows`); and the settings that keep the planner on the indexes (`INDEX_ONLY_SQL`).
 * `respool doctor --sql` prints the statements. When which scan is used: claim.ts, and decision
 * 0017, which also names the numbers here (16, 32, 200). The UPDATE repeats `claimedStatus` of
 * core/next-status.ts in SQL: change both. order-keys.ts reads at, ahead, seq, order_key, behind
 * and due_at of the CTEs `g…`, and makes `waits` and `put`. Tests find statements by
 * "WITH RECURSIVE", "g0 AS" and "claimed_from = c.slot".
 */

import { RespoolError } from '../../core/errors.ts';
import { PRIORITY_DEFAULT } from '../../core/limits.ts';
import type { ClaimFilter, ClaimRequest } from '../../ports/entry-store.ts';
import {
  ACTIVE_KEYS,
  ARCHIVED_KEY,
  type StateKey,
  stateKeyOf,
  WAITING_KEYS,
} from '../shared/sql-row.ts';
import { allOf, rulesSql } from './conditions.ts';
import type { QueryRequest } from './connection.ts';
import type { Names } from './options.ts';
import {
  type KeyOrder,
  nearestAheadSql,
  noOrderKeysSql,
  orderOf,
  putBehindSql,
} from './order-keys.ts';
import { type Bind, BODY_SQL, type EntryRow, textArray } from './row.ts';
import { FLOW_KEY_SQL, PRIORITIES_SQL } from './schema.ts';

/** The condition of a filter on a row, beside its state and due time; absent: every row. */
type Permit = ((alias: string) => string) | undefined;

/** A search for due rows. */
interface ClaimSearch {
  readonly slots: readonly StateKey[];
  readonly permit: Permit;
  /** The part of it about topics. */
  readonly topicPermit: Permit;
  /** A CTE that the condition reads; empty if it reads none. */
  readonly excluded: string;
  /** The time up to which rows are due, in SQL. */
  readonly until: string;
  readonly max: number;
  /** How many rows a bounded scan looks at. */
  readonly bound: number;
  readonly isLocking: boolean;
  /** As in `SearchMode`. */
  readonly lowerBoundSql: (slot: StateKey) => string;
  /** In a store with order keys, for claims of deliveries. */
  readonly order: KeyOrder | undefined;
  readonly bind: Bind;
}

/** The ways to find due rows: claim.ts says when which is used. */
export type Scan = 'bounded' | 'filtered' | 'head' | 'passing' | FlowScan;

/** The ways to walk through flows; a flow is a combination of topic, destination and priority. */
export type FlowScan = 'by-flow' | 'few-flows' | 'due-flows';

/** A walk through fewer flows than this is short. */
export const FLOWS_FEW = 200;

/** A scan: CTEs, and selects of the rows found and of the numbers of rows left out and seen. */
interface ScanSql {
  readonly sql: string;
  readonly from: string;
  readonly seen: string;
  /** What a found row must meet to be taken; the others are not counted. */
  readonly where?: string;
  /** If fewer rows than this were looked at, there were no more. */
  readonly bound?: number;
  /** The CTEs that are bounded scans. */
  readonly boundedCtes?: readonly string[];
  /** As `KeyOrder.free`, selected as `is_free`: the others are not taken, and count as left out. */
  readonly freeSql?: string;
  /** The found rows are sorted and limited already. */
  readonly isSorted?: boolean;
}

const NONE_SEEN_SQL = 'SELECT 0 AS left_out, 0 AS seen';
const FOUND = 'at, seq, slot, priority, due_at, id';

/** How many rows a bounded scan looks at: usually the filter rejects only a few. */
export function boundOf(max: number, isWide: boolean): number {
  return (isWide ? 2 * max : max) + 16;
}

/** How a claim or a look for the next due row is made. */
interface SearchMode {
  readonly slots: readonly StateKey[];
  readonly scan: Scan;
  /** Whether the store has order keys, as far as this process knows. */
  readonly isOrdered: boolean;
  /**
   * The condition that skips dead row versions ahead of a state's live rows, while vacuum cannot
   * remove them (claim.ts); mostly empty.
   */
  readonly lowerBoundSql: (slot: StateKey) => string;
  /** How values stand in the text; by default as literals. */
  readonly bind?: Bind;
}

/** A statement, and the bound of its scan. For its columns see `claimSql` and `nextDueSql`. */
interface SearchStatement {
  readonly text: string;
  /** If fewer rows than this were seen, there were no more. */
  readonly bound?: number | undefined;
}

/**
 * The statement that claims: finds due rows with a scan, locks them and makes them active. With a
 * bound, claim.ts reads three more columns behind those of the rows: how many rows were put behind,
 * left out (with 'few-flows': the number of flows) and seen.
 */
export function claimSql(
  names: Names,
  request: ClaimRequest,
  mode: SearchMode & { readonly bound: number },
): SearchStatement {
  const { scan, slots, bound, lowerBoundSql, bind = sqlLiteral } = mode;
  const { now, max, lane } = request;
  const isInTurn = mode.isOrdered && lane === 'delivery';
  const order = isInTurn ? orderOf(names) : undefined;
  const terms = { slots, now, max, bound, isLocking: true, lowerBoundSql, order, bind };
  const search = searchOf(request, terms);
  const found = scanSql(names, search, request, scan);
  const { boundedCtes = [] } = found;
  const putsBehind = isInTurn && boundedCtes.length > 0;
  const put = putsBehind ? `, ${putBehindSql(names, boundedCtes, search.until)}` : '';
  const conditions = [
    ...(found.where === undefined ? [] : [found.where]),
    // First: a row that was written in the same statement cannot be locked any more.
    ...(putsBehind ? ['(SELECT count(*) FROM waits) >= 0'] : []),
  ];
  const sorted = found.isSorted === true ? '' : `\n  ${SORTED_SQL} LIMIT ${max}`;
  const isFree = found.freeSql === undefined ? '' : `, ${found.freeSql} AS is_free`;
  // If there are order keys after all, `lazy` has no row, so nothing is taken; claim.ts goes on.
  const none = isInTurn || lane !== 'delivery' ? '' : ` WHERE ${noOrderKeysSql(names)}`;
  const candidates = `WITH RECURSIVE lazy AS MATERIALIZED (
  SELECT set_config('synchronous_commit', 'off', true)${none}
)${moreCtes(search.excluded)}${moreCtes(found.sql)}${put}, c AS MATERIALIZED (
  SELECT p.*${isFree} FROM lazy, (${found.from}) p WHERE ${allOf(conditions)}${sorted}
)`;
  const goes = found.freeSql === undefined ? '' : ' AND c.is_free';
  const taken = `${takenSql(names, request, bind, isInTurn)}${goes}
  RETURNING ${CLAIMED_SQL}`;
  if (found.bound === undefined) return { text: `${candidates} ${taken}` };
  // There is always one row: it says how far the bounded scan went.
  const counted = putsBehind ? '(SELECT count(*) FROM put)' : '0';
  const text = `${candidates}, taken AS (${taken})
SELECT t.*, ${counted}, s.left_out, s.seen FROM (${found.seen}) s LEFT JOIN taken t ON true`;
  return { text, bound: found.bound };
}

/**
 * Does what `claimedStatus` in core/next-status.ts says, to the rows of `c`: a row that is active
 * already has lost its holder, and half its key is the number of its state, as in `stateOfKey`.
 * n.b. "OFFSET 0" keeps the planner from joining all contents when it overestimates the claim.
 */
function takenSql({ table }: Names, request: ClaimRequest, bind: Bind, isInTurn: boolean): string {
  const { now, leaseMs, holder, lane } = request;
  const { entries, contents } = table;
  const behind = isInTurn ? ', behind = false' : '';
  const counter = lane === 'delivery' ? 'attempts' : 'notices';
  const counts = `CASE WHEN c.slot IN (${ACTIVE_KEYS.join(', ')}) THEN 0 ELSE 1 END`;
  return `UPDATE ${entries} e SET slot = ${stateKeyOf('active', lane)}, revision = e.revision + 1,
    ${counter} = e.${counter} + ${counts}, lost = e.lost + 1 - ${counts},
    due_at = ${bind(now + leaseMs, 'int8', 'lease_ends_at')},
    holder = ${bind(holder, 'text', 'holder')},
    claimed_from = c.slot / 2, updated_at = ${bind(now, 'int8', 'now')}${behind}
  FROM c LEFT JOIN LATERAL (
    SELECT k.envelope, k.body FROM ${contents} k WHERE k.seq = c.seq OFFSET 0
  ) k ON true
  WHERE e.ctid = ANY(ARRAY(SELECT at FROM c)) AND e.ctid = c.at`;
}

/** Later than any due time. */
const FOREVER: number = Number.MAX_SAFE_INTEGER;

/** The due times among which the earliest is looked for; by default all. */
export interface DueRange {
  readonly until?: number;
  readonly after?: number;
}

/**
 * The statement that gives the earliest due time of the rows that a claim could take. Its columns:
 * that time; with 'few-flows' the number of flows, by which claim.ts steers `FlowWalks`, else 0;
 * how many rows were seen; and whether `isOrdered` was right.
 */
export function nextDueSql(
  names: Names,
  filter: ClaimFilter,
  mode: SearchMode & DueRange & { readonly now: () => number; readonly bound?: number },
): SearchStatement {
  const { scan, slots, isOrdered, until = FOREVER, after, bind = sqlLiteral } = mode;
  const isDelivery = filter.lane === 'delivery';
  const isInTurn = isOrdered && isDelivery;
  const order = isInTurn ? orderOf(names, bind(mode.now(), 'int8', 'last_claim_at')) : undefined;
  const search = searchOf(filter, {
    slots,
    now: until,
    max: 1,
    bound: mode.bound ?? boundOf(1, true),
    isLocking: false,
    lowerBoundSql: (slot) => {
      const later = after === undefined ? '' : ` AND due_at > ${bind(after, 'int8', 'after')}`;
      return `${mode.lowerBoundSql(slot)}${later}`;
    },
    order,
    bind,
  });
  const found = scanSql(names, search, filter, scan);
  const isOrderRight = isOrdered || !isDelivery ? 'true' : noOrderKeysSql(names);
  const ctes = `${moreCtes(search.excluded)}${moreCtes(found.sql)}`;
  const text = `WITH RECURSIVE none AS (SELECT 1)${ctes}
SELECT (SELECT min(p.due_at) FROM (${found.from}) p), s.left_out, s.seen, ${isOrderRight}
FROM (${found.seen}) s`;
  return { text, bound: found.bound };
}

const SORTED_SQL = 'ORDER BY p.priority, p.due_at, p.id';

/** CTEs that follow another one, if any. */
function moreCtes(ctes: string): string {
  return ctes === '' ? '' : `, ${ctes}`;
}

function scanSql(names: Names, search: ClaimSearch, { ids }: ClaimFilter, scan: Scan): ScanSql {
  if (ids !== undefined) return scanIdsSql(names, search, ids);
  if (scan === 'passing') return scanPassingSql(names, search);
  if (scan === 'head') return scanHeadSql(names, search);
  if (scan === 'bounded' || scan === 'filtered') return scanDueSql(names, search, scan);
  return scanFlowsSql(names, search, scan);
}

function scanDueSql(names: Names, search: ClaimSearch, scan: 'bounded' | 'filtered'): ScanSql {
  const { slots, permit, bound, order } = search;
  const { entries } = names.table;
  const isFiltered = order === undefined && (permit === undefined || scan === 'filtered');
  const [slot] = slots;
  if (isFiltered && slot !== undefined && slots.length === 1) {
    // One state: nothing to merge, so nothing to copy and to sort.
    return {
      sql: '',
      from: dueOf(entries, search, slot),
      seen: NONE_SEEN_SQL,
      isSorted: true,
    };
  }
  const boundedCtes = isFiltered ? [] : slots.filter((slot) => WAITING_KEYS.includes(slot));
  const ctes = slots.map((slot) =>
    boundedCtes.includes(slot) ? boundedScan(names, search, slot) : dueCte(entries, search, slot),
  );
  const found = { sql: ctes.join(', '), from: foundIn(slots) };
  if (boundedCtes.length === 0) return { ...found, seen: NONE_SEEN_SQL };
  const isAllowed = allowedOf('g', seenPermit(permit), order?.freeSeen);
  if (!search.isLocking) {
    // Only the first matters: in a priority with an allowed row, nothing more is looked at.
    const unmet = boundedCtes.map(
      (slot) => `SELECT CASE WHEN bool_or(${isAllowed}) THEN 0 ELSE count(*) END AS n
  FROM g${slot} g GROUP BY g.priority`,
    );
    const seen = `SELECT 0 AS left_out, coalesce(max(n), 0) AS seen
FROM (${unmet.join(' UNION ALL ')}) z`;
    return { ...found, seen, bound };
  }
  const counts = boundedCtes
    .map(
      (slot) => `SELECT count(*) AS n, count(*) FILTER (WHERE NOT (${isAllowed})) AS left_out
  FROM g${slot} g`,
    )
    .join(' UNION ALL ');
  // Behind the end of a scan that reached its bound there may be rows that come before those of
  // other states: nothing behind the first such end is taken.
  const ends = boundedCtes.map(
    (slot) => `(SELECT priority, due_at, id FROM g${slot}
  WHERE (SELECT count(*) FROM g${slot}) >= ${bound}
  ORDER BY priority DESC, due_at DESC, id DESC LIMIT 1)`,
  );
  const end = `ends AS MATERIALIZED (
  SELECT * FROM (${ends.join(' UNION ALL ')}) z ORDER BY priority, due_at, id LIMIT 1
)`;
  return {
    ...found,
    sql: `${found.sql}, ${end}`,
    seen: `SELECT sum(left_out) AS left_out, max(n) AS seen FROM (${counts}) z`,
    where: `coalesce((p.priority, p.due_at, p.id) <=
    (SELECT z.priority, z.due_at, z.id FROM ends z), true)`,
    bound,
    boundedCtes: boundedCtes.map((slot) => `g${slot}`),
  };
}

/** Of a row that a bounded scan has seen: the condition is evaluated once for each. */
function seenPermit(permit: Permit): Permit {
  return permit === undefined ? undefined : (alias) => `${alias}.is_permitted`;
}

/** All conditions on a row. */
function allowedOf(alias: string, permit: Permit, free: KeyOrder['free'] | undefined): string {
  const all = [permit?.(alias), free?.(alias)].filter((one) => one !== undefined);
  return all.length === 0 ? 'true' : all.join(' AND ');
}

function foundIn(slots: readonly StateKey[], more = ''): string {
  return slots.map((slot) => `SELECT ${FOUND}${more} FROM c${slot}`).join(' UNION ALL ');
}

/**
 * The first due rows, including those that wait for another of their key. Fast to plan, and never
 * walks far; a claim that meets a waiting row goes on with another scan.
 */
function scanHeadSql(names: Names, search: ClaimSearch): ScanSql {
  const { slots, order } = search;
  const { entries } = names.table;
  const unordered = { ...search, order: undefined };
  return {
    sql: slots.map((slot) => dueCte(entries, unordered, slot, ', order_key')).join(', '),
    from: foundIn(slots, ', order_key'),
    freeSql: order?.free('p') ?? 'true',
    seen: 'SELECT count(*) AS left_out, count(*) AS seen FROM c WHERE NOT c.is_free',
    // If none waits, the claim is filled or has all due rows.
    bound: 1,
  };
}

function dueCte(entries: string, search: ClaimSearch, slot: StateKey, more = ''): string {
  return `c${slot} AS MATERIALIZED (
  ${dueOf(entries, search, slot, more)}
)`;
}

/**
 * Due rows in order. n.b. The inner limit makes the planner use the index for the order; the outer
 * one ends the loop over the priorities, so that no more rows are locked than are taken.
 */
function dueOf(entries: string, search: ClaimSearch, slot: StateKey, more = ''): string {
  const { permit, order, until, max, isLocking, lowerBoundSql } = search;
  return `SELECT e.* FROM ${PRIORITIES_SQL} AS p(priority) CROSS JOIN LATERAL (
    SELECT ctid AS at, seq, slot, priority, due_at, id${more} FROM ${entries} x
    WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.priority::int2
      AND due_at <= ${until}${lowerBoundSql(slot)} AND ${allowedOf('x', permit, order?.free)}
    ORDER BY due_at, id LIMIT ${max}${isLocking ? ' FOR UPDATE SKIP LOCKED' : ''}
  ) e${isLocking ? ` LIMIT ${max}` : ''}`;
}

/** A bounded scan: the first due rows; of these, the allowed ones. */
function boundedScan(names: Names, search: ClaimSearch, slot: StateKey): string {
  const { permit, order, until, bound, isLocking, lowerBoundSql } = search;
  const { entries } = names.table;
  const ahead = order === undefined ? '' : `, ${nearestAheadSql(names, 'e')} AS ahead`;
  const more = order === undefined ? '' : ', seq, order_key, behind';
  const permitted = permit === undefined ? '' : `, ${permit('e')} AS is_permitted`;
  const allowed = allowedOf('g', seenPermit(permit), order?.freeSeen);
  return `g${slot} AS MATERIALIZED (
  SELECT e.*${permitted}${ahead} FROM ${PRIORITIES_SQL} AS p(priority) CROSS JOIN LATERAL (
    SELECT ctid AS at, topic, destination, priority, due_at, id${more} FROM ${entries}
    WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.priority::int2
      AND due_at <= ${until}${lowerBoundSql(slot)}
    ORDER BY due_at, id LIMIT ${bound}
  ) e${isLocking ? ` LIMIT ${bound}` : ''}
), c${slot} AS MATERIALIZED (
  ${lockedRowsSql(entries, `(SELECT at FROM g${slot} g WHERE ${allowed})`, search, slot)}
)`;
}

/**
 * Locks rows by ctid, if they are still due. n.b. The condition is written so that no index fits
 * it: before the first ANALYZE the planner would walk all due rows instead of using the ctids.
 */
function lockedRowsSql(
  entries: string,
  source: string,
  search: ClaimSearch,
  slot: StateKey,
): string {
  const { until, max, isLocking } = search;
  const order = 'ORDER BY x.priority, x.due_at, x.id';
  return `SELECT x.ctid AS at, x.seq, x.slot, x.priority, x.due_at, x.id
  FROM ${entries} x
  WHERE x.ctid = ANY(ARRAY${source})
    AND CASE WHEN x.slot = ${slot} THEN x.due_at <= ${until} ELSE false END
  ${isLocking ? `${order} LIMIT ${max} FOR UPDATE OF x SKIP LOCKED` : ''}`;
}

/**
 * Passes over up to `bound` due rows for the first allowed ones; takes nothing unless it saw enough
 * in every priority. n.b. It ends with the last row that it wants, so the others are not copied.
 */
function scanPassingSql(names: Names, search: ClaimSearch): ScanSql {
  const { slots, bound } = search;
  const { entries } = names.table;
  const passing = slots.filter((slot) => WAITING_KEYS.includes(slot));
  const ctes = slots.map((slot) =>
    passing.includes(slot) ? passingCtes(names, search, slot) : dueCte(entries, search, slot),
  );
  const ends = passing.map((slot) => `SELECT 1 FROM g${slot} WHERE NOT is_allowed`);
  const isShort = ends.length === 0 ? 'false' : `EXISTS (${ends.join(' UNION ALL ')})`;
  return {
    sql: ctes.join(', '),
    from: foundIn(slots),
    where: `NOT ${isShort}`,
    seen: `SELECT 0 AS left_out, CASE WHEN ${isShort} THEN ${bound} ELSE 0 END AS seen`,
    bound,
  };
}

function passingCtes(names: Names, search: ClaimSearch, slot: StateKey): string {
  const { permit, order, until, max, bound, lowerBoundSql } = search;
  const { entries } = names.table;
  const more = order === undefined ? '' : ', seq, slot, due_at, order_key, behind';
  const isAllowed = allowedOf('g', permit, order?.free);
  // The last row that may be seen is an end, whatever it is: more may come behind it.
  // Twice as many as wanted: others may be locking the first of them.
  return `g${slot} AS MATERIALIZED (
  SELECT e.* FROM ${PRIORITIES_SQL} AS p(priority) CROSS JOIN LATERAL (
    SELECT g.at, g.n < ${bound} AS is_allowed FROM (
      SELECT ctid AS at, topic, destination${more},
        row_number() OVER (ORDER BY due_at, id) AS n
      FROM ${entries}
      WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.priority::int2
        AND due_at <= ${until}${lowerBoundSql(slot)}
      ORDER BY due_at, id LIMIT ${bound}
    ) g WHERE g.n = ${bound} OR (${isAllowed}) LIMIT ${2 * max}
  ) e
), c${slot} AS MATERIALIZED (
  ${lockedRowsSql(entries, `(SELECT at FROM g${slot} WHERE is_allowed)`, search, slot)}
)`;
}

/** Sorts after every destination. */
const LAST_SQL = "E'\\U0010FFFF'";

/**
 * Walks from flow to flow through the index, skipping the rest of a topic that is not allowed, and
 * finds the due rows of each allowed flow whose first row is due. States without that index hold
 * few entries.
 *
 *   by-flow     each flow with a search of its own
 *   few-flows   the same, up to as many as the index has pages; takes nothing where there are more
 *   due-flows   from one flow with a due row to the next, past all others in the index alone: the
 *               server compares the due time there, without a look at the row
 *
 * n.b. Only 'few-flows' counts the flows, in `left_out`; that takes a sixth longer.
 */
function scanFlowsSql(names: Names, search: ClaimSearch, scan: FlowScan): ScanSql {
  const { entries } = names.table;
  const walked = search.slots.filter((slot) => WAITING_KEYS.includes(slot));
  const ctes = search.slots.map((slot) =>
    walked.includes(slot)
      ? `${flowsOf(entries, search, slot, scan)}, c${slot} AS MATERIALIZED (
  ${lockedRowsSql(entries, dueOfFlows(entries, search, slot), search, slot)}
)`
      : dueCte(entries, search, slot),
  );
  const found = { sql: ctes.join(', '), from: foundIn(search.slots) };
  if (scan !== 'few-flows' || walked.length === 0) return { ...found, seen: NONE_SEEN_SQL };
  const counts = walked.map((slot) => `(SELECT count(*) FROM t${slot})`);
  const most = counts.length === 1 ? counts[0] : `greatest(${counts.join(', ')})`;
  const isShort = `${most} >= (SELECT n FROM flows_max)`;
  return {
    ...found,
    sql: `${flowsMaxSql(names)}, ${found.sql}`,
    where: `NOT (${isShort})`,
    seen: `SELECT ${most} AS left_out, CASE WHEN ${isShort} THEN 1 ELSE 0 END AS seen`,
    bound: 1,
  };
}

/**
 * The number of flows up to which searching each one beats reading the whole index; the minimum if
 * the index has another name.
 */
function flowsMaxSql({ quotedSchema, index }: Names): string {
  const size = `pg_relation_size(to_regclass('${quotedSchema}.${index('entries_flow')}'))`;
  return `flows_max AS MATERIALIZED (
  SELECT greatest(${FLOWS_FEW}, ${size} / current_setting('block_size')::int8) AS n
)`;
}

function flowsOf(
  entries: string,
  { topicPermit, until, lowerBoundSql }: ClaimSearch,
  slot: StateKey,
  scan: FlowScan,
): string {
  const flow = 'topic, destination, priority';
  const first = `${flow}, due_at, id`;
  const due = scan === 'due-flows' ? ` AND due_at <= ${until}` : '';
  const from = `FROM ${entries} WHERE ${FLOW_KEY_SQL} = ${slot}${due}${lowerBoundSql(slot)}`;
  const isAllowed = topicPermit?.('t') ?? 'true';
  const isBounded = scan === 'few-flows';
  const [one, next] = isBounded ? [', 1 AS n', ', t.n + 1'] : ['', ''];
  const end = isBounded ? ' WHERE t.n < (SELECT n FROM flows_max)' : '';
  return `t${slot} AS (
  (SELECT ${first}, ctid AS at${one} ${from} ORDER BY ${first} LIMIT 1)
  UNION ALL
  SELECT n.*${next} FROM t${slot} t CROSS JOIN LATERAL (
    SELECT ${first}, ctid AS at ${from} AND (${flow}) >
      (t.topic, CASE WHEN ${isAllowed} THEN t.destination ELSE ${LAST_SQL} END, t.priority)
    ORDER BY ${first} LIMIT 1
  ) n${end}
)`;
}

function dueOfFlows(entries: string, search: ClaimSearch, slot: StateKey): string {
  const { permit, order, until, max, isLocking, lowerBoundSql } = search;
  const flows = `t${slot} t`;
  const isWanted = allOf([`t.due_at <= ${until}`, permit?.('t') ?? 'true']);
  if (!isLocking && order === undefined) {
    return `(SELECT t.at FROM ${flows} WHERE ${isWanted} ORDER BY t.due_at LIMIT 1)`;
  }
  // Twice as many as wanted: others may be locking the first of them.
  const sorted = isLocking ? `t.priority, e.due_at, e.id LIMIT ${2 * max}` : 'e.due_at LIMIT 1';
  return `(SELECT e.at FROM ${flows} CROSS JOIN LATERAL (
    SELECT ctid AS at, due_at, id FROM ${entries} x
    WHERE ${FLOW_KEY_SQL} = ${slot} AND topic = t.topic AND destination = t.destination
      AND priority = t.priority AND due_at <= ${until}${lowerBoundSql(slot)}
      AND ${allowedOf('x', undefined, order?.free)}
    ORDER BY due_at, id LIMIT ${2 * max}
  ) e WHERE ${isWanted}
  ORDER BY ${sorted})`;
}

/** n.b. As in `lockedRowsSql`, only the index of ids fits the condition. */
function scanIdsSql({ table }: Names, search: ClaimSearch, ids: readonly string[]): ScanSql {
  const { slots, permit, order, until, max, isLocking, bind } = search;
  const wanted = bind(textArray([...new Set(ids)]), 'text[]', 'ids');
  return {
    sql: `c0 AS MATERIALIZED (
  SELECT ctid AS at, seq, slot, priority, due_at, id FROM ${table.entries} x
  WHERE id = ANY(${wanted})
    AND CASE WHEN slot IN (${slots.join(', ')}) THEN due_at <= ${until} ELSE false END
    AND ${allowedOf('x', permit, order?.free)}
  ORDER BY priority, due_at, id${isLocking ? ` LIMIT ${max} FOR UPDATE SKIP LOCKED` : ''}
)`,
    from: `SELECT ${FOUND} FROM c0`,
    seen: NONE_SEEN_SQL,
  };
}

type SearchTerms = Omit<ClaimSearch, 'until' | 'permit' | 'topicPermit' | 'excluded'> & {
  readonly now: number;
};

function searchOf(filter: ClaimFilter, terms: SearchTerms): ClaimSearch {
  const { bind, now } = terms;
  const until = bind(now, 'int8', 'now');
  const topicPermit = topicPermitOf(filter, bind);
  const excluded = excludedSql(filter, bind);
  const permit = permitOf(filter, topicPermit, bind);
  return { ...terms, until, topicPermit, permit, excluded };
}

/** Whether a filter may leave out due rows. */
export function leavesOut({ topics, exceptDestinations = [] }: ClaimFilter): boolean {
  return exceptDestinations.length > 0 || !takesAll(topics);
}

/** The usual case: one handler for everything. */
function takesAll(topics: ClaimFilter['topics']): boolean {
  const [first] = topics ?? [];
  return topics === undefined || (first?.pattern === '#' && first.take);
}

function topicPermitOf({ topics }: ClaimFilter, bind: Bind): Permit {
  if (topics === undefined || takesAll(topics)) return undefined;
  return (alias) => rulesSql(`${alias}.topic`, topics, bind);
}

/** From this many on, left out destinations are listed once. Below 50, for the tests of cost. */
const EXCLUDED_MANY = 32;

/** A filter as a condition; undefined if it allows everything. */
function permitOf(
  { exceptDestinations = [] }: ClaimFilter,
  topicPermit: Permit,
  bind: Bind,
): Permit {
  if (exceptDestinations.length === 0) return topicPermit;
  const isListed = exceptDestinations.length >= EXCLUDED_MANY;
  const other = isListed
    ? 'NOT IN (SELECT name FROM excluded)'
    : `<> ALL(${exceptSql(exceptDestinations, bind)})`;
  return (alias) => `${topicPermit?.(alias) ?? 'true'} AND ${alias}.destination ${other}`;
}

/**
 * Many destinations that are left out, once in the text. n.b. The server hashes a sub-select of NOT
 * IN; through an array it goes for each row, before PostgreSQL 15.
 */
function excludedSql({ exceptDestinations = [] }: ClaimFilter, bind: Bind): string {
  if (exceptDestinations.length < EXCLUDED_MANY) return '';
  const names = exceptSql(exceptDestinations, bind);
  return `excluded AS MATERIALIZED (SELECT unnest(${names}) AS name)`;
}

function exceptSql(destinations: readonly string[], bind: Bind): string {
  return bind(textArray(destinations), 'text[]', 'except_destinations');
}

// The columns of a claim's answer.
//
// Every value is a text that has to be parsed here. So values that the claim itself wrote, and
// counts that have their usual value, come as NULL: 5 of 18 values per message are left.

/** A column of the answer, and the value that NULL stands for. */
type Column = readonly [sql: string, ifNull?: (request: ClaimRequest) => number | string];

const nullIf = (sql: string, value: number): Column => [`nullif(${sql}, ${value})`, () => value];

/**
 * In the order of `EntryRow`, then the two of `byOrder`. The usual values are those after a first
 * claim: `initialStatus` of core/next-status.ts has revision 1.
 */
const COLUMNS: readonly Column[] = [
  ['e.seq'],
  ['e.id'],
  ['NULL', ({ lane }) => stateKeyOf('active', lane)],
  ['NULL', ({ now, leaseMs }) => now + leaseMs],
  nullIf('e.revision', 2),
  nullIf('e.attempts', 1),
  nullIf('e.notices', 0),
  nullIf('e.lost', 0),
  nullIf('e.postponed', 0),
  nullIf('e.replays', 0),
  ['NULL', ({ holder }) => holder],
  nullIf('e.claimed_from', 0),
  ['NULL', ({ now }) => now],
  ['e.memory'],
  ['k.envelope'],
  [BODY_SQL],
  nullIf('c.priority', PRIORITY_DEFAULT),
  ['c.due_at'],
];

/** Of `entries e` as just written, `contents k`, and `c`, the rows that were found. */
const CLAIMED_SQL: string = COLUMNS.map(([sql]) => sql).join(', ');

/** The rows of an answer as entry rows, by priority, due time before the claim, and id. */
export function claimedRows(answer: unknown[][], request: ClaimRequest): EntryRow[] {
  const known = COLUMNS.flatMap(([, ifNull], at) =>
    ifNull === undefined ? [] : [[at, ifNull(request)] as const],
  );
  for (const row of answer) {
    for (const [at, value] of known) row[at] ??= value;
  }
  return (answer as unknown as EntryRow[]).sort(byOrder);
}

/** Compares rows that end with priority and due time, as `COLUMNS` and `#held` of claim.ts do. */
export function byOrder(a: EntryRow, b: EntryRow): number {
  const span = Number(a[16]) - Number(b[16]) || Number(a[17]) - Number(b[17]);
  if (span !== 0) return span;
  return a[1] < b[1] ? -1 : 1;
}

// Index-only queries: statements that look for work always use the indexes.
//
// After a backlog was drained and vacuumed, the planner takes the table for nearly empty until the
// next ANALYZE; it may then read the whole next backlog sequentially, or compile a statement for
// longer than it runs. So each search disables both, in the same message: the server runs the
// statements of one message as one transaction, so the settings end with it, and no second round
// trip keeps rows locked. n.b. A message with several statements takes no parameters, so the values
// are literals in its text.
//
// Why: docs/decisions/0018-searches-on-postgresql-forbid-bad-plans.md

/** What is sent before each search. */
export const INDEX_ONLY_SQL =
  'SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off;';

/** Runs a statement, whose values are literals, with sequential scans and JIT disabled. */
export function indexOnlyQuery(ask: QueryRequest, text: string): Promise<unknown[][]> {
  return ask(`${INDEX_ONLY_SQL}\n${text}`);
}

/** A value as a literal of SQL. */
export const sqlLiteral: Bind = (value, type) => {
  if (value === null) return `NULL::${type}`;
  const text = typeof value === 'number' ? String(value) : (value as string);
  // n.b. The server would take the rest of the message for another message.
  if (text.includes('\0')) {
    throw new RespoolError(
      'message.invalid',
      'cannot look for a text with a zero character: none can be stored',
    );
  }
  const quoted = `'${text.replaceAll("'", "''")}'`;
  // Has the same meaning with and without "standard_conforming_strings".
  return text.includes('\\')
    ? `E${quoted.replaceAll('\\', '\\\\')}::${type}`
    : `${quoted}::${type}`;
};
