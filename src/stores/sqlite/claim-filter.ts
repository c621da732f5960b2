/**
 * claim-filter — which flows a claim filter permits, and looks that go through these flows, one
 * index probe for each.
 *
 * For looks whose filter leaves out more than a glance passes over: entries of other flows are not
 * read at all, however many wait or are due. The index is made by the first look that needs it.
 */

import { takesTopic, type TopicRule } from '../../core/topic.ts';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import { sqliteCode, type SqliteDatabase } from '../shared/client.ts';
import type { StateKey } from '../shared/sql-row.ts';
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

// Which flows a claim filter lets through, remembered from one look to the next.
//
// An engine asks with the same few filters again and again. So the topics of a flow are matched
// once per filter, and a look costs nothing for the flows of others. What destinations a filter
// leaves out changes from round to round and is not part of what is remembered.

/** Filters remembered at the most, and the flows in all of them together. */
const FILTERS_MAX = 1_000;
const FLOWS_MAX = 500_000;
/** Topics whose match a filter remembers. */
const TOPICS_MAX = 20_000;

/** What a filter lets through. */
export interface Permit {
  allows(flow: TopicFlow): boolean;
  /** The numbers of the flows of a priority that it lets through, as a JSON array. */
  flowsOf(priority: number): string;
}

/** The filters of one connection. */
export class Permits {
  readonly #flows: TopicFlows;
  readonly #byTopics = new Map<string, TopicPermit>();

  constructor(flows: TopicFlows) {
    this.#flows = flows;
  }

  /** Undefined when a filter lets everything through. */
  of({ topics, exceptDestinations = [] }: ClaimFilter): Permit | undefined {
    const rules = takesEverything(topics) ? undefined : topics;
    if (rules === undefined && exceptDestinations.length === 0) return undefined;
    const permit = this.#ofTopics(rules);
    return exceptDestinations.length === 0 ? permit : exceptFor(permit, exceptDestinations);
  }

  #ofTopics(rules: readonly TopicRule[] | undefined): TopicPermit {
    const key = JSON.stringify(rules ?? null);
    const known = this.#byTopics.get(key);
    if (known !== undefined) return known;
    const size = [...this.#byTopics.values()].reduce((sum, permit) => sum + permit.size, 0);
    if (this.#byTopics.size >= FILTERS_MAX || size > FLOWS_MAX) this.#byTopics.clear();
    const permit = new TopicPermit(this.#flows, rules);
    this.#byTopics.set(key, permit);
    return permit;
  }
}

function takesEverything(topics: readonly TopicRule[] | undefined): boolean {
  const first = topics?.[0];
  return topics === undefined || (first?.pattern === '#' && first.take);
}

/** Permitted flows of one priority, with their numbers as JSON once these are asked for. */
interface Crowd {
  readonly flows: TopicFlow[];
  text: string | undefined;
}

const NO_FLOWS = '[]';

/** The flows that rules for topics let through. */
class TopicPermit implements Permit {
  readonly #flows: TopicFlows;
  readonly #rules: readonly TopicRule[] | undefined;
  readonly #takes = new Map<string, boolean>();
  readonly #byPriority = new Map<number, Crowd>();
  /** The generation of flows that is known, and how many of its flows were looked at. */
  #generation = -1;
  #seen = 0;
  size = 0;

  constructor(flows: TopicFlows, rules: readonly TopicRule[] | undefined) {
    this.#flows = flows;
    this.#rules = rules;
  }

  allows({ topic }: TopicFlow): boolean {
    if (this.#rules === undefined) return true;
    let takes = this.#takes.get(topic);
    if (takes === undefined) {
      takes = takesTopic(this.#rules, topic);
      if (this.#takes.size >= TOPICS_MAX) this.#takes.clear();
      this.#takes.set(topic, takes);
    }
    return takes;
  }

  flowsOf(priority: number): string {
    const crowd = this.crowdOf(priority);
    if (crowd === undefined) return NO_FLOWS;
    crowd.text ??= numbersOf(crowd.flows);
    return crowd.text;
  }

  crowdOf(priority: number): Crowd | undefined {
    const { generation } = this.#flows;
    if (generation !== this.#generation) {
      this.#byPriority.clear();
      this.#generation = generation;
      this.#seen = 0;
      this.size = 0;
    }
    const all = this.#flows.list();
    for (; this.#seen < all.length; this.#seen += 1) this.#add(all[this.#seen]);
    return this.#byPriority.get(priority);
  }

  #add(flow: TopicFlow | undefined): void {
    if (flow === undefined || !this.allows(flow)) return;
    this.size += 1;
    const crowd = this.#byPriority.get(flow.priority);
    if (crowd === undefined) {
      this.#byPriority.set(flow.priority, { flows: [flow], text: undefined });
      return;
    }
    crowd.flows.push(flow);
    crowd.text = undefined;
  }
}

/** The same without some destinations. */
function exceptFor(permit: TopicPermit, destinations: readonly string[]): Permit {
  const except = new Set(destinations);
  // '' is how a flow says that it has no destination; that cannot be left out.
  except.delete('');
  const isOpen = ({ destination }: TopicFlow) => !except.has(destination);
  return {
    allows: (flow) => isOpen(flow) && permit.allows(flow),
    flowsOf: (priority) => numbersOf(permit.crowdOf(priority)?.flows.filter(isOpen) ?? []),
  };
}

function numbersOf(flows: readonly TopicFlow[]): string {
  return `[${flows.map(({ flow }) => flow).join(',')}]`;
}
