/**
 * claiming — how an engine claims messages: rounds of requests to the source (`ClaimRounds`), how
 * many to ask for (`Prefetch`), claims that wait for a slot (`WaitingClaims`), claims whose lease
 * is nearly over (`LateClaims`), and what ends the engine's sleep (`Wake`, `Signal`).
 *
 *   answer ─▶ askEarly(): the next round is in flight ─▶ the messages of the answer begin
 *
 * If handlers are faster than the store, the next round is requested before the messages of the
 * last one begin: beginning 500 of them takes as long as half a claim, in which a server would be
 * idle.
 */

import { topicMatches } from '../core/topic.ts';
import type { Clock } from '../ports/clock.ts';
import type { Claim, Demand } from '../ports/source.ts';
import { sleep } from '../system/wait.ts';
import type { LeaseTimer, TimedClaim } from './lease-timer.ts';
import { type EngineParts, NOTHING_PAUSED } from './parts.ts';
import type { HandlerRoute, HandlerSlots } from './handler-slots.ts';

// How many messages are claimed beyond the free slots, if handlers are faster than the store.
//
//   a full answer finds all slots free, and took longer than the handlers  ─▶ twice as many
//   an answer finds many still waiting                                     ─▶ half as many
//   a claim waited too long for a slot, or must not wait at all            ─▶ none for a while, and
//                                                                             it is released
//
// A message that is claimed ahead waits under its lease. With slow handlers the number is zero:
// then a claim takes little time beside them, and other nodes should get the messages.
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

/**
 * The first number, and what it may grow to with few slots. The two limits are also in
 * docs/guarantees.md, docs/reference/limits.md and decision 0014; test/engine/claimed-ahead.test.ts
 * repeats all three.
 */
const PREFETCH_FIRST = 4;
const PREFETCH_MAX_FEW_SLOTS = 32;
const PREFETCH_MAX = 1_000;
/**
 * If handlers take longer than this many times a claim, claiming ahead gains nothing. Also in
 * docs/guarantees.md.
 */
const QUICK_FACTOR = 4;
/**
 * After a claim that should not have waited, this many answers are ignored. Also in
 * docs/guarantees.md and test/engine/claimed-ahead.test.ts.
 */
const SKIPPED_ANSWERS = 100;
/**
 * How long a message may wait for a slot until it is given back. Also in docs/guarantees.md,
 * docs/reference/events.md, docs/reference/limits.md and decision 0014;
 * testkit/simulator/checks/deliveries.ts expects no less.
 */
export const PREFETCH_WAIT_MS = 1_000;

/** How far ahead one engine claims. */
export class Prefetch {
  readonly #max: number;
  #count = 0;
  #answersToSkip = 0;
  #lastCameAt = Number.NEGATIVE_INFINITY;

