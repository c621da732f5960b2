/**
 * delivery — one attempt at a message of a queue, as its handler sees it: the delivery that every
 * handler gets, the AMQP message behind it, and methods that decide the outcome.
 *
 * A decision is carried out at once: what the handler does afterwards does not change it.
 */

import { type Duration, durationMs } from '../../core/duration.ts';
import type { Envelope, Headers } from '../../core/entry.ts';
import { textOf } from '../../core/errors.ts';
import { type Failure, failure, PermanentError } from '../../core/failure.ts';
import { delivered, failed, held, type Outcome, postponed } from '../../core/verdict.ts';
import type { Lane } from '../../core/state.ts';
import type { Delivery, Handler } from '../../ports/handler.ts';
import type { StandardSchema } from '../../ports/schema.ts';
import type { AmqpMessage } from '../connection/amqp.ts';
import type { Decode } from '../publish/codecs.ts';
import type { RabbitEnvelope } from './claim.ts';

/** The wait before the next attempt, by the number of the attempt that has just failed. */
export type DelayFunction = (attempt: number) => Duration;

const TRACKING_HEADER = 'x-outbox-tracking-ids';

/** One attempt at one message of a queue. */
export class RabbitDelivery<Body = unknown> implements Delivery<Body> {
  readonly #delivery: Delivery<Body>;
  readonly #decode: Decode;
  #value: { readonly value: unknown } | undefined;
  #decision: Outcome | undefined;
  #onDecision: ((outcome: Outcome) => void) | undefined;

  constructor(delivery: Delivery<Body>, decode: Decode) {
    this.#delivery = delivery;
    this.#decode = decode;
  }

  get #rabbit(): RabbitEnvelope {
    return this.#delivery.envelope as RabbitEnvelope;
  }

  get id(): string {
    return this.#delivery.id;
  }
  get envelope(): Envelope {
    return this.#delivery.envelope;
  }
  get topic(): string {
    return this.#delivery.topic;
  }
  get headers(): Headers {
    return this.#delivery.headers;
  }
  get lane(): Lane {
    return this.#delivery.lane;
  }
  get attempt(): number {
    return this.#delivery.attempt;
  }
  get fence(): string {
    return this.#delivery.fence;
  }
  get lastFailure(): Failure | undefined {
    return this.#delivery.lastFailure;
  }
  get notes(): Headers {
    return this.#delivery.notes;
  }
  get trace(): Headers | undefined {
    return this.#delivery.trace;
  }
  get signal(): AbortSignal {
    return this.#delivery.signal;
  }

  /** The queue it was consumed from. */
  get queue(): string {
    return this.#rabbit.queue;
  }
  /** Where it was first published, also after retries. */
  get exchange(): string {
    return this.#rabbit.past.exchange;
  }
  get routingKey(): string {
    return this.#rabbit.past.routingKey;
  }
  /** The AMQP message of this delivery, with all its properties and typed headers. */
  get message(): AmqpMessage {
    return this.#rabbit.message;
  }
  /** Whether the broker delivered it before: a hint only. */
  get redelivered(): boolean {
    return this.message.fields.redelivered;
  }

  /** The chain of ids that an outbox added to its message; may be empty. */
  get trackingIds(): readonly string[] {
    return idsIn(this.message.properties.headers?.[TRACKING_HEADER]);
  }

  body(options?: { readonly maxBytes?: number }): Promise<Uint8Array> {
    return this.#delivery.body(options);
  }
  stream(): AsyncIterable<Uint8Array> {
    return this.#delivery.stream();
  }
  text(): Promise<string> {
    return this.#delivery.text();
  }
  async json(): Promise<Body> {
    return this.#value === undefined ? this.#delivery.json() : (this.#value.value as Body);
  }
  note(name: string, value: string): void {
    this.#delivery.note(name, value);
  }

  /** The body by its content type; one that cannot be decoded goes to the dead queue. */
  async value(): Promise<unknown> {
    this.#value ??= {
      value: this.#decode(this.message.properties.contentType, await this.body()),
    };
    return this.#value.value;
  }

  /** The body as a schema returned it: `json()` and `value()` return it from now on. */
  set fitted(value: unknown) {
    this.#value = { value };
  }

  /** The message is delivered, whatever the handler does afterwards. */
  ack(): Outcome {
    return this.#decide(delivered());
  }

  /** Back to the end of the queue at once; costs no attempt. */
  nack(reason = 'given back by the handler'): Outcome {
    return this.#decide(postponed(0, reason));
  }

  /**
   * The attempt failed: again after this wait, or the policy's; after the last attempt to the dead
   * queue.
   */
  retry(delay?: Duration | DelayFunction, reason = 'the handler asked for a retry'): Outcome {
    const asked = typeof delay === 'function' ? delay(this.attempt) : delay;
    const afterMs = asked === undefined ? undefined : durationMs(asked, 'delay');
    return this.#decide(failed(failure('transient', 'handler.retry', reason, afterMs)));
  }

  /** The message failed permanently: to the dead queue at once. */
  deadLetter(reason: string, code = 'handler.dead-letter'): Outcome {
    return this.#decide(failed(failure('permanent', code, reason)));
  }

  /** A person has to look at it: to the parked queue. */
  hold(reason: string): Outcome {
    return this.#decide(held(reason));
  }

  /** The first decision by one of these methods, if any. */
  get decision(): Outcome | undefined {
    return this.#decision;
  }

  /** Resolves with the first decision. */
  decided(): Promise<Outcome> {
    return new Promise((resolve) => {
      if (this.#decision === undefined) this.#onDecision = resolve;
      else resolve(this.#decision);
    });
  }

  #decide(outcome: Outcome): Outcome {
    this.#decision ??= outcome;
    this.#onDecision?.(this.#decision);
    return this.#decision;
  }
}

