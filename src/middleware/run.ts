/**
 * run — helpers that several middlewares share: the result of a handler as a value, hooks that must
 * not throw, waiting inside a slot, and postponing deliveries so that they come back spread out.
 */

import { MINUTE_MS } from '../core/duration.ts';
import { asError } from '../core/errors.ts';
import { classify } from '../core/failure.ts';
import { failed, held, type Outcome } from '../core/verdict.ts';
import { BodyInvalid } from '../engine/attempt.ts';
import type { Clock } from '../ports/clock.ts';
import { sleep } from '../system/wait.ts';

/** How a handler ended; `thrown` is set if it threw, and has to be thrown again. */
export interface HandlerResult {
  /** The outcome; for a throw the one that the engine would derive from it. */
  readonly outcome: Outcome;
  readonly thrown?: { readonly value: unknown };
}

/** Runs the wrapped handler; never rejects. */
export async function resultOf(next: () => Promise<Outcome>): Promise<HandlerResult> {
  try {
    return { outcome: await next() };
  } catch (value) {
    return { outcome: outcomeOfThrown(value), thrown: { value } };
  }
}

/** As the engine decides: a message with an invalid body is held, any other throw is a failure. */
function outcomeOfThrown(thrown: unknown): Outcome {
  const error = asError(thrown);
  return error instanceof BodyInvalid ? held(error.message, error.code) : failed(classify(thrown));
}

/** Ends a middleware as the handler ended: returns the same outcome or throws the same value. */
export function returnOrRethrow({ outcome, thrown }: HandlerResult): Outcome {
  if (thrown !== undefined) throw thrown.value;
  return outcome;
}

/** Calls a hook; its errors, also later ones of a promise, are ignored. */
export function withoutThrowing<T>(call: () => T): T | undefined {
  try {
    const answer = call();
    if (answer instanceof Promise) answer.catch(() => undefined);
    return answer;
  } catch {
    // A hook only observes. To see its errors, catch them inside it.
    return undefined;
  }
}

/** Waits inside the slot; false if the delivery was aborted before. */
export async function waitInSlot(clock: Clock, ms: number, signal: AbortSignal): Promise<boolean> {
  await sleep(clock, ms, signal);
  return !signal.aborted;
}

/** The outcome by which a middleware postpones a delivery; costs no attempt. */
export function postponedOutcome(delayMs: number, code: string, reason: string): Outcome {
  return { kind: 'postponed', delayMs, code, reason };
}

/** Maximum postponement because of other deliveries that wait. */
const SPACING_MAX_MS: number = 10 * MINUTE_MS;

/**
 * Spreads postponed deliveries, so that they come back one after the other.
 *
 * Without it, ten thousand deliveries that were postponed in the same second would come back in the
 * same second, and all but one would be postponed again. Positions are estimates: each delivery
 * that comes back is checked again.
 */
export class PostponeSpacing {
  readonly #stepMs: number;
  #ahead = 0;

  constructor(stepMs: number) {
    this.#stepMs = stepMs;
  }

  /** The delay of the next postponed delivery, if the first one may continue after `firstMs`. */
  join(firstMs: number): number {
    // Beyond the maximum it starts over: the first ones will have come back long before.
    if (this.#ahead * this.#stepMs > SPACING_MAX_MS) this.#ahead = 0;
    const waitMs = firstMs + this.#ahead * this.#stepMs;
    this.#ahead += 1;
    return Math.ceil(waitMs);
  }

  /** A delivery has begun, whether it was postponed before or not. */
  leave(): void {
    if (this.#ahead > 0) this.#ahead -= 1;
  }
}
