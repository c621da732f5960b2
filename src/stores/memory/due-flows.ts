/**
 * due-flows — which entries may be claimed, kept so that a claim looks only at what it may take.
 *
 *   lane + state ─▶ topic ─▶ shelf per priority ─▶ flow per destination ─▶ rows by (due time, id)
 *
 * A claim asks its topic rules once per topic, passes over an excluded destination as a whole, and
 * looks at one row at most that is not due, for each topic and priority: its cost grows with the
 * topics and the excluded destinations, not with the entries it may not take. `looks` counts the
 * topics, flows and rows that were looked at.
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import type { Lane, State } from '../../core/state.ts';
import { takesTopic } from '../../core/topic.ts';
import type { ClaimFilter } from '../../ports/entry-store.ts';
import { Heap, type HeapItem } from '../shared/heap.ts';

/** An entry as the memory store keeps it. */
export interface Row extends HeapItem {
  readonly id: string;
  entry: Entry;
  /** The due time it is filed under. */
  dueAt: Millis;
  flow: Flow | undefined;
  /** Where its insert came among all; what was inserted before has a smaller one. */
  readonly seq: number;
  /** Its place in the line of its order key, while it stands there. */
  line: KeyPosition | undefined;
  /** Why it can no longer be read; only when it was damaged. */
  damage?: string;
}

/** A row in the line of its order key. */
export interface KeyPosition extends HeapItem {
  readonly key: string;
  readonly row: Row;
}

interface Flow extends HeapItem {
  readonly destination: string | undefined;
  readonly shelf: Shelf;
  readonly rows: Heap<Row>;
}

interface Shelf extends HeapItem {
  readonly priority: number;
  readonly flows: Heap<Flow>;
  readonly byDestination: Map<string | undefined, Flow>;
  /** Takes the empty shelf down. */
  readonly drop: () => void;
}

/** Topics to their shelves, at most one per priority. */
type Topics = Map<string, Map<number, Shelf>>;

/** The claimable rows of a store. */
export class DueFlows {
  /** How many topics, flows and rows were looked at so far. */
  looks = 0;
  readonly #kinds = new Map<string, Topics>();

  /** Files a row, if it is of the kind that can be claimed. */
  add(row: Row): void {
    const { envelope, status } = row.entry;
    const isClaimable = status.state !== 'hold' && status.state !== 'archived';
    if (!isClaimable || status.dueAt === null) return;
    const shelf = this.#shelfOf(row.entry);
    let flow = shelf.byDestination.get(envelope.destination);
    if (flow === undefined) {
      flow = { destination: envelope.destination, shelf, rows: new Heap(isRowBefore), place: -1 };
      shelf.byDestination.set(envelope.destination, flow);
    }
    row.dueAt = status.dueAt;
    row.flow = flow;
    flow.rows.add(row);
    if (flow.place < 0) shelf.flows.add(flow);
    else shelf.flows.moved(flow);
  }

  /** Takes a row out; one that is not filed is no error. */
  remove(row: Row): void {
    const { flow } = row;
    if (flow === undefined) return;
    row.flow = undefined;
    flow.rows.remove(row);
    const { shelf } = flow;
    if (flow.rows.size > 0) {
      shelf.flows.moved(flow);
      return;
    }
    shelf.flows.remove(flow);
    shelf.byDestination.delete(flow.destination);
    if (shelf.byDestination.size === 0) shelf.drop();
  }

  /** Takes out up to `max` rows due by `now`, by priority, then due time, then id. */
  take(filter: ClaimFilter, now: Millis, max: number): Row[] {
    const taken: Row[] = [];
    this.#walk(filter, (shelves, passOver) => {
      const best = new Heap(isShelfBefore);
      for (const shelf of shelves) if (dueAtOf(shelf) <= now) best.add(shelf);
      while (taken.length < max) {
        const shelf = best.first();
        const row = shelf?.flows.first()?.rows.first();
        this.looks += 1;
        if (shelf === undefined || row === undefined) break;
        this.remove(row);
        taken.push(row);
        passOver(shelf);
        if (dueAtOf(shelf) <= now) best.moved(shelf);
        else best.remove(shelf);
      }
    });
    return taken;
  }

  /** The earliest due time of all that the filter lets through. */
  nextDueAt(filter: ClaimFilter): Millis | null {
    let next = Number.POSITIVE_INFINITY;
    this.#walk(filter, (shelves) => {
      for (const shelf of shelves) next = Math.min(next, dueAtOf(shelf));
    });
    return next === Number.POSITIVE_INFINITY ? null : next;
  }

  /** Lends the shelves that fit, with excluded flows put aside for as long as `look` runs. */
  #walk(
    { lane, states, topics, exceptDestinations = [] }: ClaimFilter,
    look: (shelves: readonly Shelf[], passOver: (shelf: Shelf) => void) => void,
  ): void {
    const except = new Set<string | undefined>(exceptDestinations);
    const aside: Flow[] = [];
    const passOver = (shelf: Shelf): void => {
      let flow = shelf.flows.first();
      while (flow !== undefined && except.has(flow.destination)) {
        this.looks += 1;
        shelf.flows.remove(flow);
        aside.push(flow);
        flow = shelf.flows.first();
      }
    };
    const shelves: Shelf[] = [];
    for (const state of new Set(states)) {
      for (const [topic, byPriority] of this.#kinds.get(kindOf(lane, state)) ?? []) {
        this.looks += 1;
        if (takesTopic(topics, topic)) shelves.push(...byPriority.values());
      }
    }
    for (const shelf of shelves) passOver(shelf);
    look(shelves, passOver);
    for (const flow of aside) flow.shelf.flows.add(flow);
  }

  #shelfOf({ envelope: { topic, priority }, status }: Entry): Shelf {
    const kind = kindOf(status.lane, status.state);
    let topics = this.#kinds.get(kind);
    if (topics === undefined) this.#kinds.set(kind, (topics = new Map()));
    let byPriority = topics.get(topic);
    if (byPriority === undefined) topics.set(topic, (byPriority = new Map()));
    return byPriority.get(priority) ?? createShelf(topics, topic, byPriority, priority);
  }
}

function createShelf(
  topics: Topics,
  topic: string,
  byPriority: Map<number, Shelf>,
  priority: number,
): Shelf {
  const drop = (): void => {
    byPriority.delete(priority);
    if (byPriority.size === 0) topics.delete(topic);
  };
  const flows = new Heap(isFlowBefore);
  const shelf: Shelf = { priority, flows, byDestination: new Map(), drop, place: -1 };
  byPriority.set(priority, shelf);
  return shelf;
}

function kindOf(lane: Lane, state: State): string {
  return `${lane} ${state}`;
}

function dueAtOf(shelf: Shelf): Millis {
  return shelf.flows.first()?.rows.first()?.dueAt ?? Number.POSITIVE_INFINITY;
}

function isRowBefore(one: Row, other: Row): boolean {
  return one.dueAt < other.dueAt || (one.dueAt === other.dueAt && one.id < other.id);
}

function isFlowBefore(one: Flow, other: Flow): boolean {
  const [first, second] = [one.rows.first(), other.rows.first()];
  return first !== undefined && (second === undefined || isRowBefore(first, second));
}

function isShelfBefore(one: Shelf, other: Shelf): boolean {
  if (one.priority !== other.priority) return one.priority < other.priority;
  const [first, second] = [one.flows.first(), other.flows.first()];
  return first !== undefined && (second === undefined || isFlowBefore(first, second));
}
