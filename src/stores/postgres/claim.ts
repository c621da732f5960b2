/**
 * claim — finds due rows, locks them and makes them active, in one statement, or in a few where the
 * first scan finds too little; and looks for the next due time.
 *
 * Rows that others have locked are skipped, so claims never wait for each other. Every scan goes
 * through an index and ends at `now`. There are five (claim-sql.ts has their SQL):
 *
 *   filtered   the due rows in order, with the filter applied row by row; fast, not bounded
 *   bounded    the first few due rows, of which the allowed ones are taken; never walks far
 *   passing    past due rows that are left out, where there are fewer of these than flows
 *   by flow    each combination of topic, destination and priority, through `entries_flow`: beside
 *              100,000 due messages of a paused topic it costs one short scan. Where these are
 *              many, only those with something due
 *   head       with order keys: the first due rows, if none of them waits for another of its key
 *
 * The commit does not wait for the disk: a claim that a crash of the server undoes never counted.
 *
 * Also here: which scan a claim uses (`ClaimStrategy`, `FlowWalks`), and where scans begin while
 * dead row versions cannot be vacuumed (`DueLowerBounds`).
 *
 * Why: docs/decisions/0017-five-scans-to-claim-on-postgresql.md
 */

import type { Clock } from '../../ports/clock.ts';
import type { ClaimFilter, ClaimRequest } from '../../ports/entry-store.ts';
import { ARCHIVED_KEY, isActiveKey, type StateKey, stateKeyOf } from '../shared/sql-row.ts';
import {
  boundOf,
  byOrder,
  claimedRows,
  claimSql,
  type DueRange,
  FLOWS_FEW,
  type FlowScan,
  indexOnlyQuery,
  leavesOut,
  nextDueSql,
  type Scan,
} from './claim-sql.ts';
import type { QueryRequest } from './connection.ts';
import { PRIORITIES_SQL } from './schema.ts';
import type { Names } from './options.ts';
import { OrderKeys } from './order-keys.ts';
import { CONTENTS_SQL, type EntryRow, STATUS_SQL } from './row.ts';

/** After a bounded scan that was too short, this many claims scan twice as far. */
const WIDE_CLAIMS = 64;

/** With order keys: further bounded scans of one claim, their growth, and their most rows. */
const ROUNDS_MAX = 6;
const BOUND_GROWTH = 4;
const BOUND_MAX = 2_000;

/** After a row that waits for another of its key was met, this many claims expect more. */
const CROWDED_CLAIMS = 4;

/** A claim, and the state keys of its states. */
interface Search {
  readonly request: ClaimRequest;
  readonly slots: readonly StateKey[];
}

interface Taken {
  readonly rows: EntryRow[];
  /** Every due row was looked at. */
  readonly isWhole: boolean;
  /** Rows that the filter left out, and rows that were put behind another of their key. */
  readonly leftOut: number;
  readonly putBehind: number;
}

interface Earliest {
  readonly dueAt: number | null;
  readonly isWhole: boolean;
  /** How many flows a scan by flow walked through. */
  readonly flows: number;
}

/** How the earliest due time is looked for. */
interface EarliestLook extends DueRange {
  readonly scan: Scan;
  readonly bound?: number;
}

/** What claims share with other parts of the store. */
interface SharedState {
  readonly orderKeys?: OrderKeys;
  readonly lowerBounds?: DueLowerBounds;
}

/** Claims over the tables of one store. */
export class Claims {
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #strategy = new ClaimStrategy();
  readonly #flowWalks = new FlowWalks();
  readonly #lowerBounds: DueLowerBounds;
  readonly #orderKeys: OrderKeys;
  /** Claims left that scan far: others take the same rows, or a filter leaves many out. */
  #wideLeft = 0;
  /** Claims left that expect rows waiting for another of their key. */
  #crowdedLeft = 0;

  constructor(
    names: Names,
    clock: Clock,
    {
      orderKeys = new OrderKeys(names),
      lowerBounds = new DueLowerBounds(names, clock),
    }: SharedState = {},
  ) {
    this.#names = names;
    this.#orderKeys = orderKeys;
    this.#clock = clock;
    this.#lowerBounds = lowerBounds;
  }

