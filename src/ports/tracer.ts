/**
 * tracer — records the way of a message as spans. Without one nothing is recorded.
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
  /** The topic; at RabbitMQ `exchange:routing key` for who sends, the queue for who consumes. */
  readonly destination: string;
  readonly routingKey?: string;
  /** What belongs together by the sender's own word. */
  readonly conversationId?: string;
}

/** A message that is about to be stored, emitted or published. */
export interface Sending extends TracedPlace {
  readonly id: string | undefined;
  /** Its own: a context that it carries already is its parent. */
  readonly headers: Headers;
  /** How many go at once; none for one alone. */
  readonly count?: number;
}

/** Writes down spans. */
export interface Tracer {
  /** True: nothing records now, so it need not be called; default false. */
  isIdle?(): boolean;
  /** undefined: nothing records, and nothing is carried. */
  send(sending: Sending): SendSpan | undefined;
  /** An attempt begins; undefined: nothing records. */
  attempt(claim: Claim, place: TracedPlace): AttemptSpan | undefined;
  /** Whether a message carries a context of its own; false if nothing records. */
  carries(headers: Headers): boolean;
}

/** What became of a message on its way in. */
export interface SendResult {
  readonly id?: string;
  /** It was there already. */
  readonly duplicate?: boolean;
  readonly error?: unknown;
}

/** A message on its way in. */
export interface SendSpan {
  /** To be carried with the message, besides its own. */
  readonly headers: Headers;
  /** Within it, further spans are its children. */
  run<T>(work: () => T): T;
  end(result: SendResult): void;
}

/** One attempt. */
export interface AttemptSpan {
  /** To be carried with what the handler sends on. */
  readonly headers: Headers;
  /** Within it, spans of the handler are its children. */
  run<T>(work: () => T): T;
  /** What later attempts need to link to the first; kept as notes of the message. */
  readonly notes: Headers | undefined;
  /** The handler has answered; undefined: it was no longer waited for. */
  end(outcome: Outcome | undefined): void;
  /** Its verdict is being written; the result is passed to the returned span. */
  settle(verdict: Verdict): SettleSpan | undefined;
}

/** A verdict on its way to the store or broker. */
export interface SettleSpan {
  end(answer: 'done' | 'stale' | 'lost', error?: unknown): void;
}
