/**
 * claims — what is due, and making it active, in one statement.
 *
 * Rows are found by state, locked and taken in one go; what others have locked is passed over, so
 * claimers never wait for each other. Every probe goes through an index and ends at `now`. What a
 * filter leaves out is passed over a few rows at a time (a glance); when that does not fill the
 * claim, the flows that are there — topic, destination, priority — are asked one by one through
 * `entries_flow`, so 100,000 due messages of a paused topic cost one short scan.
 *
 * Commits without waiting for the disk: a claim that a crash of the server forgets was not counted.
 */

import type { Clock } from '../../ports/clock.ts';
import type { ClaimFilter, ClaimRequest } from '../../ports/entry-store.ts';
import { textArray, Values } from './arrays.ts';
import { Floors } from './floors.ts';
import type { Names } from './names.ts';
import { Plans } from './plans.ts';
import { type EntryRow, STATUS_SQL } from './rows.ts';
import type { Ask } from './server.ts';
import { Sight } from './sight.ts';
import { ARCHIVED_SLOT, FLOW_SLOT_SQL, type Slot, slotOf, WAITING_SLOTS } from './slots.ts';
import { rulesSql } from './topics.ts';

/** What of a filter decides over a row beside its slot and due time. */
type Permit = ((alias: string) => string) | undefined;

/** A search for due rows. */
interface Search {
  readonly slots: readonly Slot[];
  readonly permit: Permit;
  /** The part of it that looks at topics. */
  readonly topicPermit: Permit;
  /** A placeholder. */
  readonly until: string;
  readonly max: number;
  /** How many rows are looked at whatever they are. */
  readonly glance: number;
  readonly isLocking: boolean;
  readonly values: Values;
  readonly floors: Floors;
}

/** Later than everything. */
const EVER: number = Number.MAX_SAFE_INTEGER;

/** After a glance that was too short, so many look twice as far. */
const WIDE_CLAIMS = 64;

/** Claims over the tables of one store. */
export class Claims {
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #sight = new Sight();
  readonly #plans: Plans;
  readonly #floors: Floors;
  /** How many more look far: others take the same rows, or a filter leaves many out. */
  #wideLeft = 0;

  constructor(names: Names, clock: Clock) {
    this.#names = names;
    this.#clock = clock;
    this.#floors = new Floors(names, clock);
    this.#plans = new Plans(clock);
  }

  /** `isUnknown`: a try with the same holder was not answered, and may have taken something. */
  async claim(ask: Ask, request: ClaimRequest, isUnknown: boolean): Promise<EntryRow[]> {
    if (isUnknown) {
      const held = await this.#held(ask, request);
      if (held.length > 0) return held;
    }
    const slots = slotsOf(request);
    if (slots.length === 0 || request.max <= 0 || request.ids?.length === 0) return [];
    this.#floors.noteClaim(request.now, request.leaseMs);
    const beganAt = this.#clock.monotonic();
    const way = this.#sight.isStraight(request) ? 'straight' : 'glance';
    const first = await this.#take(ask, request, slots, way);
    const isFilled = first.rows.length >= request.max;
    this.#sight.note(request, isFilled && first.leftOut === 0, this.#clock.monotonic() - beganAt);
    const isEnough = isFilled || first.isWhole;
    this.#wideLeft = isEnough ? Math.max(0, this.#wideLeft - 1) : WIDE_CLAIMS;
    if (isEnough) return first.rows;
    const max = request.max - first.rows.length;
    const more = await this.#take(ask, { ...request, max }, slots, 'flows');
    return [...first.rows, ...more.rows].sort(byOrder);
  }