  /** `isUnknown`: a try with the same holder got no answer, and may have claimed rows. */
  async claim(ask: QueryRequest, request: ClaimRequest, isUnknown: boolean): Promise<EntryRow[]> {
    if (isUnknown) {
      const held = await this.#held(ask, request);
      if (held.length > 0) return held;
    }
    const slots = slotsOf(request);
    if (slots.length === 0 || request.max <= 0 || request.ids?.length === 0) return [];
    this.#lowerBounds.noteClaim(request.now, request.leaseMs);
    this.#orderKeys.noteClaim(request.now);
    if (!this.#orderKeys.isOrdered || request.lane !== 'delivery') {
      const rows = await this.#claimAny(ask, { request, slots });
      const mayBeOrdered = rows.length === 0 && request.lane === 'delivery';
      if (!mayBeOrdered || !(await this.#orderKeys.learn(ask))) return rows;
    }
    return this.#claimInTurn(ask, { request, slots });
  }

  /** In a store without order keys. Takes nothing if there are some after all. */
  async #claimAny(ask: QueryRequest, { request, slots }: Search): Promise<EntryRow[]> {
    const beganAt = this.#clock.monotonic();
    const scan = this.#strategy.isFiltered(request) ? 'filtered' : 'bounded';
    const bound = boundOf(request.max, this.#wideLeft > 0);
    const first = await this.#take(ask, { request, slots }, scan, bound);
    const isFilled = first.rows.length >= request.max;
    this.#strategy.note(
      request,
      isFilled && first.leftOut === 0,
      this.#clock.monotonic() - beganAt,
    );
    const isEnough = isFilled || first.isWhole;
    this.#wideLeft = isEnough ? Math.max(0, this.#wideLeft - 1) : WIDE_CLAIMS;
    if (isEnough) return first.rows;
    const max = request.max - first.rows.length;
    const more = await this.#takeRest(ask, { request: { ...request, max }, slots }, bound);
    return [...first.rows, ...more].sort(byOrder);
  }

  /**
   * In a store with order keys: most of the time no row that waits for another is among the first
   * due rows, and a head scan suffices. n.b. A statement that can also put rows behind takes three
   * times as long to plan: 0.9 ms against 0.3 ms. (PostgreSQL 15, 2026-11-16)
   */
  async #claimInTurn(ask: QueryRequest, search: Search): Promise<EntryRow[]> {
    const { request } = search;
    const isClear = this.#crowdedLeft === 0 && request.ids === undefined;
    if (!isClear || (leavesOut(request) && !this.#strategy.isFiltered(request))) {
      return this.#claimPast(ask, search, []);
    }
    const beganAt = this.#clock.monotonic();
    const { rows, isWhole } = await this.#take(ask, search, 'head', request.max);
    const isFilled = rows.length >= request.max;
    this.#strategy.note(request, isFilled, this.#clock.monotonic() - beganAt);
    if (isFilled || isWhole) return rows;
    this.#crowdedLeft = CROWDED_CLAIMS;
    return this.#claimPast(ask, search, rows);
  }

  /**
   * Puts rows that wait for another of their key behind it, more at a time while a scan finds
   * nothing else; then scans by flow. Adds to the `rows` that were claimed before.
   */
  async #claimPast(
    ask: QueryRequest,
    { request, slots }: Search,
    rows: EntryRow[],
  ): Promise<EntryRow[]> {
    const left = () => ({ request: { ...request, max: request.max - rows.length }, slots });
    let bound = boundOf(request.max, this.#wideLeft > 0);
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const beganAt = this.#clock.monotonic();
      const part = await this.#take(ask, left(), 'bounded', bound);
      rows.push(...part.rows);
      if (round === 0) this.#notePast(request, rows, part, this.#clock.monotonic() - beganAt);
      const isEnough = rows.length >= request.max || part.isWhole;
      this.#wideLeft = isEnough ? Math.max(0, this.#wideLeft - 1) : WIDE_CLAIMS;
      if (isEnough) return rows.sort(byOrder);
      if (part.putBehind === 0) break;
      bound = Math.min(BOUND_GROWTH * bound, Math.max(bound, BOUND_MAX));
    }
    const more = await this.#takeRest(ask, left(), bound);
    return [...rows, ...more].sort(byOrder);
  }

  /** What a bounded scan did not reach. */
  async #takeRest(ask: QueryRequest, search: Search, bound: number): Promise<EntryRow[]> {
    const passing = this.#flowWalks.worthPassing(search.request);
    if (passing > 0) {
      const { rows, isWhole } = await this.#take(ask, search, 'passing', passing);
      if (isWhole) return rows;
      this.#flowWalks.noteShort(search.request);
    }
    const scan = this.#flowWalks.scanOf(search.request);
    const beganAt = this.#clock.monotonic();
    const walked = await this.#take(ask, search, scan, bound);
    this.#noteWalk(search.request, scan, { ...walked, flows: walked.leftOut }, beganAt);
    return walked.isWhole ? walked.rows : (await this.#take(ask, search, 'due-flows', bound)).rows;
  }

