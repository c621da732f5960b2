/**
 * tracing — middleware that wraps every attempt in a span of the user's tracer; needs no package.
 */

import type { Outcome } from '../core/verdict.ts';
import type { Delivery, Middleware } from '../ports/handler.ts';
import { checkMethods } from './options.ts';
import { returnOrRethrow, withoutThrowing, resultOf, type HandlerResult } from './run.ts';

/** One attempt, as your tracer sees it. */
export interface MiddlewareSpan {
  /** Called once; `thrown` is what the handler threw, if it did. */
  end(outcome: Outcome, thrown?: unknown): void;
  /**
   * Calls `work` at once with this span as the current one, so that inner spans are its children.
   */
  run?<T>(work: () => Promise<T>): Promise<T>;
}

/** What `tracing()` calls; errors in it are ignored and never affect a delivery. */
export interface TracingHook {
  /** Starts a span; undefined: this one is not traced. */
  start(delivery: Delivery): MiddlewareSpan | undefined;
}

/** Starts a span before each attempt and ends it with the outcome. */
export function tracing(hook: TracingHook): Middleware {
  checkMethods('hook of tracing', hook, ['start']);
  return async (delivery, next) => {
    const span = withoutThrowing(() => hook.start(delivery));
    if (span === undefined) return next();
    const result = await runInside(span, next);
    withoutThrowing(() => span.end(result.outcome, result.thrown?.value));
    return returnOrRethrow(result);
  };
}

/** The result of the handler itself, whatever `run` makes of it. */
async function runInside(
  span: MiddlewareSpan,
  next: () => Promise<Outcome>,
): Promise<HandlerResult> {
  let inside: Promise<HandlerResult> | undefined;
  const work = (): Promise<HandlerResult> => (inside ??= resultOf(next));
  void withoutThrowing(() => span.run?.(work));
  // If `run` failed or did not call its work, only the span is lost.
  return work();
}
