/**
 * tracer — the interface of a tracer, which records sends, attempts and settlements of messages as
 * spans. Implemented with OpenTelemetry in observe/; without a tracer nothing is recorded.
 *
 *   send ─▶ headers that carry the context ─▶ attempt ─run(handler)─▶ end ─▶ settle ─▶ end
 *
 * Why: docs/decisions/0041-the-tracer-is-a-port.md
 */

import type { Headers } from '../core/entry.ts';
import type { Outcome, Verdict } from '../core/verdict.ts';
import type { Claim } from './source.ts';

/** Where a message goes, or comes from. */
export interface TracedPlace {
  /** `respool` or `rabbitmq`. */
  readonly system: 'respool' | 'rabbitmq';
  /** The topic; at RabbitMQ `exchange:routing key` when sending, the queue when consuming. */
  readonly destination: string;
  readonly routingKey?: string;
  /** An id by which the sender groups messages. */
  readonly conversationId?: string;
}

/** A message that is about to be stored, emitted or published. */
export interface Sending extends TracedPlace {
  readonly id: string | undefined;
  /** Of the message: a trace context in them is the parent of the span. */
  readonly headers: Headers;
  /** Number of messages that are sent together; absent for a single one. */
  readonly count?: number;
}

/** Records spans. */
export interface Tracer {
  /** True: nothing records now, so it need not be called; default false. */
  isIdle?(): boolean;
  /** undefined: nothing is recorded, and no context is added to the message. */
  send(sending: Sending): SendSpan | undefined;
  /** An attempt begins; undefined: nothing is recorded. */
  attempt(claim: Claim, place: TracedPlace): AttemptSpan | undefined;
  /** Whether a message carries a trace context; false if nothing is recorded. */
  carries(headers: Headers): boolean;
}

/** The result of a send. */
export interface SendResult {
  readonly id?: string;
  /** True if the message was stored already. */
  readonly duplicate?: boolean;
  readonly error?: unknown;
}

/** The span of a message that is being sent. */
export interface SendSpan {
  /** Added to the headers of the message. */
  readonly headers: Headers;
  /** Within it, further spans are its children. */
  run<T>(work: () => T): T;
  end(result: SendResult): void;
}

/** The span of one attempt. */
export interface AttemptSpan {
  /** For what the handler sends or calls: `delivery.trace`. */
  readonly headers: Headers;
  /** Within it, spans of the handler are its children. */
  run<T>(work: () => T): T;
  /** What later attempts need to link to the first; kept as notes of the message. */
  readonly notes: Headers | undefined;
  /** The handler has answered; undefined: the engine stopped waiting for it. */
  end(outcome: Outcome | undefined): void;
  /** Its verdict is being written; the result is passed to the returned span. */
  settle(verdict: Verdict): SettleSpan | undefined;
}

/** The span of a verdict that is being written to the store or broker. */
export interface SettleSpan {
  end(answer: 'done' | 'stale' | 'lost', error?: unknown): void;
}
