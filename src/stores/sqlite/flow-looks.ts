/**
 * flow-looks — looks for what is due that ask flows instead of entries, for filters that leave out
 * more than a glance passes over.
 *
 *   few flows permitted ─▶ one index probe for each
 *   many ─▶ flows in the order of their due bounds, until there is enough ─too many in vain─▶ all
 *
 * So entries of other flows are not read, however many wait or are due, and of many flows only
 * those are asked that may have something due. The index and the bounds are made by the first look
 * that needs them; where the user makes the tables, the bounds only by the user. Promise: a bound
 * never comes after what it stands for, so nothing that is due is missed.
 * Why: docs/decisions/0050-due-bounds-are-kept-by-triggers.md
 */

import { sqliteCode, type SqliteDatabase } from '../shared/client.ts';
import type { StateKey } from '../shared/sql-row.ts';
import { byDueAtAndId, type Candidate, CANDIDATE_SQL, type Permit } from './claim-filter.ts';
import type { Connection } from './connection.ts';
import { isDiskError } from './errors.ts';
import {
  BOUND_LIMIT,
  DUE_BOUNDS_ANEW_SQL,
  dueBoundsIn,
  firstOfFlowSql,
  FLOW_INDEX_SQL,
  flowIndexIn,
  type PartState,
  WAITING_SQL,
} from './schema.ts';
import type { TopicFlows } from './topic-flows.ts';

/**
 * Maximum number of permitted flows that are all asked: that costs less than the bounds would. Also
 * in docs/performance.md, docs/reference/sqlite.md and decision 0050;
 * test/stores/sqlite/due-bounds.test.ts needs it below 300.
 */
const FEW_FLOWS = 256;
/**
 * After as many visits in vain as this part of the permitted flows, all of these are asked. A visit
 * in the order of bounds takes 2.3 µs and a probe 0.2 to 0.3, so that such a look costs at most
 * about half as much again as one that begins with the probes. The part is also in decision 0050.
 */
const IN_VAIN_PART = 32;
const IN_VAIN_MIN = 32;

/** After a try to make something has failed, this many looks go without it before the next try. */
const LOOKS_WITHOUT = 1_000;
/**
 * From this many bounds on that are too early, a look outside a transaction begins one to raise
 * them. Also in decision 0050.
 */
const RAISED_MIN = 16;
/**
 * After a rollback, as on a full disk, or where another process wrote, this many looks leave bounds
 * that are too early alone. Also in test/stores/sqlite/flow-looks.test.ts.
 */
const LOOKS_WITHOUT_RAISE = 100;

/** A look through the flows of a filter. */
interface FlowProbe {
  readonly slot: StateKey;
  readonly priority: number;
  readonly until: number;
  readonly want: number;
}

/** Looks by flow over one connection. */
export class FlowLooks {
  readonly #connection: Connection;
  readonly #index: MadeOnDemand;
  readonly #bounds: DueBounds;
  #sql: ReturnType<typeof prepare> | undefined;

  constructor(connection: Connection, flows: TopicFlows) {
    this.#connection = connection;
    this.#index = new MadeOnDemand(connection, FLOW_INDEX_SQL, flowIndexIn);
    this.#bounds = new DueBounds(connection, flows);
  }

  /** Whether the index is there. */
  isMade(): boolean {
    return this.#index.isMade();
  }

  /** Whether looks by flow are possible; makes the index that they need, if there is room. */
  isReady(): boolean {
    return this.#index.isReady();
  }

  /** After a rollback: what it made is gone, and if there was no room for it, there is none now. */
  drop(): void {
    this.#index.drop();
    this.#bounds.drop();
    this.#sql = undefined;
  }

  /**
   * Due entries by due time and id, at most `want`; only the due time of the first one, if that is
   * all that is asked for.
   */
  due(probe: FlowProbe, permit: Permit, isDueTimeOnly: boolean): Candidate[] {
    const count = permit.countOf(probe.priority);
    if (count > FEW_FLOWS && this.#bounds.isReady()) {
      const inVainMax = Math.max(IN_VAIN_MIN, Math.floor(count / IN_VAIN_PART));
      const found = this.#bounds.due(probe, permit, inVainMax);
      if (found !== undefined) return found;
    }
    return isDueTimeOnly ? this.#first(probe, permit) : this.#dueOfAll(probe, permit);
  }

