/**
 * list — single entries, and pages of them in any order, with bounded work per page where an index
 * or few entries allow it.
 *
 * A query becomes conditions in SQL, as far as there are columns for it; a scan finds where the
 * entries of the page stand; then they are read. Texts, headers and codes have no column: to filter
 * by them entries are read one after the other, at most READ_MAX per page. `conditionsOf` repeats
 * `matchesQuery` of shared/query.ts in SQL: change both.
 */

import { textOf } from '../../core/errors.ts';
import { STATES } from '../../core/state.ts';
import { isPattern, topicMatches } from '../../core/topic.ts';
import type { CorruptEntry, EntryQuery, ListOrder, ListQuery } from '../../ports/entry-store.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import { type PageRequest, readPage, writePlace } from '../shared/page.ts';
import { idRange, matchesQuery } from '../shared/query.ts';
import {
  ARCHIVED_KEY,
  type BrokenRow,
  STATE_KEY_COUNT,
  type StateKey,
  stateKeyOf,
  WAITING_KEYS,
} from '../shared/sql-row.ts';
import type { Connection } from './connection.ts';
import type { TopicFlows } from './topic-flows.ts';
import type { EntryReply, ListReply } from './protocol.ts';
import { decodeRow, type EntryRow, STATUS_SQL } from './row.ts';
import { ACTIVE_SQL, ENDED_SQL, flowIndexIn, OPEN_SQL, WAITING_SQL } from './schema.ts';

/** Rows that one page may read as a whole, to look into headers, texts and codes. */
const READ_MAX = 5_000;
const READ_CHUNK = 200;
/** Rows that may be read between two batches of writes. */
const READ_SOON_MAX = 500;
/** Rows behind the first page that are read too, since only that page reports damage. */
const LOOK_AHEAD = 100;
const CORRUPT_MAX = 500;

interface Page {
  readonly rows: readonly EntryRow[];
  readonly broken: readonly BrokenRow[];
  /** The last place of the page, when there are more behind it. */
  readonly last: PagePlace | undefined;
}

/** Lists over one connection. */
export class Lists {
  readonly #database: SqliteDatabase;
  readonly #flows: TopicFlows;
  readonly #sql: ReturnType<typeof prepare>;

  constructor({ database }: Connection, flows: TopicFlows) {
    this.#database = database;
    this.#flows = flows;
    this.#sql = prepare(database);
  }

  /** Null when it would take long and must not. */
  list(query: ListQuery, mayBeLong: boolean): ListReply | null {
    const page = readPage(query);
    const isFirst = query.after === undefined;
    const needsReading = [query.header, query.code, query.text].some((word) => word !== undefined);
    const max = needsReading ? READ_MAX : query.limit + (isFirst ? LOOK_AHEAD : 1);
    const found = scanPage(this.#database, this.#flows, { query, page, max, mayBeLong });
    const isLong = found === null || (needsReading && found.places.length > READ_SOON_MAX);
    if (found === null || (isLong && !mayBeLong)) return null;
    const { rows, broken, last } = needsReading
      ? this.#search(found.places, query)
      : this.#read(found.places, query.limit);
    const isCut = needsReading && found.places.length === max;
    const end = last ?? (isCut ? found.places.at(-1) : found.stoppedAt);
    return {
      rows,
      broken,
      corrupt: isFirst ? (this.#sql.quarantined.all(CORRUPT_MAX) as BrokenRow[]).map(corrupt) : [],
      ...(end === undefined ? {} : { next: writePlace(page, { value: end[1], id: end[2] }) }),
    };
  }

  /** The row, or what is in quarantine under this id. */
  get(id: string): EntryReply | undefined {
    const row = this.#sql.ofId.get(id) as EntryRow | undefined;
    if (row !== undefined) return row;
    const broken = this.#sql.quarantinedId.get(id) as BrokenRow | undefined;
    return broken && corrupt(broken);
  }

  /** Whether an instance still has something active: holders begin with it (spool/source.ts). */
  holdsAny(instance: string): boolean {
    return this.#sql.held.get(instance.length, instance) !== undefined;
  }

  #read(places: readonly PagePlace[], limit: number): Page {
    const rows = this.#rowsOf(places);
    return {
      rows: rows.slice(0, limit),
      broken: rows.slice(limit).flatMap(damageOf),
      last: places.length > limit ? places[limit - 1] : undefined,
    };
  }

  /** Reads entries until the page is full; what cannot be read is reported, never passed over. */
  #search(places: readonly PagePlace[], query: ListQuery): Page {
    const rows: EntryRow[] = [];
    const broken: BrokenRow[] = [];
    for (let from = 0; from < places.length; from += READ_CHUNK) {
      const chunk = places.slice(from, from + READ_CHUNK);
      for (const row of this.#rowsOf(chunk)) {
        const damage = damageOf(row);
        broken.push(...damage);
        if (damage.length === 0 && matchesQuery(decodeRow(row), query)) rows.push(row);
        if (rows.length < query.limit) continue;
        const last = chunk.find(([seq]) => seq === row[0]);
        const isEnd = last === places.at(-1) && places.length < READ_MAX;
        return { rows, broken, last: isEnd ? undefined : last };
      }
    }
    return { rows, broken, last: undefined };
  }

