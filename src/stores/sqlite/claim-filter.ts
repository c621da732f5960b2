/**
 * claim-filter — which flows a claim filter permits, and looks that go through the flows of which
 * something is due, one index probe for each.
 *
 *   slot ─▶ tree of flows by a lower bound of their first due time ─▶ the index by flow
 *
 * For looks whose filter leaves out more than a glance passes over: entries of other flows are not
 * read at all, however many wait or are due, nor are flows of which nothing is due. The index is
 * made by the first look that needs it; the tree is read from it, and then kept.
 *
 * Promise: no bound is later than the due time of an entry of its flow. Every write of this
 * connection that brings an entry, or an earlier due time, lowers the bound at once; where another
 * connection has written, or something was rolled back, all bounds are read again before use.
 */

import type { ClaimableState } from '../../core/state.ts';
import { takesTopic, type TopicRule } from '../../core/topic.ts';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import { sqliteCode, type SqliteDatabase } from '../shared/client.ts';
import { DueTree, type Leaf } from '../shared/due-tree.ts';
import { type StateKey, stateOfKey } from '../shared/sql-row.ts';
import type { Connection } from './connection.ts';
import type { TopicFlow, TopicFlows } from './topic-flows.ts';
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

/** How many rows are passed over before it is worth making an index, or reading the flows first. */
const SCAN_MAX = 100;
/** How many flows are read in the time in which one row is passed over. */
const FLOWS_PER_ROW = 8;
/** How many looks at one version of the data may do that. */
const PASSES_MAX = 8;
/** How many new flows are asked for their names one by one. */
const NAMES_ONE_BY_ONE = 1_000;

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
  readonly #flows: TopicFlows;
  readonly #crowds = new Map<StateKey, Crowd>();
  #sql: FlowSql | undefined;
  /** Made in a transaction that may still be rolled back. */
  #isNew = false;
  /** How many looks go without the index before it is tried to make it again. */
  #without = 0;

  constructor(connection: Connection, flows: TopicFlows) {
    this.#connection = connection;
    this.#flows = flows;
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

  /**
   * How many rows are worth passing over before a look by flow: it may have to make the index, or
   * to read the first entry of each flow.
   */
  worthPassing(slot: StateKey): number {
    if (!this.isMade()) return SCAN_MAX;
    return this.#crowds.get(slot)?.worthPassing() ?? SCAN_MAX;
  }

  /** One entry with the earliest due time of all, any of those that have it; none if none is. */
  first({ slot, priority }: FlowProbe, permit: Permit): Candidate[] {
    const crowd = this.#crowdOf(slot);
    let first: number | null = null;
    for (const leaf of crowd.due(priority, Number.MAX_SAFE_INTEGER, permit)) {
      if (first !== null && leaf.due >= first) break;
      const dueAt = crowd.headOf(leaf);
      if (dueAt !== null) first = Math.min(first ?? dueAt, dueAt);
    }
    crowd.settle();
    return first === null ? [] : [[0, first, '', slot, null, null, 0]];
  }

  /** Due entries by due time and id. */
  due({ slot, priority, until, want }: FlowProbe, permit: Permit): Candidate[] {
    const { ofFlow } = this.#ready();
    const crowd = this.#crowdOf(slot);
    let found: Candidate[] = [];
    for (const leaf of crowd.due(priority, until, permit)) {
      const last = found.length < want ? undefined : found.at(-1);
      if (last !== undefined && leaf.due > last[1]) break;
      const dueAt = crowd.headOf(leaf);
      if (dueAt === null || dueAt > (last?.[1] ?? until)) continue;
      const more = ofFlow.all(leaf.flow, slot, last?.[1] ?? until, want) as Candidate[];
      found = [...found, ...more].sort(byDueAtAndId).slice(0, want);
    }
    crowd.settle();
    return found;
  }

  #crowdOf(slot: StateKey): Crowd {
    const sql = this.#ready();
    let crowd = this.#crowds.get(slot);
    if (crowd === undefined) {
      crowd = new Crowd(slot, this.#flows);
      this.#crowds.set(slot, crowd);
      this.#flows.onDue = (flow, at, dueAt) => this.#crowds.get(at)?.note(flow, dueAt);
    }
    crowd.read(sql);
    return crowd;
  }

  #ready(): FlowSql {
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

type FlowSql = ReturnType<typeof prepare>;

function prepare(database: SqliteDatabase) {
  const ofFlow = (flow: string) =>
    `FROM {entries} INDEXED BY {entries_by_flow}
    WHERE flow = ${flow} AND slot = ? AND ${WAITING_SQL}`;
  const head = (flow: string) =>
    `SELECT due_at ${ofFlow(flow)} AND due_at IS NOT NULL ORDER BY due_at LIMIT 1`;
  return {
    head: database.prepare(head('?')).pluck(),
    // As two texts: 50,000 rows take several times as long to hand over as to find.
    heads: database
      .prepare(
        `SELECT json_group_array(flow), json_group_array((${head('{flows}.flow')}))
        FROM {flows} WHERE true`,
      )
      .raw(),
    names: database.prepare('SELECT flow, topic, destination, priority FROM {flows}').raw(),
    ofFlow: database
      .prepare(
        `SELECT ${CANDIDATE_SQL} FROM {entries} INDEXED BY {entries_by_flow}
        WHERE flow = ? AND slot = ? AND ${WAITING_SQL} AND due_at <= ?
        ORDER BY due_at, id LIMIT ${BOUND_LIMIT}`,
      )
      .raw(),
  };
}

/** A flow in one slot; due when the first of its entries may be, never later. */
interface FlowLeaf extends Leaf {
  readonly flow: number;
}

/** The flows that have entries in one slot, by when the first of these may be due. */
class Crowd {
  readonly #slot: StateKey;
  readonly #state: ClaimableState;
  readonly #flows: TopicFlows;
  #tree = new DueTree<FlowLeaf>();
  #leaves = new Map<number, FlowLeaf>();
  /** What the leaves were read at; see `Flows`. */
  #version: number | undefined;
  #generation: number | undefined;
  /** How many looks at one version of the data passed over rows instead of reading it again. */
  #passes = 0;
  #passesAt: number | undefined;
  /** What looks have learnt of their leaves, filed when the walk over the tree has ended. */
  readonly #learnt: [leaf: FlowLeaf, dueAt: number | null][] = [];
  #sql: FlowSql | undefined;

  constructor(slot: StateKey, flows: TopicFlows) {
    this.#slot = slot;
    this.#state = stateOfKey(slot) as ClaimableState;
    this.#flows = flows;
  }

  /** As many rows as take a part of the time for reading it again, and not too often. */
  worthPassing(): number {
    if (this.isCurrent()) return 0;
    const { version } = this.#flows;
    this.#passes = version === this.#passesAt ? this.#passes + 1 : 1;
    this.#passesAt = version;
    if (this.#passes > PASSES_MAX) return 0;
    return Math.max(SCAN_MAX, Math.floor(this.#leaves.size / FLOWS_PER_ROW));
  }

  /** Whether only this connection has written since it was read, and nothing was undone. */
  isCurrent(): boolean {
    return this.#generation === this.#flows.generation && this.#version === this.#flows.version;
  }

  /** Reads the first due time of each flow, unless all are known. */
  read(sql: FlowSql): void {
    this.#sql = sql;
    if (this.isCurrent()) return;
    const { generation, version } = this.#flows;
    if (generation !== this.#generation) {
      this.#tree = new DueTree();
      this.#leaves.clear();
    }
    const heads = sql.heads.get(this.#slot) as [flows: string, dueAts: string];
    const [numbers, dueAts] = heads.map((text) => JSON.parse(text)) as [
      number[],
      (number | null)[],
    ];
    const isNew = (flow: number, at: number) => dueAts[at] !== null && !this.#leaves.has(flow);
    const names = numbers.filter(isNew).length > NAMES_ONE_BY_ONE ? namesOf(sql) : undefined;
    for (const [at, flow] of numbers.entries()) {
      const dueAt = dueAts[at] ?? null;
      if (dueAt !== null) this.#file(flow, dueAt, names?.get(flow));
    }
    this.#generation = generation;
    this.#version = version;
  }

  /** An entry came, or its due time became earlier. */
  note(flow: number, dueAt: number | null): void {
    // Leaves that are not current are read again before use.
    if (dueAt === null || !this.isCurrent()) return;
    const leaf = this.#leaves.get(flow);
    if (leaf === undefined || dueAt < leaf.due) this.#file(flow, dueAt);
  }

  /** The flows that may have something due, by when. */
  due(priority: number, until: number, permit: Permit): Iterable<FlowLeaf> {
    const { takes, exceptDestinations } = permit;
    const walk = { lane: 'delivery', states: [this.#state], priority } as const;
    return this.#tree.due({ ...walk, takes, exceptDestinations }, until);
  }

  /** When the first entry of a flow is due; null if it has none. */
  headOf(leaf: FlowLeaf): number | null {
    const found = this.#sql?.head.get(leaf.flow, this.#slot) as number | undefined;
    const dueAt = found ?? null;
    if (dueAt !== leaf.due) this.#learnt.push([leaf, dueAt]);
    return dueAt;
  }

  /** Files what was learnt; after each walk. */
  settle(): void {
    for (const [leaf, dueAt] of this.#learnt.splice(0)) {
      if (dueAt === null) {
        this.#tree.remove(leaf);
        this.#leaves.delete(leaf.flow);
      } else {
        this.#file(leaf.flow, dueAt);
      }
    }
  }

  #file(flow: number, dueAt: number, named?: TopicFlow): void {
    let leaf = this.#leaves.get(flow);
    if (leaf?.due === dueAt) return;
    if (leaf === undefined) {
      const found = named ?? this.#flows.get(flow);
      if (found === undefined) return;
      leaf = createLeaf(found, this.#state);
      this.#leaves.set(flow, leaf);
    } else {
      this.#tree.remove(leaf);
    }
    leaf.due = dueAt;
    this.#tree.add(leaf);
  }
}

/** A crowd is of one slot, so its leaves need not tell lanes apart. */
function createLeaf(
  { flow, topic, destination, priority }: TopicFlow,
  state: ClaimableState,
): FlowLeaf {
  return {
    flow,
    id: String(flow),
    due: 0,
    topic,
    destination: destination === '' ? undefined : destination,
    priority,
    state,
    lane: 'delivery',
    group: undefined,
    place: -1,
  };
}

function namesOf(sql: FlowSql): Map<number, TopicFlow> {
  const rows = sql.names.all() as [number, string, string, number][];
  return new Map(
    rows.map(([flow, topic, destination, priority]) => [
      flow,
      { flow, topic, destination, priority },
    ]),
  );
}

// What a claim filter lets through, remembered from one look to the next.
//
// An engine asks with the same few filters again and again, so a topic is matched once per filter.
// What destinations a filter leaves out changes from round to round and is not remembered.

/** Maximum number of filters that are remembered. */
const FILTERS_MAX = 1_000;
/** Topics whose match a filter remembers. */
const TOPICS_MAX = 20_000;

/** What a filter lets through. */
export interface Permit {
  readonly takes: (topic: string) => boolean;
  readonly exceptDestinations: readonly string[];
  allows(flow: TopicFlow): boolean;
}

/** The filters of one connection. */
export class Permits {
  readonly #byRules = new Map<string, (topic: string) => boolean>();

  /** Undefined when a filter lets everything through. */
  of({ topics, exceptDestinations = [] }: ClaimFilter): Permit | undefined {
    const rules = takesEverything(topics) ? undefined : topics;
    if (rules === undefined && exceptDestinations.length === 0) return undefined;
    const takes = rules === undefined ? () => true : this.#judgeOf(rules);
    const except = new Set(exceptDestinations);
    // '' is how a flow says that it has no destination; that cannot be left out.
    except.delete('');
    return {
      takes,
      exceptDestinations,
      allows: ({ topic, destination }) => !except.has(destination) && takes(topic),
    };
  }

  #judgeOf(rules: readonly TopicRule[]): (topic: string) => boolean {
    const key = JSON.stringify(rules);
    const known = this.#byRules.get(key);
    if (known !== undefined) return known;
    if (this.#byRules.size >= FILTERS_MAX) this.#byRules.clear();
    const answers = new Map<string, boolean>();
    const judge = (topic: string): boolean => {
      let takes = answers.get(topic);
      if (takes === undefined) {
        takes = takesTopic(rules, topic);
        if (answers.size >= TOPICS_MAX) answers.clear();
        answers.set(topic, takes);
      }
      return takes;
    };
    this.#byRules.set(key, judge);
    return judge;
  }
}

function takesEverything(topics: readonly TopicRule[] | undefined): boolean {
  const first = topics?.[0];
  return topics === undefined || (first?.pattern === '#' && first.take);
}