  /** One entry with the earliest due time of all, any of those that have it; none if none is. */
  #first({ slot, priority }: FlowProbe, permit: Permit): Candidate[] {
    const { first } = this.#ready();
    const dueAt = first.get(slot, permit.flowsOf(priority)) as number | null;
    return dueAt === null ? [] : [[0, dueAt, '', slot, null, null, 0]];
  }

  #dueOfAll({ slot, priority, until, want }: FlowProbe, permit: Permit): Candidate[] {
    const { heads, ofFlow } = this.#ready();
    const rows = heads.all(slot, until, permit.flowsOf(priority)) as [flow: number, at: number][];
    rows.sort((a, b) => a[1] - b[1]);
    let found: Candidate[] = [];
    for (const [flow, firstAt] of rows) {
      const last = found.length < want ? undefined : found.at(-1);
      if (last !== undefined && firstAt > last[1]) break;
      const more = ofFlow.all(flow, slot, last?.[1] ?? until, want) as Candidate[];
      found = firstOf(want, found, more);
    }
    return found;
  }

  #ready(): ReturnType<typeof prepare> {
    this.#sql ??= prepare(this.#connection.database);
    return this.#sql;
  }
}

function firstOf(want: number, some: readonly Candidate[], more: readonly Candidate[]) {
  return [...some, ...more].sort(byDueAtAndId).slice(0, want);
}

function prepare(database: SqliteDatabase) {
  const ofFlow = (flow: string) =>
    `FROM {entries} INDEXED BY {entries_by_flow}
    WHERE flow = ${flow} AND slot = ? AND ${WAITING_SQL}`;
  return {
    first: database
      .prepare(
        `SELECT min((SELECT due_at ${ofFlow('f.value')} AND due_at IS NOT NULL
          ORDER BY due_at LIMIT 1)) FROM json_each(?) f`,
      )
      .pluck(),
    heads: database
      .prepare(
        `SELECT f.value AS flow, (SELECT due_at ${ofFlow('f.value')} AND due_at <= ?
          ORDER BY due_at LIMIT 1) AS at FROM json_each(?) f WHERE at IS NOT NULL`,
      )
      .raw(),
    ofFlow: prepareOfFlow(database),
  };
}

function prepareOfFlow(database: SqliteDatabase) {
  return database
    .prepare(
      `SELECT ${CANDIDATE_SQL} FROM {entries} INDEXED BY {entries_by_flow}
      WHERE flow = ? AND slot = ? AND ${WAITING_SQL} AND due_at <= ?
      ORDER BY due_at, id LIMIT ${BOUND_LIMIT}`,
    )
    .raw();
}

// Flows in the order in which they may have something due; see DUE_BOUNDS_SQL in schema.ts.

/** The first entry of a flow in a slot, or a bound that comes no later. */
type Head = readonly [dueAt: number, id: string];
type Bound = readonly [flow: number, dueAt: number, id: string];

class DueBounds {
  readonly #connection: Connection;
  readonly #flows: TopicFlows;
  readonly #table: MadeOnDemand;
  #sql: ReturnType<typeof prepareBounds> | undefined;
  #withoutRaise = 0;

  constructor(connection: Connection, flows: TopicFlows) {
    this.#connection = connection;
    this.#flows = flows;
    this.#table = new MadeOnDemand(connection, DUE_BOUNDS_ANEW_SQL, dueBoundsIn);
  }

  isReady(): boolean {
    return this.#connection.mayMigrate ? this.#table.isReady() : this.#table.isMade();
  }

  drop(): void {
    this.#table.drop();
    this.#sql = undefined;
    this.#withoutRaise = LOOKS_WITHOUT_RAISE;
  }

  /**
   * Due entries by due time and id; undefined when more flows than this were visited in vain: those
   * that the filter does not permit, or whose bound was too early.
   */
  due(probe: FlowProbe, permit: Permit, inVainMax: number): Candidate[] | undefined {
    const { slot, priority, until, want } = probe;
    const { inOrder, head, ofFlow } = this.#ready();
    const early: [flow: number, head: Head | undefined][] = [];
    let found: Candidate[] = [];
    let inVain = 0;
    for (const bound of inOrder.iterate(slot, priority, until)) {
      const [flow, dueAt, id] = bound as Bound;
      const last = found.length < want ? undefined : found.at(-1);
      if (last !== undefined && isAfter([dueAt, id], last)) break;
      const first = head.get(flow, slot) as Head | undefined;
      const isEarly = first?.[0] !== dueAt || first[1] !== id;
      if (isEarly) early.push([flow, first]);
      const isPermitted = this.#isPermitted(permit, flow);
      if (isEarly || !isPermitted) inVain += 1;
      if (inVain > inVainMax) break;
      if (!isPermitted || first === undefined || first[0] > until) continue;
      if (last !== undefined && isAfter(first, last)) continue;
      const more = ofFlow.all(flow, slot, last?.[1] ?? until, want) as Candidate[];
      found = firstOf(want, found, more);
    }
    this.#raise(slot, early);
    return inVain > inVainMax ? undefined : found;
  }

