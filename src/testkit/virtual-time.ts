/**
 * virtual-time — a clock that stands still until a test or the simulator moves it, randomness
 * from a seed, and a started in-memory spool that uses both.
 *
 *   advance() ─▶ to the next timer ─▶ run it ─▶ let everything that follows settle ─▶ …  ─▶ the end
 *
 * Promise: timers run one by one, in the order of their due times and then of their creation,
 * each at exactly its instant; nothing is left over of one instant when the next begins, as long as
 * all works in memory (`quietTurns`).
 */

import { type Duration, durationMs, type Millis } from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { SpoolOptions } from '../spool/options.ts';
import { createSpool, type Spool } from '../spool/spool.ts';
import { memory, memoryBodies } from '../stores/memory/index.ts';
import { Heap, type HeapItem } from '../stores/shared/heap.ts';
import { systemClock } from '../system/clock.ts';

/** Dice whose throws depend on the seed alone. */
export function seededDice(seed: number): Dice {
  // mulberry32: 32 bits of state are plenty for tests, and it is five lines.
  let state = seed >>> 0;
  return {
    random() {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
    },
  };
}

/** How a virtual clock starts. */
export interface SimClockOptions {
  /** What the wall clock shows at first; default 2026-01-01T00:00:00Z. */
  readonly startAt?: Millis;
  /**
   * How many quiet turns of the real event loop count as settled; default 1, which fits everything
   * that works in memory. Files and sockets take more, and no number is always enough for them.
   */
  readonly quietTurns?: number;
}

/** An instant that goes on for longer than this never ends. */
const SETTLE_TURNS_MAX = 100_000;

interface Timer extends HeapItem {
  readonly dueMs: number;
  /** Breaks ties: what was asked for first runs first. */
  readonly order: number;
  readonly call: () => void;
}

/**
 * A clock that moves only when a test moves it.
 *
 * @example
 * import { createSpool } from 'respool';
 * import { memory, memoryBodies } from 'respool/stores/memory';
 * import { SimClock } from 'respool/testkit';
 * const clock = new SimClock();
 * const timed = createSpool({ entries: memory(), bodies: memoryBodies({ clock }), clock });
 * await clock.advance('1h');
 */
export class SimClock implements Clock {
  readonly #quietTurns: number;
  #wallMs: number;
  #monotonicMs = 0;
  #made = 0;
  #soons = 0;
  #isAdvancing = false;
  readonly #timers = new Heap<Timer>(isTimerBefore);

  constructor({ startAt = Date.UTC(2026, 0, 1), quietTurns = 1 }: SimClockOptions = {}) {
    this.#wallMs = startAt;
    this.#quietTurns = quietTurns;
  }

  now(): Millis {
    return this.#wallMs;
  }

  monotonic(): number {
    return this.#monotonicMs;
  }

  after(ms: number, call: () => void): () => void {
    this.#made += 1;
    // Rounded up, as a real timer is never early; NaN and negative spans are over at once.
    const spanMs = ms > 0 ? Math.ceil(ms) : 0;
    const timer: Timer = { dueMs: this.#monotonicMs + spanMs, order: this.#made, call, place: -1 };
    this.#timers.add(timer);
    return () => {
      if (timer.place >= 0) this.#timers.remove(timer);
    };
  }

  /** Calls back in the same virtual instant, from a microtask. */
  soon(call: () => void): void {
    this.#made += 1;
    this.#soons += 1;
    queueMicrotask(() => {
      this.#soons -= 1;
      call();
    });
  }

  /** How many timers wait; 0 after a clean stop. */
  get timers(): number {
    return this.#timers.size;
  }

  /** When the next timer is due, as the wall clock will show it; null when none waits. */
  get nextTimerAt(): Millis | null {
    const next = this.#timers.first();
    return next === undefined ? null : this.#wallMs + (next.dueMs - this.#monotonicMs);
  }

  /** Moves on by this span, timer by timer; resolves when all that it set off has settled. */
  async advance(duration: Duration): Promise<void> {
    await this.#moveTo(this.#monotonicMs + durationMs(duration, 'duration'));
  }

  /** Moves on until the wall clock shows this time, which must not be over. */
  async advanceTo(at: Millis): Promise<void> {
    if (!(at >= this.#wallMs)) {
      throw new RespoolError(
        'config.invalid',
        `cannot advance to ${at}: the clock shows ${this.#wallMs} already; use jump() to go back`,
      );
    }
    await this.#moveTo(this.#monotonicMs + (at - this.#wallMs));
  }

  /** Sets the wall clock forward or back; spans and timers do not notice. */
  jump(ms: number): void {
    this.#wallMs += ms;
  }

  /** Lets everything settle that can go on at this instant, timers that are due included. */
  async settle(): Promise<void> {
    await this.#moveTo(this.#monotonicMs);
  }

  async #moveTo(targetMs: number): Promise<void> {
    if (this.#isAdvancing) {
      throw new RespoolError(
        'config.invalid',
        'cannot move the clock: it is moving already; await one advance() before the next',
      );
    }
    this.#isAdvancing = true;
    try {
      await this.#quiet();
      for (let timer = this.#due(targetMs); timer !== undefined; timer = this.#due(targetMs)) {
        this.#timers.remove(timer);
        this.#stepTo(timer.dueMs);
        timer.call();
        await this.#quiet();
      }
      this.#stepTo(targetMs);
    } finally {
      this.#isAdvancing = false;
    }
  }

  #due(targetMs: number): Timer | undefined {
    const next = this.#timers.first();
    return next !== undefined && next.dueMs <= targetMs ? next : undefined;
  }

  #stepTo(monotonicMs: number): void {
    this.#wallMs += monotonicMs - this.#monotonicMs;
    this.#monotonicMs = monotonicMs;
  }

  /** Waits until a whole turn of the real event loop has asked for nothing new. */
  async #quiet(): Promise<void> {
    let quietTurns = 0;
    for (let turns = 0; quietTurns < this.#quietTurns || this.#soons > 0; turns += 1) {
      if (turns > SETTLE_TURNS_MAX) throw restless(this.#wallMs);
      const made = this.#made;
      await new Promise<void>((resolve) => systemClock.soon(resolve));
      quietTurns = made === this.#made ? quietTurns + 1 : 0;
    }
  }
}

function isTimerBefore(one: Timer, other: Timer): boolean {
  return one.dueMs < other.dueMs || (one.dueMs === other.dueMs && one.order < other.order);
}

function restless(at: Millis): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot move the clock beyond ${new Date(at).toISOString()}: after ${SETTLE_TURNS_MAX} turns ` +
      'of the event loop something still asks for timers or soon(); it should wait for an event',
  );
}

/** A started spool and the clock it lives by. */
export interface TestSpool {
  readonly spool: Spool;
  /** Moves the spool's time: `await clock.advance('1h')`. */
  readonly clock: SimClock;
}

/** Makes a spool in memory with virtual time and starts it; takes all options of createSpool. */
export async function createTestSpool(options: SpoolOptions = {}): Promise<TestSpool> {
  const clock = new SimClock();
  const spool = createSpool({
    entries: memory(),
    bodies: memoryBodies({ clock }),
    dice: seededDice(1),
    ...options,
    clock,
  });
  await spool.start();
  return { spool, clock };
}