  #noteWalk(
    filter: ClaimFilter,
    scan: Scan,
    { flows, isWhole }: Pick<Earliest, 'flows' | 'isWhole'>,
    beganAt: number,
  ): void {
    if (scan === 'few-flows') this.#flowWalks.noteCount(filter, flows, isWhole);
    else this.#flowWalks.noteWalk(filter, this.#clock.monotonic() - beganAt);
  }

  #notePast(request: ClaimRequest, rows: readonly EntryRow[], part: Taken, tookMs: number): void {
    const isFilled = rows.length >= request.max;
    this.#strategy.note(request, isFilled && part.leftOut === 0, tookMs);
    const isCrowded = part.putBehind > 0;
    this.#crowdedLeft = isCrowded ? CROWDED_CLAIMS : Math.max(0, this.#crowdedLeft - 1);
  }

  /** The earliest due time of the rows that a claim could take. */
  async nextDueAt(ask: QueryRequest, filter: ClaimFilter): Promise<number | null> {
    const slots = slotsOf(filter);
    if (slots.length === 0 || filter.ids?.length === 0) return null;
    await this.#lowerBounds.raise(ask);
    const beganAt = this.#clock.monotonic();
    const first = await this.#earliest(ask, filter, slots, { scan: 'bounded' });
    this.#lowerBounds.noteLook(this.#clock.monotonic() - beganAt);
    const { dueAt } = first;
    // Beside dead rows, a row that is already due is enough to know: a scan of all flows for an
    // earlier one would take far longer than claiming them.
    const isDue = dueAt !== null && dueAt <= (this.#orderKeys.lastClaimAt ?? dueAt);
    if (first.isWhole || (isDue && this.#lowerBounds.isRaised)) return dueAt;
    const bound = this.#flowWalks.worthPassing(filter);
    if (bound > 0) {
      const past = await this.#earliest(ask, filter, slots, { scan: 'passing', bound });
      if (past.isWhole) return past.dueAt;
      this.#flowWalks.noteShort(filter);
    }
    const scan = this.#flowWalks.scanOf(filter);
    if (scan !== 'due-flows') {
      const walkAt = this.#clock.monotonic();
      const walked = await this.#earliest(ask, filter, slots, { scan });
      this.#noteWalk(filter, scan, walked, walkAt);
      if (walked.isWhole) return walked.dueAt;
    }
    return this.#earliestOfMany(ask, filter, slots);
  }

  /** The same beside many flows: of those with a due row, then of what is due later. */
  async #earliestOfMany(
    ask: QueryRequest,
    filter: ClaimFilter,
    slots: readonly StateKey[],
  ): Promise<number | null> {
    const now = this.#orderKeys.lastClaimAt ?? this.#clock.now();
    const due = await this.#earliest(ask, filter, slots, { scan: 'due-flows', until: now });
    if (due.dueAt !== null) return due.dueAt;
    const bound = this.#flowWalks.rowsOf(filter);
    for (const look of [{ scan: 'bounded' }, { scan: 'passing', bound }] as const) {
      const later = await this.#earliest(ask, filter, slots, { ...look, after: now });
      if (later.isWhole) return later.dueAt;
    }
    return (await this.#earliest(ask, filter, slots, { scan: 'due-flows' })).dueAt;
  }

  async #take(
    ask: QueryRequest,
    { request, slots }: Search,
    scan: Scan,
    bound: number,
  ): Promise<Taken> {
    const isOrdered = this.#orderKeys.isOrdered;
    const lowerBoundSql = (slot: StateKey) => this.#lowerBounds.sql(slot);
    const statement = claimSql(this.#names, request, {
      slots,
      scan,
      bound,
      isOrdered,
      lowerBoundSql,
    });
    const answer = await indexOnlyQuery(ask, statement.text);
    if (statement.bound === undefined) {
      const rows = claimedRows(answer, request);
      return { rows, isWhole: true, leftOut: 0, putBehind: 0 };
    }
    // The last three columns of `claimSql`.
    const [putBehind = 0, leftOut = 0, seen = 0] = (answer[0]?.slice(-3) ?? []).map(Number);
    const rows = claimedRows(
      answer.filter((row) => row[0] !== null),
      request,
    );
    return { rows, isWhole: seen < statement.bound, leftOut, putBehind };
  }

  async #earliest(
    ask: QueryRequest,
    filter: ClaimFilter,
    slots: readonly StateKey[],
    look: EarliestLook,
  ): Promise<Earliest> {
    const { isOrdered, lastClaimAt } = this.#orderKeys;
    const statement = nextDueSql(this.#names, filter, {
      ...look,
      slots,
      isOrdered,
      now: () => lastClaimAt ?? this.#clock.now(),
      lowerBoundSql: (slot) => this.#lowerBounds.sql(slot),
    });
    const [[dueAt, flows, seen, isOrderRight] = []] = await indexOnlyQuery(ask, statement.text);
    if (isOrderRight === false) {
      this.#orderKeys.note();
      return this.#earliest(ask, filter, slots, look);
    }
    const isWhole = statement.bound === undefined || Number(seen) < statement.bound;
    return { dueAt: (dueAt ?? null) as number | null, isWhole, flows: Number(flows) };
  }

  /** The rows of a claim that got no answer; their columns end as `byOrder` wants them. */
  async #held(ask: QueryRequest, { holder, lane }: ClaimRequest): Promise<EntryRow[]> {
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

