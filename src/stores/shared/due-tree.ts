/**
 * due-tree — which entry is due first, among those that a claim may take.
 *
 *   lane, state, priority ─▶ topic ─▶ destination ─▶ entry     every arrow a heap by (due, id)
 *
 * The catalogs of the filesystem and the NATS store keep one each. A claim walks it in order
 * without changing it: a topic or a destination that is excluded is passed over as a whole, and
 * what is not due is never looked at. So a claim costs the same beside 100,000 entries of an
 * excluded topic as beside none, and topics of which nothing is due cost it nothing. `looks` counts
 * what walks have looked at.
 */

import type { Millis } from '../../core/duration.ts';
import { PRIORITY_MAX } from '../../core/limits.ts';
import type { ClaimableState, Lane, State } from '../../core/state.ts';
import { type TopicRule, takesTopic } from '../../core/topic.ts';
import { Heap, type HeapItem } from './heap.ts';

/** What a heap here can hold: ordered by due time, then id. */
interface DueItem extends HeapItem {
  /** When it is due; of a group: when its first member is. */
  due: number;
  /** Breaks ties. */
  id: string;
}

/** What the tree needs to know of an entry. */
export interface Leaf extends DueItem {
  readonly topic: string;
  readonly destination: string | undefined;
  readonly priority: number;
  readonly state: State;
  readonly lane: Lane;
  group: Group<DueItem> | undefined;
}

/** Which leaves a walk may reach. */
export interface Walk {
  readonly lane: Lane;
  readonly states: readonly ClaimableState[];
  readonly topics?: readonly TopicRule[];
  readonly exceptDestinations?: readonly string[];
}

interface Group<Member extends DueItem> extends DueItem {
  readonly name: string | undefined;
  readonly parent: Group<DueItem> | undefined;
  readonly members: Heap<Member>;
  /** The groups below, by name; entries are not listed here. */
  readonly below: Map<string | undefined, Group<DueItem>>;
}

const PRIORITIES: number = PRIORITY_MAX + 1;

/** Entries by what a claim asks for. */
export class DueTree<Entry extends Leaf> {
  /** How many groups and entries walks have looked at so far. */
  looks = 0;
  readonly #roots = new Map<string, Group<DueItem>>();

  /** Lists an entry; it must not change what places it until it is removed. */
  add(entry: Entry): void {
    const root = getOrMake(
      this.#roots,
      rootKey(entry.lane, entry.state, entry.priority),
      undefined,
    );
    const topic = getOrMake(root.below, entry.topic, root);
    const group = getOrMake(topic.below, entry.destination, topic);
    entry.group = group;
    group.members.add(entry);
    freshen(group);
  }

  /** Takes an entry off the list; one that is not listed is no error. */
  remove(entry: Entry): void {
    const { group } = entry;
    if (group === undefined) return;
    group.members.remove(entry);
    entry.group = undefined;
    freshen(group);
  }

  /** Entries due by `now`, by priority, then due time, then id. */
  *due(walk: Walk, now: Millis): Generator<Entry> {
    for (let priority = 0; priority < PRIORITIES; priority += 1) {
      const roots = walk.states.map((state) => rootKey(walk.lane, state, priority));
      yield* this.#inOrder(roots, walk, now);
    }
  }

  /** When the first of all is due, past or future. */
  nextDueAt(walk: Walk): Millis | null {
    const roots: string[] = [];
    for (let priority = 0; priority < PRIORITIES; priority += 1) {
      for (const state of walk.states) roots.push(rootKey(walk.lane, state, priority));
    }
    for (const entry of this.#inOrder(roots, walk)) return entry.due;
    return null;
  }

  /** Entries of these states by due time, then id, whatever their lane, topic and priority. */
  *byDueTime(states: readonly State[]): Generator<Entry> {
    const roots: string[] = [];
    for (let priority = 0; priority < PRIORITIES; priority += 1) {
      for (const state of states) {
        roots.push(rootKey('delivery', state, priority), rootKey('notice', state, priority));
      }
    }
    yield* this.#inOrder(roots, {});
  }

  *#inOrder(
    roots: readonly string[],
    walk: Pick<Walk, 'topics' | 'exceptDestinations'>,
    until: Millis = Number.POSITIVE_INFINITY,
  ): Generator<Entry> {
    const frontier = new Frontier();
    for (const key of new Set(roots)) {
      const root = this.#roots.get(key);
      if (root !== undefined) frontier.add(root.members, 0);
    }
    const allows = createJudge(walk);
    for (let item = frontier.next(); item !== undefined; item = frontier.next()) {
      this.looks += 1;
      // A group is due when its first member is: what comes behind it is not due either.
      if (item.due > until) return;
      if (!isGroup(item)) yield item as Entry;
      else if (allows(item)) frontier.add(item.members, 0);
    }
  }
}

/** Walks heaps in order without changing them: beside each item seen wait its two children. */
class Frontier {
  readonly #waiting = new Heap<Waiting>(isBefore);

  add(heap: Heap<DueItem>, at: number): void {
    const item = heap.at(at);
    if (item === undefined) return;
    this.#waiting.add({ due: item.due, id: item.id, place: -1, heap, at });
  }

  next(): DueItem | undefined {
    const first = this.#waiting.first();
    if (first === undefined) return undefined;
    this.#waiting.remove(first);
    const { heap, at } = first;
    this.add(heap, 2 * at + 1);
    this.add(heap, 2 * at + 2);
    return heap.at(at);
  }
}

interface Waiting extends DueItem {
  readonly heap: Heap<DueItem>;
  readonly at: number;
}

function createJudge(
  walk: Pick<Walk, 'topics' | 'exceptDestinations'>,
): (group: Group<DueItem>) => boolean {
  const except = new Set<string | undefined>(walk.exceptDestinations);
  return (group) => {
    const isTopic = group.parent?.parent === undefined;
    if (isTopic) return takesTopic(walk.topics, group.name ?? '');
    return group.name === undefined || !except.has(group.name);
  };
}

function isGroup(item: DueItem): item is Group<DueItem> {
  return 'members' in item;
}

function getOrMake(
  groups: Map<string | undefined, Group<DueItem>> | Map<string, Group<DueItem>>,
  name: string | undefined,
  parent: Group<DueItem> | undefined,
): Group<DueItem> {
  const all = groups as Map<string | undefined, Group<DueItem>>;
  let group = all.get(name);
  if (group === undefined) {
    group = {
      due: 0,
      id: '',
      place: -1,
      name,
      parent,
      members: new Heap(isBefore),
      below: new Map(),
    };
    all.set(name, group);
  }
  return group;
}

/** Carries a changed first member upwards, and drops groups that became empty. */
function freshen(changed: Group<DueItem>): void {
  for (let group: typeof changed | undefined = changed; group !== undefined; group = group.parent) {
    const first = group.members.first();
    const { parent } = group;
    if (first === undefined) {
      if (parent === undefined) return;
      if (group.place >= 0) parent.members.remove(group);
      parent.below.delete(group.name);
    } else {
      const isSame = group.place >= 0 && group.due === first.due && group.id === first.id;
      if (isSame) return;
      group.due = first.due;
      group.id = first.id;
      if (parent === undefined) return;
      if (group.place < 0) parent.members.add(group);
      else parent.members.moved(group);
    }
  }
}

function isBefore(one: DueItem, other: DueItem): boolean {
  return one.due < other.due || (one.due === other.due && one.id < other.id);
}

function rootKey(lane: Lane, state: State, priority: number): string {
  return `${lane} ${state} ${priority}`;
}
