/**
 * claim-by-flow — looks that go through the flows a filter permits, one index probe for each.
 *
 * For looks whose filter leaves out more than a glance passes over: entries of other flows are not
 * read at all, however many wait or are due. The index is made by the first look that needs it.
 */

import { sqliteCode, type SqliteDatabase } from '../shared/client.ts';
import type { StateKey } from '../shared/sql-row.ts';
import type { Connection } from './connection.ts';
import type { Permit } from './order-permits.ts';
import { BOUND_LIMIT, FLOW_INDEX_SQL, hasFlowIndex, WAITING_SQL } from './schema.ts';

// Due entries that a claim may take, as statements select them.

/** A due entry, not yet claimed; without flow and key where nothing asks for them. */
export type Candidate = readonly [
  seq: number,
  dueAt: number,
  id: string,
  slot: StateKey,
  flow: number | null,
  orderKey: string | null,
  behind: number,
];

/** The same, as a statement selects it. */
export const CANDIDATE_SQL = 'seq, due_at, id, slot, flow, order_key, behind';

/** The order of claims within one priority. */
export function byDueAtAndId(a: Candidate, b: Candidate): number {
  const span = a[1] - b[1];
  if (span !== 0) return span;
  return a[2] < b[2] ? -1 : 1;
}

/** After a try to make the index has failed, this many looks go without it before the next try. */
const LOOKS_WITHOUT = 1_000;

/** A look through the flows of a filter. */
interface FlowProbe {
  readonly slot: StateKey;
  readonly priority: number;
  readonly until: number;
  readonly want: number;
}

/** Looks by flow over one connection. */
export class ByFlow {
  readonly #connection: Connection;
  #sql: ReturnType<typeof prepare> | undefined;
  /** Made in a transaction that may still be rolled back. */
  #isNew = false;
  /** How many looks go without the index before it is tried to make it again. */
  #without = 0;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Whether the index is there. */
  isMade(): boolean {
    return this.#sql !== undefined || hasFlowIndex(this.#connection.database);
  }

  /** Whether looks by flow are possible; makes the index that they need, if there is room. */
  isReady(): boolean {
    return this.isMade() || this.#make();
  }

  /** In a transaction, before anything else. */
  begin(): void {
    this.#isNew = false;
  }

  /** After a rollback: what it made is gone, and if there was no room for it, there is none now. */
  drop(): void {
    if (this.#isNew) this.#without = LOOKS_WITHOUT;
    this.#isNew = false;
    this.#sql = undefined;
  }

  /** One entry with the earliest due time of all, any of those that have it; none if none is. */
  first({ slot, priority }: FlowProbe, permit: Permit): Candidate[] {
    const { first } = this.#ready();
    const dueAt = first.get(slot, permit.flowsOf(priority)) as number | null;
    return dueAt === null ? [] : [[0, dueAt, '', slot, null, null, 0]];
  }

  /** Due entries by due time and id. */
  due({ slot, priority, until, want }: FlowProbe, permit: Permit): Candidate[] {
    const { heads, ofFlow } = this.#ready();
    const rows = heads.all(slot, until, permit.flowsOf(priority)) as [flow: number, at: number][];
    rows.sort((a, b) => a[1] - b[1]);
    let found: Candidate[] = [];
    for (const [flow, firstAt] of rows) {
      const last = found.length < want ? undefined : found.at(-1);
      if (last !== undefined && firstAt > last[1]) break;
      const more = ofFlow.all(flow, slot, last?.[1] ?? until, want) as Candidate[];
      found = [...found, ...more].sort(byDueAtAndId).slice(0, want);
    }
    return found;
  }

  #ready(): ReturnType<typeof prepare> {
    this.#sql ??= prepare(this.#connection.database);
    return this.#sql;
  }

  #make(): boolean {
    if (this.#without > 0) {
      this.#without -= 1;
      return false;
    }
    const { database } = this.#connection;
    if (database.inTransaction) {
      this.#isNew = true;
      database.exec(FLOW_INDEX_SQL);
      return true;
    }
    try {
      this.#connection.write(false, () => {
        // Asked again inside: another process may have made it meanwhile.
        if (!hasFlowIndex(database)) database.exec(FLOW_INDEX_SQL);
      });
      return true;
    } catch (error) {
      // The look goes on without it. Where another process writes just now, the next one tries.
      if (!sqliteCode(error).startsWith('SQLITE_BUSY')) this.#without = LOOKS_WITHOUT;
      return false;
    }
  }
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
    ofFlow: database
      .prepare(
        `SELECT ${CANDIDATE_SQL} FROM {entries} INDEXED BY {entries_by_flow}
        WHERE flow = ? AND slot = ? AND ${WAITING_SQL} AND due_at <= ?
        ORDER BY due_at, id LIMIT ${BOUND_LIMIT}`,
      )
      .raw(),
  };
}