function slotsOf({ states, lane }: ClaimFilter): StateKey[] {
  return [...new Set(states)].map((state) => stateKeyOf(state, lane));
}

// The strategy of claims: a filtered scan, or a bounded one.
//
// A bounded scan never walks far; a filtered one is a fifth faster where the filter allows nearly
// all due rows. So claims switch to filtered scans after a few bounded ones that left nothing out,
// and back when a claim is not filled, takes longer than the fastest did, or now and then in any
// case. A needless switch back costs a few bounded scans; a long walk would cost more.

/**
 * After this many full bounded scans in a row a filter is trusted, for this many claims. Also in
 * decision 0017 and test/stores/postgres/claim-strategy.test.ts.
 */
const TRUSTED_AFTER = 4;
const TRUSTED_FOR = 64;
/**
 * A claim that takes this long, and this many times as long as the fastest, walked too far.
 * test/stores/postgres/claim-strategy.test.ts takes 7 ms beside 2 for too far.
 */
const SLOW_MS = 2;
const SLOW_FACTOR = 3;
/** Filters that are remembered; full destinations change them all the time. */
const FILTERS_MAX = 64;
/** A filter with more full destinations than this is another one at nearly every claim. */
const EXCEPT_MAX = 64;

interface FilterHistory {
  filled: number;
  trustedFor: number;
  quickestMs: number;
}

/** The strategy of one store, by filter. */
export class ClaimStrategy {
  readonly #seen = new Map<string, FilterHistory>();

  /** Whether the next claim with this filter may use a filtered scan. */
  isFiltered(request: ClaimRequest): boolean {
    return (this.#of(request)?.trustedFor ?? 0) > 0;
  }

  /** Notes a claim; `isClear`: it was filled, and its filter left nothing out. */
  note(request: ClaimRequest, isClear: boolean, tookMs: number): void {
    const seen = this.#of(request);
    if (seen === undefined) return;
    if (seen.trustedFor > 0) {
      const isSlow = tookMs > SLOW_MS && tookMs > SLOW_FACTOR * seen.quickestMs;
      seen.trustedFor = isClear && !isSlow ? seen.trustedFor - 1 : 0;
      // After a good claim one bounded scan is enough to go on.
      seen.filled = isClear && !isSlow ? TRUSTED_AFTER - 1 : 0;
    } else {
      seen.filled = isClear ? seen.filled + 1 : 0;
      if (seen.filled >= TRUSTED_AFTER) seen.trustedFor = TRUSTED_FOR;
    }
    seen.quickestMs = Math.min(seen.quickestMs, tookMs);
  }

  #of(request: ClaimRequest): FilterHistory | undefined {
    const { lane, states, topics, exceptDestinations = [], max } = request;
    if (exceptDestinations.length > EXCEPT_MAX) return undefined;
    // Claims of about the same size take about the same time.
    const size = Math.ceil(Math.log2(max));
    const key = JSON.stringify([lane, states, topics, exceptDestinations, size]);
    const found = this.#seen.get(key);
    if (found !== undefined) return found;
    if (this.#seen.size >= FILTERS_MAX) this.#seen.clear();
    const fresh: FilterHistory = { filled: 0, trustedFor: 0, quickestMs: Number.POSITIVE_INFINITY };
    this.#seen.set(key, fresh);
    return fresh;
  }
}

// How long a walk through the flows is: it passes through those of which nothing is due too.
//
// Where there are many, passing over the due rows that a filter leaves out is mostly shorter, and
// after that the walk to the flows with a due row alone. A walk that counts finds out, and has an
// end. Full destinations change all the time, and the number of flows does not depend on them.

/**
 * How many due rows are passed over in the time in which a walk finds the next flow. Also in
 * decision 0017.
 */
const ROWS_PER_FLOW = 4;
/** After a passing scan that was too short, this many looks do without it. */
const LOOKS_WITHOUT = 16;
/** Walks between two that count the flows. Also in decision 0017. */
const LOOKS_UNCOUNTED = 64;
/**
 * A walk that was expected to be short and takes this long: the next one counts the flows. Also in
 * decision 0017.
 */
const WALK_SLOW_MS = 10;
/** Filters whose walks are remembered: some for each route with a limit of its own. */
const WALKS_MAX = 1_024;

interface FlowWalk {
  flows: number;
  isMany: boolean;
  /** Looks left without a passing scan, and without a count. */
  passLeft: number;
  countLeft: number;
}

/** The walks through the flows of one store, by filter. */
class FlowWalks {
  readonly #walks = new Map<string, FlowWalk>();

