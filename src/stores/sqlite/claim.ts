/**
 * claim — what is due, and making it active.
 *
 * Every probe goes through an index, and that of a claim ends at `now`, so what is not due costs
 * nothing. What a filter leaves out is passed over a few rows at a time; when that is not enough,
 * flows are asked instead of entries (flow-looks.ts). So neither a claim nor `nextDueAt` reads the
 * backlog of others, whether it is due, as that of a paused topic, or not.
 *
 * The UPDATE repeats `claimedStatus` of core/next-status.ts in SQL: change both.
 */

import { stateNumber } from '../../core/state.ts';
import type { ClaimFilter, ClaimRequest } from '../../ports/entry-store.ts';
import type { SqliteDatabase, SqliteStatement } from '../shared/client.ts';
import {
  isActiveKey,
  type StateKey,
  stateKeyOf,
  stateOfKey,
  WAITING_KEYS,
} from '../shared/sql-row.ts';
import {
  byDueAtAndId,
  type Candidate,
  CANDIDATE_SQL,
  type Permit,
  Permits,
} from './claim-filter.ts';
import type { Connection } from './connection.ts';
import { FlowLooks } from './flow-looks.ts';
import type { TopicFlows } from './topic-flows.ts';
import type { KeyOrder } from './order-keys.ts';
import { type EntryRow, STATUS_SQL } from './row.ts';
import { BOUND_LIMIT, OPEN_SQL } from './schema.ts';

/** One probe: a slot and a priority, up to a due time, at most this many. */
interface Probe {
  readonly slot: StateKey;
  readonly priority: number;
  readonly until: number;
  readonly want: number;
  readonly permit: Permit | undefined;
  /** Whether order keys are to be looked at. */
  readonly isOrdered: boolean;
  /**
   * Whether only the first due time is asked for. Where that would take a long scan, the answer may
   * be earlier than the true one, never later.
   */
  readonly isLook: boolean;
}

/**
 * Rows that a look passes over before it makes the index by flow (flow-looks.ts). Also in
 * docs/performance.md; test/stores/sqlite/due-bounds.test.ts needs it below 150.
 */
const SCAN_MAX = 100;

/** How many more than it takes a claim looks at, where some may wait for their turn. */
const AHEAD = 64;
/** How far the next due time is looked for past those that wait for their turn. */
const LOOK_MAX = 1_000;

/** Claims over one connection. */
export class Claims {
  readonly #connection: Connection;
  readonly #flows: TopicFlows;
  readonly #order: KeyOrder;
  readonly #sql: ReturnType<typeof prepare>;
  /** Most stores never need them. */
  #flowLooks: FlowLooks | undefined;
  readonly #permits: Permits;

  constructor(connection: Connection, flows: TopicFlows, order: KeyOrder) {
    this.#connection = connection;
    this.#flows = flows;
    this.#order = order;
    this.#sql = prepare(connection.database);
    this.#permits = new Permits(flows);
  }

  /** In a transaction; see `claimedStatus` in core/next-status.ts for what it writes. */
  claim(request: ClaimRequest): EntryRow[] {
    const picked = this.#pick(request);
    const bySlot = new Map<StateKey, number[]>();
    for (const [seq, , , slot] of picked) {
      const seqs = bySlot.get(slot);
      if (seqs === undefined) bySlot.set(slot, [seq]);
      else seqs.push(seq);
    }
    const rows = new Map<number, EntryRow>();
    for (const [slot, seqs] of bySlot) {
      for (const row of this.#activate(slot, seqs, request)) rows.set(row[0], row);
    }
    this.#connection.wrote(rows.size);
    return picked.map((row) => rows.get(row[0])).filter((row) => row !== undefined);
  }

  /** After a rollback: the flow index it made is gone; forget it, and whether there was room. */
  drop(): void {
    this.#flowLooks?.drop();
  }

  /** The earliest due time that a claim would see. */
  nextDueAt(filter: ClaimFilter): number | null {
    const isOrdered = this.#isOrdered(filter);
    const permit = this.#permits.of(filter);
    const slots = slotsOf(filter);
    const until = Number.MAX_SAFE_INTEGER;
    if (filter.ids !== undefined) {
      const due = this.#among(filter.ids, slots, permit).filter(this.#isToldOf(isOrdered));
      return due.reduce<number | null>((next, [, dueAt]) => earlier(next, dueAt), null);
    }
    let next: number | null = null;
    for (const priority of this.#flows.priorities()) {
      for (const slot of slots) {
        const probe = { slot, priority, until, permit, isOrdered, isLook: true };
        next = earlier(next, this.#firstDueAt(probe));
      }
    }
    return next;
  }

  #firstDueAt(probe: Omit<Probe, 'want'>): number | null {
    if (!probe.isOrdered) return this.#due({ ...probe, want: 1 })[0]?.[1] ?? null;
    for (const want of [1, AHEAD, LOOK_MAX]) {
      const rows = this.#due({ ...probe, want });
      const first = rows.find(this.#isToldOf(true));
      if (first !== undefined) return first[1];
      if (rows.length < want) return null;
      // This many blocked rows last only until the next claim, which puts them behind.
      if (want === LOOK_MAX) return rows.at(-1)?.[1] ?? null;
    }
    return null;
  }

  /** Leaves out what waits for its turn, unless it has a time at which it is looked at again. */
  #isToldOf(isOrdered: boolean): (row: Candidate) => boolean {
    if (!isOrdered) return () => true;
    const isBlocked = this.#order.createIsBlocked();
    return ([seq, , , , , orderKey, behind]) =>
      orderKey === null || behind === 1 || !isBlocked(orderKey, seq);
  }

  /** Only deliveries have an order. */
  #isOrdered({ lane }: ClaimFilter): boolean {
    return lane === 'delivery' && this.#order.hasKeys();
  }

