/**
 * handler — the interfaces of what a user writes to deliver messages: a handler, a function that
 * gets a delivery, and middleware, wrappers around handlers. The engine calls both.
 */

import type { Envelope, Headers } from '../core/entry.ts';
import type { Failure } from '../core/failure.ts';
import type { Outcome } from '../core/verdict.ts';
import type { Lane } from '../core/state.ts';

/** One attempt at one message, as the handler sees it. `Body` is the type `json()` gives. */
export interface Delivery<Body = unknown> {
  /** The message id: the same on every attempt, the right idempotency key. */
  readonly id: string;
  readonly envelope: Envelope;
  readonly topic: string;
  readonly headers: Headers;
  readonly lane: Lane;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Distinguishes this claim of the message from every other: id and revision. */
  readonly fence: string;
  readonly lastFailure: Failure | undefined;
  /** What earlier attempts noted. */
  readonly notes: Headers;
  /**
   * Headers that carry the trace of this attempt to what it calls or sends; none without a tracer
   * that records.
   */
  readonly trace?: Headers | undefined;
  /** Aborted on time-out, on a lost lease and when the spool stops; `reason` says which. */
  readonly signal: AbortSignal;
  /** The whole body; `limit.exceeded` above 64 MiB unless another limit is given. */
  body(options?: { readonly maxBytes?: number }): Promise<Uint8Array>;
  /** The body as a stream, verified at its end. */
  stream(): AsyncIterable<Uint8Array>;
  text(): Promise<string>;
  json(): Promise<Body>;
  /** Keeps a short value with the message, on success and on failure. */
  note(name: string, value: string): void;
}

/** Tries to deliver. Nothing returned: delivered. Thrown: failed, and tried again unless final. */
export type Handler<Body = unknown> = (
  delivery: Delivery<Body>,
) => Outcome | void | Promise<Outcome | void>;

/** Wraps a handler; the first of a list is the outermost. */
export type Middleware = (delivery: Delivery, next: () => Promise<Outcome>) => Promise<Outcome>;
