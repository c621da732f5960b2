/**
 * claiming — asks the source for messages, a round at a time, and knows how many to ask for.
 *
 *   answer ─▶ early(): the next round is on its way ─▶ the messages of the answer begin
 *
 * Where handlers are quicker than the store (claiming.ts) the next round is asked for before the
 * messages of the last one begin: to begin 500 of them takes as long as half a claim, in which a
 * server would have nothing to do.
 */

import { topicMatches } from '../core/topic.ts';
import type { Clock } from '../ports/clock.ts';
import type { Claim, Demand } from '../ports/source.ts';
import { sleep } from '../system/wait.ts';
import type { LeaseTimer, TimedClaim } from './lease-timer.ts';
import { type EngineParts, NOTHING_PAUSED } from './parts.ts';
import type { HandlerRoute, HandlerSlots } from './handler-slots.ts';

// How many messages are claimed beyond the free slots, where handlers are quicker than the
// store.
//
//   a full answer finds all slots free, and took longer than they did  ─▶ twice as many
//   an answer finds many still waiting                                 ─▶ half as many
//   one waited too long for a slot, or should not wait at all          ─▶ none for a while; it is
//                                                                         given back
//
// What is claimed ahead waits under its lease. With handlers that take their time the number is
// zero: then a claim costs nothing beside them, and other nodes should have the messages.
//
// Why: docs/decisions/0014-messages-are-claimed-ahead.md

/** What an answer to a claim was like. */
interface ClaimAnswer {
  /** It brought as many as were asked for. */
  readonly isFull: boolean;
  /** No handler was running, and nothing waited for one. */
  readonly isStarved: boolean;
  /** How many were still waiting for a slot. */
  readonly waiting: number;
  /** When it was asked for, and when it came (monotonic). */
  readonly askedAt: number;
  readonly cameAt: number;
}

/** Where the number begins, and what it may always grow to, however few slots there are. */
const FIRST = 4;
const FEW_MAX = 32;
const MANY_MAX = 1_000;
/** Handlers that are busy for more than this many times as long as a claim takes gain nothing. */
const QUICK_FACTOR = 4;
/** After one that should not have waited, this many answers say nothing. */
const REST_ANSWERS = 100;
/** How long a message may wait for a slot until it is given back. */
export const PREFETCH_WAIT_MS = 1_000;

/** How far ahead one engine claims. */
export class Prefetch {
  readonly #max: number;
  #count = 0;
  #rest = 0;
  #lastCameAt = Number.NEGATIVE_INFINITY;

  /** `isNear`: the source has its messages at hand; nothing is gained by taking more of them. */
  constructor(concurrency: number, isNear = false) {
    this.#max = isNear ? 0 : Math.min(MANY_MAX, Math.max(FEW_MAX, concurrency * 2));
  }

  get count(): number {
    return this.#count;
  }

  /** Whether few enough are waiting to ask for more. */
  wantsMore(waiting: number): boolean {
    return this.#count > 0 && 2 * waiting <= this.#count;
  }