  /** How many due rows to pass over before a walk; 0: none. */
  worthPassing(filter: ClaimFilter): number {
    const walk = this.#of(filter);
    if (walk.flows < FLOWS_FEW) return 0;
    if (walk.passLeft === 0) return this.rowsOf(filter);
    walk.passLeft -= 1;
    return 0;
  }

  noteShort(filter: ClaimFilter): void {
    this.#of(filter).passLeft = LOOKS_WITHOUT;
  }

  /** How many rows take as long as the flows. */
  rowsOf(filter: ClaimFilter): number {
    return ROWS_PER_FLOW * this.#of(filter).flows;
  }

  /** The next walk. */
  scanOf(filter: ClaimFilter): FlowScan {
    const walk = this.#of(filter);
    if (walk.countLeft === 0) return 'few-flows';
    walk.countLeft -= 1;
    return walk.isMany ? 'due-flows' : 'by-flow';
  }

  noteCount(filter: ClaimFilter, flows: number, isWhole: boolean): void {
    const walk = this.#of(filter);
    walk.flows = flows;
    walk.isMany = !isWhole;
    walk.countLeft = isWhole && flows >= FLOWS_FEW ? 0 : LOOKS_UNCOUNTED;
  }

  noteWalk(filter: ClaimFilter, tookMs: number): void {
    const walk = this.#of(filter);
    if (!walk.isMany && tookMs > WALK_SLOW_MS) walk.countLeft = 0;
  }

  #of(filter: ClaimFilter): FlowWalk {
    const key = keyOf(filter);
    const found = this.#walks.get(key);
    if (found !== undefined) return found;
    if (this.#walks.size >= WALKS_MAX) this.#walks.clear();
    const fresh: FlowWalk = { flows: 0, isMany: false, passLeft: 0, countLeft: 0 };
    this.#walks.set(key, fresh);
    return fresh;
  }
}

function keyOf({ lane, states, topics }: ClaimFilter): string {
  return JSON.stringify([lane, states, topics]);
}

// Lower bounds of due times: where the live rows of each state begin, while dead rows cannot be
// vacuumed.
//
// While a transaction is open somewhere, every row that was settled since stays in the index, ahead
// of the due rows, and each scan walks over all of them. When scans take unusually long, we note
// the first live due time of each state, and scans begin there.
//
// A row that appears below its bound — from a transaction that was open for long, or under a lease
// shorter than ours — is found by the next full scan, 5 to 30 s later, and `nextDueAt` may return
// a due row other than the earliest. Where scans are fast there are no bounds, and nothing is late.

/**
 * Two scans in a row that take this long mean dead rows, and a fast full one means none. Long is an
 * absolute time, or relative to the fastest scan, which shows the distance to the server. Also in
 * docs/reference/stores/postgres.md; test/stores/postgres/due-lower-bound.test.ts repeats them.
 */
const COSTLY_MS = 50;
const COSTLY_FACTOR = 4;
const COSTLY_MORE_MS = 5;
const COSTLY_LOOKS = 2;
/**
 * The interval of full scans: this many times what the last one took, within limits. Also in
 * docs/reference/stores/postgres.md; test/stores/postgres/due-lower-bound.test.ts expects 6 s after
 * 300 ms.
 */
const FULL_FACTOR = 20;
const FULL_EVERY_MIN_MS = 5_000;
const FULL_EVERY_MAX_MS = 30_000;
/**
 * New rows may be due this much before the last claim. Also in
 * test/stores/postgres/due-lower-bound.test.ts.
 */
const MARGIN_MS = 2_000;

/** The state keys that the spool asks for: `KINDS` of spool/claim-fairness.ts. */
const SLOTS: readonly StateKey[] = [
  stateKeyOf('incoming', 'delivery'),
  stateKeyOf('active', 'delivery'),
  stateKeyOf('deferred', 'delivery'),
  stateKeyOf('active', 'notice'),
  stateKeyOf('bounce', 'notice'),
];

/** The lower bounds of one store. */
export class DueLowerBounds {
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #dueAt = new Map<StateKey, number>();
  #quickestMs = Number.POSITIVE_INFINITY;
  #costlyLooks = 0;
  #isCostly = false;
  #fullAgainAt = Number.NEGATIVE_INFINITY;
  /** The time of the last claim, and its lease. */
  #last: { readonly now: number; readonly leaseMs: number } | undefined;

