/**
 * claim-sql — the SQL that finds due rows: straight through an index, by a glance at the first of
 * them, flow by flow, or by ids. Put together by claim.ts.
 */

import type { ClaimFilter } from '../../ports/entry-store.ts';
import { ARCHIVED_KEY, type StateKey, WAITING_KEYS } from '../shared/sql-row.ts';
import { textArray } from './arrays.ts';
import type { DueLowerBounds } from './due-lower-bound.ts';
import { sqlLiteral } from './index-only-query.ts';
import type { Names } from './names.ts';
import { nearestAheadSql, type KeyOrder } from './order-keys.ts';
import { FLOW_KEY_SQL } from './schema.ts';
import { rulesSql } from './conditions.ts';

/** What of a filter decides over a row beside its slot and due time. */
type Permit = ((alias: string) => string) | undefined;

/** A search for due rows. */
export interface ClaimSearch {
  readonly slots: readonly StateKey[];
  readonly permit: Permit;
  /** The part of it that looks at topics. */
  readonly topicPermit: Permit;
  /** A literal. */
  readonly until: string;
  readonly max: number;
  /** How many rows are looked at whatever they are. */
  readonly glance: number;
  readonly isLocking: boolean;
  readonly floors: DueLowerBounds;
  /** Where keys have an order, and the claim is one for deliveries. */
  readonly order: KeyOrder | undefined;
}

/**
 * Through the due index: with a glance at what is left out, straight, or straight to the very first
 * rows whatever is ahead of them; or by flows.
 */
export type ClaimWay = 'glance' | 'straight' | 'front' | 'flows';

/** CTEs, and what to select the found rows and the number of looked at from. */
export interface ClaimSqlParts {
  readonly sql: string;
  readonly from: string;
  readonly seen: string;
  /** Which of the found rows may be taken. */
  readonly where?: string;
  /** With fewer looked at than this, there was nothing more to look at. */
  readonly glance?: number;
  /** The CTEs that are glances. */
  readonly glances?: readonly string[];
  /** Which of the first rows are free to go; the others are found all the same, and counted. */
  readonly free?: string;
  /** What is selected comes in order, and no more of it than is wanted. */
  readonly isSorted?: boolean;
}

const FOUND = 'at, seq, slot, priority, due_at, id';

/** Where a glance ends: most of the time what is left out is little. */
export function glanceSearch(max: number, isWide: boolean): number {
  return (isWide ? 2 * max : max) + 16;
}