  /** How many to ask for with this many free slots, while this many wait. */
  max(free: number, waiting: number): number {
    if (free === 0 && !this.wantsMore(waiting)) return 0;
    return free + Math.max(0, this.#count - waiting);
  }

  note({ isFull, isStarved, waiting, askedAt, cameAt }: ClaimAnswer): void {
    // With a single slot, or handlers that end together, all slots are free whenever an answer
    // comes: that alone does not prove that handlers are quick.
    const isQuick = askedAt - this.#lastCameAt <= QUICK_FACTOR * (cameAt - askedAt);
    this.#lastCameAt = cameAt;
    if (this.#rest > 0) this.#rest -= 1;
    else if (!isFull || 2 * waiting > this.#count) this.#count = this.#count >> 1;
    else if (isStarved && isQuick) {
      this.#count = Math.min(this.#max, Math.max(FIRST, 2 * this.#count));
    }
  }

  /** One waited too long, or must not wait. */
  end(): void {
    this.#count = 0;
    this.#rest = REST_ANSWERS;
  }
}

/** Maximum number of claims per slot that wait for room under their lease. */
const PARKED_PER_SLOT_MAX = 4;

/** A question that is on its way. */
export interface ClaimRound {
  readonly demand: Demand;
  /** Fires when there is something to look at that it may not have seen. */
  readonly wake: AbortSignal;
  /** Monotonic, both of them. */
  readonly askedAt: number;
  readonly leaseEndsAt: number;
  readonly claims: Promise<readonly Claim[]>;
}

/** The questions of one engine to its source. */
export class ClaimRounds {
  readonly #parts: EngineParts;
  readonly #slots: HandlerSlots;
  readonly #wake: Wake;
  readonly #ahead: Prefetch;
  #early: ClaimRound | undefined;

  constructor(parts: EngineParts, slots: HandlerSlots, wake: Wake) {
    this.#parts = parts;
    this.#slots = slots;
    this.#wake = wake;
    this.#ahead = new Prefetch(parts.slots.concurrency, parts.source.isNear);
  }

  /** Whether room is more than a free slot: a handler or a destination may be full. */
  get hasLimits(): boolean {
    const { routes, slots } = this.#parts;
    return routes.hasLimits || slots.destinationConcurrency !== undefined;
  }

  /** When a lease that is asked for now ends (monotonic), by the safe side. */
  leaseEnd(): number {
    return this.#parts.clock.monotonic() + this.#parts.source.leaseMs;
  }

  /** How many to ask for while this many wait: what there is room for, and some ahead. */
  #max(parked: number): number {
    const { free } = this.#slots;
    const { concurrency } = this.#parts.slots;
    if (!this.hasLimits) return this.#ahead.max(free, parked);
    // This many wait for one handler or destination that it must have room before more are taken.
    if (parked >= PARKED_PER_SLOT_MAX * concurrency) return 0;
    // Many that wait mean that destinations fill up within a batch: ask for one at a time.
    return parked >= concurrency ? Math.min(1, free) : free;
  }

  /**
   * Asks for as many as there is room for beside those that wait, and keeps slots for them until
   * the engine has its answer; undefined if there is no room.
   */
  ask(parked: number, paused: readonly string[]): ClaimRound | undefined {
    const max = this.#max(parked);
    if (max === 0) return undefined;
    const round = this.#begin(max, paused);
    this.#slots.promise(Math.min(max, this.#slots.free));
    return round;
  }

  /** An answer brought this many, while this many were still waiting; whether it was full. */
  answered({ demand, askedAt }: ClaimRound, count: number, waiting: number): boolean {
    const isFull = count >= demand.max;
    const isStarved = this.#slots.running + waiting === 0;
    const cameAt = this.#parts.clock.monotonic();
    this.#ahead.note({ isFull, isStarved, waiting, askedAt, cameAt });
    return isFull;
  }

  /**
   * Asks for the next round before `parked` and `coming` claims begin, and resolves when that had
   * the time to leave this process; undefined where it has to wait for them.
   */
  early(parked: number, coming: number, paused: readonly string[]): Promise<void> | undefined {
    const { free } = this.#slots;
    const beginning = Math.min(free, parked + coming);
    if (this.hasLimits || this.#ahead.count === 0 || beginning < free) return undefined;
    const max = this.#ahead.max(0, parked + coming - beginning);
    if (max === 0) return undefined;
    this.#keep(this.#begin(max, paused));
    // No hand-off may take the slots that those are about to begin in.
    this.#slots.promise(beginning);
    return new Promise((resolve) => {
      this.#parts.clock.soon(() => {
        this.#slots.promise(0);
        resolve();
      });
    });
  }

  /** The round that was asked for early, if there is one. */
  take(): ClaimRound | undefined {
    const round = this.#early;
    this.#early = undefined;
    return round;
  }

  /** One waited too long, or must not wait: nothing is asked for ahead for a while. */
  tooFarAhead(): void {
    this.#ahead.end();
  }

  #begin(max: number, paused: readonly string[]): ClaimRound {
    const { clock, source } = this.#parts;
    const wake = this.#wake.fresh();
    const demand = this.#slots.demand(paused, max);
    const askedAt = clock.monotonic();
    // Counted from before the call: the store counts its lease from when it got the request.
    const leaseEndsAt = askedAt + source.leaseMs;
    // Also with nothing to want: a round is how the source learns that its news were looked at.
    const claims = source.next(demand);
    return { demand, wake, askedAt, leaseEndsAt, claims };
  }

