/**
 * claim-sql — the SQL that finds due rows, a function for each scan; claim.ts completes it to a
 * statement. `respool doctor --sql` prints the results.
 */

import { RespoolError } from '../../core/errors.ts';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import { ARCHIVED_KEY, type StateKey, WAITING_KEYS } from '../shared/sql-row.ts';
import { rulesSql } from './conditions.ts';
import type { Ask } from './connection.ts';
import type { Names } from './options.ts';
import { type KeyOrder, nearestAheadSql } from './order-keys.ts';
import { type Bind, textArray } from './row.ts';
import { FLOW_KEY_SQL } from './schema.ts';

/** The condition of a filter on a row, beside its state and due time; absent: every row. */
type Permit = ((alias: string) => string) | undefined;

/** A search for due rows. */
export interface ClaimSearch {
  readonly slots: readonly StateKey[];
  readonly permit: Permit;
  /** The part of it about topics. */
  readonly topicPermit: Permit;
  /** A literal. */
  readonly until: string;
  readonly max: number;
  /** How many rows a bounded scan looks at. */
  readonly bound: number;
  readonly isLocking: boolean;
  /** The condition that leaves out dead rows in front of a state's live ones; mostly empty. */
  readonly lowerBoundSql: (slot: StateKey) => string;
  /** In a store with order keys, for claims of deliveries. */
  readonly order: KeyOrder | undefined;
}

/** The ways to find due rows: claim.ts says when which is used. */
export type Scan = 'bounded' | 'filtered' | 'head' | 'by-flow';

/** A scan: CTEs, and selects of the rows found and of the number of rows looked at. */
export interface ScanSql {
  readonly sql: string;
  readonly from: string;
  readonly seen: string;
  /** A condition on the found rows that may be taken. */
  readonly where?: string;
  /** If fewer rows than this were looked at, there were no more. */
  readonly bound?: number;
  /** The CTEs that are bounded scans. */
  readonly boundedCtes?: readonly string[];
  /** A condition on the found rows that may be taken; the others are counted. */
  readonly free?: string;
  /** The found rows are sorted and limited already. */
  readonly isSorted?: boolean;
}

const FOUND = 'at, seq, slot, priority, due_at, id';

/** How far a bounded scan goes: most of the time little is left out. */
export function boundOf(max: number, isWide: boolean): number {
  return (isWide ? 2 * max : max) + 16;
}