  #pick(request: ClaimRequest): Candidate[] {
    const { max } = request;
    if (!this.#isOrdered(request)) return this.#candidates(request, max, false);
    // Most of the time nothing is in the way.
    for (let want = max; ; want = max + AHEAD) {
      const rows = this.#candidates(request, want, true);
      const { free, putBehind } = this.#inTurn(rows, request);
      // What was put behind is not met again, so this ends.
      if (free.length === max || rows.length < want || putBehind === 0) return free;
    }
  }

  /** Those that may go, at most `max`; what waits for its turn is put behind on the way. */
  #inTurn(rows: readonly Candidate[], { max, now }: ClaimRequest) {
    const isBlocked = this.#order.createIsBlocked();
    const free: Candidate[] = [];
    const moved = new Set<string>();
    let putBehind = 0;
    for (const row of rows) {
      if (free.length === max) break;
      const [seq, , , , , orderKey] = row;
      if (orderKey === null || !isBlocked(orderKey, seq)) {
        free.push(row);
      } else if (!moved.has(orderKey)) {
        moved.add(orderKey);
        putBehind += this.#order.putBehind(orderKey, now);
      }
    }
    return { free, putBehind };
  }

  /** What is due by priority, due time and id, whether or not it is its turn. */
  #candidates(request: ClaimRequest, max: number, isOrdered: boolean): Candidate[] {
    const { now: until } = request;
    const slots = slotsOf(request);
    const permit = this.#permits.of(request);
    if (request.ids !== undefined) {
      const due = this.#among(request.ids, slots, permit).filter((row) => row[1] <= until);
      return due.slice(0, max);
    }
    const picked: Candidate[] = [];
    for (const priority of this.#flows.priorities()) {
      const want = max - picked.length;
      if (want <= 0) break;
      const rows = slots.flatMap((slot) =>
        this.#due({ slot, priority, until, want, permit, isOrdered, isLook: false }),
      );
      if (slots.length > 1) rows.sort(byDueAtAndId);
      picked.push(...rows.slice(0, want));
    }
    return picked;
  }

  /** Due entries of one slot and priority, in order, at most `want`. */
  #due(probe: Probe): Candidate[] {
    const { slot, priority, until, want, permit, isOrdered, isLook } = probe;
    if (permit === undefined) {
      const sql = isOrdered ? this.#sql.dueWhole : this.#sql.due;
      return sql.all(slot, priority, until, want) as Candidate[];
    }
    // Most of the time what is left out is little, and a glance at the first rows is enough.
    const glance = this.#glance(probe, permit, 4 * want + 16);
    if (glance.isEnough) return glance.fit;
    // Those that are active are few: as many as there are leases.
    if (!WAITING_KEYS.includes(slot)) return this.#dueByScan(probe, permit);
    this.#flowLooks ??= new FlowLooks(this.#connection, this.#flows);
    if (!this.#flowLooks.isMade()) {
      const scan = this.#glance(probe, permit, SCAN_MAX);
      if (scan.isEnough) return scan.fit;
    }
    if (this.#flowLooks.isReady()) {
      return this.#flowLooks.due(probe, permit, isLook && !isOrdered);
    }
    return isLook ? this.#firstRows(probe, permit) : this.#dueByScan(probe, permit);
  }

  /** What is permitted of the first rows, and whether the rest need not be looked at. */
  #glance(probe: Probe, permit: Permit, max: number) {
    const { slot, priority, until, want } = probe;
    const seen = this.#sql.dueWhole.all(slot, priority, until, max) as Candidate[];
    const fit = seen.filter((row) => this.#isAllowed(permit, row[4])).slice(0, want);
    return { fit, last: seen.at(-1), isEnough: fit.length === want || seen.length < max };
  }

  // Either there are few, or what is due has to be passed over since there is no index.
  #dueByScan({ slot, priority, until, want }: Probe, permit: Permit): Candidate[] {
    const found: Candidate[] = [];
    for (const row of this.#sql.dueWhole.iterate(slot, priority, until, -1)) {
      if (!this.#isAllowed(permit, (row as Candidate)[4])) continue;
      found.push(row as Candidate);
      if (found.length === want) break;
    }
    return found;
  }

  /** A look without an index ends early: at the time of the last row that it has seen. */
  #firstRows(probe: Probe, permit: Permit): Candidate[] {
    const { fit, last, isEnough } = this.#glance(probe, permit, LOOK_MAX);
    if (isEnough || last === undefined) return fit;
    const [seq, dueAt, id, slot] = last;
    return [...fit, [seq, dueAt, id, slot, null, null, 0]];
  }

  #among(ids: readonly string[], slots: readonly StateKey[], permit: Permit | undefined) {
    return [...new Set(ids)]
      .map((id) => this.#sql.byId.get(id) as readonly [...Candidate, number] | undefined)
      .filter((row) => row !== undefined)
      .filter((row) => slots.includes(row[3]) && row[1] !== null)
      .filter((row) => permit === undefined || this.#isAllowed(permit, row[4]))
      .map(([...row]) => ({ priority: row[7], row: row.slice(0, -1) as unknown as Candidate }))
      .sort((a, b) => a.priority - b.priority || byDueAtAndId(a.row, b.row))
      .map(({ row }) => row);
  }

  #isAllowed(permit: Permit, flow: number | null): boolean {
    const found = flow === null ? undefined : this.#flows.get(flow);
    return found !== undefined && permit.allows(found);
  }

  #activate(from: StateKey, seqs: readonly number[], request: ClaimRequest): EntryRow[] {
    const isLost = isActiveKey(from);
    const counts = isLost ? 0 : 1;
    const isDelivery = request.lane === 'delivery';
    const to = stateKeyOf('active', request.lane);
    const { activate, activateOne } = this.#sql;
    const rows = (seqs.length === 1 ? activateOne : activate).all(
      to,
      isDelivery ? counts : 0,
      isDelivery ? 0 : counts,
      isLost ? 1 : 0,
      request.now + request.leaseMs,
      request.holder,
      stateNumber(stateOfKey(from) ?? 'active'),
      request.now,
      seqs.length === 1 ? seqs[0] : JSON.stringify(seqs),
    ) as [...EntryRow, flow: number][];
    return rows.map((row) => {
      // The row goes on without its flow.
      const flow = Number(row.pop());
      this.#flows.count(flow, from, -1);
      this.#flows.count(flow, to, 1);
      return row as unknown as EntryRow;
    });
  }
}

