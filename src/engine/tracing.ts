/**
 * tracing — checks the user's tracer and wraps it so that it never throws; called for the option
 * `tracing` of spools, consumers, publishers and outboxes. Also runs a send inside its span, and
 * adds a trace context to headers.
 *
 * Promise: a tracer that throws, or returns nothing, never affects how messages are handled.
 */

import type { Headers } from '../core/entry.ts';
import { RespoolError, show } from '../core/errors.ts';
import { checkHeaders } from '../core/limits.ts';
import type { OwnOption } from '../core/option-table.ts';
import type { AttemptSpan, SendSpan, SendResult, SettleSpan, Tracer } from '../ports/tracer.ts';

const WRAPPED = new WeakSet<Tracer>();
const METHODS = ['send', 'attempt', 'carries'] as const;
/** The size of each header that a tracer may add, and their number; W3C allows 8 KiB of baggage. */
const TEXT_MAX_BYTES = 16_384;
const TEXTS_MAX = 16;

/** The option of everything that writes spans. */
export const TRACING_OPTION: OwnOption = {
  kind: 'code',
  type: 'a tracer',
  ts: 'Tracer',
  about: 'writes [spans](traces.md)',
};

/** Checks the option `tracing`; the returned tracer never throws. */
export function checkTracer(tracer: Tracer | undefined): Tracer | undefined {
  if (tracer === undefined || WRAPPED.has(tracer)) return tracer;
  const isTracer =
    typeof tracer === 'object' &&
    tracer !== null &&
    METHODS.every((name) => typeof tracer[name] === 'function');
  if (isTracer) return wrapTracer(tracer);
  const what = (tracer as unknown) instanceof Promise ? 'a promise' : show(tracer);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${what} as "tracing": allowed is a tracer, such as await openTelemetry() of ` +
      'respool/observe',
  );
}

/** Runs the work inside the span, and ends the span with its result. */
export function runInSendSpan<T>(
  span: SendSpan,
  work: () => Promise<T>,
  sentOf: (value: T) => SendResult,
): Promise<T> {
  const done = span.run(work);
  done.then(
    (value) => span.end(sentOf(value)),
    (error: unknown) => span.end({ error }),
  );
  return done;
}

/** Headers with those of a trace context, if all of them fit; otherwise without. */
export function withTraceHeaders(own: Headers, carried: Headers, maxBytes: number): Headers {
  try {
    return checkHeaders({ ...own, ...carried }, maxBytes);
  } catch {
    // Better a gap in a trace than a message that is refused because of headers that we add.
    return own;
  }
}

function wrapTracer(tracer: Tracer): Tracer {
  const made: Tracer = {
    isIdle: () => {
      try {
        return tracer.isIdle?.() === true;
      } catch {
        return false;
      }
    },
    send: (about) => wrapSendSpan(ignoreErrors(() => tracer.send(about))),
    attempt: (claim, place) => wrapAttemptSpan(ignoreErrors(() => tracer.attempt(claim, place))),
    carries: (headers) => ignoreErrors(() => tracer.carries(headers)) === true,
  };
  WRAPPED.add(made);
  return made;
}

function wrapSendSpan(span: SendSpan | undefined): SendSpan | undefined {
  if (span === undefined) return undefined;
  return {
    headers: validHeaders(() => span.headers),
    run: (work) => runOnce((once) => span.run(once), work),
    end: (sending) => {
      ignoreErrors(() => span.end(sending));
    },
  };
}

function wrapAttemptSpan(span: AttemptSpan | undefined): AttemptSpan | undefined {
  if (span === undefined) return undefined;
  return {
    headers: validHeaders(() => span.headers),
    run: (work) => runOnce((once) => span.run(once), work),
    get notes() {
      const notes = validHeaders(() => span.notes ?? {});
      return Object.keys(notes).length === 0 ? undefined : notes;
    },
    end: (outcome) => {
      ignoreErrors(() => span.end(outcome));
    },
    settle: (verdict) => wrapSettleSpan(ignoreErrors(() => span.settle(verdict))),
  };
}

function wrapSettleSpan(span: SettleSpan | undefined): SettleSpan | undefined {
  if (span === undefined) return undefined;
  return {
    end: (answer, error) => {
      ignoreErrors(() => span.end(answer, error));
    },
  };
}

/** Only headers that are valid: a message must not be refused because of its tracer. */
function validHeaders(ask: () => Headers): Headers {
  const pairs = ignoreErrors(() => {
    const given: unknown = ask();
    return typeof given === 'object' && given !== null ? Object.entries(given) : [];
  });
  const fit = (pairs ?? []).slice(0, TEXTS_MAX).filter((pair) => {
    const checked = ignoreErrors(() => checkHeaders(Object.fromEntries([pair]), TEXT_MAX_BYTES));
    return checked !== undefined;
  });
  return Object.fromEntries(fit);
}

/** Runs the work exactly once and returns its result, whatever `run` of the tracer does. */
function runOnce<T>(run: (once: () => T) => unknown, work: () => T): T {
  let done: { readonly answer: () => T } | undefined;
  const once = (): T => {
    done ??= { answer: answerOf(work) };
    return done.answer();
  };
  ignoreErrors(() => run(once));
  return once();
}

function answerOf<T>(work: () => T): () => T {
  try {
    const value = work();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

function ignoreErrors<T>(call: () => T): T | undefined {
  try {
    const answer = call();
    // A promise may reject later, which would end the process.
    if (answer instanceof Promise) answer.catch(() => undefined);
    return answer;
  } catch {
    // There is no one to report it to, and no message depends on it: the trace has a gap.
    return undefined;
  }
}
