/**
 * claim — a delivery of the broker as the engine sees it: its envelope, its history, its channel.
 */

import { createHash } from 'node:crypto';
import { type Millis, SECOND_MS } from '../../core/duration.ts';
import type { BodyInfo, Envelope, Headers } from '../../core/entry.ts';
import type { Failure } from '../../core/failure.ts';
import { asError } from '../../core/errors.ts';
import { PRIORITY_DEFAULT, PRIORITY_MAX } from '../../core/limits.ts';
import type { ClaimableState } from '../../core/state.ts';
import { LOST_MAX } from '../../core/verdict.ts';
import type { Claim } from '../../ports/source.ts';
import type { AmqpMessage, Table } from '../connection/amqp.ts';
import type { DeliveryChannel } from './delivery-channel.ts';
import type { Past, HistoryWire } from './message-history.ts';

/** What is known of a delivery when it arrives. */
export interface IncomingDelivery {
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
  /** It was lost so often that it may be what ends its consumers. */
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
export class RabbitEnvelope implements Envelope {
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
function textHeaders(headers: Table | undefined): Headers {
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

/** How often the broker delivered this before, by its own headers; at least once. */
export function brokerCount(headers: Table | undefined): number {
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