  constructor(names: Names, clock: Clock) {
    this.#names = names;
    this.#clock = clock;
  }

  /** The condition on rows of a state; empty where there is no bound. */
  sql(slot: StateKey): string {
    const bound = this.#isCostly ? this.#dueAt.get(slot) : undefined;
    return bound === undefined ? '' : ` AND due_at >= ${Math.floor(bound)}`;
  }

  /** Whether there are dead rows ahead of live ones. */
  get isRaised(): boolean {
    return this.#isCostly;
  }

  noteClaim(now: number, leaseMs: number): void {
    this.#last = { now, leaseMs };
  }

  /** Notes how long a look for the next due row took. */
  noteLook(tookMs: number): void {
    this.#quickestMs = Math.min(this.#quickestMs, tookMs);
    if (this.#isCostly) return;
    this.#costlyLooks = tookMs > this.#costlyMs ? this.#costlyLooks + 1 : 0;
    this.#isCostly = this.#costlyLooks >= COSTLY_LOOKS;
  }

  /** Finds where live rows begin; does nothing where scans are fast. */
  async raise(ask: QueryRequest): Promise<void> {
    const last = this.#last;
    if (!this.#isCostly || last === undefined) return;
    const beganAt = this.#clock.monotonic();
    const isFull = beganAt >= this.#fullAgainAt;
    if (isFull) this.#dueAt.clear();
    const [firsts = []] = await ask(
      `SELECT ${SLOTS.map((slot) => this.#firstSql(slot)).join(', ')}`,
    );
    for (const [at, slot] of SLOTS.entries()) {
      const first = (firsts[at] as number | null) ?? Number.POSITIVE_INFINITY;
      const comingAt = last.now - MARGIN_MS + (isActiveKey(slot) ? last.leaseMs : 0);
      this.#dueAt.set(slot, Math.min(first, comingAt));
    }
    if (isFull) this.#noteFull(beganAt);
  }

  get #costlyMs(): number {
    return Math.min(COSTLY_MS, COSTLY_FACTOR * this.#quickestMs + COSTLY_MORE_MS);
  }

  #noteFull(beganAt: number): void {
    const now = this.#clock.monotonic();
    const tookMs = now - beganAt;
    const everyMs = Math.max(FULL_EVERY_MIN_MS, FULL_FACTOR * tookMs);
    this.#fullAgainAt = now + Math.min(FULL_EVERY_MAX_MS, everyMs);
    if (tookMs > this.#costlyMs) return;
    this.#isCostly = false;
    this.#costlyLooks = 0;
    this.#dueAt.clear();
    this.#fullAgainAt = Number.NEGATIVE_INFINITY;
  }

  #firstSql(slot: StateKey): string {
    return `(SELECT min(e.due_at) FROM ${PRIORITIES_SQL} AS p(n) CROSS JOIN LATERAL (
  SELECT due_at FROM ${this.#names.table.entries}
  WHERE slot = ${slot} AND slot < ${ARCHIVED_KEY} AND priority = p.n::int2${this.sql(slot)}
  ORDER BY due_at, id LIMIT 1
) e)`;
  }
}