function prepare(database: SqliteDatabase) {
  const select = (columns: string) =>
    database
      .prepare(
        `SELECT ${columns} FROM {entries} INDEXED BY {entries_due}
        WHERE slot = ? AND ${OPEN_SQL} AND priority = ? AND due_at <= ?
        ORDER BY due_at, id LIMIT ${BOUND_LIMIT}`,
      )
      .raw();
  return {
    // All of it is in the index; the row itself is not touched.
    due: select('seq, due_at, id, slot, NULL, NULL, 0'),
    dueWhole: select(CANDIDATE_SQL),
    byId: database.prepare(`SELECT ${CANDIDATE_SQL}, priority FROM {entries} WHERE id = ?`).raw(),
    activate: prepareActivate(database, 'IN (SELECT value FROM json_each(?))'),
    // An idle engine claims one at a time; opening a list of one costs as much as the update.
    activateOne: prepareActivate(database, '= ?'),
  };
}

function prepareActivate(database: SqliteDatabase, which: string): SqliteStatement {
  return database
    .prepare(
      `UPDATE {entries} SET slot = ?, revision = revision + 1, attempts = attempts + ?,
        notices = notices + ?, lost = lost + ?, due_at = ?, holder = ?, claimed_from = ?,
        updated_at = ?, behind = 0
      WHERE seq ${which}
      RETURNING seq, id, ${STATUS_SQL},
        (SELECT envelope FROM {contents} WHERE {contents}.seq = {entries}.seq),
        (SELECT body FROM {contents} WHERE {contents}.seq = {entries}.seq), flow`,
    )
    .raw();
}

function slotsOf({ states, lane }: ClaimFilter): StateKey[] {
  return [...new Set(states)].map((state) => stateKeyOf(state, lane));
}

function earlier(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b;
  return Math.min(a, b);
}
