/**
 * engine — claim → deliver → judge → settle, for every source.
 *
 *   source.next() ─▶ #begin() ──────────────┐
 *   enqueue ─▶ reserve() ─▶ beginReserved() ┴▶ #attempt(): deliver ─▶ judge ─▶ settle
 *                (hand-off: the insert claims the message)
 *
 * Sleeps in the source's `wait` until something is due or it is woken. A slot is a running handler,
 * or one about to run; settling continues outside of slots, up to a limit. Stop: no new claims,
 * drain with a limit, abort, release without cost. Promise: every claim ends settled or released,
 * or is lost with its lease; no handler starts after its lease has ended (invariant 2,
 * ARCHITECTURE.md).
 *
 * One attempt: attempt.ts. How claims are requested: claiming.ts. Who may run: handler-slots.ts.
 * Leases: lease-timer.ts.
 */

import type { Envelope } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Claim } from '../ports/source.ts';
import { backoff, WhenIdle } from '../system/wait.ts';
import {
  mayWait,
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
  emitTrouble,
} from './parts.ts';
import { type HandlerRoute, HandlerSlots } from './handler-slots.ts';

/** The earliest end of the wait after trouble that a wake-up can bring. */
const WOKEN_RETRY_MS = 1_000;
/**
 * After trouble with the source, the wait before the next try doubles up to the maximum. Also in
 * docs/reference/errors.md, docs/operations/disk-full.md and decision 0048.
 */
const TROUBLE_WAIT = { firstMs: 100, maxMs: 30_000 };
/**
 * How long handlers have to react to an abort before their messages are released, at most as long
 * as the stop's own limit. Also in docs/how-to/shut-down.md.
 */
const ABORT_GRACE_MS = 1_000;
/** How long a stop waits for the store to take released messages back; again after a last try. */
const RELEASE_WAIT_MS = 5_000;
/**
 * Maximum number of verdicts in flight to the store; above it nothing more is claimed, but what is
 * claimed begins, and so do hand-offs. Also in docs/reference/limits.md.
 */
const SETTLING_MAX = 5_000;

type Phase = 'stopped' | 'running' | 'stopping';