  /**
   * n.b. A call of its own: an async function that has held the next round would keep it, and all
   * that comes after, in memory until the next full collection. (V8 13.6, 2026-11-18)
   */
  #keep(round: ClaimRound): void {
    this.#early = round;
    // Its consumer handles a failure; until then it must not count as unhandled.
    round.claims.catch(() => undefined);
  }
}

// Claims that wait for a slot, or for room at their handler or destination, in the order
// they came.
//
// They wait under their lease, kept alive by the lease timer, and go before anything new.

/** A claim that waits. */
export class WaitingClaim implements TimedClaim {
  readonly claim: Claim;
  readonly #leases: LeaseTimer;
  readonly #onTimeout: (parked: WaitingClaim) => void;
  /** When it has waited long enough (monotonic). */
  timeoutAt: number;
  leaseEndsAt: number;
  isFenced = false;
  watchedAt: number | undefined;

  constructor(
    claim: Claim,
    times: { readonly leaseEndsAt: number; readonly timeoutAt: number },
    leases: LeaseTimer,
    onTimeout: (parked: WaitingClaim) => void,
  ) {
    this.claim = claim;
    this.#leases = leases;
    this.#onTimeout = onTimeout;
    this.leaseEndsAt = times.leaseEndsAt;
    this.timeoutAt = times.timeoutAt;
    leases.add(this);
  }

  onTimeout(): void {
    this.#onTimeout(this);
  }

  onFence(): void {
    this.leave();
  }

  /** It starts, or is given up: the lease timer need not watch it here any more. */
  leave(): void {
    this.#leases.remove(this);
  }
}

/** All that wait. */
export class WaitingClaims {
  #claims: WaitingClaim[] = [];

  get size(): number {
    return this.#claims.length;
  }

  add(parked: WaitingClaim): void {
    this.#claims.push(parked);
  }

  remove(parked: WaitingClaim): void {
    this.#claims = this.#claims.filter((one) => one !== parked);
  }

  /** The first of them, out of here. */
  take(max: number): readonly WaitingClaim[] {
    return this.#claims.splice(0, max);
  }

  /** Those that must not begin while these topics are paused, out of here. */
  takeStopped(paused: Paused): readonly WaitingClaim[] {
    const stopped = this.#claims.filter(({ claim }) => isStopped(claim, paused));
    this.#claims = this.#claims.filter(({ claim }) => !isStopped(claim, paused));
    return stopped;
  }
}

type Paused = readonly string[] | 'all';

function isStopped({ envelope }: Claim, paused: Paused): boolean {
  return paused === 'all' || paused.some((pattern) => topicMatches(pattern, envelope.topic));
}

/** Whether a claim would not be asked for any more: paused, or its handler taken away meanwhile. */
export function isUnwanted(
  claim: Claim,
  route: HandlerRoute | undefined,
  parts: EngineParts,
): boolean {
  const paused = parts.pauses.now;
  if (paused !== NOTHING_PAUSED && isStopped(claim, paused)) return true;
  // What every handler refuses by its envelope is held, and a lost holder is judged without one.
  if (route !== undefined || claim.claimedFrom === 'active') return false;
  if (claim.lane === 'delivery' && parts.slots.takesUnhandled) return false;
  return !parts.routes.serves(claim.lane, claim.envelope.topic);
}

/**
 * Whether a claim may wait for a slot though it could be left to others. If we end meanwhile, that
 * counts as an attempt and as a lost holder: not for its last attempt, and not twice.
 */
export function bearsWaiting(
  claim: Claim,
  route: HandlerRoute | undefined,
  parts: EngineParts,
): boolean {
  return claim.lost === 0 && claim.attempt < parts.policyFor(claim, route).maxAttempts;
}

