/**
 * lease-timer — one timer for all running attempts and waiting claims: time limits, heartbeats that
 * extend leases, and the fence that aborts a handler before its lease ends. Also `IndexedSet`, in
 * which it keeps them.
 *
 * No timer per message: the timer runs until the next time that matters, and then checks all of
 * them. Promise: if a lease cannot be extended, its handler is aborted before the lease ends, or as
 * soon as the process runs again if it stood still.
 */

import type { Clock } from '../ports/clock.ts';
import type { Claim } from '../ports/source.ts';

/** A claim whose lease is extended. Times are monotonic. */
export interface TimedClaim extends IndexedItem<'watchedAt'> {
  readonly claim: Claim;
  /** When the time limit ends; Infinity once it has. */
  timeoutAt: number;
  /** When the lease ends unless it is extended. */
  leaseEndsAt: number;
  isFenced: boolean;
  onTimeout(): void;
  /** The lease is about to end and could not be extended: stop side effects. */
  onFence(): void;
}

/** What the lease timer needs of its engine. */
export interface LeaseTimerHandlers {
  readonly clock: Clock;
  readonly leaseMs: number;
  extend(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]>;
  onTrouble(error: unknown): void;
}

/** Watches claims until they are removed. */
export class LeaseTimer {
  readonly #handlers: LeaseTimerHandlers;
  readonly #watched = new IndexedSet<'watchedAt', TimedClaim>('watchedAt');
  #nextAt = Number.POSITIVE_INFINITY;
  #cancel: (() => void) | undefined;
  /** The heartbeat in flight. */
  #extending: Promise<void> | undefined;
  /** The heartbeat in flight, if it is so late that leases may be over. */
  #late: Promise<void> | undefined;

  constructor(duties: LeaseTimerHandlers) {
    this.#handlers = duties;
  }

  /** Begins to watch a claim. */
  add(watched: TimedClaim): void {
    this.#watched.add(watched);
    const at = Math.min(watched.timeoutAt, this.#heartbeatAt(watched));
    if (at < this.#nextAt) this.#schedule(at);
  }

  remove(watched: TimedClaim): void {
    this.#watched.delete(watched);
    // The timer is left to run out on its own, unless nothing is left that it could be for.
    if (this.#watched.size === 0) this.#unschedule();
  }

  /** All watched claims. */
  list(): readonly TimedClaim[] {
    return this.#watched.list();
  }

  /** The heartbeat in flight, if any. */
  get heartbeat(): Promise<void> | undefined {
    return this.#extending;
  }

  /**
   * After a standstill of the process: to be awaited before anything is claimed. Otherwise the
   * engine would claim messages whose handlers it still runs, because their leases are over.
   */
  catchUp(): Promise<void> | undefined {
    return this.#isOverdue ? this.#sendOverdue() : this.#late;
  }

  /** Whether there is something to catch up with. */
  get isBehind(): boolean {
    return this.#isOverdue || this.#late !== undefined;
  }

  get #isOverdue(): boolean {
    return this.#handlers.clock.monotonic() >= this.#nextAt + this.#lateMs;
  }

  /** Sends heartbeats only: the timer is due too, and checks time limits and fences afterwards. */
  async #sendOverdue(): Promise<void> {
    // A heartbeat that was in flight before the standstill counts its lease from before it.
    if (this.#extending !== undefined) await this.#extending;
    const now = this.#handlers.clock.monotonic();
    this.#sendHeartbeat(
      this.#watched.list().filter((watched) => this.#heartbeatAt(watched) <= now),
    );
    await this.#extending;
  }

  #sendHeartbeat(due: readonly TimedClaim[]): void {
    if (due.length === 0 || this.#extending !== undefined) return;
    const lateAt = this.#handlers.clock.monotonic() - this.#lateMs;
    const isLate = due.some((watched) => this.#heartbeatAt(watched) <= lateAt);
    this.#extending = this.#extend(due).finally(() => {
      this.#extending = undefined;
      this.#late = undefined;
    });
    if (isLate) this.#late = this.#extending;
  }

