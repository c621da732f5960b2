/**
 * claiming — asks the source for messages, a round at a time, and knows how many to ask for.
 *
 *   answer ─▶ early(): the next round is on its way ─▶ the messages of the answer begin
 *
 * Where handlers are quicker than the store (ahead.ts) the next round is asked for before the
 * messages of the last one begin: to begin 500 of them takes as long as half a claim, in which a
 * server would have nothing to do.
 */

import type { Claim, Demand } from '../ports/source.ts';
import { Ahead } from './ahead.ts';
import type { EngineParts } from './parts.ts';
import type { Slots } from './slots.ts';
import type { Wake } from './wake.ts';

/** Claims that wait for room under their lease, for each slot, at the most. */
const PARKED_PER_SLOT_MAX = 4;

/** A question that is on its way. */
export interface Round {
  readonly demand: Demand;
  /** Fires when there is something to look at that it may not have seen. */
  readonly wake: AbortSignal;
  /** Monotonic, both of them. */
  readonly askedAt: number;
  readonly leaseEndsAt: number;
  readonly claims: Promise<readonly Claim[]>;
}

/** The questions of one engine to its source. */
export class Rounds {
  readonly #parts: EngineParts;
  readonly #slots: Slots;
  readonly #wake: Wake;
  readonly #ahead: Ahead;
  #early: Round | undefined;

  constructor(parts: EngineParts, slots: Slots, wake: Wake) {
    this.#parts = parts;
    this.#slots = slots;
    this.#wake = wake;
    this.#ahead = new Ahead(parts.slots.concurrency, parts.source.isNear);
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

  /** How many to ask for while so many wait: what there is room for, and some ahead. */
  #max(parked: number): number {
    const { free } = this.#slots;
    const { concurrency } = this.#parts.slots;
    if (!this.hasLimits) return this.#ahead.max(free, parked);
    // So many wait for one handler or destination that it must have room before more are taken.
    if (parked >= PARKED_PER_SLOT_MAX * concurrency) return 0;
    // Many that wait mean that destinations fill up within a batch: ask for one at a time.
    return parked >= concurrency ? Math.min(1, free) : free;
  }

  /**
   * Asks for what there is room for while so many wait, and keeps slots for it until the engine has
   * its answer; undefined where there is none.
   */
  ask(parked: number, paused: readonly string[]): Round | undefined {
    const max = this.#max(parked);
    if (max === 0) return undefined;
    const round = this.#begin(max, paused);
    this.#slots.promise(Math.min(max, this.#slots.free));
    return round;
  }

  /** An answer brought so many, while so many were still waiting; whether it was full. */
  answered({ demand, askedAt }: Round, count: number, waiting: number): boolean {
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
  take(): Round | undefined {
    const round = this.#early;
    this.#early = undefined;
    return round;
  }

  /** One waited too long, or must not wait: nothing is asked for ahead for a while. */
  tooFarAhead(): void {
    this.#ahead.end();
  }

  #begin(max: number, paused: readonly string[]): Round {
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
  #keep(round: Round): void {
    this.#early = round;
    // Who takes it hears of its failure; until then nobody does.
    round.claims.catch(() => undefined);
  }
}
