/**
 * delivery — a message of a queue on its way to a handler: the claim that the engine sees (its
 * envelope, history and channel), and the delivery that the handler sees, with the AMQP message
 * behind it and methods that decide the outcome.
 *
 * A decision is carried out at once: what the handler does afterwards does not change it.
 */

import { type Duration, durationMs, type Millis, SECOND_MS } from '../../core/duration.ts';
import type { Envelope, Headers, BodyInfo } from '../../core/entry.ts';
import { textOf, asError } from '../../core/errors.ts';
import { type Failure, failure, PermanentError } from '../../core/failure.ts';
import { delivered, failed, held, LOST_MAX, type Outcome, postponed } from '../../core/verdict.ts';
import type { ClaimableState, Lane } from '../../core/state.ts';
import type { Delivery, Handler } from '../../ports/handler.ts';
import type { StandardSchema } from '../../ports/schema.ts';
import { TRACKING_HEADER } from '../../core/reserved-headers.ts';
import type { AmqpMessage, AmqpTable } from '../connection/amqp.ts';
import type { Decode } from '../publish/codecs.ts';
import { createHash } from 'node:crypto';
import { PRIORITY_DEFAULT, PRIORITY_MAX } from '../../core/limits.ts';
import type { Claim } from '../../ports/source.ts';
import type { DeliveryChannel } from '../connection/delivery-channel.ts';
import type { Past, HistoryWire } from '../message-history.ts';

