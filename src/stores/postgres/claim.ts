/**
 * claim — what is due, and making it active, in one statement.
 *
 * Rows are found by state, locked and taken in one go; what others have locked is passed over, so
 * claimers never wait for each other. Every probe goes through an index and ends at `now`. What a
 * filter leaves out is passed over a few rows at a time (a glance); when that does not fill the
 * claim, the flows that are there — topic, destination, priority — are asked one by one through
 * `entries_flow`, so 100,000 due messages of a paused topic cost one short scan.
 *
 * Commits without waiting for the disk: a claim that a crash of the server forgets was not counted.
 *
 * Why: docs/decisions/0017-three-ways-to-claim-on-postgresql.md
 */

import { PRIORITY_DEFAULT } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import type { ClaimFilter, ClaimRequest } from '../../ports/entry-store.ts';
import { ARCHIVED_KEY, type StateKey, stateKeyOf } from '../shared/sql-row.ts';
import {
  searchByDue,
  searchByFlows,
  searchByFront,
  searchByIds,
  glanceSearch,
  leavesOut,
  type ClaimSqlParts,
  type ClaimSearch,
  searchOf,
  type ClaimWay,
} from './claim-sql.ts';
import { ClaimStrategy } from './claim-strategy.ts';
import { allOf } from './conditions.ts';
import type { Ask } from './connection.ts';
import { DueLowerBounds } from './due-lower-bound.ts';
import { sqlLiteral, indexOnlyQuery } from './index-only-query.ts';
import type { Names } from './names.ts';
import { orderOf, putBehindSql, OrderKeyTurns } from './order-keys.ts';
import { BODY_SQL, CONTENTS_SQL, type EntryRow, STATUS_SQL } from './row.ts';

// What a claim answers with, as little of it as can be.
//
// Every value that comes is a text that this process has to read. What the claim itself has written
// it knows, and a count that is as it mostly is comes as NULL: of 17 values per message 5 are left.

/** A column of the answer, and its value where NULL comes: one of the claim's own, or the usual. */
type Column = readonly [sql: string, usual?: (request: ClaimRequest) => number | string];

const usually = (sql: string, value: number): Column => [`nullif(${sql}, ${value})`, () => value];

/** In the order of `EntryRow`, then what the rows are put in order by. */
const COLUMNS: readonly Column[] = [
  ['e.seq'],
  ['e.id'],
  ['NULL', ({ lane }) => stateKeyOf('active', lane)],
  ['NULL', ({ now, leaseMs }) => now + leaseMs],
  usually('e.revision', 2),
  usually('e.attempts', 1),
  usually('e.notices', 0),
  usually('e.lost', 0),
  usually('e.postponed', 0),
  usually('e.replays', 0),
  ['NULL', ({ holder }) => holder],
  usually('e.claimed_from', 0),
  ['NULL', ({ now }) => now],
  ['e.memory'],
  ['k.envelope'],
  [BODY_SQL],
  usually('c.priority', PRIORITY_DEFAULT),
  ['c.due_at'],
];

/** From `entries e`, as they were just written, `contents k`, and `c`, what was found. */
const CLAIMED_SQL: string = COLUMNS.map(([sql]) => sql).join(', ');

/** The rows of an answer as those of entries, by priority, then the due time before, then id. */
function claimedRows(answer: unknown[][], request: ClaimRequest): EntryRow[] {
  const known = COLUMNS.flatMap(([, usual], at) =>
    usual === undefined ? [] : [[at, usual(request)] as const],
  );
  for (const row of answer) {
    for (const [at, value] of known) row[at] ??= value;
  }
  return (answer as unknown as EntryRow[]).sort(byOrder);
}

/** For rows that end with their priority and due time. */
function byOrder(a: EntryRow, b: EntryRow): number {
  const span = Number(a[16]) - Number(b[16]) || Number(a[17]) - Number(b[17]);
  if (span !== 0) return span;
  return a[1] < b[1] ? -1 : 1;
}

/** Later than everything. */
const EVER: number = Number.MAX_SAFE_INTEGER;

/** After a glance that was too short, this many look twice as far. */
const WIDE_CLAIMS = 64;

/** Where keys have an order: so often a claim looks on, so many times as far, up to this far. */
const ROUNDS_MAX = 6;
const GLANCE_GROWTH = 4;
const GLANCE_MAX = 2_000;

/** After one that waits for its turn was met, this many claims expect more of them. */
const CROWDED_CLAIMS = 4;