  #rowsOf(places: readonly PagePlace[]): EntryRow[] {
    const seqs = JSON.stringify(places.map(([seq]) => seq));
    const rows = this.#sql.ofSeqs.all(seqs) as EntryRow[];
    const bySeq = new Map(rows.map((row) => [row[0], row]));
    return places.map(([seq]) => bySeq.get(seq)).filter((row) => row !== undefined);
  }
}

function prepare(database: SqliteDatabase) {
  const row = `e.seq, e.id, ${STATUS_SQL}, c.envelope`;
  return {
    ofId: database
      .prepare(
        `SELECT ${row}, c.body FROM {entries} e LEFT JOIN {contents} c ON c.seq = e.seq
        WHERE e.id = ?`,
      )
      .raw(),
    ofSeqs: database
      .prepare(
        `SELECT ${row}, NULL FROM json_each(?) s JOIN {entries} e ON e.seq = s.value
        LEFT JOIN {contents} c ON c.seq = e.seq`,
      )
      .raw(),
    quarantined: database.prepare(
      'SELECT seq, id, reason FROM {quarantine} ORDER BY seq DESC LIMIT ?',
    ),
    quarantinedId: database.prepare('SELECT seq, id, reason FROM {quarantine} WHERE id = ?'),
    held: database.prepare(
      `SELECT 1 FROM {entries} INDEXED BY {entries_due}
      WHERE ${ACTIVE_SQL} AND substr(holder, 1, ?) = ? LIMIT 1`,
    ),
  };
}

function damageOf(row: EntryRow): BrokenRow[] {
  try {
    decodeRow(row);
    return [];
  } catch (error) {
    return [{ seq: row[0], id: row[1], reason: textOf(error) }];
  }
}

function corrupt({ seq, id, reason }: BrokenRow): CorruptEntry {
  return { id, where: `quarantine row ${seq}`, reason };
}

// An EntryQuery as SQL, as far as there are columns for it; the rest is checked in code.
//
// Names and numbers only: everything a caller wrote goes in as a bound value.

/** A query, taken apart. */
export interface Conditions {
  /** Conditions on `entries`, each true for every entry that fits. */
  readonly sql: readonly string[];
  readonly values: readonly unknown[];
  /** The slots it asks for. */
  readonly slots: readonly StateKey[];
  /** The flows it asks for; undefined: all. */
  readonly flows: ReadonlySet<number> | undefined;
  /** Whether entries have to be read to decide: headers, texts and codes have no column. */
  readonly needsReading: boolean;
  /** Whether state, lane, topic and destination are all it asks. */
  readonly isCounted: boolean;
}