/** The wait before the next attempt, by the number of the attempt that has just failed. */
export type DelayFunction = (attempt: number) => Duration;

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
export function consumerHandlerOf(
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

/** What is known of a delivery when it arrives. */
interface IncomingDelivery {
  readonly message: AmqpMessage;
  readonly channel: DeliveryChannel;
  readonly past: Past;
  readonly queue: string;
  readonly id: string;
  /** Deliveries in a row that were lost with their consumer. */
  readonly lost: number;
  /** How many of those are tolerated. */
  readonly maxLost: number;
  readonly content: Buffer;
  /** Why the body cannot be read as its wire format demands. */
  readonly misfit?: Error;
  readonly now: Millis;
  /** When it arrived (monotonic). */
  readonly arrivedAt: number;
}

/** A delivery that is ours until its channel ends. */
export class RabbitClaim implements Claim {
  readonly id: string;
  readonly envelope: RabbitEnvelope;
  readonly lane = 'delivery';
  readonly attempt: number;
  readonly lost: number;
  readonly claimedFrom: ClaimableState;
  readonly policy: string | null;
  readonly channel: DeliveryChannel;
  /** It was lost more than half of `maxLost` times, so it may be what ends its consumers. */
  readonly isSuspect: boolean;
  readonly content: Buffer;
  readonly arrivedAt: number;
  /** When it comes back from its wait queue, once its deferral is on its way. */
  dueAt: number | undefined;

  constructor(delivery: IncomingDelivery) {
    const { past, id, lost, maxLost } = delivery;
    this.arrivedAt = delivery.arrivedAt;
    this.id = id;
    this.envelope = new RabbitEnvelope(delivery);
    this.attempt = past.attempts + 1;
    // Judged without a handler, and parked.
    const isPoison = lost > maxLost;
    this.isSuspect = !isPoison && lost * 2 > maxLost;
    this.lost = isPoison ? Math.max(lost, LOST_MAX + 1) : lost;
    this.claimedFrom = isPoison ? 'active' : past.attempts > 0 ? 'deferred' : 'incoming';
    this.policy = past.policy ?? null;
    this.channel = delivery.channel;
    this.content = delivery.content;
  }

  /** A copy of the body for a handler: what it writes into it must not go into a retry. */
  copy(): Buffer {
    return Buffer.from(this.content);
  }

  get message(): AmqpMessage {
    return this.envelope.message;
  }
  get past(): Past {
    return this.envelope.past;
  }
  get lastFailure(): Failure | undefined {
    return this.envelope.past.lastFailure;
  }
  get notes(): Headers {
    return this.envelope.past.notes;
  }
  get fence(): string {
    const { consumerTag = '', deliveryTag } = this.message.fields;
    return `${this.id}/${consumerTag}/${deliveryTag}`;
  }
}

/** The envelope of an AMQP message; what few handlers need is computed on demand. */
class RabbitEnvelope implements Envelope {
  readonly id: string;
  readonly topic: string;
  readonly enqueuedAt: Millis;
  readonly expiresAt?: Millis;
  readonly message: AmqpMessage;
  readonly past: Past;
  readonly queue: string;
  readonly misfit: Error | undefined;
  readonly #content: Buffer;
  #headers: Headers | undefined;
  #body: BodyInfo | undefined;

  constructor({ message, past, queue, id, content, misfit, now }: IncomingDelivery) {
    this.misfit = misfit;
    this.id = id;
    this.message = message;
    this.past = past;
    this.queue = queue;
    this.topic = past.routingKey === '' ? queue : past.routingKey;
    this.enqueuedAt = bornAt(past, message, now);
    if (past.expiresAfterMs !== undefined) this.expiresAt = this.enqueuedAt + past.expiresAfterMs;
    this.#content = content;
  }

  get headers(): Headers {
    this.#headers ??= textHeaders(this.message.properties.headers);
    return this.#headers;
  }

  /** AMQP counts the other way round: a high number goes first. */
  get priority(): number {
    const { priority } = this.message.properties;
    return priority === undefined ? PRIORITY_DEFAULT : Math.max(0, PRIORITY_MAX - priority);
  }

  get body(): BodyInfo {
    this.#body ??= new RabbitBody(this.#content);
    return this.#body;
  }
}

/**
 * When its time to live began. n.b. AMQP has whole seconds, by the publisher's clock; and the
 * broker delivers nothing that has expired: if it seems to, the clocks differ.
 */
function bornAt({ firstAt, expiresAfterMs = 0 }: Past, message: AmqpMessage, now: Millis): Millis {
  if (firstAt <= 0) return now;
  // Our copies have no expiration that a broker would act upon.
  if (message.properties.expiration === undefined) return firstAt;
  const latestAt = Math.min(now, firstAt + SECOND_MS - 1);
  return latestAt + expiresAfterMs > now ? latestAt : now;
}

class RabbitBody implements BodyInfo {
  readonly ref = '';
  readonly place = 'inline';
  readonly encodings: readonly string[] = [];
  readonly #content: Buffer;

  constructor(content: Buffer) {
    this.#content = content;
  }

  get size(): number {
    return this.#content.length;
  }
  get storedSize(): number {
    return this.#content.length;
  }
  get digest(): string {
    return `sha256:${createHash('sha256').update(this.#content).digest('hex')}`;
  }
}

/** The user's headers as text; our own are read into the history. */
function textHeaders(headers: AmqpTable | undefined): Headers {
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (name.startsWith('respool-') || name === '__proto__') continue;
    texts[name] = headerText(value);
  }
  return texts;
}

function headerText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Buffer.isBuffer(value)) return value.toString('base64');
  return JSON.stringify(value) ?? '';
}

/** How often the broker delivered a redelivered message before, by its headers; at least once. */
export function brokerCount(headers: AmqpTable | undefined): number {
  const counts = [headers?.['x-delivery-count'], headers?.['x-acquired-count']];
  const known = counts.filter((count) => typeof count === 'number' && count > 0);
  return Math.max(1, ...(known as number[]));
}

/** The payload; a body that its wire format cannot read fails in the handler. */
export function payloadOf(
  message: AmqpMessage,
  wire: HistoryWire,
): { readonly content: Buffer; readonly misfit?: Error } {
  if (wire.unwrap === undefined) return { content: message.content };
  try {
    return { content: wire.unwrap(message) };
  } catch (error) {
    return { content: message.content, misfit: asError(error) };
  }
}
