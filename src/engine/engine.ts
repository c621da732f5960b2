/**
 * engine — claim → deliver → judge → settle, for every source.
 *
 *   source.next() ─▶ #begin() ──────────────┐
 *   enqueue ─▶ reserve() ─▶ beginReserved() ┴▶ #attempt(): deliver ─▶ judge ─▶ settle
 *                (hand-off: the insert claims the message)
 *
 * Sleeps until something is due or it is woken. A slot is a running handler; settling goes on
 * beside it, bounded. Stop: no new claims, drain with a limit, abort, release without cost.
 */

import type { Envelope } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Claim } from '../ports/source.ts';
import { backoff, WhenIdle } from '../system/wait.ts';
import {
  bearsWaiting,
  type ClaimRound,
  ClaimRounds,
  isUnwanted,
  LateClaims,
  PREFETCH_WAIT_MS,
  Signal,
  WaitingClaim,
  WaitingClaims,
  Wake,
} from './claiming.ts';
import { LeaseTimer, type LeaseTimerHandlers } from './lease-timer.ts';
import { Attempt, type AttemptStart, type SettleAnswer } from './attempt.ts';
import {
  type EngineLoad,
  type EngineParts,
  overtakenError,
  NOTHING_PAUSED,
  type Reservation,
  tellTrouble,
} from './parts.ts';
import { type HandlerRoute, HandlerSlots } from './handler-slots.ts';

/** After trouble with the source, the wait before the next try doubles up to the maximum. */
const TROUBLE_WAIT = { firstMs: 100, maxMs: 30_000 };
/** How long handlers have to react to an abort before their messages are released. */
const ABORT_GRACE_MS = 1_000;
/** How long a stop waits for the store to take released messages back. */
const RELEASE_WAIT_MS = 5_000;
/** Maximum number of verdicts in flight to the store; above it no new work is taken. */
const SETTLING_MAX = 5_000;

type Phase = 'stopped' | 'running' | 'stopping';

/** Takes work from one source and carries it through. */
export class Engine {
  readonly parts: EngineParts;
  readonly slots: HandlerSlots;
  readonly #leases: LeaseTimer;
  /** It was stopped and waits for nothing: what cannot be settled at once is not. */
  #hasGivenUp = false;
  /** Attempts under way. */
  #live = 0;
  /** Claims that wait for a slot, or for room at their handler or destination; they go first. */
  readonly #parked = new WaitingClaims();
  #isUnparking = false;
  #phase: Phase = 'stopped';
  #settling = 0;
  #settled = 0;
  /** Slots taken for messages that are being inserted. */
  #reserved = 0;
  #loop: Promise<void> | undefined;
  readonly #wake: Wake;
  readonly #rounds: ClaimRounds;
  readonly #room = new Signal();
  readonly #whenIdle: WhenIdle;
  readonly #late: LateClaims;

