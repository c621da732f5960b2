/** run — what several kinds of middleware do around a handler: look at its result, wait, tell. */

import { MINUTE_MS } from '../core/duration.ts';
import { asError } from '../core/errors.ts';
import { classify } from '../core/failure.ts';
import { failed, held, type Outcome } from '../core/verdict.ts';
import { BodyInvalid } from '../engine/attempt.ts';
import type { Clock } from '../ports/clock.ts';
import { sleep } from '../system/wait.ts';

/** How a handler ended; `thrown` is there when it threw, and is to be thrown again. */
export interface Result {
  /** What a throw amounts to when it stays as it is. */
  readonly outcome: Outcome;
  readonly thrown?: { readonly value: unknown };
}

/** Runs what is inside; never rejects. */
export async function resultOf(next: () => Promise<Outcome>): Promise<Result> {
  try {
    return { outcome: await next() };
  } catch (value) {
    return { outcome: outcomeOfThrown(value), thrown: { value } };
  }
}

/** What the engine will make of it: a body that cannot be what it should is held, no failure. */
function outcomeOfThrown(thrown: unknown): Outcome {
  const error = asError(thrown);
  return error instanceof BodyInvalid ? held(error.message, error.code) : failed(classify(thrown));
}

/** Ends a middleware as the handler ended: the same value, or the very same throw. */
export function asItWas({ outcome, thrown }: Result): Outcome {
  if (thrown !== undefined) throw thrown.value;
  return outcome;
}

/** Calls a hook; whatever goes wrong in it, now or later, harms no delivery. */
export function harmlessly<T>(call: () => T): T | undefined {
  try {
    const answer = call();
    if (answer instanceof Promise) answer.catch(() => undefined);
    return answer;
  } catch {
    // A hook only looks on. Who wants to know of its errors catches them in it.
    return undefined;
  }
}

/** Waits inside the slot; false when the delivery was called off before. */
export async function waitInside(clock: Clock, ms: number, signal: AbortSignal): Promise<boolean> {
  await sleep(clock, ms, signal);
  return !signal.aborted;
}

/** Not now, without a cost: the outcome by which a middleware sends a delivery away. */
export function notNow(delayMs: number, code: string, reason: string): Outcome {
  return { kind: 'postponed', delayMs, code, reason };
}

/** Maximum postponement caused by other deliveries that wait, in ms. */
const LINE_MAX_MS: number = 10 * MINUTE_MS;

/**
 * Spreads postponed deliveries, so that they come back one after the other.
 *
 * Without it, ten thousand that were postponed in the same second would all come back in the same
 * second, and all but one would be postponed again. A position in the line is an estimate: each
 * delivery that comes back is checked again.
 */
export class PostponeSpacing {
  readonly #stepMs: number;
  #ahead = 0;

  constructor(stepMs: number) {
    this.#stepMs = stepMs;
  }

  /** How long the next one should stay away, if the first in the line could go on after this. */
  join(firstMs: number): number {
    // Past the end it begins again: those at its head have long been back by then.
    if (this.#ahead * this.#stepMs > LINE_MAX_MS) this.#ahead = 0;
    const waitMs = firstMs + this.#ahead * this.#stepMs;
    this.#ahead += 1;
    return Math.ceil(waitMs);
  }

  /** One went on, from the line or past it. */
  leave(): void {
    if (this.#ahead > 0) this.#ahead -= 1;
  }
}
