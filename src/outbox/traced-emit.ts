/**
 * traced-emit — the span of an emit. What it carries is in the row, and so in the transaction: the
 * trace of an emit that is rolled back ends with the emit.
 */

import type { SendSpan, Tracer } from '../ports/tracer.ts';
import { beginSend, beginSends, type TracedMessage, type TracedSends } from '../spool/tracing.ts';
import type { OwnMessage } from './message.ts';
import type { Emitted } from './types.ts';

/** Emits on their way, with what carries their traces. */
export interface TracedEmits {
  readonly own: readonly OwnMessage[];
  end(emitted: readonly Emitted[]): void;
  fail(error: unknown): void;
}

/** The span of one emit; undefined: tracing is off. */
export function traceEmit(tracer: Tracer | undefined, own: OwnMessage): TracedEmits | undefined {
  if (tracer === undefined) return undefined;
  const span = beginSend(tracer, sendableOf(own));
  return span === undefined ? undefined : traced([own], alone(span));
}

/** The spans of many emits in one call; undefined: tracing is off. */
export function traceEmits(
  tracer: Tracer | undefined,
  own: readonly OwnMessage[],
): TracedEmits | undefined {
  if (tracer === undefined) return undefined;
  const sends = beginSends(tracer, own.map(sendableOf));
  return sends === undefined ? undefined : traced(own, sends);
}

function traced(own: readonly OwnMessage[], sends: TracedSends): TracedEmits {
  return {
    own: own.map((message, at) => ({ ...message, trace: sends.headers(at) })),
    end: (emitted) => sends.end(emitted),
    fail: (error) => sends.fail(error),
  };
}

function alone(span: SendSpan): TracedSends {
  return {
    headers: () => span.headers,
    end: ([emitted = {}]) => span.end(emitted),
    fail: (error) => span.end({ error }),
  };
}

function sendableOf({ message, headers }: OwnMessage): TracedMessage {
  return { topic: message.routingKey, id: message.id, headers };
}