/** A claim, and the slots of its states. */
interface Wanted {
  readonly request: ClaimRequest;
  readonly slots: readonly StateKey[];
}

interface Taken {
  readonly rows: EntryRow[];
  /** Everything that is due was looked at. */
  readonly isWhole: boolean;
  /** How many a filter kept out, and how many were put behind another of their key. */
  readonly leftOut: number;
  readonly putBehind: number;
}

interface Earliest {
  readonly dueAt: number | null;
  readonly isWhole: boolean;
}

/** What claims share with others of the store. */
interface ClaimsParts {
  readonly turns?: OrderKeyTurns;
  readonly floors?: DueLowerBounds;
}

/** Claims over the tables of one store. */
export class Claims {
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #sight = new ClaimStrategy();
  readonly #floors: DueLowerBounds;
  readonly #turns: OrderKeyTurns;
  /** How many more look far: others take the same rows, or a filter leaves many out. */
  #wideLeft = 0;
  /** How many more expect to meet some that wait for their turn. */
  #crowdedLeft = 0;

  constructor(
    names: Names,
    clock: Clock,
    {
      turns = new OrderKeyTurns(names),
      floors = new DueLowerBounds(names, clock),
    }: ClaimsParts = {},
  ) {
    this.#names = names;
    this.#turns = turns;
    this.#clock = clock;
    this.#floors = floors;
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
    this.#turns.noteClaim(request.now);
    if (!this.#turns.isOrdered || request.lane !== 'delivery') {
      const rows = await this.#claimAny(ask, { request, slots });
      const mayBeOrdered = rows.length === 0 && request.lane === 'delivery';
      if (!mayBeOrdered || !(await this.#turns.learn(ask))) return rows;
    }
    return this.#claimInTurn(ask, { request, slots });
  }

  /** Where no keys are. Takes nothing where some are after all. */
  async #claimAny(ask: Ask, { request, slots }: Wanted): Promise<EntryRow[]> {
    const beganAt = this.#clock.monotonic();
    const way = this.#sight.isStraight(request) ? 'straight' : 'glance';
    const glance = glanceSearch(request.max, this.#wideLeft > 0);
    const first = await this.#take(ask, { request, slots }, way, glance);
    const isFilled = first.rows.length >= request.max;
    this.#sight.note(request, isFilled && first.leftOut === 0, this.#clock.monotonic() - beganAt);
    const isEnough = isFilled || first.isWhole;
    this.#wideLeft = isEnough ? Math.max(0, this.#wideLeft - 1) : WIDE_CLAIMS;
    if (isEnough) return first.rows;
    const max = request.max - first.rows.length;
    const more = await this.#take(ask, { request: { ...request, max }, slots }, 'flows', glance);
    return [...first.rows, ...more.rows].sort(byOrder);
  }

  /**
   * Where keys have an order: most of the time nothing that waits for its turn is in the way, and
   * the first due rows are all there is to see. n.b. A statement that can also put behind takes
   * three times as long to plan: 0.9 ms against 0.3 ms. (PostgreSQL 15, 2026-11-16)
   */
  async #claimInTurn(ask: Ask, wanted: Wanted): Promise<EntryRow[]> {
    const { request } = wanted;
    const isClear = this.#crowdedLeft === 0 && request.ids === undefined;
    if (!isClear || (leavesOut(request) && !this.#sight.isStraight(request))) {
      return this.#claimPast(ask, wanted, []);
    }
    const beganAt = this.#clock.monotonic();
    const { rows, isWhole } = await this.#take(ask, wanted, 'front', request.max);
    const isFilled = rows.length >= request.max;
    this.#sight.note(request, isFilled, this.#clock.monotonic() - beganAt);
    if (isFilled || isWhole) return rows;
    this.#crowdedLeft = CROWDED_CLAIMS;
    return this.#claimPast(ask, wanted, rows);
  }

  /**
   * Past what waits for its turn: it is put behind, more of it at a time while that is all there is
   * to see; then what may go is looked for in every flow. With the `rows` that were taken before.
   */
  async #claimPast(ask: Ask, { request, slots }: Wanted, rows: EntryRow[]): Promise<EntryRow[]> {
    const left = () => ({ request: { ...request, max: request.max - rows.length }, slots });
    let glance = glanceSearch(request.max, this.#wideLeft > 0);
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const beganAt = this.#clock.monotonic();
      const part = await this.#take(ask, left(), 'glance', glance);
      rows.push(...part.rows);
      if (round === 0) this.#notePast(request, rows, part, this.#clock.monotonic() - beganAt);
      const isEnough = rows.length >= request.max || part.isWhole;
      this.#wideLeft = isEnough ? Math.max(0, this.#wideLeft - 1) : WIDE_CLAIMS;
      if (isEnough) return rows.sort(byOrder);
      if (part.putBehind === 0) break;
      glance = Math.min(GLANCE_GROWTH * glance, Math.max(glance, GLANCE_MAX));
    }
    const more = await this.#take(ask, left(), 'flows', glance);
    return [...rows, ...more.rows].sort(byOrder);
  }

  #notePast(request: ClaimRequest, rows: readonly EntryRow[], part: Taken, tookMs: number): void {
    const isFilled = rows.length >= request.max;
    this.#sight.note(request, isFilled && part.leftOut === 0, tookMs);
    const isCrowded = part.putBehind > 0;
    this.#crowdedLeft = isCrowded ? CROWDED_CLAIMS : Math.max(0, this.#crowdedLeft - 1);
  }