  /** The earliest due time that a claim would see. */
  async nextDueAt(ask: Ask, filter: ClaimFilter): Promise<number | null> {
    const slots = slotsOf(filter);
    if (slots.length === 0 || filter.ids?.length === 0) return null;
    await this.#floors.raise(ask);
    const beganAt = this.#clock.monotonic();
    const first = await this.#earliest(ask, filter, slots, 'glance');
    this.#floors.noteLook(this.#clock.monotonic() - beganAt);
    if (first.isWhole) return first.dueAt;
    return (await this.#earliest(ask, filter, slots, 'flows')).dueAt;
  }

  async #take(ask: Ask, request: ClaimRequest, slots: readonly Slot[], way: Way) {
    const { now, max } = request;
    const values = new Values();
    const glance = glanceOf(max, this.#wideLeft > 0);
    const floors = this.#floors;
    const search = searchOf(request, { slots, now, max, glance, isLocking: true, values, floors });
    const parts = this.#partsOf(search, request, way);
    const found = `WITH RECURSIVE lazy AS MATERIALIZED (
  SELECT set_config('synchronous_commit', 'off', true)
), ${parts.sql}, c AS MATERIALIZED (
  SELECT p.* FROM lazy, (${parts.from}) p${parts.where ?? ''}
  ORDER BY p.priority, p.due_at, p.id LIMIT ${max}
)`;
    const taken = this.#takenSql(request, values);
    if (parts.glance === undefined) {
      const rows = await this.#plans.look(ask, max, `${found} ${taken}`, values.list);
      return { rows: (rows as unknown as EntryRow[]).sort(byOrder), isWhole: true, leftOut: 0 };
    }
    // One row comes in any case: it says how far the glance went.
    const text = `${found}, taken AS (${taken})
SELECT t.*, s.left_out, s.seen FROM (${parts.seen}) s LEFT JOIN taken t ON true`;
    const rows = await this.#plans.look(ask, max, text, values.list);
    const isWhole = Number(rows[0]?.at(-1)) < parts.glance;
    const leftOut = Number(rows[0]?.at(-2));
    const held = (rows as unknown as EntryRow[]).filter((row) => row[0] !== null);
    return { rows: held.sort(byOrder), isWhole, leftOut };
  }

  /**
   * What `claimed` in core/next-status.ts says, over the rows of `c`. n.b. "OFFSET 0" keeps the
   * server from joining all contents where it takes the claim for large.
   */
  #takenSql({ now, leaseMs, holder, lane }: ClaimRequest, { bind }: Values): string {
    const { entries, contents } = this.#names.table;
    const counter = lane === 'delivery' ? 'attempts' : 'notices';
    const counts = 'CASE WHEN c.slot IN (2, 3) THEN 0 ELSE 1 END';
    return `UPDATE ${entries} e SET slot = ${slotOf('active', lane)}, revision = e.revision + 1,
    ${counter} = e.${counter} + ${counts}, lost = e.lost + 1 - ${counts},
    due_at = ${bind(now + leaseMs, 'int8')}, holder = ${bind(holder, 'text')},
    claimed_from = c.slot / 2, updated_at = ${bind(now, 'int8')}
  FROM c LEFT JOIN LATERAL (
    SELECT k.envelope, k.body FROM ${contents} k WHERE k.seq = c.seq OFFSET 0
  ) k ON true
  WHERE e.ctid = ANY(ARRAY(SELECT at FROM c)) AND e.ctid = c.at
  RETURNING ${STATUS_SQL}, k.envelope, k.body, c.priority, c.due_at AS was_due`;
  }

  async #earliest(ask: Ask, filter: ClaimFilter, slots: readonly Slot[], way: Way) {
    const values = new Values();
    const glance = glanceOf(1, true);
    const floors = this.#floors;
    const search = searchOf(filter, {
      slots,
      now: EVER,
      max: 1,
      glance,
      isLocking: false,
      values,
      floors,
    });
    const parts = this.#partsOf(search, filter, way);
    const text = `WITH RECURSIVE ${parts.sql}
SELECT (SELECT min(p.due_at) FROM (${parts.from}) p), s.seen FROM (${parts.seen}) s`;
    const [[dueAt, seen] = []] = await this.#plans.look(ask, 1, text, values.list);
    const isWhole = parts.glance === undefined || Number(seen) < parts.glance;
    return { dueAt: (dueAt ?? null) as number | null, isWhole };
  }

  #partsOf(search: Search, { ids }: ClaimFilter, way: Way): Parts {
    if (ids !== undefined) return byIds(this.#names, search, ids);
    if (way === 'flows') return byFlows(this.#names, search);
    return byDue(this.#names, search, way);
  }

  /** What a claim that was not answered has taken. */
  async #held(ask: Ask, { holder, lane }: ClaimRequest): Promise<EntryRow[]> {
    const { entries, contents } = this.#names.table;
    const slot = slotOf('active', lane);
    const rows = await ask(
      `SELECT ${STATUS_SQL}, k.envelope, k.body, e.priority, e.due_at
FROM ${entries} e LEFT JOIN ${contents} k ON k.seq = e.seq
WHERE e.slot = ${slot} AND e.slot < ${ARCHIVED_SLOT} AND e.holder = $1`,
      [holder],
    );
    return (rows as unknown as EntryRow[]).sort(byOrder);
  }
}

