/**
 * tracing — a tracer, checked once and from then on harmless.
 *
 * Promise: whatever a tracer throws or forgets, the message goes its way as if there were none.
 */

import type { Headers } from '../core/entry.ts';
import { RespoolError, show } from '../core/errors.ts';
import { checkHeaders } from '../core/limits.ts';
import type { OwnOption } from '../core/option-table.ts';
import type { AttemptSpan, SendSpan, SendResult, SettleSpan, Tracer } from '../ports/tracer.ts';

const SAFE = new WeakSet<Tracer>();
const METHODS = ['send', 'attempt', 'carries'] as const;
/** What a tracer may want to be carried: baggage may have 8 KiB, by W3C. */
const TEXT_MAX_BYTES = 16_384;
const TEXTS_MAX = 16;

/** The option of everything that writes spans. */
export const TRACING_OPTION: OwnOption = {
  kind: 'code',
  type: 'a tracer',
  ts: 'Tracer',
  about: 'writes [spans](traces.md)',
};

/** Checks the option `tracing`; what it gives never throws. */
export function checkTracer(tracer: Tracer | undefined): Tracer | undefined {
  if (tracer === undefined || SAFE.has(tracer)) return tracer;
  const isTracer =
    typeof tracer === 'object' &&
    tracer !== null &&
    METHODS.every((name) => typeof tracer[name] === 'function');
  if (isTracer) return safe(tracer);
  const what = (tracer as unknown) instanceof Promise ? 'a promise' : show(tracer);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${what} as "tracing": allowed is a tracer, such as await openTelemetry() of ` +
      'respool/observe',
  );
}

/** Does the work as the children of the span, and ends it with what came of it. */
export function sending<T>(
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

/** Headers with what carries a context, where both fit; otherwise as they are. */
export function carrying(own: Headers, carried: Headers, maxBytes: number): Headers {
  try {
    return checkHeaders({ ...own, ...carried }, maxBytes);
  } catch {
    // Rather a gap in a trace than a message that is refused for what we add to it.
    return own;
  }
}

function safe(tracer: Tracer): Tracer {
  const made: Tracer = {
    isIdle: () => {
      try {
        return tracer.isIdle?.() === true;
      } catch {
        return false;
      }
    },
    send: (about) => safeSend(quietly(() => tracer.send(about))),
    attempt: (claim, place) => safeAttempt(quietly(() => tracer.attempt(claim, place))),
    carries: (headers) => quietly(() => tracer.carries(headers)) === true,
  };
  SAFE.add(made);
  return made;
}

function safeSend(span: SendSpan | undefined): SendSpan | undefined {
  if (span === undefined) return undefined;
  return {
    headers: textsOf(() => span.headers),
    run: (work) => inside((once) => span.run(once), work),
    end: (sending) => {
      quietly(() => span.end(sending));
    },
  };
}

function safeAttempt(span: AttemptSpan | undefined): AttemptSpan | undefined {
  if (span === undefined) return undefined;
  return {
    headers: textsOf(() => span.headers),
    run: (work) => inside((once) => span.run(once), work),
    get notes() {
      const notes = textsOf(() => span.notes ?? {});
      return Object.keys(notes).length === 0 ? undefined : notes;
    },
    end: (outcome) => {
      quietly(() => span.end(outcome));
    },
    settle: (verdict) => safeSettle(quietly(() => span.settle(verdict))),
  };
}

function safeSettle(span: SettleSpan | undefined): SettleSpan | undefined {
  if (span === undefined) return undefined;
  return {
    end: (answer, error) => {
      quietly(() => span.end(answer, error));
    },
  };
}

/** Only what every header may be: what a tracer makes up must not have a message refused. */
function textsOf(ask: () => Headers): Headers {
  const pairs = quietly(() => {
    const given: unknown = ask();
    return typeof given === 'object' && given !== null ? Object.entries(given) : [];
  });
  const fit = (pairs ?? []).slice(0, TEXTS_MAX).filter((pair) => {
    const checked = quietly(() => checkHeaders(Object.fromEntries([pair]), TEXT_MAX_BYTES));
    return checked !== undefined;
  });
  return Object.fromEntries(fit);
}

/** The work runs once and gives its own answer, whatever `run` does about it. */
function inside<T>(run: (once: () => T) => unknown, work: () => T): T {
  let done: { readonly answer: () => T } | undefined;
  const once = (): T => {
    done ??= { answer: answerOf(work) };
    return done.answer();
  };
  quietly(() => run(once));
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

function quietly<T>(call: () => T): T | undefined {
  try {
    const answer = call();
    // One that is written async may fail later, and end the process by that.
    if (answer instanceof Promise) answer.catch(() => undefined);
    return answer;
  } catch {
    // There is no one to report it to, and no message depends on it: the trace has a gap.
    return undefined;
  }
}