  /** The earliest due time that a claim would see. */
  async nextDueAt(ask: Ask, filter: ClaimFilter): Promise<number | null> {
    const slots = slotsOf(filter);
    if (slots.length === 0 || filter.ids?.length === 0) return null;
    await this.#floors.raise(ask);
    const beganAt = this.#clock.monotonic();
    const first = await this.#earliest(ask, filter, slots, 'glance');
    this.#floors.noteLook(this.#clock.monotonic() - beganAt);
    const { dueAt } = first;
    // Among dead rows, one that is due already is enough to know: to walk through all flows for one
    // that may be due for longer would take far longer than to claim them.
    const isDue = dueAt !== null && dueAt <= (this.#turns.lastNow ?? dueAt);
    if (first.isWhole || (isDue && this.#floors.isRaised)) return dueAt;
    return (await this.#earliest(ask, filter, slots, 'flows')).dueAt;
  }

  async #take(ask: Ask, { request, slots }: Wanted, way: ClaimWay, glance: number): Promise<Taken> {
    const { now, max, lane } = request;
    const isInTurn = this.#turns.isOrdered && lane === 'delivery';
    const search = searchOf(request, {
      slots,
      now,
      max,
      glance,
      isLocking: true,
      floors: this.#floors,
      order: isInTurn ? orderOf(this.#names) : undefined,
    });
    const parts = this.#partsOf(search, request, way);
    const { glances = [] } = parts;
    const putsBehind = isInTurn && glances.length > 0;
    const put = putsBehind ? `, ${putBehindSql(this.#names, glances, search.until)}` : '';
    const conditions = [
      ...(parts.where === undefined ? [] : [parts.where]),
      // Before anything is taken: what was written in the same statement cannot be locked any more.
      ...(putsBehind ? ['(SELECT count(*) FROM waits) >= 0'] : []),
    ];
    const sorted = parts.isSorted === true ? '' : `\n  ${SORTED_SQL} LIMIT ${max}`;
    const isFree = parts.free === undefined ? '' : `, ${parts.free} AS is_free`;
    const none = isInTurn || lane !== 'delivery' ? '' : ` WHERE ${this.#turns.noneSql}`;
    const found = `WITH RECURSIVE lazy AS MATERIALIZED (
  SELECT set_config('synchronous_commit', 'off', true)${none}
)${listed(parts.sql)}${put}, c AS MATERIALIZED (
  SELECT p.*${isFree} FROM lazy, (${parts.from}) p WHERE ${allOf(conditions)}${sorted}
)`;
    const goes = parts.free === undefined ? '' : ' AND c.is_free';
    const taken = `${this.#takenSql(request, isInTurn)}${goes}
  RETURNING ${CLAIMED_SQL}`;
    if (parts.glance === undefined) {
      const rows = await indexOnlyQuery(ask, `${found} ${taken}`);
      return { rows: claimedRows(rows, request), isWhole: true, leftOut: 0, putBehind: 0 };
    }
    // One row comes in any case: it says how far the glance went.
    const counted = putsBehind ? '(SELECT count(*) FROM put)' : '0';
    const text = `${found}, taken AS (${taken})
SELECT t.*, ${counted}, s.left_out, s.seen FROM (${parts.seen}) s LEFT JOIN taken t ON true`;
    const rows = await indexOnlyQuery(ask, text);
    const [putBehind = 0, leftOut = 0, seen = 0] = (rows[0]?.slice(-3) ?? []).map(Number);
    const held = rows.filter((row) => row[0] !== null);
    const isWhole = seen < parts.glance;
    return { rows: claimedRows(held, request), isWhole, leftOut, putBehind };
  }

  /**
   * What `claimed` in core/next-status.ts says, over the rows of `c`. n.b. "OFFSET 0" keeps the
   * server from joining all contents where it takes the claim for large.
   */
  #takenSql(request: ClaimRequest, isInTurn: boolean): string {
    const { now, leaseMs, holder, lane } = request;
    const { entries, contents } = this.#names.table;
    const behind = isInTurn ? ', behind = false' : '';
    const counter = lane === 'delivery' ? 'attempts' : 'notices';
    const counts = 'CASE WHEN c.slot IN (2, 3) THEN 0 ELSE 1 END';
    return `UPDATE ${entries} e SET slot = ${stateKeyOf('active', lane)}, revision = e.revision + 1,
    ${counter} = e.${counter} + ${counts}, lost = e.lost + 1 - ${counts},
    due_at = ${sqlLiteral(now + leaseMs, 'int8')}, holder = ${sqlLiteral(holder, 'text')},
    claimed_from = c.slot / 2, updated_at = ${sqlLiteral(now, 'int8')}${behind}
  FROM c LEFT JOIN LATERAL (
    SELECT k.envelope, k.body FROM ${contents} k WHERE k.seq = c.seq OFFSET 0
  ) k ON true
  WHERE e.ctid = ANY(ARRAY(SELECT at FROM c)) AND e.ctid = c.at`;
  }

  async #earliest(
    ask: Ask,
    filter: ClaimFilter,
    slots: readonly StateKey[],
    way: ClaimWay,
  ): Promise<Earliest> {
    const { isOrdered, lastNow } = this.#turns;
    const isDelivery = filter.lane === 'delivery';
    const tellsAfter = () => sqlLiteral(lastNow ?? this.#clock.now(), 'int8');
    const search = searchOf(filter, {
      slots,
      now: EVER,
      max: 1,
      glance: glanceSearch(1, true),
      isLocking: false,
      floors: this.#floors,
      order: isOrdered && isDelivery ? orderOf(this.#names, tellsAfter()) : undefined,
    });
    const parts = this.#partsOf(search, filter, way);
    const hasNone = isOrdered || !isDelivery ? 'true' : this.#turns.noneSql;
    const text = `WITH RECURSIVE none AS (SELECT 1)${listed(parts.sql)}
SELECT (SELECT min(p.due_at) FROM (${parts.from}) p), s.seen, ${hasNone}
FROM (${parts.seen}) s`;
    const [[dueAt, seen, isRight] = []] = await indexOnlyQuery(ask, text);
    if (isRight === false) {
      this.#turns.note();
      return this.#earliest(ask, filter, slots, way);
    }
    const isWhole = parts.glance === undefined || Number(seen) < parts.glance;
    return { dueAt: (dueAt ?? null) as number | null, isWhole };
  }

  #partsOf(search: ClaimSearch, { ids }: ClaimFilter, way: ClaimWay): ClaimSqlParts {
    if (ids !== undefined) return searchByIds(this.#names, search, ids);
    if (way === 'flows') return searchByFlows(this.#names, search);
    if (way === 'front') return searchByFront(this.#names, search);
    return searchByDue(this.#names, search, way);
  }

  /** What a claim that was not answered has taken. */
  async #held(ask: Ask, { holder, lane }: ClaimRequest): Promise<EntryRow[]> {
    const { entries, contents } = this.#names.table;
    const slot = stateKeyOf('active', lane);
    const rows = await ask(
      `SELECT ${STATUS_SQL}, ${CONTENTS_SQL}, e.priority, e.due_at
FROM ${entries} e LEFT JOIN ${contents} k ON k.seq = e.seq
WHERE e.slot = ${slot} AND e.slot < ${ARCHIVED_KEY} AND e.holder = $1`,
      [holder],
    );
    return (rows as unknown as EntryRow[]).sort(byOrder);
  }
}

const SORTED_SQL = 'ORDER BY p.priority, p.due_at, p.id';

/** CTEs behind another one; there may be none. */
function listed(ctes: string): string {
  return ctes === '' ? '' : `, ${ctes}`;
}

function slotsOf({ states, lane }: ClaimFilter): StateKey[] {
  return [...new Set(states)].map((state) => stateKeyOf(state, lane));
}