  /** `isNear`: the source answers from memory, so claiming ahead gains nothing. */
  constructor(concurrency: number, isNear = false) {
    this.#max = isNear
      ? 0
      : Math.min(PREFETCH_MAX, Math.max(PREFETCH_MAX_FEW_SLOTS, concurrency * 2));
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
    if (this.#answersToSkip > 0) this.#answersToSkip -= 1;
    else if (!isFull || 2 * waiting > this.#count) this.#count = this.#count >> 1;
    else if (isStarved && isQuick) {
      this.#count = Math.min(this.#max, Math.max(PREFETCH_FIRST, 2 * this.#count));
    }
  }

  /** A claim waited too long, or must not wait: claims nothing ahead for a while. */
  pause(): void {
    this.#count = 0;
    this.#answersToSkip = SKIPPED_ANSWERS;
  }
}

/** Maximum number of claims per slot that wait for room under their lease. */
const WAITING_PER_SLOT_MAX = 4;

/** A request to the source that is in flight. */
export interface ClaimRound {
  readonly demand: Demand;
  /** Fires when something has changed that this round may not have seen. */
  readonly wake: AbortSignal;
  /** Monotonic, both of them. */
  readonly askedAt: number;
  readonly leaseEndsAt: number;
  readonly claims: Promise<readonly Claim[]>;
}

/** The claim requests of one engine to its source. */
export class ClaimRounds {
  readonly #parts: EngineParts;
  readonly #slots: HandlerSlots;
  readonly #wake: Wake;
  readonly #prefetch: Prefetch;
  #early: ClaimRound | undefined;

  constructor(parts: EngineParts, slots: HandlerSlots, wake: Wake) {
    this.#parts = parts;
    this.#slots = slots;
    this.#wake = wake;
    this.#prefetch = new Prefetch(parts.slots.concurrency, parts.source.isNear);
  }

  /** Whether a free slot alone is not enough, because handlers or destinations have limits. */
  get hasLimits(): boolean {
    const { routes, slots } = this.#parts;
    return routes.hasLimits || slots.destinationConcurrency !== undefined;
  }

  /** When a lease that is requested now ends (monotonic), at the earliest. */
  leaseEnd(): number {
    return this.#parts.clock.monotonic() + this.#parts.source.leaseMs;
  }

  /** How many to ask for while this many wait: as many as there is room for, and some ahead. */
  #max(waiting: number): number {
    const { free } = this.#slots;
    const { concurrency } = this.#parts.slots;
    if (!this.hasLimits) return this.#prefetch.max(free, waiting);
    // Enough wait for one handler or destination: it must get room before more are claimed.
    if (waiting >= WAITING_PER_SLOT_MAX * concurrency) return 0;
    // Many that wait mean that destinations fill up within a batch: ask for one at a time.
    return waiting >= concurrency ? Math.min(1, free) : free;
  }

  /**
   * Asks for as many as there is room for besides the waiting claims, and keeps slots for them
   * until the answer; undefined if there is no room.
   */
  ask(waiting: number, paused: readonly string[]): ClaimRound | undefined {
    const max = this.#max(waiting);
    if (max === 0) return undefined;
    const round = this.#begin(max, paused);
    this.#slots.keepForClaims(Math.min(max, this.#slots.free));
    return round;
  }

  /** Evaluates an answer of `count` claims; returns whether it was full. */
  answered({ demand, askedAt }: ClaimRound, count: number, waiting: number): boolean {
    const isFull = count >= demand.max;
    const isStarved = this.#slots.running + waiting === 0;
    const cameAt = this.#parts.clock.monotonic();
    this.#prefetch.note({ isFull, isStarved, waiting, askedAt, cameAt });
    return isFull;
  }

  /**
   * Asks for the next round before the `waiting` and `coming` claims begin, and resolves once the
   * request had time to leave this process; undefined: the round has to wait for those claims.
   */
  askEarly(waiting: number, coming: number, paused: readonly string[]): Promise<void> | undefined {
    const { free } = this.#slots;
    const beginning = Math.min(free, waiting + coming);
    if (this.hasLimits || this.#prefetch.count === 0 || beginning < free) return undefined;
    const max = this.#prefetch.max(0, waiting + coming - beginning);
    if (max === 0) return undefined;
    this.#keep(this.#begin(max, paused));
    // No hand-off may take the slots in which those claims are about to begin.
    this.#slots.keepForClaims(beginning);
    return new Promise((resolve) => {
      this.#parts.clock.soon(() => {
        this.#slots.keepForClaims(0);
        resolve();
      });
    });
  }

  /** The round that was requested early, if there is one; it is returned once. */
  takeEarly(): ClaimRound | undefined {
    const round = this.#early;
    this.#early = undefined;
    return round;
  }

  /** A claim waited too long, or must not wait: nothing is claimed ahead for a while. */
  pausePrefetch(): void {
    this.#prefetch.pause();
  }