/** Through the due index, with a glance at what a filter leaves out or straight; or by flows. */
type Way = 'glance' | 'straight' | 'flows';

/** CTEs, and what to select the found rows and the number of looked at from. */
interface Parts {
  readonly sql: string;
  readonly from: string;
  readonly seen: string;
  /** Which of the found rows may be taken. */
  readonly where?: string;
  /** With fewer looked at than this, there was nothing more to look at. */
  readonly glance?: number;
}

const FOUND = 'at, seq, slot, priority, due_at, id';

/** Where a glance ends: most of the time what is left out is little. */
function glanceOf(max: number, isWide: boolean): number {
  return (isWide ? 2 * max : max) + 16;
}

function byDue({ table }: Names, search: Search, way: Way): Parts {
  const { slots, permit, glance } = search;
  const isStraight = permit === undefined || way === 'straight';
  const glances = isStraight ? [] : slots.filter((slot) => WAITING_SLOTS.includes(slot));
  const ctes = slots.map((slot) =>
    glances.includes(slot)
      ? glanceAt(table.entries, search, slot)
      : straightTo(table.entries, search, slot),
  );
  const found = { sql: ctes.join(', '), from: foundIn(slots) };
  if (glances.length === 0) return { ...found, seen: 'SELECT 0 AS seen' };
  const isAllowed = permit?.('g') ?? 'true';
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
    where: ` WHERE coalesce((p.priority, p.due_at, p.id) <=
    (SELECT z.priority, z.due_at, z.id FROM ends z), true)`,
    glance,
  };
}

function foundIn(slots: readonly Slot[]): string {
  return slots.map((slot) => `SELECT ${FOUND} FROM c${slot}`).join(' UNION ALL ');
}

/**
 * Due rows in order. n.b. The inner limit makes the server use the index for the order; the outer
 * one ends the walk over the priorities, so that no more is locked than is taken.
 */
function straightTo(entries: string, search: Search, slot: Slot): string {
  const { permit, until, max, isLocking, floors } = search;
  return `c${slot} AS MATERIALIZED (
  SELECT e.* FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
    SELECT ctid AS at, seq, slot, priority, due_at, id FROM ${entries} x
    WHERE slot = ${slot} AND slot < ${ARCHIVED_SLOT} AND priority = p.priority::int2
      AND due_at <= ${until}${floors.sql(slot)}${permit === undefined ? '' : ` AND ${permit('x')}`}
    ORDER BY due_at, id LIMIT ${max}${isLocking ? ' FOR UPDATE SKIP LOCKED' : ''}
  ) e${isLocking ? ` LIMIT ${max}` : ''}
)`;
}

/** The first due rows, whatever they are; of these, those that are allowed. */
function glanceAt(entries: string, search: Search, slot: Slot): string {
  const { permit, until, glance, isLocking, floors } = search;
  return `g${slot} AS MATERIALIZED (
  SELECT e.* FROM generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
    SELECT ctid AS at, topic, destination, priority, due_at, id FROM ${entries}
    WHERE slot = ${slot} AND slot < ${ARCHIVED_SLOT} AND priority = p.priority::int2
      AND due_at <= ${until}${floors.sql(slot)}
    ORDER BY due_at, id LIMIT ${glance}
  ) e${isLocking ? ` LIMIT ${glance}` : ''}
), c${slot} AS MATERIALIZED (
  ${lockedOf(entries, `(SELECT at FROM g${slot} g WHERE ${permit?.('g') ?? 'true'})`, search, slot)}
)`;
}

/**
 * Rows by their place, if they still are what was looked for. n.b. That is asked in a way no index
 * answers: before its first ANALYZE the server would rather walk all due rows than go by places.
 */