/** Takes messages from one source, and runs handlers for them. */
export class Engine {
  readonly parts: EngineParts;
  readonly slots: HandlerSlots;
  readonly #leases: LeaseTimer;
  /** It was stopped, and waits for nothing: a verdict that cannot be settled at once is dropped. */
  #hasGivenUp = false;
  /** Attempts under way. */
  #attemptsUnderWay = 0;
  /** Claims that wait for a slot, or for room at their handler or destination; they go first. */
  readonly #waiting = new WaitingClaims();
  #willBeginWaiting = false;
  #phase: Phase = 'stopped';
  #settling = 0;
  #settled = 0;
  /** Slots taken for messages that are being inserted. */
  #reserved = 0;
  #loop: Promise<void> | undefined;
  #isAfterTrouble = false;
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
      () => this.#attemptsUnderWay === 0 && this.#reserved === 0 && this.#late.size === 0,
    );
  }

  get isRunning(): boolean {
    return this.#phase === 'running';
  }

  /** Slots that are taken: handlers that run, and messages handed off that are being inserted. */
  get running(): number {
    return this.slots.running;
  }

  /** What the engine is doing, and what it did since it was made. */
  get load(): EngineLoad {
    return {
      isRunning: this.isRunning,
      concurrency: this.parts.slots.concurrency,
      running: this.slots.running,
      waiting: this.#waiting.size,
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
   * Stops claiming, drains for at most `withinMs`, aborts, and releases the rest without cost.
   */
  async stop(withinMs: number): Promise<void> {
    if (this.#phase === 'stopping') return;
    this.#phase = 'stopping';
    this.wake();
    this.#room.fire();
    await this.#loop;
    for (const one of this.#waiting.take(this.#waiting.size)) this.#release(one);
    const isIdle = await this.#whenIdle.within(this.parts.clock, withinMs);
    if (!isIdle) {
      const reason = new RespoolError('engine.stopping', 'the spool is stopping');
      for (const attempt of this.#attempts()) attempt.stop(reason);
      await this.#whenIdle.within(this.parts.clock, Math.min(ABORT_GRACE_MS, withinMs));
      for (const attempt of this.#attempts()) attempt.release();
      await this.#whenIdle.within(this.parts.clock, RELEASE_WAIT_MS);
      // A message that the store does not take back now is lost when its lease ends.
      this.#hasGivenUp = true;
      for (const attempt of this.#attempts()) attempt.abandon();
      await this.#whenIdle.within(this.parts.clock, RELEASE_WAIT_MS);
    }
    this.#phase = 'stopped';
  }

  /** Ends the sleep, to claim again: routes, pauses or the store have changed. */
  wake(): void {
    this.#wake.wake();
  }

  /** The source has taken something, so it is back: a wait after trouble with it is cut short. */
  sourceAnswered(): void {
    if (this.#isAfterTrouble) this.wake();
  }

  /**
   * Takes a slot for a message that is handed off with its insert; undefined: it must wait.
   */
  reserve(envelope: Envelope): Reservation | undefined {
    // Messages that were claimed earlier and have not begun go first.
    const hasOlder = this.#waiting.size > 0 || this.#late.size > 0;
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

  /** Starts a message that was handed off, in its reserved slot. */
  beginReserved(reservation: Reservation, claim: Claim): void {
    const { route, leaseEndsAt } = reservation;
    // Inserted while the engine stopped or the topic was paused: it is released, not begun.
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
   * Takes one message and runs it with the given route; resolves to its verdict once that is
   * settled, or to undefined if there was no message.
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
      // Nothing begins: a stop may have waited for this.
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

  /** Runs one claim to its end. Never rejects. */
  async #attempt(
    claim: Claim,
    start: AttemptStart,
  ): Promise<{ readonly verdict: Verdict; readonly answer: SettleAnswer }> {
    const attempt = new Attempt(this.parts, claim, { ...start, isAbandoned: this.#hasGivenUp });
    this.#attemptsUnderWay += 1;
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

  /** The handler is done or given up: its slot is free while its verdict is being settled. */
  #handlerEnded({ route, claim }: Attempt): void {
    this.slots.give(route, claim.envelope.destination);
    this.#settling += 1;
    this.#roomMade();
  }

  /** The verdict is in the source, or lost. */
  #attemptEnded(): void {
    this.#attemptsUnderWay -= 1;
    this.#settling -= 1;
    this.#settled += 1;
    if (this.#settling === SETTLING_MAX - 1) this.#room.fire();
    this.#whenIdle.check();
  }

  /** Attempts that have not ended. */
  #attempts(): readonly Attempt[] {
    return this.#leases.list().filter((one) => one instanceof Attempt);
  }

  trouble(doing: string, thrown: unknown): void {
    emitTrouble(this.parts, doing, thrown);
  }

  async #run(): Promise<void> {
    const retry = backoff(TROUBLE_WAIT);
    while (this.#phase === 'running') {
      try {
        await this.#step();
        retry.reset();
      } catch (error) {
        this.trouble('claiming messages', error);
        // A stop that came meanwhile has fired its wake-up already; a pause would not notice.
        if (this.#phase !== 'running') break;
        this.#isAfterTrouble = true;
        await this.#waitAfterTrouble(retry.next());
        this.#isAfterTrouble = false;
      }
    }
    await this.#giveBackEarly();
  }

  /**
   * A wake-up shortens the wait to a second at most: where claims fail and others go on writing,
   * each of their writes would otherwise be another claim that fails. One that came while the claim
   * was failing counts as well: the store that sent it may be back since.
   */
  async #waitAfterTrouble(waitMs: number): Promise<void> {
    const { clock } = this.parts;
    const earliest = clock.monotonic() + Math.min(waitMs, WOKEN_RETRY_MS);
    if (!this.#wake.isWoken) await this.#wake.pause(waitMs);
    for (let left = 1; this.#phase === 'running' && left > 0; ) {
      left = earliest - clock.monotonic();
      if (left > 0) await this.#wake.pause(left);
    }
  }

  /** Releases the claims of a round that was requested early, and comes after the stop. */
  async #giveBackEarly(): Promise<void> {
    const round = this.#rounds.takeEarly();
    if (round === undefined) return;
    try {
      for (const claim of await round.claims) this.#begin(claim, round.leaseEndsAt);
    } catch (error) {
      this.trouble('claiming messages', error);
    }
  }

  /**
   * One round: begin what waits, claim what there is room for, or sleep until something changes.
   */
  async #step(): Promise<void> {
    const late = this.#leases.catchUp();
    if (late !== undefined) await late;
    if (this.#phase !== 'running') return;
    this.#beginWaiting();
    // Then a new round from the start: beginning these may block the process again.
    if (this.#late.pending !== undefined) return this.#late.pending;
    const round = this.#rounds.takeEarly() ?? this.#ask();
    if (round === undefined) {
      // Until there is room, or until topics are resumed.
      const isPaused = this.parts.pauses.now === 'all';
      await (isPaused ? this.#wake.pause(Number.POSITIVE_INFINITY) : this.#room.wait());
      return;
    }
    let claims: readonly Claim[];
    try {
      claims = await round.claims;
    } finally {
      // Frees the slots that were kept for its claims.
      this.slots.keepForClaims(0);
    }
    const isFull = this.#rounds.answered(round, claims.length, this.#waiting.size);
    if (isFull) await this.#askEarly(round, claims.length);
    // Waiting claims go first.
    this.#beginWaiting();
    for (const claim of claims) this.#begin(claim, round.leaseEndsAt);
    // A full round may have left more behind. One that was not full took all there was: to look
    // again at once would only keep hand-offs from the free slots.
    if (isFull || this.#phase !== 'running') return;
    await this.parts.source.wait(round.demand, round.wake);
  }

  /** Requests as much as there is room for; undefined: there is none. */
  #ask(): ClaimRound | undefined {
    const paused = this.parts.pauses.now;
    if (paused === 'all' || this.#settling >= SETTLING_MAX) return undefined;
    return this.#rounds.ask(this.#waiting.size, paused);
  }

  /** Requests the next round before `coming` claims begin; undefined: it has to wait for them. */
  #askEarly(last: ClaimRound, coming: number): Promise<void> | undefined {
    const paused = this.parts.pauses.now;
    const isOpen = this.#phase === 'running' && this.#settling < SETTLING_MAX;
    // As in #step: after a standstill a claim would take our own messages for lost.
    const isKept = this.#late.pending !== undefined || this.#late.isLate(last.leaseEndsAt);
    if (!isOpen || paused === 'all' || isKept || this.#leases.isBehind) return undefined;
    return this.#rounds.askEarly(this.#waiting.size, coming, paused);
  }

  #begin(claim: Claim, leaseEndsAt: number, waiting?: WaitingClaim): void {
    const { destination } = claim.envelope;
    const route = this.parts.routes.find(claim.lane, claim.envelope);
    // A claim that came back while we were stopping is given back, not begun.
    const isReleased = this.#phase !== 'running' || isUnwanted(claim, route, this.parts);
    // A lost holder is judged without a handler: it needs no room.
    const isFree = isReleased || claim.claimedFrom === 'active';
    const hasRoom = isFree || (this.slots.free > 0 && this.slots.hasRoom(route, destination));
    if (!hasRoom && waiting !== undefined) {
      this.#waiting.add(waiting);
      return;
    }
    waiting?.leave();
    if (!isReleased && this.#late.isLate(leaseEndsAt)) {
      const begin = (endsAt: number): void => this.#begin(claim, endsAt);
      this.#late.add({ claim, begin, drop: () => this.#whenIdle.check() });
      return;
    }
    if (!hasRoom) {
      this.#addWaiting(claim, leaseEndsAt, route);
      return;
    }
    this.slots.take(route, destination);
    void this.#attempt(claim, { route, leaseEndsAt, isReleased });
  }

  #addWaiting(claim: Claim, leaseEndsAt: number, route: HandlerRoute | undefined): void {
    const giveBack = (waiting: WaitingClaim): void => {
      this.#rounds.pausePrefetch();
      this.#waiting.remove(waiting);
      this.#release(waiting);
    };
    // If it waits for its own handler or destination, the next claim would only bring it again.
    const hasLimits = this.#rounds.hasLimits;
    const waitMs = hasLimits ? Number.POSITIVE_INFINITY : PREFETCH_WAIT_MS;
    const times = { leaseEndsAt, timeoutAt: this.parts.clock.monotonic() + waitMs };
    const waiting = new WaitingClaim(claim, times, this.#leases, giveBack);
    if (hasLimits || mayWait(claim, route, this.parts)) this.#waiting.add(waiting);
    else giveBack(waiting);
  }

  /** Also while a claim request is in flight: waiting claims must not wait for it as well. */
  #beginWaitingSoon(): void {
    if (this.#willBeginWaiting || this.#waiting.size === 0) return;
    this.#willBeginWaiting = true;
    queueMicrotask(() => {
      this.#willBeginWaiting = false;
      if (this.#phase === 'running') this.#beginWaiting();
    });
  }

  #beginWaiting(): void {
    if (this.#waiting.size === 0) return;
    const paused = this.parts.pauses.now;
    if (paused !== NOTHING_PAUSED) {
      for (const one of this.#waiting.takePaused(paused)) this.#release(one);
    }
    const max = this.#rounds.hasLimits ? Number.POSITIVE_INFINITY : this.slots.free;
    for (const one of this.#waiting.take(max)) {
      // One whose lease was lost meanwhile belongs to another process, or soon will.
      if (!one.isFenced) this.#begin(one.claim, one.leaseEndsAt, one);
    }
  }

  /** Releases a waiting claim, without cost. */
  #release(waiting: WaitingClaim): void {
    const { claim, leaseEndsAt } = waiting;
    waiting.leave();
    this.slots.take(undefined, claim.envelope.destination);
    void this.#attempt(claim, { route: undefined, leaseEndsAt, isReleased: true });
  }

  #roomMade(): void {
    this.#room.fire();
    this.#beginWaitingSoon();
    // With limits, room for one route or destination may be what a sleeping claim waits for.
    if (this.#waiting.size > 0 || this.#rounds.hasLimits) this.wake();
  }
}
