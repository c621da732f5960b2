/**
 * claim-filter — which flows a claim filter permits, remembered from one look to the next.
 *
 * An engine asks with the same few filters again and again. So the topics of a flow are matched
 * once per filter, and a look costs nothing for the flows of others. What destinations a filter
 * leaves out changes from round to round and is not part of what is remembered.
 */

import { takesTopic, type TopicRule } from '../../core/topic.ts';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import type { StateKey } from '../shared/sql-row.ts';
import type { TopicFlow, TopicFlows } from './topic-flows.ts';

// Due entries that a claim may take.

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

/**
 * The same, as statements select it, in that order: claim.ts and flow-looks.ts read it by position,
 * `#among` of claim.ts with a priority behind it, at 7.
 */
export const CANDIDATE_SQL = 'seq, due_at, id, slot, flow, order_key, behind';

/** The order of claims within one priority. */
export function byDueAtAndId(a: Candidate, b: Candidate): number {
  const span = a[1] - b[1];
  if (span !== 0) return span;
  return a[2] < b[2] ? -1 : 1;
}

// The filters.

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
  /** How many these are at the most; without going through them. */
  countOf(priority: number): number;
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
    crowd.text ??= numbersText(crowd.flows);
    return crowd.text;
  }

  countOf(priority: number): number {
    return this.crowdOf(priority)?.flows.length ?? 0;
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
    countOf: (priority) => permit.countOf(priority),
    flowsOf: (priority) => numbersText(permit.crowdOf(priority)?.flows.filter(isOpen) ?? []),
  };
}

function numbersText(flows: readonly TopicFlow[]): string {
  return `[${flows.map(({ flow }) => flow).join(',')}]`;
}
