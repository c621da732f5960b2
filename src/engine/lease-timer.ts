/**
 * lease-timer — one timer over everything that is running: time limits, heartbeats, self-fencing.
 *
 * No timer per message: the next moment that matters is kept, and all running attempts are looked
 * through when it comes.
 */

import type { Clock } from '../ports/clock.ts';
import type { Claim } from '../ports/source.ts';

/** A claim whose lease is kept. Times are monotonic. */
export interface TimedClaim extends IndexedItem<'watchedAt'> {
  readonly claim: Claim;
  /** When the handler has had its time; Infinity once that is over. */
  timeoutAt: number;
  /** When the lease ends unless it is extended. */
  leaseEndsAt: number;
  isFenced: boolean;
  onTimeout(): void;
  /** The lease is about to end and could not be extended: stop side effects. */
  onFence(): void;
}

/** What the lease timer may do. */
export interface LeaseTimerHandlers {
  readonly clock: Clock;
  readonly leaseMs: number;
  extend(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]>;
  onTrouble(error: unknown): void;
}

/** Looks after running attempts until they are done. */
export class LeaseTimer {
  readonly #duties: LeaseTimerHandlers;
  readonly #watched = new IndexedSet<'watchedAt', TimedClaim>('watchedAt');
  #nextAt = Number.POSITIVE_INFINITY;
  #cancel: (() => void) | undefined;
  /** The heartbeat that is on its way. */
  #extending: Promise<void> | undefined;
  /** The same, when it is so late that leases may be over. */
  #late: Promise<void> | undefined;

  constructor(duties: LeaseTimerHandlers) {
    this.#duties = duties;
  }

  /** Begins to look after an attempt. */
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

  /** Everything it looks after. */
  list(): readonly TimedClaim[] {
    return this.#watched.list();
  }

  /** The heartbeat that is on its way, if any. */
  get beating(): Promise<void> | undefined {
    return this.#extending;
  }

  /**
   * After a standstill of the process: what to wait for before anything is claimed. Otherwise the
   * engine would find its own leases over, and take what it is still running for lost.
   */
  catchUp(): Promise<void> | undefined {
    return this.#isOverdue ? this.#beatNow() : this.#late;
  }

  /** Whether there is something to catch up with. */
  get isBehind(): boolean {
    return this.#isOverdue || this.#late !== undefined;
  }

