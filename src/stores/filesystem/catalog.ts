/**
 * catalog — what the store knows of every entry without opening its file.
 *
 * There is one owner, so memory and disk cannot disagree: the plans of a batch (plan.ts) change the
 * catalog when the disk has done its part, and before only hide entries from claims. Ids, dedupe
 * keys and due times are answered from here.
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry, Envelope, Status } from '../../core/entry.ts';
import { STATES, type Lane, type State } from '../../core/state.ts';
import { DueTree, type Leaf } from '../shared/due-tree.ts';
import { fileName, type NamedStatus, shardDirectory } from './row.ts';

/** What the content says that the name does not, as far as claims and lists need it. */
export interface Facts {
  readonly topic: string;
  readonly destination: string | undefined;
  readonly priority: number;
  readonly dedupeKey: string | undefined;
  readonly enqueuedAt: Millis;
  readonly lane: Lane;
  readonly failureCode: string | undefined;
  readonly becauseCode: string | undefined;
  readonly fingerprint: string | undefined;
}

/** Where a file is and how long it is. */
export interface FilePlace {
  readonly state: State;
  readonly shard: number;
  readonly bytes: number;
}

/**
 * One entry as the catalog holds it. Replaced as a whole on every step but for the tree's marks.
 */
export interface HeldEntry extends Leaf, Facts, NamedStatus, FilePlace {
  readonly topic: string;
  readonly destination: string | undefined;
  readonly priority: number;
  readonly state: State;
  readonly lane: Lane;
  /** Its holder belonged to an instance that is gone: due at once, whatever its lease says. */
  isLost: boolean;
  /** Part of a batch that is on its way to the disk. */
  isBusy: boolean;
}

/** What the catalog wants to know of an entry. */
export function factsOf(envelope: Envelope, status: Status): Facts {
  return {
    topic: envelope.topic,
    destination: envelope.destination,
    priority: envelope.priority,
    dedupeKey: envelope.dedupeKey,
    enqueuedAt: envelope.enqueuedAt,
    lane: status.lane,
    failureCode: status.lastFailure?.code,
    becauseCode: status.because?.code,
    fingerprint: status.lastFailure?.fingerprint,
  };
}

/** Makes the catalog's view of an entry. */
export function createHeldEntry(
  id: string,
  named: NamedStatus,
  facts: Facts,
  place: FilePlace,
): HeldEntry {
  return {
    id,
    revision: named.revision,
    dueAt: named.dueAt,
    attempts: named.attempts,
    notices: named.notices,
    lost: named.lost,
    updatedAt: named.updatedAt,
    claimedFrom: named.claimedFrom,
    holder: named.holder,
    topic: facts.topic,
    destination: facts.destination,
    priority: facts.priority,
    dedupeKey: facts.dedupeKey,
    enqueuedAt: facts.enqueuedAt,
    lane: facts.lane,
    failureCode: facts.failureCode,
    becauseCode: facts.becauseCode,
    fingerprint: facts.fingerprint,
    state: place.state,
    shard: place.shard,
    bytes: place.bytes,
    due: named.dueAt ?? Number.MAX_SAFE_INTEGER,
    place: -1,
    group: undefined,
    isLost: false,
    isBusy: false,
  };
}

/** The path of an entry's file, below the store's path. */
export function pathOf(entry: HeldEntry): string {
  return `${shardDirectory(entry.state, entry.shard)}/${fileName(entry.id, entry)}`;
}

/** When an entry is due, as far as others may know: a lost holder's lease is over. */
export function dueAtOf(entry: HeldEntry): Millis | null {
  return entry.isLost ? entry.due : entry.dueAt;
}

/**
 * A stand-in for the entry with what the catalog knows, for filters and orders that need no more.
 */
export function outlineOf(entry: HeldEntry): Entry {
  const { id, topic, destination, priority, enqueuedAt, lane, state, attempts, updatedAt } = entry;
  const outline = {
    envelope: { id, topic, destination, priority, enqueuedAt, headers: {} },
    status: { lane, state, attempts, updatedAt, dueAt: dueAtOf(entry) },
  };
  return outline as unknown as Entry;
}

/** All entries, by id, by dedupe key and by when they are due. */
export class Catalog {
  readonly byId: Map<string, HeldEntry> = new Map();
  readonly tree: DueTree<HeldEntry> = new DueTree();
  /** Entries that claims do not see for a moment: a batch with them is on its way to the disk. */
  readonly hidden: Set<HeldEntry> = new Set();
  readonly #idByDedupeKey = new Map<string, string>();
  readonly #counts = new Map<State, number>(STATES.map((state) => [state, 0]));

  /** The id that already stands for this message: its own, or that of the same dedupe key. */
  duplicateOf({ id, dedupeKey }: Envelope): string | undefined {
    if (this.byId.has(id)) return id;
    return dedupeKey === undefined ? undefined : this.#idByDedupeKey.get(dedupeKey);
  }

  /** Puts an entry in, in place of the one with its id. */
  put(entry: HeldEntry): void {
    const former = this.byId.get(entry.id);
    if (former !== undefined) this.#forget(former);
    this.byId.set(entry.id, entry);
    this.#count(entry.state, 1);
    if (entry.dedupeKey !== undefined) this.#idByDedupeKey.set(entry.dedupeKey, entry.id);
    this.#list(entry);
  }

  /** Takes an entry out. */
  remove(entry: HeldEntry): void {
    if (this.byId.get(entry.id) !== entry) return;
    this.#forget(entry);
    this.byId.delete(entry.id);
  }

  /** Hides an entry from claims while it is part of a batch. */
  hide(entry: HeldEntry): void {
    entry.isBusy = true;
    this.tree.remove(entry);
    this.hidden.add(entry);
  }

  /** Shows an entry again that was hidden: nothing became of the batch. */
  show(entry: HeldEntry): void {
    entry.isBusy = false;
    if (this.hidden.delete(entry)) this.#list(entry);
  }

  /** Makes an entry whose holder is gone due at `now`, unless it is due earlier. */
  expire(entry: HeldEntry, now: Millis): void {
    this.tree.remove(entry);
    entry.isLost = true;
    entry.due = Math.min(entry.due, now);
    if (!this.hidden.has(entry)) this.#list(entry);
  }

  /** How many entries are in a state. */
  count(state: State): number {
    return this.#counts.get(state) ?? 0;
  }

  #list(entry: HeldEntry): void {
    if (entry.dueAt !== null) this.tree.add(entry);
  }

  #forget(entry: HeldEntry): void {
    entry.isBusy = false;
    this.tree.remove(entry);
    this.hidden.delete(entry);
    this.#count(entry.state, -1);
    const { dedupeKey } = entry;
    if (dedupeKey !== undefined && this.#idByDedupeKey.get(dedupeKey) === entry.id) {
      this.#idByDedupeKey.delete(dedupeKey);
    }
  }

  #count(state: State, by: number): void {
    this.#counts.set(state, this.count(state) + by);
  }
}