export function searchByDue(names: Names, search: ClaimSearch, way: ClaimWay): ClaimSqlParts {
  const { slots, permit, glance, order } = search;
  const { entries } = names.table;
  const isStraight = order === undefined && (permit === undefined || way === 'straight');
  const [slot] = slots;
  if (isStraight && slot !== undefined && slots.length === 1) {
    // Nothing to put together, so nothing to copy and to sort.
    return {
      sql: '',
      from: dueOf(entries, search, slot),
      seen: 'SELECT 0 AS seen',
      isSorted: true,
    };
  }
  const glances = isStraight ? [] : slots.filter((slot) => WAITING_KEYS.includes(slot));
  const ctes = slots.map((slot) =>
    glances.includes(slot) ? glanceAt(names, search, slot) : straightTo(entries, search, slot),
  );
  const found = { sql: ctes.join(', '), from: foundIn(slots) };
  if (glances.length === 0) return { ...found, seen: 'SELECT 0 AS seen' };
  const isAllowed = allowedOf('g', permit, order?.freeSeen);
  if (!search.isLocking) {
    // A look for the first: of a priority in which an allowed one was met, nothing more is asked.
    const unmet = glances.map(
      (slot) => `SELECT CASE WHEN bool_or(${isAllowed}) THEN 0 ELSE count(*) END AS n
  FROM g${slot} g GROUP BY g.priority`,
    );
    const seen = `SELECT coalesce(max(n), 0) AS seen FROM (${unmet.join(' UNION ALL ')}) z`;
    return { ...found, seen, glance };
  }
  const counts = glances
    .map(
      (slot) => `SELECT count(*) AS n, count(*) FILTER (WHERE NOT (${isAllowed})) AS left_out
  FROM g${slot} g`,
    )
    .join(' UNION ALL ');
  // Behind the end of a glance that was cut short there may be rows that come before those of other
  // slots: nothing behind the first such end is taken.
  const ends = glances.map(
    (slot) => `(SELECT priority, due_at, id FROM g${slot}
  WHERE (SELECT count(*) FROM g${slot}) >= ${glance}
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
    glance,
    glances: glances.map((slot) => `g${slot}`),
  };
}

/** All that decides over a row. */
function allowedOf(alias: string, permit: Permit, free: KeyOrder['free'] | undefined): string {
  const all = [permit?.(alias), free?.(alias)].filter((one) => one !== undefined);
  return all.length === 0 ? 'true' : all.join(' AND ');
}

function foundIn(slots: readonly StateKey[], more = ''): string {
  return slots.map((slot) => `SELECT ${FOUND}${more} FROM c${slot}`).join(' UNION ALL ');
}

/**
 * The first due rows, as many as are wanted, with those that wait for another of their key. Short
 * to plan, and never walks far; anyone who meets one that waits has to look on in another way.
 */
export function searchByFront(names: Names, search: ClaimSearch): ClaimSqlParts {
  const { slots, order } = search;
  const { entries } = names.table;
  const whoever = { ...search, order: undefined };
  return {
    sql: slots.map((slot) => straightTo(entries, whoever, slot, ', order_key')).join(', '),
    from: foundIn(slots, ', order_key'),
    free: order?.free('p') ?? 'true',
    seen: 'SELECT count(*) AS left_out, count(*) AS seen FROM c WHERE NOT c.is_free',
    // With none that wait, either all that were wanted are there or all that were due.
    glance: 1,
  };
}

function straightTo(entries: string, search: ClaimSearch, slot: StateKey, more = ''): string {
  return `c${slot} AS MATERIALIZED (
  ${dueOf(entries, search, slot, more)}
)`;
}

/**
 * Due rows in order. n.b. The inner limit makes the server use the index for the order; the outer
 * one ends the walk over the priorities, so that no more is locked than is taken.
 */
function dueOf(entries: string, search: ClaimSearch, slot: StateKey, more = ''): string {
  const { permit, order, until, max, isLocking, floors } = search;
  return `SELECT e.* FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
    SELECT ctid AS at, seq, slot, priority, due_at, id${more} FROM ${entries} x
    WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.priority::int2
      AND due_at <= ${until}${floors.sql(slot)} AND ${allowedOf('x', permit, order?.free)}
    ORDER BY due_at, id LIMIT ${max}${isLocking ? ' FOR UPDATE SKIP LOCKED' : ''}
  ) e${isLocking ? ` LIMIT ${max}` : ''}`;
}

/** The first due rows, whatever they are; of these, those that are allowed. */
function glanceAt(names: Names, search: ClaimSearch, slot: StateKey): string {
  const { permit, order, until, glance, isLocking, floors } = search;
  const { entries } = names.table;
  const ahead = order === undefined ? '' : `, ${nearestAheadSql(names, 'e')} AS ahead`;
  const more = order === undefined ? '' : ', seq, order_key, behind';
  const allowed = allowedOf('g', permit, order?.freeSeen);
  return `g${slot} AS MATERIALIZED (
  SELECT e.*${ahead} FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
    SELECT ctid AS at, topic, destination, priority, due_at, id${more} FROM ${entries}
    WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.priority::int2
      AND due_at <= ${until}${floors.sql(slot)}
    ORDER BY due_at, id LIMIT ${glance}
  ) e${isLocking ? ` LIMIT ${glance}` : ''}
), c${slot} AS MATERIALIZED (
  ${lockedOf(entries, `(SELECT at FROM g${slot} g WHERE ${allowed})`, search, slot)}
)`;
}

/**
 * Rows by their place, if they still are what was looked for. n.b. That is asked in a way no index
 * answers: before its first ANALYZE the server would rather walk all due rows than go by places.
 */
function lockedOf(entries: string, source: string, search: ClaimSearch, slot: StateKey): string {
  const { until, max, isLocking } = search;
  const order = 'ORDER BY x.priority, x.due_at, x.id';
  return `SELECT x.ctid AS at, x.seq, x.slot, x.priority, x.due_at, x.id
  FROM ${entries} x
  WHERE x.ctid = ANY(ARRAY${source})
    AND CASE WHEN x.slot = ${slot} THEN x.due_at <= ${until} ELSE false END
  ${isLocking ? `${order} LIMIT ${max} FOR UPDATE OF x SKIP LOCKED` : ''}`;
}

/** Sorts behind every destination. */
const LAST_SQL = "E'\\U0010FFFF'";

/**
 * Walks from flow to flow through the index, jumping over the rest of a topic that is not allowed;
 * then the due rows of each flow that is. Slots without that index hold few entries.
 */
export function searchByFlows({ table }: Names, search: ClaimSearch): ClaimSqlParts {
  const { entries } = table;
  const ctes = search.slots.map((slot) =>
    WAITING_KEYS.includes(slot)
      ? `${flowsOf(entries, search, slot)}, c${slot} AS MATERIALIZED (
  ${lockedOf(entries, dueOfFlows(entries, search, slot), search, slot)}
)`
      : straightTo(entries, search, slot),
  );
  return { sql: ctes.join(', '), from: foundIn(search.slots), seen: 'SELECT 0 AS seen' };
}

function flowsOf(entries: string, { topicPermit, floors }: ClaimSearch, slot: StateKey): string {
  const flow = 'topic, destination, priority';
  const from = `FROM ${entries} WHERE ${FLOW_KEY_SQL} = ${slot}${floors.sql(slot)}`;
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
  const { permit, order, until, max, isLocking, floors } = search;
  // Twice as many as wanted: others may be taking the first of them at this moment.
  return `(SELECT e.at FROM t${slot} t CROSS JOIN LATERAL (
    SELECT ctid AS at, due_at, id FROM ${entries} x
    WHERE ${FLOW_KEY_SQL} = ${slot} AND topic = t.topic AND destination = t.destination
      AND priority = t.priority AND due_at <= ${until}${floors.sql(slot)}
      AND ${allowedOf('x', undefined, order?.free)}
    ORDER BY due_at, id LIMIT ${2 * max}
  ) e WHERE ${permit?.('t') ?? 'true'}
  ORDER BY t.priority, e.due_at, e.id${isLocking ? ` LIMIT ${2 * max}` : ''})`;
}

/** n.b. As of `lockedOf`: only the index of ids answers, and not that of all due rows. */
export function searchByIds(
  { table }: Names,
  search: ClaimSearch,
  ids: readonly string[],
): ClaimSqlParts {
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

/** The rules of a filter as a condition; undefined when everything is allowed. */
function permitOf({ exceptDestinations = [] }: ClaimFilter, topicPermit: Permit): Permit {
  if (exceptDestinations.length === 0) return topicPermit;
  const except = sqlLiteral(textArray(exceptDestinations), 'text[]');
  return (alias) => `${topicPermit?.(alias) ?? 'true'} AND ${alias}.destination <> ALL(${except})`;
}