  #begin(max: number, paused: readonly string[]): ClaimRound {
    const { clock, source } = this.#parts;
    const wake = this.#wake.fresh();
    const demand = this.#slots.demand(paused, max);
    const askedAt = clock.monotonic();
    // Counted from before the call: the store counts its lease from when it got the request.
    const leaseEndsAt = askedAt + source.leaseMs;
    // Also with an empty demand: the source notices by it that the engine has seen its wake-up.
    const claims = source.next(demand);
    return { demand, wake, askedAt, leaseEndsAt, claims };
  }

  /**
   * n.b. In a function of its own: an async function with a reference to the next round would keep
   * it and all later ones in memory until the next full collection. (V8 13.6, 2026-11-18)
   */
  #keep(round: ClaimRound): void {
    this.#early = round;
    // The caller that takes the round handles a failure; until then it is no unhandled rejection.
    round.claims.catch(() => undefined);
  }
}

// Claims that wait for a slot, or for room at their handler or destination, in the order in which
// they came.
//
// They wait under their lease, which the lease timer extends, and begin before new claims.

/** A claim that waits. */
export class WaitingClaim implements TimedClaim {
  readonly claim: Claim;
  readonly #leases: LeaseTimer;
  readonly #onTimeout: (waiting: WaitingClaim) => void;
  /** When it has waited long enough (monotonic). */
  timeoutAt: number;
  leaseEndsAt: number;
  isFenced = false;
  watchedAt: number | undefined;

  constructor(
    claim: Claim,
    times: { readonly leaseEndsAt: number; readonly timeoutAt: number },
    leases: LeaseTimer,
    onTimeout: (waiting: WaitingClaim) => void,
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

  /** It begins or is released: the lease timer stops watching it here. */
  leave(): void {
    this.#leases.remove(this);
  }
}

/** All waiting claims. */
export class WaitingClaims {
  #claims: WaitingClaim[] = [];

  get size(): number {
    return this.#claims.length;
  }

  add(waiting: WaitingClaim): void {
    this.#claims.push(waiting);
  }

  remove(waiting: WaitingClaim): void {
    this.#claims = this.#claims.filter((one) => one !== waiting);
  }

  /** Removes and returns the first ones. */
  take(max: number): readonly WaitingClaim[] {
    return this.#claims.splice(0, max);
  }

  /** Removes and returns those that must not begin while these topics are paused. */
  takePaused(paused: Paused): readonly WaitingClaim[] {
    const stopped = this.#claims.filter(({ claim }) => isPaused(claim, paused));
    this.#claims = this.#claims.filter(({ claim }) => !isPaused(claim, paused));
    return stopped;
  }
}

type Paused = readonly string[] | 'all';

function isPaused({ envelope }: Claim, paused: Paused): boolean {
  return paused === 'all' || paused.some((pattern) => topicMatches(pattern, envelope.topic));
}

/**
 * Whether a claim would no longer be requested: its topic is paused, or its handler was removed.
 */
export function isUnwanted(
  claim: Claim,
  route: HandlerRoute | undefined,
  parts: EngineParts,
): boolean {
  const paused = parts.pauses.now;
  if (paused !== NOTHING_PAUSED && isPaused(claim, paused)) return true;
  // A message that every handler refuses by its envelope is held; a lost holder needs no handler.
  if (route !== undefined || claim.claimedFrom === 'active') return false;
  if (claim.lane === 'delivery' && parts.slots.takesUnhandled) return false;
  return !parts.routes.serves(claim.lane, claim.envelope.topic);
}

/**
 * Whether a claim may wait for a slot, although others could take it. If this process ends
 * meanwhile, that counts as an attempt and as a lost holder. So a claim does not wait for its last
 * attempt, nor after a holder was lost.
 */
export function mayWait(
  claim: Claim,
  route: HandlerRoute | undefined,
  parts: EngineParts,
): boolean {
  return claim.lost === 0 && claim.attempt < parts.policyFor(claim, route).maxAttempts;
}

// Claims whose lease was over, or nearly, when they came: the store answered late, or the process
// was suspended. Another process may have them by now.
//
//   add() ─extend()─▶ done: begin()     stale: drop()     trouble: drop(), their lease runs out
//
// Promise: no handler starts under a lease that is over. The late claims of one answer are extended
// in one call.

/** A claim whose lease must be extended before it may begin. */
interface LateClaim {
  readonly claim: Claim;
  /** Its lease now ends then (monotonic). It may be late again, and be added again. */
  readonly begin: (leaseEndsAt: number) => void;
  /** Another process has it, or its lease could not be extended. */
  readonly drop: () => void;
}

/** What late claims need of their engine. */
interface LateClaimHandlers {
  readonly parts: EngineParts;
  readonly leases: LeaseTimer;
  extend(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]>;
  onTrouble(error: unknown): void;
}

/** Extends the leases of late claims and lets them begin. */
export class LateClaims {
  readonly #handlers: LateClaimHandlers;
  #waiting: LateClaim[] = [];
  /** The calls in flight, one after the other. */
  #work: Promise<void> | undefined;
  #size = 0;