  #isPermitted(permit: Permit, number: number): boolean {
    const flow = this.#flows.get(number);
    return flow !== undefined && permit.allows(flow);
  }

  /** So that no look meets these again until another entry comes before them. */
  #raise(slot: StateKey, early: readonly (readonly [number, Head | undefined])[]): void {
    if (this.#withoutRaise > 0) {
      this.#withoutRaise -= 1;
      return;
    }
    const { inTransaction } = this.#connection.database;
    if (inTransaction) {
      for (const [flow, first] of early) this.#set(flow, slot, first);
    } else if (early.length >= RAISED_MIN) {
      const { head } = this.#ready();
      const raised = writeIfPossible(this.#connection, () => {
        // Asked again inside: another process may have written meanwhile.
        for (const [flow] of early) this.#set(flow, slot, head.get(flow, slot) as Head | undefined);
      });
      if (raised !== 'done') this.#withoutRaise = LOOKS_WITHOUT_RAISE;
    }
  }

  #set(flow: number, slot: StateKey, first: Head | undefined): void {
    const { raise, remove } = this.#ready();
    if (first === undefined) remove.run(flow, slot);
    else raise.run(...first, flow, slot);
  }

  #ready(): ReturnType<typeof prepareBounds> {
    this.#sql ??= prepareBounds(this.#connection.database);
    return this.#sql;
  }
}

function isAfter([dueAt, id]: Head, other: Candidate): boolean {
  return dueAt > other[1] || (dueAt === other[1] && id > other[2]);
}

function prepareBounds(database: SqliteDatabase) {
  return {
    inOrder: database
      .prepare(
        `SELECT flow, due_at, id FROM {due_bounds} INDEXED BY {due_bounds_in_order}
        WHERE slot = ? AND priority = ? AND due_at <= ? ORDER BY due_at, id`,
      )
      .raw(),
    head: database.prepare(firstOfFlowSql('due_at, id', '?', '?')).raw(),
    ofFlow: prepareOfFlow(database),
    raise: database.prepare(
      'UPDATE {due_bounds} SET due_at = ?, id = ? WHERE flow = ? AND slot = ?',
    ),
    remove: database.prepare('DELETE FROM {due_bounds} WHERE flow = ? AND slot = ?'),
  };
}

/** What the first look that needs it adds to the tables, and every later one finds. */
class MadeOnDemand {
  readonly #connection: Connection;
  readonly #sql: string;
  readonly #stateIn: (database: SqliteDatabase) => PartState;
  #isMade = false;
  /** Whether it was there before a rollback. */
  #wasMade = false;
  /** How many looks go without it before it is tried to make it again. */
  #without = 0;

  constructor(
    connection: Connection,
    sql: string,
    stateIn: (database: SqliteDatabase) => PartState,
  ) {
    this.#connection = connection;
    this.#sql = sql;
    this.#stateIn = stateIn;
  }

  isMade(): boolean {
    this.#isMade ||= this.#stateIn(this.#connection.database) === 'made';
    return this.#isMade;
  }

  isReady(): boolean {
    if (this.isMade()) return true;
    // The transaction that made it was rolled back.
    if (this.#wasMade) this.#without = LOOKS_WITHOUT;
    this.#wasMade = false;
    if (this.#without > 0) {
      this.#without -= 1;
      return false;
    }
    return this.#make();
  }

  drop(): void {
    this.#wasMade ||= this.#isMade;
    this.#isMade = false;
  }

  #make(): boolean {
    const { database } = this.#connection;
    if (this.#stateIn(database) === 'taken') {
      this.#without = LOOKS_WITHOUT;
      return false;
    }
    if (database.inTransaction) {
      this.#isMade = true;
      database.exec(this.#sql);
      return true;
    }
    // Where another process writes just now, the next look tries.
    const made = writeIfPossible(this.#connection, () => {
      // Asked again inside: another process may have made it meanwhile.
      if (this.#stateIn(database) === 'absent') database.exec(this.#sql);
    });
    if (made === 'failed') this.#without = LOOKS_WITHOUT;
    this.#isMade = made === 'done';
    return this.#isMade;
  }
}

/** Writes that a look can do without; the look goes on whether there is room for them or not. */
function writeIfPossible(connection: Connection, work: () => void): 'done' | 'busy' | 'failed' {
  try {
    connection.write(false, work);
    return 'done';
  } catch (error) {
    // Nothing that this connection believes can be trusted any more.
    if (isDiskError(error)) throw error;
    return sqliteCode(error).startsWith('SQLITE_BUSY') ? 'busy' : 'failed';
  }
}
