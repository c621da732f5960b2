/**
 * entry-store — the interface of a store of entries. Calls take batches; results come in the order
 * of the request.
 *
 * The store never decides: it receives whole Status values from core/. Every commit is a
 * compare-and-swap guarded by `revision` and `holder`. Public: stores of users implement it, and
 * `testkit/entryStoreSuite` is the contract in full.
 *
 * Why: docs/decisions/0007-stores-flush-expire-and-have-an-instance.md
 */

import type { Millis } from '../core/duration.ts';
import type { Entry, Envelope, Status } from '../core/entry.ts';
import type { ErrorCode, RespoolError } from '../core/errors.ts';
import type { ClaimableState, Lane, State } from '../core/state.ts';
import type { TopicRule } from '../core/topic.ts';
import type { RecordStore } from './record-store.ts';
import type { HearOperation } from './store-operation.ts';

/** What the store survives without losing what it acknowledged. */
export type Durability = 'none' | 'process' | 'server' | 'power-loss' | 'node-loss';

/** What a store can do. */
export interface EntryStoreTraits {
  /** Whether several processes may use it at once. */
  readonly processes: 'one' | 'many';
  /** Whether `watch` reports other processes' writes. */
  readonly wakes: boolean;
  /**
   * Whether it keeps messages of one order key in order. In lane delivery an entry is then not
   * claimed while an entry of its key that was inserted earlier is incoming, active, deferred or
   * held; bounced and archived entries block none. `nextDueAt` does not count a blocked entry as
   * due. A commit that removes, bounces or archives the head makes the next entry of the key due in
   * the same commit, and `watch` of other processes reports it. Entries that wait behind a head do
   * not slow down claims of others.
   */
  readonly ordered: boolean;
  /** The largest body that may be stored inline, with its entry. */
  readonly inlineMaxBytes: number;
  readonly durability: Durability;
}

/** Which entries a claim may take. */
export interface ClaimFilter {
  readonly lane: Lane;
  /** `active` stands for entries whose lease is over. */
  readonly states: readonly ClaimableState[];
  readonly ids?: readonly string[];
  /** Ordered rules, the first match decides, no match means no; absent: every topic. */
  readonly topics?: readonly TopicRule[];
  readonly exceptDestinations?: readonly string[];
}

/** A claim: at most `max` due entries, made active under this holder until now + leaseMs. */
export interface ClaimRequest extends ClaimFilter {
  readonly max: number;
  readonly now: Millis;
  readonly leaseMs: number;
  /** Unique per claim call, begins with the store's `instance`. */
  readonly holder: string;
}

/** One guarded write. */
export interface Change {
  readonly id: string;
  /** The revision this change was computed from. */
  readonly revision: number;
  /**
   * Must be the entry's holder; absent for an entry without one. Always compared, not only on
   * active entries: if an id was used again, or a server forgot a claim, other writes may have
   * brought the entry to the same revision.
   */
  readonly holder?: string;
  readonly to: Status | 'remove';
  /** A changed envelope; a body place other than `inline` removes the inline bytes. */
  readonly envelope?: Envelope;
  /** New inline bytes, with an envelope whose body place is `inline`. */
  readonly inlineBody?: Uint8Array;
  /**
   * The ref of a body that is no longer needed after this change: its entry is removed, or its
   * envelope no longer names it. A store with the bodies in the same database may remove it in the
   * same transaction. All others ignore it: the spool removes the body afterwards in any case.
   */
  readonly bodyRef?: string;
  /**
   * When the lease under which it is made ends, by the store's clock. After that, others may have
   * taken the entry and removed it: a store that got no answer to its removal must then not
   * conclude from a missing entry that it removed it itself.
   */
  readonly leaseEndsAt?: Millis;
}

/** Which entries to list or count; all given conditions hold together. */
export interface EntryQuery {
  readonly states?: readonly State[];
  readonly lane?: Lane;
  /** A topic or pattern. */
  readonly topic?: string;
  /** One, or any of several: a seal knows one destination under several words. */
  readonly destination?: string | readonly string[];
  readonly ids?: readonly string[];
  /** Ids that begin with this; a store with an index of ids reads that range alone. */
  readonly idPrefix?: string;
  readonly header?: { readonly name: string; readonly value?: string };
  /** The code of the last failure or of why it is where it is. */
  readonly code?: string;
  readonly fingerprint?: string;
  /** Found in the id, the topic, the last failure's reason or why it is where it is. */
  readonly text?: string;
  readonly enqueuedBefore?: Millis;
  readonly enqueuedAfter?: Millis;
  readonly updatedBefore?: Millis;
  readonly updatedAfter?: Millis;
  /** Entries without a due time never match these two. */
  readonly dueBefore?: Millis;
  readonly dueAfter?: Millis;
}

/** What a list can be ordered by; ties are broken by id. */
export type ListOrder = 'id' | 'dueAt' | 'updatedAt' | 'priority' | 'attempts';