  /** A heartbeat that is later than this means a standstill, not a busy moment. */
  get #lateMs(): number {
    return this.#handlers.leaseMs / 4;
  }

  #schedule(at: number): void {
    this.#unschedule();
    this.#nextAt = at;
    const waitMs = Math.max(1, Math.ceil(at - this.#handlers.clock.monotonic()));
    this.#cancel = this.#handlers.clock.after(waitMs, () => this.#onTimer());
  }

  #unschedule(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#nextAt = Number.POSITIVE_INFINITY;
  }

  #onTimer(): void {
    this.#unschedule();
    const now = this.#handlers.clock.monotonic();
    const due: TimedClaim[] = [];
    for (const watched of this.#watched.list()) {
      if (!this.#watched.has(watched)) continue;
      if (watched.timeoutAt <= now) {
        watched.timeoutAt = Number.POSITIVE_INFINITY;
        watched.onTimeout();
      }
      if (!this.#watched.has(watched)) continue;
      if (this.#heartbeatAt(watched) <= now) due.push(watched);
      this.#fenceIfOver(watched, now);
    }
    this.#sendHeartbeat(due);
    let nextAt = Number.POSITIVE_INFINITY;
    for (const watched of this.#watched.list()) {
      nextAt = Math.min(nextAt, watched.timeoutAt, this.#nextLookAt(watched, now));
    }
    if (nextAt < Number.POSITIVE_INFINITY) this.#schedule(nextAt);
  }

  /** A heartbeat is due after a third of the lease; the fence falls a sixth before its end. */
  #heartbeatAt(watched: TimedClaim): number {
    return watched.leaseEndsAt - (this.#handlers.leaseMs * 2) / 3;
  }

  #fenceAt(watched: TimedClaim): number {
    return watched.leaseEndsAt - this.#handlers.leaseMs / 6;
  }

  #nextLookAt(watched: TimedClaim, now: number): number {
    const heartbeatAt = this.#heartbeatAt(watched);
    if (heartbeatAt > now) return heartbeatAt;
    if (watched.isFenced) return Number.POSITIVE_INFINITY;
    // The heartbeat did not get through yet: again soon, and in time for the fence.
    return Math.min(this.#fenceAt(watched), now + this.#handlers.leaseMs / 12);
  }

  #fenceIfOver(watched: TimedClaim, now: number): void {
    if (watched.isFenced || this.#fenceAt(watched) > now) return;
    watched.isFenced = true;
    watched.onFence();
  }

  async #extend(due: readonly TimedClaim[]): Promise<void> {
    // Counted from before the call: the store counts its lease from when it got the request.
    const askedAt = this.#handlers.clock.monotonic();
    try {
      const answers = await this.#handlers.extend(due.map((watched) => watched.claim));
      for (const [at, watched] of due.entries()) {
        if (answers[at] === 'done') watched.leaseEndsAt = askedAt + this.#handlers.leaseMs;
        if (!this.#watched.has(watched)) continue;
        // Also a fenced one: otherwise nothing would extend its lease again.
        if (answers[at] === 'done') this.add(watched);
        else if (!watched.isFenced) {
          watched.isFenced = true;
          watched.onFence();
        }
      }
    } catch (error) {
      // Tried again at the next look; if it never gets through, the fence falls.
      this.#handlers.onTrouble(error);
    }
  }
}

// A set of items that are added and removed by the thousand: an array in which each item stores its
// index.
//
// n.b. Not a Set: a Set allocates a new table after enough insertions and deletions, and every old
// table points to the next. Once one of them is in the old generation, the contents of all later
// ones stay in memory, and are copied, until the next full collection: that took a third of the
// time of a busy process. (V8 13.6, 2026-11-18)

/** The index of an item in each set that it may be in; undefined: it is not in that set. */
type IndexedItem<Key extends string> = { [Name in Key]: number | undefined };

/** A set of items, in no order. */
export class IndexedSet<Key extends string, Item extends IndexedItem<Key>> {
  readonly #key: Key;
  readonly #items: Item[] = [];

  /** `key`: the property in which items store their index; each set needs its own. */
  constructor(key: Key) {
    this.#key = key;
  }

  get size(): number {
    return this.#items.length;
  }

  /** Whether the item is in this set: the property belongs to this set alone. */
  has(item: Item): boolean {
    return item[this.#key] !== undefined;
  }

  add(item: Item): void {
    if (this.has(item)) return;
    this.#put(item, this.#items.length);
  }

  delete(item: Item): void {
    const at = item[this.#key];
    if (at === undefined) return;
    const last = this.#items.pop();
    if (last !== undefined && last !== item) this.#put(last, at);
    this.#place(item, undefined);
  }

  /** A copy of the current items; some may have been removed when the caller gets to them. */
  list(): readonly Item[] {
    return this.#items.slice();
  }

  #put(item: Item, at: number): void {
    this.#items[at] = item;
    this.#place(item, at);
  }

  #place(item: IndexedItem<Key>, at: number | undefined): void {
    item[this.#key] = at;
  }
}
