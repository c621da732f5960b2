/**
 * faults — what can go wrong with one call, planned by script or by seeded chance.
 *
 * The interesting fault is `after`: the work is done, and the caller is told that it was not.
 */

import { RespoolError } from '../core/errors.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import { systemClock } from '../system/clock.ts';
import { sleep } from '../system/wait.ts';

/**
 * What becomes of a call. `before`: it fails and nothing happened. `after`: it happened, and the
 * caller gets `store.unavailable`. `delayMs`: it happens late. `answerLateMs`: it happens at once,
 * the answer comes late.
 */
export type Fault =
  | 'ok'
  | 'before'
  | 'after'
  | { readonly delayMs: number }
  | { readonly answerLateMs: number };

/** Decides on the nth call (1, 2, …) of an operation, such as `insert` or `records.put`. */
export type FaultPlan = (operation: string, n: number) => Fault;

/** How a store is made faulty. */
export interface FaultyOptions {
  /** What becomes of each call; default: all is well. */
  readonly plan?: FaultPlan;
  /** Measures delays; default: the machine's clock. */
  readonly clock?: Clock;
}

/** Counts calls and carries out the plan; its plan can be exchanged while it runs. */
export class Faults {
  plan: FaultPlan;
  readonly #clock: Clock;
  readonly #calls = new Map<string, number>();

  constructor({ plan = () => 'ok', clock = systemClock }: FaultyOptions = {}) {
    this.plan = plan;
    this.#clock = clock;
  }

  /** How often an operation was called; without a name: all of them together. */
  count(operation?: string): number {
    if (operation !== undefined) return this.#calls.get(operation) ?? 0;
    let total = 0;
    for (const calls of this.#calls.values()) total += calls;
    return total;
  }

  /** Counts one call and decides on it. */
  next(operation: string): Fault {
    const n = this.count(operation) + 1;
    this.#calls.set(operation, n);
    return this.plan(operation, n);
  }

  /** Does a piece of work under the plan. */
  async run<T>(operation: string, work: () => Promise<T>): Promise<T> {
    const fault = this.next(operation);
    if (fault === 'before') throw failed(operation, 'before it was done');
    if (typeof fault === 'object' && 'delayMs' in fault) await this.wait(fault.delayMs);
    const result = await work();
    if (fault === 'after') throw failed(operation, 'after it was done');
    if (typeof fault === 'object' && 'answerLateMs' in fault) await this.wait(fault.answerLateMs);
    return result;
  }

  /** Waits by the clock of the plan. */
  wait(ms: number): Promise<void> {
    return sleep(this.#clock, ms);
  }
}

/** What a planned failure looks like from outside: like any store that is away. */
export function failed(operation: string, when: string): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot ${operation}: a planned fault came ${when}; try again`,
  );
}

/** How often each fault comes, 0 to 1, drawn from dice. */
export interface FaultRates {
  readonly dice: Dice;
  readonly before?: number;
  readonly after?: number;
  /** Work that is done late, by up to `delayMaxMs`. */
  readonly delay?: number;
  /** Answers that come late, by up to `delayMaxMs`. */
  readonly answerLate?: number;
  /** Default 1,000 ms. */
  readonly delayMaxMs?: number;
  /** The operations that may fail; default: all but open and close. */
  readonly only?: readonly string[];
}

/** A plan by chance: the same dice and the same calls make the same faults. */
export function randomFaults(rates: FaultRates): FaultPlan {
  const { dice, only, delayMaxMs = 1_000 } = rates;
  const { before = 0, after = 0, delay = 0, answerLate = 0 } = rates;
  return (operation) => {
    const isSpared = operation === 'open' || operation === 'close';
    if (only === undefined ? isSpared : !only.includes(operation)) return 'ok';
    let throwLeft = dice.random();
    const hits = (rate: number): boolean => {
      throwLeft -= rate;
      return throwLeft < 0;
    };
    if (hits(before)) return 'before';
    if (hits(after)) return 'after';
    if (hits(delay)) return { delayMs: Math.ceil(dice.random() * delayMaxMs) };
    if (hits(answerLate)) return { answerLateMs: Math.ceil(dice.random() * delayMaxMs) };
    return 'ok';
  };
}