/** A list of ids, as such or as the text of one. */
function idsIn(value: unknown): readonly string[] {
  let list = value;
  if (typeof value === 'string') {
    try {
      list = JSON.parse(value);
    } catch {
      // Not a list but a single id.
      list = [value];
    }
  }
  return Array.isArray(list) ? list.filter((id) => typeof id === 'string') : [];
}

/** A handler of messages of a queue. */
export type RabbitHandler<Body = unknown> = (
  delivery: RabbitDelivery<Body>,
) => Outcome | void | Promise<Outcome | void>;

/** The handler as the engine calls it; a decision in it counts at once. */
export function handlerOf(
  handler: RabbitHandler,
  schema: StandardSchema | undefined,
  decode: Decode,
): Handler {
  return async (delivery: Delivery) => {
    const rabbit = new RabbitDelivery(delivery, decode);
    const { misfit } = delivery.envelope as RabbitEnvelope;
    if (misfit !== undefined) throw new PermanentError('body.invalid', textOf(misfit));
    try {
      if (schema !== undefined) await fit(rabbit, schema);
      const working = handler(rabbit);
      if (!(working instanceof Promise)) return rabbit.decision ?? working;
      // Not when the handler ends: a timeout or a stop must not change the decision.
      const outcome = await Promise.race([working, rabbit.decided()]);
      if (rabbit.decision !== undefined) working.catch(() => undefined);
      return rabbit.decision ?? outcome;
    } catch (error) {
      if (rabbit.decision !== undefined) return rabbit.decision;
      throw isBodyInvalid(error) ? new PermanentError('body.invalid', textOf(error)) : error;
    }
  };
}

async function fit(delivery: RabbitDelivery, schema: StandardSchema): Promise<void> {
  const result = await schema['~standard'].validate(await delivery.value());
  if (result.issues !== undefined) {
    const issues = result.issues.slice(0, 5).map((issue) => issue.message);
    const why = issues.join('; ');
    const text = `the body of message "${delivery.id}" does not fit its schema: ${why}`;
    throw new PermanentError('body.invalid', text);
  }
  delivery.fitted = result.value;
}

/** A body that the handler cannot use will be the same on the next attempt. */
function isBodyInvalid(error: unknown): boolean {
  try {
    return (error as { code?: unknown } | null)?.code === 'body.invalid';
  } catch {
    return false;
  }
}