function lockedOf(entries: string, source: string, search: Search, slot: Slot): string {
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
function byFlows({ table }: Names, search: Search): Parts {
  const { entries } = table;
  const ctes = search.slots.map((slot) =>
    WAITING_SLOTS.includes(slot)
      ? `${flowsOf(entries, search, slot)}, c${slot} AS MATERIALIZED (
  ${lockedOf(entries, dueOfFlows(entries, search, slot), search, slot)}
)`
      : straightTo(entries, search, slot),
  );
  return { sql: ctes.join(', '), from: foundIn(search.slots), seen: 'SELECT 0 AS seen' };
}

function flowsOf(entries: string, { topicPermit }: Search, slot: Slot): string {
  const flow = 'topic, destination, priority';
  const from = `FROM ${entries} WHERE ${FLOW_SLOT_SQL} = ${slot}`;
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

function dueOfFlows(entries: string, search: Search, slot: Slot): string {
  const { permit, until, max, isLocking } = search;
  // Twice as many as wanted: others may be taking the first of them at this moment.
  return `(SELECT e.at FROM t${slot} t CROSS JOIN LATERAL (
    SELECT ctid AS at, due_at, id FROM ${entries}
    WHERE ${FLOW_SLOT_SQL} = ${slot} AND topic = t.topic AND destination = t.destination
      AND priority = t.priority AND due_at <= ${until}
    ORDER BY due_at, id LIMIT ${2 * max}
  ) e WHERE ${permit?.('t') ?? 'true'}
  ORDER BY t.priority, e.due_at, e.id${isLocking ? ` LIMIT ${2 * max}` : ''})`;
}

function byIds({ table }: Names, search: Search, ids: readonly string[]): Parts {
  const { slots, permit, until, max, isLocking, values } = search;
  const wanted = values.bind(textArray([...new Set(ids)]), 'text[]');
  return {
    sql: `c0 AS MATERIALIZED (
  SELECT ctid AS at, seq, slot, priority, due_at, id FROM ${table.entries} x
  WHERE id = ANY(${wanted}) AND slot IN (${slots.join(', ')}) AND due_at <= ${until}
    AND ${permit?.('x') ?? 'true'}
  ORDER BY priority, due_at, id${isLocking ? ` LIMIT ${max} FOR UPDATE SKIP LOCKED` : ''}
)`,
    from: `SELECT ${FOUND} FROM c0`,
    seen: 'SELECT 0 AS seen',
  };
}

function searchOf(
  filter: ClaimFilter,
  of: Pick<Search, 'slots' | 'max' | 'glance' | 'isLocking' | 'values' | 'floors'> & {
    readonly now: number;
  },
): Search {
  const until = of.values.bind(of.now, 'int8');
  const topicPermit = topicPermitOf(filter, of.values);
  return { ...of, until, topicPermit, permit: permitOf(filter, topicPermit, of.values) };
}

function topicPermitOf({ topics }: ClaimFilter, values: Values): Permit {
  const [first] = topics ?? [];
  // The usual case: one handler for everything.
  const takesAll = first?.pattern === '#' && first.take;
  if (topics === undefined || takesAll) return undefined;
  // Bound once, used under several names.
  const rules = rulesSql('@.topic', topics, values.bind);
  return (alias) => rules.replaceAll('@.topic', `${alias}.topic`);
}

/** The rules of a filter as a condition; undefined when everything is allowed. */
function permitOf(
  { exceptDestinations = [] }: ClaimFilter,
  topicPermit: Permit,
  values: Values,
): Permit {
  if (exceptDestinations.length === 0) return topicPermit;
  const except = values.bind(textArray(exceptDestinations), 'text[]');
  return (alias) => `${topicPermit?.(alias) ?? 'true'} AND ${alias}.destination <> ALL(${except})`;
}

function slotsOf({ states, lane }: ClaimFilter): Slot[] {
  return [...new Set(states)].map((state) => slotOf(state, lane));
}

/** By priority, then the due time before the claim, then id. */
function byOrder(a: EntryRow, b: EntryRow): number {
  const span = Number(a[16]) - Number(b[16]) || Number(a[17]) - Number(b[17]);
  if (span !== 0) return span;
  return a[1] < b[1] ? -1 : 1;
}