  get #isOverdue(): boolean {
    return this.#duties.clock.monotonic() >= this.#nextAt + this.#lateMs;
  }

  /** Heartbeats only: the timer is due too, and looks for time limits and fences after them. */
  async #beatNow(): Promise<void> {
    // One that was on its way before the standstill was counted from before it.
    if (this.#extending !== undefined) await this.#extending;
    const now = this.#duties.clock.monotonic();
    this.#beat(this.#watched.list().filter((watched) => this.#heartbeatAt(watched) <= now));
    await this.#extending;
  }

  #beat(due: readonly TimedClaim[]): void {
    if (due.length === 0 || this.#extending !== undefined) return;
    const lateAt = this.#duties.clock.monotonic() - this.#lateMs;
    const isLate = due.some((watched) => this.#heartbeatAt(watched) <= lateAt);
    this.#extending = this.#extend(due).finally(() => {
      this.#extending = undefined;
      this.#late = undefined;
    });
    if (isLate) this.#late = this.#extending;
  }

  /** A heartbeat that is late by this much tells of a standstill, not of a busy moment. */
  get #lateMs(): number {
    return this.#duties.leaseMs / 4;
  }

  #schedule(at: number): void {
    this.#unschedule();
    this.#nextAt = at;
    const waitMs = Math.max(1, Math.ceil(at - this.#duties.clock.monotonic()));
    this.#cancel = this.#duties.clock.after(waitMs, () => this.#look());
  }

  #unschedule(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#nextAt = Number.POSITIVE_INFINITY;
  }

  #look(): void {
    this.#unschedule();
    const now = this.#duties.clock.monotonic();
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
    this.#beat(due);
    let nextAt = Number.POSITIVE_INFINITY;
    for (const watched of this.#watched.list()) {
      nextAt = Math.min(nextAt, watched.timeoutAt, this.#nextLookAt(watched, now));
    }
    if (nextAt < Number.POSITIVE_INFINITY) this.#schedule(nextAt);
  }

  /** A heartbeat is due after a third of the lease; the fence falls a sixth before its end. */
  #heartbeatAt(watched: TimedClaim): number {
    return watched.leaseEndsAt - (this.#duties.leaseMs * 2) / 3;
  }

  #fenceAt(watched: TimedClaim): number {
    return watched.leaseEndsAt - this.#duties.leaseMs / 6;
  }

  #nextLookAt(watched: TimedClaim, now: number): number {
    const heartbeatAt = this.#heartbeatAt(watched);
    if (heartbeatAt > now) return heartbeatAt;
    if (watched.isFenced) return Number.POSITIVE_INFINITY;
    // The heartbeat did not get through yet: again soon, and in time for the fence.
    return Math.min(this.#fenceAt(watched), now + this.#duties.leaseMs / 12);
  }

  #fenceIfOver(watched: TimedClaim, now: number): void {
    if (watched.isFenced || this.#fenceAt(watched) > now) return;
    watched.isFenced = true;
    watched.onFence();
  }

  async #extend(due: readonly TimedClaim[]): Promise<void> {
    // Counted from before the call: the store counts its lease from when it got the request.
    const askedAt = this.#duties.clock.monotonic();
    try {
      const answers = await this.#duties.extend(due.map((watched) => watched.claim));
      for (const [at, watched] of due.entries()) {
        if (answers[at] === 'done') watched.leaseEndsAt = askedAt + this.#duties.leaseMs;
        if (!this.#watched.has(watched)) continue;
        // Also one that is fenced: no other look is planned for it, and its lease would end again.
        if (answers[at] === 'done') this.add(watched);
        else if (!watched.isFenced) {
          watched.isFenced = true;
          watched.onFence();
        }
      }
    } catch (error) {
      // Tried again at the next look; if it never gets through, the fence falls.
      this.#duties.onTrouble(error);
    }
  }
}

// A set of things that come and go by the thousand, as an array in which each knows its place.
//
// n.b. Not a Set: a Set allocates a new table after enough insertions and deletions, and every
// old table points to the next. Once one of them has grown old, all that was in any later one stays
// in memory until the next full collection, and is carried about until then: that was a third of
// the time of a busy process. (V8 13.6, 2026-11-18)

/** Where a thing stands in each crowd it may be in; undefined where it is in none. */
export type IndexedItem<Key extends string> = { [Name in Key]: number | undefined };

/** The things that are in it, in no order. */
export class IndexedSet<Key extends string, Thing extends IndexedItem<Key>> {
  readonly #key: Key;
  readonly #things: Thing[] = [];

  /** Where its things keep their place: a property that belongs to one crowd alone. */
  constructor(key: Key) {
    this.#key = key;
  }

  get size(): number {
    return this.#things.length;
  }

  /** Asks the thing: its property belongs to this crowd alone. */
  has(thing: Thing): boolean {
    return thing[this.#key] !== undefined;
  }

  add(thing: Thing): void {
    if (this.has(thing)) return;
    this.#put(thing, this.#things.length);
  }

  delete(thing: Thing): void {
    const at = thing[this.#key];
    if (at === undefined) return;
    const last = this.#things.pop();
    if (last !== undefined && last !== thing) this.#put(last, at);
    this.#place(thing, undefined);
  }

  /** Those that are in it now; some may be gone when their turn comes. */
  list(): readonly Thing[] {
    return this.#things.slice();
  }

  #put(thing: Thing, at: number): void {
    this.#things[at] = thing;
    this.#place(thing, at);
  }

  #place(thing: IndexedItem<Key>, at: number | undefined): void {
    thing[this.#key] = at;
  }
}