  constructor(duties: LateClaimHandlers) {
    this.#handlers = duties;
  }

  /** Number of late claims. */
  get size(): number {
    return this.#size;
  }

  /** To be awaited before anything is claimed: a claim could take a message of a late claim. */
  get pending(): Promise<void> | undefined {
    return this.#work;
  }

  /** Whether a lease that ends then leaves less than a third of it to begin with. */
  isLate(leaseEndsAt: number): boolean {
    const { clock, source } = this.#handlers.parts;
    return leaseEndsAt - clock.monotonic() < source.leaseMs / 3;
  }

  add(late: LateClaim): void {
    this.#size += 1;
    this.#waiting.push(late);
    this.#work ??= this.#keepAll();
  }

  async #keepAll(): Promise<void> {
    do {
      // A claim that waited for room may have a heartbeat in flight, which would conflict. And in
      // any case after this turn of the loop: by then the others of the same answer are here.
      await this.#handlers.leases.heartbeat;
      await this.#keep(this.#waiting.splice(0));
    } while (this.#waiting.length > 0);
    this.#work = undefined;
  }

  async #keep(batch: readonly LateClaim[]): Promise<void> {
    const { clock, source } = this.#handlers.parts;
    // Counted from before the call: the store counts its lease from when it got the request.
    const leaseEndsAt = clock.monotonic() + source.leaseMs;
    let answers: readonly ('done' | 'stale')[] = [];
    try {
      answers = await this.#handlers.extend(batch.map(({ claim }) => claim));
    } catch (error) {
      this.#handlers.onTrouble(error);
    }
    for (const [at, late] of batch.entries()) {
      this.#size -= 1;
      if (answers[at] === 'done') late.begin(leaseEndsAt);
      else {
        if (answers[at] === 'stale') this.#emitStale(late.claim);
        late.drop();
      }
    }
  }

  #emitStale({ id, envelope, lane, attempt }: Claim): void {
    const { events, source } = this.#handlers.parts;
    if (!events.hears('stale')) return;
    events.emit({ at: source.now(), kind: 'stale', id, topic: envelope.topic, lane, attempt });
  }
}

/** The abort reason of a wait that ends early; never read. */
const WOKEN = 'poked';

/** The sleeps of one engine, and what ends them early. */
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

  /** Whether `wake` was called since the last `fresh` or `pause`. */
  get isWoken(): boolean {
    return this.#controller.signal.aborted;
  }

  /** A signal that fires with the next `wake`. */
  fresh(): AbortSignal {
    if (this.#controller.signal.aborted) this.#controller = new AbortController();
    return this.#controller.signal;
  }

  /** Waits for the span, or until `wake`. */
  pause(ms: number): Promise<void> {
    return sleep(this.#clock, ms, this.fresh());
  }
}

/** An event that one caller waits for. */
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
