/**
 * page-scan — where the entries of a list stand, in its order, found with bounded work.
 *
 * The counts of the flows tell which way is short. Few entries in the states asked for: they are
 * fetched through an index and sorted. Many: the ids are walked in order, at most SCAN_MAX of them
 * per page; a page may then be short and still have a next. Many in another order than ids: one
 * pass by SQLite.
 */

import type { ListOrder, ListQuery } from '../../ports/entry-store.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import type { PageRequest } from '../shared/page.ts';
import { idRange } from '../shared/query.ts';
import { ARCHIVED_KEY, type StateKey, WAITING_KEYS } from '../shared/sql-row.ts';
import { type Conditions, conditionsOf } from './conditions.ts';
import type { Flows } from './flows.ts';
import { hasFlowIndex, WAITING_SQL } from './schema.ts';

/** Where an entry stands in the order. */
export type PagePlace = readonly [seq: number, value: number, id: string];

/** What was found. */
export interface PageScan {
  readonly places: readonly PagePlace[];
  /** Where a walk by id had to stop before it had enough. */
  readonly stoppedAt?: PagePlace;
}

/** Rows that one page may look at. */
const SCAN_MAX = 20_000;

const ORDER_SQL: Readonly<Record<ListOrder, string>> = {
  id: '0',
  dueAt: `coalesce(due_at, ${Number.MAX_SAFE_INTEGER})`,
  updatedAt: 'updated_at',
  priority: 'priority',
  attempts: 'attempts',
};

interface Search {
  readonly database: SqliteDatabase;
  readonly conditions: Conditions;
  readonly page: PageRequest;
  readonly max: number;
}

/**
 * The places of at most `max` entries from the start of the page on; null when that would take long
 * and must not.
 */
export function scanPage(
  database: SqliteDatabase,
  flows: Flows,
  {
    query,
    page,
    max,
    mayBeLong,
  }: {
    readonly query: ListQuery;
    readonly page: PageRequest;
    readonly max: number;
    readonly mayBeLong: boolean;
  },
): PageScan | null {
  const conditions = conditionsOf(query, flows);
  if (conditions.slots.length === 0 || conditions.flows?.size === 0) return { places: [] };
  const search: Search = { database, conditions, page, max };
  if (query.ids !== undefined) return { places: pass(search, '{entries}') };
  // The range of the index is all that is read, whatever else is asked.
  if (query.idPrefix !== undefined) {
    return page.order === 'id'
      ? walkIds(search, query.idPrefix)
      : { places: pass(search, '{entries} INDEXED BY {entries_id}') };
  }
  const byFlow = conditions.flows !== undefined && hasFlowIndex(database) ? WAITING_KEYS : [];
  if (costOf(conditions, flows, byFlow) <= SCAN_MAX) {
    return { places: pass(search, `(${shortSources(conditions, byFlow)})`) };
  }
  if (page.order === 'id') return walkIds(search);
  const isOpen = conditions.slots.every((slot) => slot < ARCHIVED_KEY);
  if (isOpen && page.order === 'dueAt' && query.dueBefore !== undefined) {
    // With a condition besides, what fits may be little among much that is due.
    const isShort = conditions.sql.length <= 2;
    return isShort || mayBeLong
      ? { places: walkDue(search, query.dueBefore, flows.priorities()) }
      : null;
  }
  const isEnded = conditions.slots.every((slot) => slot >= ARCHIVED_KEY);
  if (isEnded && page.order === 'dueAt') return { places: walkEnded(search) };
  return mayBeLong ? { places: pass(search, '{entries}') } : null;
}

/** One pass over a source, sorted by SQLite. */
function pass({ database, conditions, page, max }: Search, source: string): PagePlace[] {
  const value = ORDER_SQL[page.order];
  const { where, values } = startingAt(conditions, page, value);
  const way = wayOf(page);
  return database
    .prepare(
      `SELECT seq, ${value} AS value, id FROM ${source} WHERE ${where}
      ORDER BY value ${way}, id ${way} LIMIT ?`,
    )
    .raw()
    .all(values, max) as PagePlace[];
}

