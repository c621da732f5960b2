/** metrics — middleware that calls a hook of the user's when an attempt starts and when it ends. */

import type { Outcome } from '../core/verdict.ts';
import type { Clock } from '../ports/clock.ts';
import type { Delivery, Middleware } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { checkFunction, checkMiddlewareOptions, CLOCK, optionError } from './options.ts';
import { returnOrRethrow, withoutThrowing, resultOf } from './run.ts';

/** What `metrics()` calls; errors in it are ignored and never affect a delivery. */
export interface MetricsHook {
  readonly started?: (delivery: Delivery) => void | Promise<void>;
  /** A throw of the handler comes as the failure that it is classified as. */
  readonly ended?: (delivery: Delivery, outcome: Outcome, tookMs: number) => void | Promise<void>;
}

/** Calls `started` and `ended` around every attempt; times are in milliseconds. */
export function metrics(hook: MetricsHook, options: { readonly clock?: Clock } = {}): Middleware {
  checkMiddlewareOptions('metrics', options, { clock: CLOCK });
  const { clock = systemClock } = options;
  checkHook(hook);
  return async (delivery, next) => {
    void withoutThrowing(() => hook.started?.(delivery));
    const startedAt = clock.monotonic();
    const result = await resultOf(next);
    const tookMs = clock.monotonic() - startedAt;
    void withoutThrowing(() => hook.ended?.(delivery, result.outcome, tookMs));
    return returnOrRethrow(result);
  };
}

function checkHook(hook: unknown): void {
  if (typeof hook !== 'object' || hook === null) {
    throw optionError('hook of metrics', hook, 'an object with started, ended or both');
  }
  const { started, ended } = hook as Partial<MetricsHook>;
  // Not by its own names alone: the hook may be an instance of a class with more to it.
  if (started === undefined && ended === undefined) {
    throw optionError('hook of metrics', hook, 'an object with started, ended or both');
  }
  if (started !== undefined) checkFunction('started', started);
  if (ended !== undefined) checkFunction('ended', ended);
}