// Claims that came when their lease was over, or nearly: the store answered late, or
// the process stood still. Another process may have them.
//
//   add() ─extend()─▶ done: begin()     stale: drop()     trouble: drop(), their lease runs out
//
// Promise: no handler starts under a lease that is over. All of one answer go in one call.

/** A claim that must be kept before it may begin. */
interface LateClaim {
  readonly claim: Claim;
  /** It is ours until then (monotonic). It may be late again, and come back. */
  readonly begin: (leaseEndsAt: number) => void;
  /** It is not ours any more, or cannot be kept. */
  readonly drop: () => void;
}

/** What late claims need of their engine. */
interface LateClaimHandlers {
  readonly parts: EngineParts;
  readonly leases: LeaseTimer;
  extend(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]>;
  onTrouble(error: unknown): void;
}

/** Keeps late claims and lets them begin. */
export class LateClaims {
  readonly #duties: LateClaimHandlers;
  #waiting: LateClaim[] = [];
  /** The calls that are on their way, one after the other. */
  #work: Promise<void> | undefined;
  #size = 0;

  constructor(duties: LateClaimHandlers) {
    this.#duties = duties;
  }

  /** Claims in hand here. */
  get size(): number {
    return this.#size;
  }

  /** What to wait for before anything is claimed: it might be what is being kept here. */
  get pending(): Promise<void> | undefined {
    return this.#work;
  }

  /** Whether a lease that ends then leaves less than a third of it to begin with. */
  isLate(leaseEndsAt: number): boolean {
    const { clock, source } = this.#duties.parts;
    return leaseEndsAt - clock.monotonic() < source.leaseMs / 3;
  }

  add(late: LateClaim): void {
    this.#size += 1;
    this.#waiting.push(late);
    this.#work ??= this.#keepAll();
  }

  async #keepAll(): Promise<void> {
    do {
      // A claim that waited for room may have a heartbeat on its way, which would overtake us. And
      // in any case after this turn: by then the others of the same answer are here.
      await this.#duties.leases.beating;
      await this.#keep(this.#waiting.splice(0));
    } while (this.#waiting.length > 0);
    this.#work = undefined;
  }

  async #keep(batch: readonly LateClaim[]): Promise<void> {
    const { clock, source } = this.#duties.parts;
    // Counted from before the call: the store counts its lease from when it got the request.
    const leaseEndsAt = clock.monotonic() + source.leaseMs;
    let answers: readonly ('done' | 'stale')[] = [];
    try {
      answers = await this.#duties.extend(batch.map(({ claim }) => claim));
    } catch (error) {
      this.#duties.onTrouble(error);
    }
    for (const [at, late] of batch.entries()) {
      this.#size -= 1;
      if (answers[at] === 'done') late.begin(leaseEndsAt);
      else {
        if (answers[at] === 'stale') this.#tellStale(late.claim);
        late.drop();
      }
    }
  }

  #tellStale({ id, envelope, lane, attempt }: Claim): void {
    const { events, source } = this.#duties.parts;
    if (!events.hears('stale')) return;
    events.emit({ at: source.now(), kind: 'stale', id, topic: envelope.topic, lane, attempt });
  }
}

/** The abort reason of a wait that ends early; never read. */
const WOKEN = 'woken';

/** Sleeps of one engine. */
export class Wake {
  readonly #clock: Clock;
  #controller: AbortController = new AbortController();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the present sleep, or the next one that uses the present signal. */
  wake(): void {
    // n.b. Without a reason each call makes an error with its stack: 4 % of a busy service.
    this.#controller.abort(WOKEN);
  }

  /** A signal that fires with the next wake-up. */
  fresh(): AbortSignal {
    if (this.#controller.signal.aborted) this.#controller = new AbortController();
    return this.#controller.signal;
  }

  /** Waits for the span, or until it is woken. */
  pause(ms: number): Promise<void> {
    return sleep(this.#clock, ms, this.fresh());
  }
}

/** What one waits for until it happens. */
export class Signal {
  #resolve: (() => void) | undefined;

  wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  fire(): void {
    const resolve = this.#resolve;
    this.#resolve = undefined;
    resolve?.();
  }
}