  constructor(parts: EngineParts) {
    this.parts = parts;
    this.slots = new HandlerSlots(parts.slots, parts.routes);
    const { clock, source } = parts;
    const extend: LeaseTimerHandlers['extend'] = (claims) =>
      source.extend?.(claims) ?? Promise.resolve(claims.map(() => 'done' as const));
    const onTrouble = (error: unknown): void => this.trouble('extending leases', error);
    this.#wake = new Wake(clock);
    this.#rounds = new ClaimRounds(parts, this.slots, this.#wake);
    this.#leases = new LeaseTimer({ clock, leaseMs: source.leaseMs, extend, onTrouble });
    this.#late = new LateClaims({ parts, leases: this.#leases, extend, onTrouble });
    this.#whenIdle = new WhenIdle(
      () => this.#live === 0 && this.#reserved === 0 && this.#late.size === 0,
    );
  }

  get isRunning(): boolean {
    return this.#phase === 'running';
  }

  /** Messages whose handler runs now. */
  get running(): number {
    return this.slots.running;
  }

  /** What the engine is doing, and what it did since it was made. */
  get load(): EngineLoad {
    return {
      isRunning: this.isRunning,
      concurrency: this.parts.slots.concurrency,
      running: this.slots.running,
      waiting: this.#parked.size,
      settling: this.#settling,
      settled: this.#settled,
    };
  }

  start(): void {
    if (this.#phase !== 'stopped') {
      throw new RespoolError('config.invalid', 'cannot start the engine: it is running already');
    }
    this.#phase = 'running';
    this.#hasGivenUp = false;
    this.#loop = this.#run();
  }

  /**
   * Stops taking, drains for at most `withinMs`, aborts, and releases what is left without cost.
   */
  async stop(withinMs: number): Promise<void> {
    if (this.#phase === 'stopping') return;
    this.#phase = 'stopping';
    this.wake();
    this.#room.fire();
    await this.#loop;
    for (const one of this.#parked.take(this.#parked.size)) this.#release(one);
    const isIdle = await this.#whenIdle.within(this.parts.clock, withinMs);
    if (!isIdle) {
      const reason = new RespoolError('engine.stopping', 'the spool is stopping');
      for (const attempt of this.#attempts()) attempt.stop(reason);
      await this.#whenIdle.within(this.parts.clock, Math.min(ABORT_GRACE_MS, withinMs));
      for (const attempt of this.#attempts()) attempt.release();
      await this.#whenIdle.within(this.parts.clock, RELEASE_WAIT_MS);
      // What the store does not take back now stays leased to us, and is lost when its lease ends.
      this.#hasGivenUp = true;
      for (const attempt of this.#attempts()) attempt.abandon();
      await this.#whenIdle.within(this.parts.clock, RELEASE_WAIT_MS);
    }
    this.#phase = 'stopped';
  }

  /** Looks again what can be claimed: routes, pauses or the store changed. */
  wake(): void {
    this.#wake.wake();
  }

  /**
   * Takes a slot for a message that is handed over with its insert; undefined when it must wait.
   */
  reserve(envelope: Envelope): Reservation | undefined {
    // What was claimed before and has not begun yet goes first.
    const hasOlder = this.#parked.size > 0 || this.#late.size > 0;
    if (this.#phase !== 'running' || this.slots.free === 0 || hasOlder) return undefined;
    if (this.parts.pauses.now !== NOTHING_PAUSED) return undefined;
    const route = this.parts.routes.find('delivery', envelope);
    const { destination } = envelope;
    if (route === undefined || !this.slots.hasRoom(route, destination)) return undefined;
    this.slots.take(route, destination);
    this.#reserved += 1;
    return { route, destination, leaseEndsAt: this.#rounds.leaseEnd() };
  }

  /** Gives a reserved slot back. */
  unreserve({ route, destination }: Reservation): void {
    this.slots.give(route, destination);
    this.#reserved -= 1;
    this.#roomMade();
    this.#whenIdle.check();
  }

  /** Starts a message that was handed over, in the slot it reserved. */
  beginReserved(reservation: Reservation, claim: Claim): void {
    const { route, leaseEndsAt } = reservation;
    // Inserted while we were stopping, or paused: ours to give back, not to begin.
    const isReleased = this.#phase !== 'running' || isUnwanted(claim, route, this.parts);
    if (!isReleased && this.#late.isLate(leaseEndsAt)) {
      const begin = (endsAt: number): void =>
        this.beginReserved({ ...reservation, leaseEndsAt: endsAt }, claim);
      this.#late.add({ claim, begin, drop: () => this.unreserve(reservation) });
      return;
    }
    this.#reserved -= 1;
    void this.#attempt(claim, { route, leaseEndsAt, isReleased });
  }

  /**
   * Takes one message and runs it with a route of the moment; resolves to its verdict once that is
   * settled, to undefined when there was none to take.
   */
  async runOne(
    take: () => Promise<Claim | undefined>,
    route: HandlerRoute,
  ): Promise<Verdict | undefined> {
    if (this.#phase === 'stopped') this.#hasGivenUp = false;
    // Counted from before the claim: a stop waits for it, and does not find it running afterwards.
    this.#reserved += 1;
    const askedEnd = this.#rounds.leaseEnd();
    let claim: Claim | undefined;
    try {
      claim = await take();
    } finally {
      this.#reserved -= 1;
      // Nothing begins: it may have been what a stop waits for.
      if (claim === undefined) this.#whenIdle.check();
    }
    if (claim === undefined) return undefined;
    const taken = claim;
    return new Promise((resolve, reject) => {
      const drop = (): void => {
        this.#whenIdle.check();
        reject(overtakenError(taken, 'before the handler began'));
      };
      const begin = (leaseEndsAt: number): void => {
        const isReleased = this.#phase === 'stopping' || this.#hasGivenUp;
        if (!isReleased && this.#late.isLate(leaseEndsAt)) {
          this.#late.add({ claim: taken, begin, drop });
          return;
        }
        this.slots.take(route, taken.envelope.destination);
        void this.#attempt(taken, { route, leaseEndsAt, isReleased }).then(
          ({ verdict, answer }) => {
            if (answer === 'done') resolve(verdict);
            else reject(overtakenError(taken, 'while the handler ran'));
          },
        );
      };
      begin(askedEnd);
    });
  }

  /** The whole way of one claim. Never rejects. */
  async #attempt(
    claim: Claim,
    start: AttemptStart,
  ): Promise<{ readonly verdict: Verdict; readonly answer: SettleAnswer }> {
    const attempt = new Attempt(this.parts, claim, { ...start, isAbandoned: this.#hasGivenUp });
    this.#live += 1;
    const known = attempt.begin();
    this.#leases.add(attempt);
    const { route } = attempt;
    const runs = known === undefined && route !== undefined;
    const outcome = runs ? await attempt.deliver(route) : undefined;
    this.#handlerEnded(attempt);
    const verdict = known ?? attempt.judge(outcome);
    const answer = await attempt.settle(verdict, outcome);
    this.#leases.remove(attempt);
    this.#attemptEnded();
    return { verdict, answer };
  }

  /** The handler is done or given up: its slot is free. Settling goes on beside it. */
  #handlerEnded({ route, claim }: Attempt): void {
    this.slots.give(route, claim.envelope.destination);
    this.#settling += 1;
    this.#roomMade();
  }

  /** The verdict is in the source, or lost. */
  #attemptEnded(): void {
    this.#live -= 1;
    this.#settling -= 1;
    this.#settled += 1;
    if (this.#settling === SETTLING_MAX - 1) this.#room.fire();
    this.#whenIdle.check();
  }

  /** Those that are under way. */
  #attempts(): readonly Attempt[] {
    return this.#leases.list().filter((one) => one instanceof Attempt);
  }

  trouble(doing: string, thrown: unknown): void {
    tellTrouble(this.parts, doing, thrown);
  }

  async #run(): Promise<void> {
    const retry = backoff(TROUBLE_WAIT);
    while (this.#phase === 'running') {
      try {
        await this.#step();
        retry.reset();
      } catch (error) {
        this.trouble('claiming messages', error);
        // A stop that came meanwhile has woken it already; a pause would not hear of it.
        if (this.#phase !== 'running') break;
        await this.#wake.pause(retry.next());
      }
    }
    await this.#giveBackEarly();
  }

  /** What was asked for early, and comes when no more is wanted: nothing begins any more. */
  async #giveBackEarly(): Promise<void> {
    const round = this.#rounds.take();
    if (round === undefined) return;
    try {
      for (const claim of await round.claims) this.#begin(claim, round.leaseEndsAt);
    } catch (error) {
      this.trouble('claiming messages', error);
    }
  }

  /** One round: start what was parked, claim what fits, or sleep until something changes. */
  async #step(): Promise<void> {
    const late = this.#leases.catchUp();
    if (late !== undefined) await late;
    if (this.#phase !== 'running') return;
    this.#unpark();
    // Then from the beginning: what begins there may bring the process to a standstill again.
    if (this.#late.pending !== undefined) return this.#late.pending;
    const round = this.#rounds.take() ?? this.#ask();
    if (round === undefined) {
      // Until there is room, or nothing is paused any more.
      const isPaused = this.parts.pauses.now === 'all';
      await (isPaused ? this.#wake.pause(Number.POSITIVE_INFINITY) : this.#room.wait());
      return;
    }
    let claims: readonly Claim[];
    try {
      claims = await round.claims;
    } finally {
      // Those that were kept for its claims.
      this.slots.promise(0);
    }
    const isFull = this.#rounds.answered(round, claims.length, this.#parked.size);
    if (isFull) await this.#askEarly(round, claims.length);
    // Those that waited go first.
    this.#unpark();
    for (const claim of claims) this.#begin(claim, round.leaseEndsAt);
    // A full round may have left more behind. One that was not full took all there was: to look
    // again at once would only keep hand-offs from the free slots.
    if (isFull || this.#phase !== 'running') return;
    await this.parts.source.wait(round.demand, round.wake);
  }

  /** Asks for what fits; undefined where nothing does. */
  #ask(): ClaimRound | undefined {
    const paused = this.parts.pauses.now;
    if (paused === 'all' || this.#settling >= SETTLING_MAX) return undefined;
    return this.#rounds.ask(this.#parked.size, paused);
  }

  /** The next round, before this many claims begin; undefined where it has to wait for them. */
  #askEarly(last: ClaimRound, coming: number): Promise<void> | undefined {
    const paused = this.parts.pauses.now;
    const isOpen = this.#phase === 'running' && this.#settling < SETTLING_MAX;
    // As in a round of its own: after a standstill, it would take what is ours for lost.
    const isKept = this.#late.pending !== undefined || this.#late.isLate(last.leaseEndsAt);
    if (!isOpen || paused === 'all' || isKept || this.#leases.isBehind) return undefined;
    return this.#rounds.early(this.#parked.size, coming, paused);
  }

  #begin(claim: Claim, leaseEndsAt: number, parked?: WaitingClaim): void {
    const { destination } = claim.envelope;
    const route = this.parts.routes.find(claim.lane, claim.envelope);
    // A claim that came back while we were stopping is given back, not begun.
    const isReleased = this.#phase !== 'running' || isUnwanted(claim, route, this.parts);
    // A lost holder is judged without a handler: it needs no room.
    const isFree = isReleased || claim.claimedFrom === 'active';
    const hasRoom = isFree || (this.slots.free > 0 && this.slots.hasRoom(route, destination));
    if (!hasRoom && parked !== undefined) {
      this.#parked.add(parked);
      return;
    }
    parked?.leave();
    if (!isReleased && this.#late.isLate(leaseEndsAt)) {
      const begin = (endsAt: number): void => this.#begin(claim, endsAt);
      this.#late.add({ claim, begin, drop: () => this.#whenIdle.check() });
      return;
    }
    if (!hasRoom) {
      this.#park(claim, leaseEndsAt, route);
      return;
    }
    this.slots.take(route, destination);
    void this.#attempt(claim, { route, leaseEndsAt, isReleased });
  }

  #park(claim: Claim, leaseEndsAt: number, route: HandlerRoute | undefined): void {
    const giveBack = (parked: WaitingClaim): void => {
      this.#rounds.tooFarAhead();
      this.#parked.remove(parked);
      this.#release(parked);
    };
    // One that waits for its own handler or destination would be brought again by the next claim.
    const hasLimits = this.#rounds.hasLimits;
    const waitMs = hasLimits ? Number.POSITIVE_INFINITY : PREFETCH_WAIT_MS;
    const times = { leaseEndsAt, timeoutAt: this.parts.clock.monotonic() + waitMs };
    const parked = new WaitingClaim(claim, times, this.#leases, giveBack);
    if (hasLimits || bearsWaiting(claim, route, this.parts)) this.#parked.add(parked);
    else giveBack(parked);
  }

  /** Also while a claim is on its way: what waits must not wait for it, too. */
  #unparkSoon(): void {
    if (this.#isUnparking || this.#parked.size === 0) return;
    this.#isUnparking = true;
    queueMicrotask(() => {
      this.#isUnparking = false;
      if (this.#phase === 'running') this.#unpark();
    });
  }

  #unpark(): void {
    if (this.#parked.size === 0) return;
    const paused = this.parts.pauses.now;
    if (paused !== NOTHING_PAUSED) {
      for (const one of this.#parked.takeStopped(paused)) this.#release(one);
    }
    const max = this.#rounds.hasLimits ? Number.POSITIVE_INFINITY : this.slots.free;
    for (const one of this.#parked.take(max)) {
      // One whose lease was lost meanwhile belongs to another process, or soon will.
      if (!one.isFenced) this.#begin(one.claim, one.leaseEndsAt, one);
    }
  }

  /** Gives one that waited back, without cost. */
  #release(parked: WaitingClaim): void {
    const { claim, leaseEndsAt } = parked;
    parked.leave();
    this.slots.take(undefined, claim.envelope.destination);
    void this.#attempt(claim, { route: undefined, leaseEndsAt, isReleased: true });
  }

  #roomMade(): void {
    this.#room.fire();
    this.#unparkSoon();
    // With limits, room for one route or destination may be what a sleeping claim waits for.
    if (this.#parked.size > 0 || this.#rounds.hasLimits) this.wake();
  }
}
