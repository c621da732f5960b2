/**
 * tracing — the spans of messages on their way in, for a spool and for an outbox.
 *
 * A message that comes alone has a span. Of many in one call, those that carry a trace of their own
 * have a span each, in that trace; the others share one for each topic.
 */

import type { Headers } from '../core/entry.ts';
import type { SendSpan, SendResult, Tracer } from '../ports/tracer.ts';

/** What a span says of a message. Nothing of it was checked yet. */
export interface TracedMessage {
  readonly topic: string;
  readonly id?: string | undefined;
  readonly headers?: Headers | undefined;
}

/** Messages on their way in, with their spans. */
export interface TracedSends {
  /** What carries the trace of this one, by its place in the list. */
  headers(at: number): Headers;
  /** One answer each, in their order. */
  end(answers: readonly SendResult[]): void;
  fail(error: unknown): void;
}

/** The span of one message; undefined: tracing is off. */
export function beginSend(
  tracer: Tracer,
  message: TracedMessage,
  count?: number,
): SendSpan | undefined {
  if (tracer.isIdle?.() === true) return undefined;
  const { topic, id, headers } = message;
  if (typeof topic !== 'string') return undefined;
  return tracer.send({
    system: 'respool',
    destination: topic,
    id: typeof id === 'string' ? id : undefined,
    headers: isTable(headers) ? headers : {},
    ...(count === undefined ? {} : { count }),
  });
}

/** The spans of many messages; undefined: tracing is off. */
export function beginSends(
  tracer: Tracer,
  messages: readonly TracedMessage[],
): TracedSends | undefined {
  if (tracer.isIdle?.() === true) return undefined;
  const own = new Map<number, SendSpan>();
  const topics = new Map<string, number[]>();
  for (const [at, message] of messages.entries()) {
    const { topic, headers } = message;
    const span = tracer.carries(isTable(headers) ? headers : {})
      ? beginSend(tracer, message)
      : undefined;
    if (span !== undefined) own.set(at, span);
    else if (topics.get(topic)?.push(at) === undefined) topics.set(topic, [at]);
  }
  const shared = new Map<number, SendSpan>();
  for (const [topic, places] of topics) {
    const span = beginSend(tracer, { topic }, places.length);
    if (span !== undefined) for (const at of places) shared.set(at, span);
  }
  if (own.size + shared.size === 0) return undefined;
  const groups = new Set(shared.values());
  return {
    headers: (at) => (own.get(at) ?? shared.get(at))?.headers ?? {},
    end: (answers) => {
      for (const [at, span] of own) span.end(answers[at] ?? {});
      for (const span of groups) span.end({});
    },
    fail: (error) => {
      for (const span of [...own.values(), ...groups]) span.end({ error });
    },
  };
}

/** What is no table of headers is refused by the receiver of the message. */
export function isTable(headers: unknown): headers is Headers {
  return typeof headers === 'object' && headers !== null && !Array.isArray(headers);
}