export function conditionsOf(query: EntryQuery, flows: TopicFlows): Conditions {
  const slots = slotsOf(query);
  const wanted = flowsOf(query, flows);
  const sql: string[] = [];
  const values: unknown[] = [];
  function add(condition: string, value: unknown): void {
    sql.push(condition);
    values.push(value);
  }
  if (slots.length < STATE_KEY_COUNT) sql.push(`slot IN (${slots.join(', ')})`);
  if (wanted !== undefined) {
    add('flow IN (SELECT value FROM json_each(?))', JSON.stringify([...wanted]));
  }
  const before = sql.length;
  if (query.ids !== undefined) {
    add('id IN (SELECT value FROM json_each(?))', JSON.stringify(query.ids));
  }
  if (query.idPrefix !== undefined) {
    const [from, end] = idRange(query.idPrefix);
    add('id >= ?', from);
    add('id < ?', end);
  }
  if (query.fingerprint !== undefined) add('fingerprint = ?', query.fingerprint);
  for (const [name, condition] of TIMES) {
    if (query[name] !== undefined) add(condition, query[name]);
  }
  const needsReading = [query.header, query.code, query.text].some((word) => word !== undefined);
  return {
    sql,
    values,
    slots,
    flows: wanted,
    needsReading,
    isCounted: !needsReading && sql.length === before,
  };
}

const TIMES = [
  ['enqueuedBefore', 'enqueued_at < ?'],
  ['enqueuedAfter', 'enqueued_at > ?'],
  ['updatedBefore', 'updated_at < ?'],
  ['updatedAfter', 'updated_at > ?'],
  ['dueBefore', 'due_at < ?'],
  ['dueAfter', 'due_at > ?'],
] as const;

function slotsOf({ states = STATES, lane }: EntryQuery): StateKey[] {
  const lanes = lane === undefined ? (['delivery', 'notice'] as const) : [lane];
  return [...new Set(states)].flatMap((state) => lanes.map((name) => stateKeyOf(state, name)));
}

function flowsOf({ topic, destination }: EntryQuery, flows: TopicFlows): Set<number> | undefined {
  if (destination === undefined && (topic === undefined || topic === '#')) return undefined;
  const isMatch = topic === undefined || isPattern(topic) ? topicMatches : Object.is;
  const wanted = destination === undefined ? undefined : new Set([destination].flat());
  // '' means that a flow has no destination; a query cannot ask for that.
  wanted?.delete('');
  return flows.matching(
    (ofTopic, ofDestination) =>
      (topic === undefined || isMatch(topic, ofTopic)) &&
      (wanted === undefined || wanted.has(ofDestination)),
  );
}

// Where the entries of a list stand, in its order, found with bounded work.
//
// The counts of the flows tell which way is short. Few entries in the states asked for: they are
// fetched through an index and sorted. Many: the ids are walked in order, at most SCAN_MAX of them
// per page; a page may then be short and still have a next. Many in another order than ids: one
// pass by SQLite.

/** Where an entry stands in the order. */
type PagePlace = readonly [seq: number, value: number, id: string];

/** What was found. */
interface PageScan {
  readonly places: readonly PagePlace[];
  /** Where a walk by id had to stop before it had enough. */
  readonly stoppedAt?: PagePlace;
}

/** Rows that one page may look at. test/stores/sqlite/list.test.ts needs 12,500 to 24,980. */
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
function scanPage(
  database: SqliteDatabase,
  flows: TopicFlows,
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
  const hasIndex = conditions.flows !== undefined && flowIndexIn(database) === 'made';
  const byFlow = hasIndex ? WAITING_KEYS : [];
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
      WHERE ${ENDED_SQL} AND due_at IS NOT NULL AND ${where}
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
      WHERE slot = ? AND ${OPEN_SQL} AND priority = ? AND due_at < ? AND ${where}
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
function costOf(
  { slots, flows }: Conditions,
  all: TopicFlows,
  byFlow: readonly StateKey[],
): number {
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
    ...source('{entries_due}', open, OPEN_SQL),
    ...source('{entries_ended}', ended, ENDED_SQL),
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