/** One page of a list. */
export interface ListQuery extends EntryQuery {
  readonly order?: ListOrder;
  /** The exact reverse, ties included. */
  readonly descending?: boolean;
  /** The `next` of a page of the same order; anything else is refused with `config.invalid`. */
  readonly after?: string;
  /** 1 to 500; anything else is refused with `limit.exceeded`. */
  readonly limit: number;
}

/** Something in the store that cannot be read as an entry; never dropped, never delivered. */
export interface CorruptEntry {
  /** The message id if it can still be read. */
  readonly id?: string;
  /** Its location: a path, a row. */
  readonly where: string;
  readonly reason: string;
}

/** An entry that a list could not read. */
export interface UnreadEntry extends CorruptEntry {
  /**
   * Set if it is not damaged: `key.unavailable` without its key, `store.unavailable` while the key
   * cannot be fetched.
   */
  readonly code?: ErrorCode;
}

/** A page: entries without their inline bytes. */
export interface ListPage {
  readonly entries: readonly Entry[];
  /** What could not be read: damaged on the first page only, what no key opens on its own page. */
  readonly corrupt: readonly UnreadEntry[];
  /** Where the next page starts; absent on the last. A page may be short and still have a next. */
  readonly next?: string;
}

/** A count by one property; entries without it are in no row. */
export interface TallyRow {
  readonly key: string;
  readonly count: number;
  /** When the oldest of them was enqueued, if the store knows it cheaply; otherwise null. */
  readonly oldestAt: Millis | null;
  readonly approximate?: true;
}

/** What messages can be counted by. */
export type TallyBy = 'state' | 'topic' | 'destination' | 'fingerprint';

/** Already there, under this id; nothing was written. */
export interface Duplicate {
  readonly duplicateOf: string;
}

/** The first entry of an order key, and how many wait behind it. */
export interface KeyHead {
  readonly orderKey: string;
  readonly id: string;
  readonly state: State;
  readonly dueAt: Millis | null;
  /** How many wait behind it; where there are more than 1,000, 1,000. */
  readonly behind: number;
}

/** Where entries are kept. */
export interface EntryStore {
  readonly name: string;
  /** Names this opened store among all that share its data; holders begin with it. */
  readonly instance: string;
  readonly traits: EntryStoreTraits;
  open(): Promise<void>;
  /** Idempotent; waits for operations in flight. */
  close(): Promise<void>;
  /** The clock of a server, if it has one. */
  now?(): Promise<Millis>;
  /** Durable when it resolves. An entry may come in active (hand-off). All or none on an error. */
  insert(entries: readonly Entry[]): Promise<readonly ('stored' | Duplicate)[]>;
  /**
   * Due entries by priority, then due time, then id. Survives our crash, not necessarily a power
   * cut.
   */
  claim(request: ClaimRequest): Promise<readonly Entry[]>;
  /** The earliest due time that `claim` would see, past or future. */
  nextDueAt(filter: ClaimFilter): Promise<Millis | null>;
  /** `durable: false`: visible at once, on disk with the next durable write or within 250 ms. */
  commit(
    changes: readonly Change[],
    options?: { readonly durable?: boolean },
  ): Promise<readonly ('done' | 'stale')[]>;
  /**
   * Resolves when everything committed before is durable. Rejects when some of it may be lost, as
   * after a restart of its server: bodies are removed only after this has resolved.
   */
  flush(): Promise<void>;
  /** An entry that is there but cannot be read is refused with `store.corrupt`. */
  get(id: string): Promise<Entry | undefined>;
  list(query: ListQuery): Promise<ListPage>;
  tally(by: TallyBy, query: EntryQuery): Promise<readonly TallyRow[]>;
  /** Ends the leases of holders whose process is known to be gone; how many. */
  expireLost?(now: Millis): Promise<number>;
  /** Calls back when another process may have made something due; returns the way to stop. */
  watch?(onDue: () => void): () => void;
  /**
   * Calls back when the store finds out that something is wrong with what it keeps, such as a
   * server that forgot writes it had acknowledged; returns the way to stop.
   */
  onTrouble?(hear: (error: RespoolError) => void): () => void;
  /**
   * Heads of order keys with others behind them: those held or deferred first, then incoming, then
   * active, each those of longest standing first; at most `max`, 1 to 500. Only where
   * `traits.ordered`.
   */
  keyHeads?(max: number): Promise<readonly KeyHead[]>;
  /**
   * Publishes the address of a service for other processes, while this one has the store open.
   * Why: docs/decisions/0011-a-service-announces-its-address.md
   */
  announce?(address: string): Promise<void>;
  /**
   * Reports each operation at its disk or server, once it is over; returns a function that stops
   * this. Without a listener it costs nothing.
   */
  onOperation?(hear: HearOperation): () => void;
  readonly records: RecordStore;
}