export function scanDueSql(names: Names, search: ClaimSearch, scan: Scan): ScanSql {
  const { slots, permit, bound, order } = search;
  const { entries } = names.table;
  const isFiltered = order === undefined && (permit === undefined || scan === 'filtered');
  const [slot] = slots;
  if (isFiltered && slot !== undefined && slots.length === 1) {
    // One state: nothing to merge, so nothing to copy and to sort.
    return {
      sql: '',
      from: dueOf(entries, search, slot),
      seen: 'SELECT 0 AS seen',
      isSorted: true,
    };
  }
  const boundedCtes = isFiltered ? [] : slots.filter((slot) => WAITING_KEYS.includes(slot));
  const ctes = slots.map((slot) =>
    boundedCtes.includes(slot) ? boundedScan(names, search, slot) : dueCte(entries, search, slot),
  );
  const found = { sql: ctes.join(', '), from: foundIn(slots) };
  if (boundedCtes.length === 0) return { ...found, seen: 'SELECT 0 AS seen' };
  const isAllowed = allowedOf('g', permit, order?.freeSeen);
  if (!search.isLocking) {
    // Only the first matters: in a priority with an allowed row, nothing more is looked at.
    const unmet = boundedCtes.map(
      (slot) => `SELECT CASE WHEN bool_or(${isAllowed}) THEN 0 ELSE count(*) END AS n
  FROM g${slot} g GROUP BY g.priority`,
    );
    const seen = `SELECT coalesce(max(n), 0) AS seen FROM (${unmet.join(' UNION ALL ')}) z`;
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
export function scanHeadSql(names: Names, search: ClaimSearch): ScanSql {
  const { slots, order } = search;
  const { entries } = names.table;
  const unordered = { ...search, order: undefined };
  return {
    sql: slots.map((slot) => dueCte(entries, unordered, slot, ', order_key')).join(', '),
    from: foundIn(slots, ', order_key'),
    free: order?.free('p') ?? 'true',
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
  return `SELECT e.* FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
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
  const allowed = allowedOf('g', permit, order?.freeSeen);
  return `g${slot} AS MATERIALIZED (
  SELECT e.*${ahead} FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
    SELECT ctid AS at, topic, destination, priority, due_at, id${more} FROM ${entries}
    WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.priority::int2
      AND due_at <= ${until}${lowerBoundSql(slot)}
    ORDER BY due_at, id LIMIT ${bound}
  ) e${isLocking ? ` LIMIT ${bound}` : ''}
), c${slot} AS MATERIALIZED (
  ${lockedRows(entries, `(SELECT at FROM g${slot} g WHERE ${allowed})`, search, slot)}
)`;
}

/**
 * Locks rows by ctid, if they are still due. n.b. The condition is written so that no index fits
 * it: before the first ANALYZE the planner would walk all due rows instead of using the ctids.
 */
function lockedRows(entries: string, source: string, search: ClaimSearch, slot: StateKey): string {
  const { until, max, isLocking } = search;
  const order = 'ORDER BY x.priority, x.due_at, x.id';
  return `SELECT x.ctid AS at, x.seq, x.slot, x.priority, x.due_at, x.id
  FROM ${entries} x
  WHERE x.ctid = ANY(ARRAY${source})
    AND CASE WHEN x.slot = ${slot} THEN x.due_at <= ${until} ELSE false END
  ${isLocking ? `${order} LIMIT ${max} FOR UPDATE OF x SKIP LOCKED` : ''}`;
}

/** Sorts after every destination. */
const LAST_SQL = "E'\\U0010FFFF'";

/**
 * Walks from flow to flow through the index, skipping the rest of a topic that is not allowed, and
 * finds the due rows of each allowed flow. States without that index hold few entries.
 */
export function scanFlowsSql({ table }: Names, search: ClaimSearch): ScanSql {
  const { entries } = table;
  const ctes = search.slots.map((slot) =>
    WAITING_KEYS.includes(slot)
      ? `${flowsOf(entries, search, slot)}, c${slot} AS MATERIALIZED (
  ${lockedRows(entries, dueOfFlows(entries, search, slot), search, slot)}
)`
      : dueCte(entries, search, slot),
  );
  return { sql: ctes.join(', '), from: foundIn(search.slots), seen: 'SELECT 0 AS seen' };
}

function flowsOf(
  entries: string,
  { topicPermit, lowerBoundSql }: ClaimSearch,
  slot: StateKey,
): string {
  const flow = 'topic, destination, priority';
  const from = `FROM ${entries} WHERE ${FLOW_KEY_SQL} = ${slot}${lowerBoundSql(slot)}`;
  const isAllowed = topicPermit?.('t') ?? 'true';
  return `t${slot} AS (
  (SELECT ${flow} ${from} ORDER BY ${flow} LIMIT 1)
  UNION ALL
  SELECT n.* FROM t${slot} t CROSS JOIN LATERAL (
    SELECT ${flow} ${from} AND (${flow}) >
      (t.topic, CASE WHEN ${isAllowed} THEN t.destination ELSE ${LAST_SQL} END, t.priority)
    ORDER BY ${flow} LIMIT 1
  ) n
)`;
}

function dueOfFlows(entries: string, search: ClaimSearch, slot: StateKey): string {
  const { permit, order, until, max, isLocking, lowerBoundSql } = search;
  // Twice as many as wanted: others may be locking the first of them.
  return `(SELECT e.at FROM t${slot} t CROSS JOIN LATERAL (
    SELECT ctid AS at, due_at, id FROM ${entries} x
    WHERE ${FLOW_KEY_SQL} = ${slot} AND topic = t.topic AND destination = t.destination
      AND priority = t.priority AND due_at <= ${until}${lowerBoundSql(slot)}
      AND ${allowedOf('x', undefined, order?.free)}
    ORDER BY due_at, id LIMIT ${2 * max}
  ) e WHERE ${permit?.('t') ?? 'true'}
  ORDER BY t.priority, e.due_at, e.id${isLocking ? ` LIMIT ${2 * max}` : ''})`;
}

/** n.b. As in `lockedRows`, only the index of ids fits the condition. */
export function scanIdsSql({ table }: Names, search: ClaimSearch, ids: readonly string[]): ScanSql {
  const { slots, permit, order, until, max, isLocking } = search;
  const wanted = sqlLiteral(textArray([...new Set(ids)]), 'text[]');
  return {
    sql: `c0 AS MATERIALIZED (
  SELECT ctid AS at, seq, slot, priority, due_at, id FROM ${table.entries} x
  WHERE id = ANY(${wanted})
    AND CASE WHEN slot IN (${slots.join(', ')}) THEN due_at <= ${until} ELSE false END
    AND ${allowedOf('x', permit, order?.free)}
  ORDER BY priority, due_at, id${isLocking ? ` LIMIT ${max} FOR UPDATE SKIP LOCKED` : ''}
)`,
    from: `SELECT ${FOUND} FROM c0`,
    seen: 'SELECT 0 AS seen',
  };
}

export function searchOf(
  filter: ClaimFilter,
  of: Omit<ClaimSearch, 'until' | 'permit' | 'topicPermit'> & { readonly now: number },
): ClaimSearch {
  const until = sqlLiteral(of.now, 'int8');
  const topicPermit = topicPermitOf(filter);
  return { ...of, until, topicPermit, permit: permitOf(filter, topicPermit) };
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

function topicPermitOf({ topics }: ClaimFilter): Permit {
  if (topics === undefined || takesAll(topics)) return undefined;
  return (alias) => rulesSql(`${alias}.topic`, topics, sqlLiteral);
}

/** A filter as a condition; undefined if it allows everything. */
function permitOf({ exceptDestinations = [] }: ClaimFilter, topicPermit: Permit): Permit {
  if (exceptDestinations.length === 0) return topicPermit;
  const except = sqlLiteral(textArray(exceptDestinations), 'text[]');
  return (alias) => `${topicPermit?.(alias) ?? 'true'} AND ${alias}.destination <> ALL(${except})`;
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

const GUARD_SQL =
  'SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off;';

/** Runs a statement, whose values are literals, with sequential scans and JIT disabled. */
export function indexOnlyQuery(ask: Ask, text: string): Promise<unknown[][]> {
  return ask(`${GUARD_SQL}\n${text}`);
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
