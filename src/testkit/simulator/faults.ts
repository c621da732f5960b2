/**
 * faults — what may happen to one call at a store's door: it takes time, fails before it has an
 * effect, or has its effect and fails to say so. And windows in which nothing gets through.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Chance } from './chance.ts';
import type { Trouble } from './plan.ts';
import type { Timeline } from './timeline.ts';

/** What happens to one call. */
export interface CallPlan {
  /** Until the store does it. */
  readonly requestMs: number;
  /** From then until the caller knows. */
  readonly answerMs: number;
  readonly fails?: { readonly when: 'before' | 'after'; readonly error: RespoolError };
  /** A durable write is durable when it is done, not only when it is answered. */
  readonly isDurableEarly: boolean;
}

/** What a call is like. */
export interface CallKind {
  readonly name: string;
  readonly isWrite: boolean;
  /** The longest it may take; default ten seconds. */
  readonly slowestMs?: number;
}

const SMOOTH: CallPlan = { requestMs: 0, answerMs: 0, isDurableEarly: true };
const BRISK_MAX_MS = 30;
const SLOW_MAX_MS: number = 10 * SECOND_MS;

/** Draws what happens to calls. */
export class SimFaults {
  /** How often the power went at the store. */
  powerCuts = 0;
  readonly #chance: Chance;
  readonly #timeline: Timeline;
  readonly #trouble: Trouble;
  #isHealed = false;
  #downUntilMs = 0;
  #fullUntilMs = 0;

  constructor(chance: Chance, timeline: Timeline, trouble: Trouble) {
    this.#chance = chance;
    this.#timeline = timeline;
    this.#trouble = trouble;
  }

  /** From now on everything works at once. */
  heal(): void {
    this.#isHealed = true;
  }

  /** Nothing gets through for a while. */
  goDown(spanMs: number): void {
    this.#downUntilMs = this.#timeline.nowMs + spanMs;
  }

  /** No write finds room for a while. */
  fillUp(spanMs: number): void {
    this.#fullUntilMs = this.#timeline.nowMs + spanMs;
  }

  draw({ name, isWrite, slowestMs = SLOW_MAX_MS }: CallKind): CallPlan {
    this.#timeline.calls += 1;
    if (this.#isHealed) return SMOOTH;
    const { nowMs } = this.#timeline;
    if (nowMs < this.#downUntilMs) return refused('store.unavailable', name);
    if (isWrite && nowMs < this.#fullUntilMs) return refused('store.full', name);
    const { failBefore, failAfter, slow, brisk } = this.#trouble;
    const throwMs = this.#chance.random();
    let requestMs = 0;
    let answerMs = 0;
    if (throwMs < slow) {
      requestMs = this.#chance.between(0, slowestMs);
      answerMs = this.#chance.between(0, slowestMs - requestMs);
    } else if (throwMs < slow + brisk) {
      requestMs = this.#chance.spanMs(Math.min(slowestMs, BRISK_MAX_MS));
      answerMs = this.#chance.spanMs(Math.min(slowestMs, BRISK_MAX_MS));
    }
    const isDurableEarly = (requestMs + answerMs) % 2 === 0;
    const throwFault = this.#chance.random();
    if (throwFault >= failBefore + failAfter) return { requestMs, answerMs, isDurableEarly };
    const when = throwFault < failBefore ? 'before' : 'after';
    const error = errorOf('store.unavailable', name);
    return { requestMs, answerMs, isDurableEarly, fails: { when, error } };
  }

  errorOf(code: 'store.unavailable' | 'store.full', name: string): RespoolError {
    return errorOf(code, name);
  }

  /** What is wrong with the next read of a body, if anything. */
  bodyFault(): 'missing' | 'corrupt' | undefined {
    if (this.#isHealed || !this.#chance.happens(this.#trouble.bodyFault)) return undefined;
    return this.#chance.happens(0.5) ? 'missing' : 'corrupt';
  }
}

function refused(code: 'store.unavailable' | 'store.full', name: string): CallPlan {
  return { ...SMOOTH, fails: { when: 'before', error: errorOf(code, name) } };
}

function errorOf(code: 'store.unavailable' | 'store.full', name: string): RespoolError {
  return new RespoolError(code, `cannot ${name}: the simulator wants it to fail; try again`);
}
