/** tracing — your own span around every attempt. Any tracer fits; none is needed to install. */

import type { Outcome } from '../core/verdict.ts';
import type { Delivery, Middleware } from '../ports/handler.ts';
import { checkMethods } from './options.ts';
import { asItWas, harmlessly, resultOf, type Result } from './run.ts';

/** One attempt, as your tracer sees it. */
export interface MiddlewareSpan {
  /** Called once; `thrown` is what the handler threw, if it did. */
  end(outcome: Outcome, thrown?: unknown): void;
  /**
   * Calls `work` at once, where this span is the current one, so that spans inside hang below it.
   */
  run?<T>(work: () => Promise<T>): Promise<T>;
}

/** What `tracing()` calls; what goes wrong in it harms no delivery. */
export interface TracingHook {
  /** Starts a span; undefined: this one is not traced. */
  start(delivery: Delivery): MiddlewareSpan | undefined;
}

/** Starts a span before each attempt and ends it with the outcome. */
export function tracing(hook: TracingHook): Middleware {
  checkMethods('hook of tracing', hook, ['start']);
  return async (delivery, next) => {
    const span = harmlessly(() => hook.start(delivery));
    if (span === undefined) return next();
    const result = await runInside(span, next);
    harmlessly(() => span.end(result.outcome, result.thrown?.value));
    return asItWas(result);
  };
}

/** The result of the handler itself, whatever `run` makes of it. */
async function runInside(span: MiddlewareSpan, next: () => Promise<Outcome>): Promise<Result> {
  let inside: Promise<Result> | undefined;
  const work = (): Promise<Result> => (inside ??= resultOf(next));
  void harmlessly(() => span.run?.(work));
  // A `run` that failed, or left out its work, has cost the message its span and nothing else.
  return work();
}