/** The ids in order, at most SCAN_MAX; the inner limit holds whatever the conditions leave out. */
function walkIds({ database, conditions, page, max }: Search, prefix = ''): PageScan {
  const { after, descending } = page;
  const behind = after === undefined ? [] : [`id ${descending ? '<' : '>'} ?`];
  const within = prefix === '' ? [] : ['id >= ? AND id < ?'];
  const start = allOf([...behind, ...within]);
  const from = [
    ...(after === undefined ? [] : [after.id]),
    ...(prefix === '' ? [] : idRange(prefix)),
  ];
  const window = `FROM {entries} INDEXED BY {entries_id} WHERE ${start} ORDER BY id ${wayOf(page)}`;
  const places = database
    .prepare(
      `SELECT seq, 0, id FROM (SELECT * ${window} LIMIT ${SCAN_MAX})
      WHERE ${allOf(conditions.sql)} LIMIT ?`,
    )
    .raw()
    .all(from, conditions.values, max) as PagePlace[];
  if (places.length === max) return { places };
  const stoppedAt = database
    .prepare(`SELECT seq, 0, id ${window} LIMIT 1 OFFSET ${SCAN_MAX - 1}`)
    .raw()
    .get(from) as PagePlace | undefined;
  return stoppedAt === undefined ? { places } : { places, stoppedAt };
}

/** Archived entries by the end of their retention: the order of an index. */
function walkEnded({ database, conditions, page, max }: Search): PagePlace[] {
  // Without `coalesce`, so that the index gives the order; an archived entry has a due time.
  const { where, values } = startingAt(conditions, page, 'due_at');
  const way = wayOf(page);
  return database
    .prepare(
      `SELECT seq, due_at, id FROM {entries} INDEXED BY {entries_ended}
      WHERE slot >= ${ARCHIVED_KEY} AND due_at IS NOT NULL AND ${where}
      ORDER BY due_at ${way}, id ${way} LIMIT ?`,
    )
    .raw()
    .all(values, max) as PagePlace[];
}

/** Entries that are due before a time, in the order of an index for each slot and priority. */
function walkDue(
  { database, conditions, page, max }: Search,
  before: number,
  priorities: readonly number[],
): PagePlace[] {
  const { where, values } = startingAt(conditions, page, 'due_at');
  const way = wayOf(page);
  const walk = database
    .prepare(
      `SELECT seq, due_at, id FROM {entries} INDEXED BY {entries_due}
      WHERE slot = ? AND slot < ${ARCHIVED_KEY} AND priority = ? AND due_at < ? AND ${where}
      ORDER BY due_at ${way}, id ${way} LIMIT ?`,
    )
    .raw();
  const sign = page.descending ? -1 : 1;
  return priorities
    .flatMap((priority) =>
      conditions.slots.flatMap(
        (slot) => walk.all(slot, priority, before, ...values, max) as PagePlace[],
      ),
    )
    .sort((a, b) => sign * (a[1] - b[1] || (a[2] < b[2] ? -1 : 1)))
    .slice(0, max);
}

/** How many rows the indexes would have to give for these conditions. */
function costOf({ slots, flows }: Conditions, all: Flows, byFlow: readonly StateKey[]): number {
  const counts = all.counts();
  const ofFlows = byFlow.length === 0 ? [] : all.counts(flows);
  const costs = slots.map((slot) => (byFlow.includes(slot) ? ofFlows[slot] : counts[slot]) ?? 0);
  return costs.reduce((sum, cost) => sum + cost, 0);
}

/** The entries of these slots through their indexes, as one source to select from. */
function shortSources({ slots, flows }: Conditions, byFlow: readonly StateKey[]): string {
  const ofFlow = slots.filter((slot) => byFlow.includes(slot));
  const others = slots.filter((slot) => !byFlow.includes(slot));
  const open = others.filter((slot) => slot < ARCHIVED_KEY);
  const ended = others.filter((slot) => slot >= ARCHIVED_KEY);
  const ofFlows = `${WAITING_SQL} AND flow IN (${[...(flows ?? [])].join(', ')})`;
  return [
    ...source('{entries_due}', open, `slot < ${ARCHIVED_KEY}`),
    ...source('{entries_ended}', ended, `slot >= ${ARCHIVED_KEY}`),
    ...source('{entries_by_flow}', ofFlow, ofFlows),
  ].join(' UNION ALL ');
}

function source(index: string, slots: readonly StateKey[], where: string): string[] {
  if (slots.length === 0) return [];
  const wanted = `slot IN (${slots.join(', ')})`;
  return [`SELECT * FROM {entries} INDEXED BY ${index} WHERE ${wanted} AND ${where}`];
}

function startingAt(
  { sql, values }: Conditions,
  { after, descending }: PageRequest,
  value: string,
) {
  if (after === undefined) return { where: allOf(sql), values };
  const start = `(${value}, id) ${descending ? '<' : '>'} (?, ?)`;
  return { where: allOf([...sql, start]), values: [...values, after.value, after.id] };
}

function allOf(sql: readonly string[]): string {
  return sql.length === 0 ? 'true' : sql.join(' AND ');
}

function wayOf({ descending }: PageRequest): 'ASC' | 'DESC' {
  return descending ? 'DESC' : 'ASC';
}
