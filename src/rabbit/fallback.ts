/**
 * fallback — a durable spool that keeps what the broker cannot take now, and forwards it later.
 *
 *   publish ─broker away, blocked or unknown─▶ spool ─handler, when the broker is back─▶ outlet
 *
 * The message id stays the same: what got through after all is recognised as a duplicate. The room
 * knows a spool by its shape only.
 */

import { createHash } from 'node:crypto';
import type { Headers } from '../core/entry.ts';
import { isRespoolError, RespoolError, textOf } from '../core/errors.ts';
import { RetryableError } from '../core/failure.ts';
import { ID_PATTERN } from '../core/limits.ts';
import { type Outcome, postponed } from '../core/outcome.ts';
import type { RetryPolicy } from '../core/policy.ts';
import type { Delivery } from '../ports/handler.ts';
import type { Outgoing, Properties } from './amqp.ts';

/** What a fallback needs of a spool; createSpool makes one. */
export interface FallbackSpool {
  enqueue(message: {
    readonly topic: string;
    readonly headers: Headers;
    readonly body: Uint8Array;
    readonly id?: string;
    readonly dedupeKey?: string;
    readonly expires?: number;
  }): Promise<{ readonly id: string; readonly duplicate?: boolean }>;
  handle(
    pattern: string,
    handler: (delivery: Delivery) => Promise<Outcome | void>,
    options?: { readonly policy?: RetryPolicy | string },
  ): () => void;
}

/** Publishes, as the publisher itself does. */
export type Send = (outgoing: Outgoing) => Promise<void>;

/** How a fallback is used. */
export interface FallbackParts {
  readonly spool: FallbackSpool;
  /** The first word of its topics. */
  readonly topic: string;
  readonly policy: RetryPolicy | string | undefined;
  readonly send: Send;
  /** The same for publishers of the same broker: its address, or the connection itself. */
  readonly broker: unknown;
  readonly now: () => number;
}

/** A way into a spool, and back out of it. */
export interface Fallback {
  /** Resolves when the spool has it. */
  keep(outgoing: Outgoing): Promise<void>;
  /** Forwards no more; what the spool has waits for the next publisher. */
  close(): void;
}

/** Whether a message that failed this way is for the fallback: it may arrive another time. */
export function fallsBack(error: unknown): error is RespoolError {
  return (
    isRespoolError(error, 'broker.unavailable') ||
    isRespoolError(error, 'broker.unconfirmed') ||
    isRespoolError(error, 'limit.exceeded')
  );
}

/** Connects a publisher with its spool. */
export function openFallback(parts: FallbackParts): Fallback {
  const leave = join(parts);
  return {
    async keep(outgoing) {
      const { id, ...nameless } = messageOf(outgoing, parts.topic);
      const message = id === undefined ? nameless : { ...nameless, id };
      const { duplicate = false } = await parts.spool.enqueue(message);
      // The id is taken. By the same message, as its key tells, or by one on another road.
      if (duplicate && id !== undefined) await parts.spool.enqueue(nameless);
    },
    close: leave,
  };
}

const EXCHANGE = 'rabbit-exchange';
const KEY = 'rabbit-key';
const PROPERTIES = 'rabbit-properties';
/** How bytes in a table of headers are written down. */
const BYTES = 'respool-bytes';

/** Leaves room for the prefix within the limit of a topic. */
const TOPIC_PART_MAX_CHARS = 200;

function messageOf(
  { exchange, key, content, properties }: Outgoing,
  topic: string,
): Parameters<FallbackSpool['enqueue']>[0] {
  const { messageId = '', expiration } = properties;
  const part = exchange.replaceAll(/[^A-Za-z0-9_-]+/g, '-').slice(0, TOPIC_PART_MAX_CHARS);
  return {
    topic: `${topic}.${part === '' ? 'default' : part}`,
    headers: { [EXCHANGE]: exchange, [KEY]: key, [PROPERTIES]: written(properties) },
    body: content,
    // n.b. Not the id alone: the same id may go to several exchanges or under several keys.
    dedupeKey: createHash('sha256')
      .update(JSON.stringify([exchange, key, messageId]))
      .digest('hex'),
    ...(ID_PATTERN.test(messageId) ? { id: messageId } : {}),
    ...(expiration === undefined ? {} : { expires: Number(expiration) }),
  };
}

async function outgoingOf(delivery: Delivery, now: number): Promise<Outgoing> {
  const { [EXCHANGE]: exchange, [KEY]: key, [PROPERTIES]: text } = delivery.headers;
  if (exchange === undefined || key === undefined || text === undefined) {
    throw new RetryableError(
      'message.invalid',
      `message "${delivery.id}" was not put here by a publisher: headers ${EXCHANGE}, ${KEY} and ` +
        `${PROPERTIES} are needed; use another topic, or another "fallbackTopic"`,
    );
  }
  const properties = read(text);
  const { expiration } = properties;
  const body = await delivery.body();
  return {
    exchange,
    key,
    content: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
    properties:
      expiration === undefined
        ? properties
        : { ...properties, expiration: restOf(Number(expiration), delivery, now) },
  };
}

/** What it waited here counts against its time. */
function restOf(expirationMs: number, { envelope }: Delivery, now: number): string {
  return String(Math.max(0, expirationMs - Math.max(0, now - envelope.enqueuedAt)));
}

function written(properties: Properties): string {
  const json = JSON.stringify(properties, function tag(this: unknown, name, value: unknown) {
    // n.b. A Buffer has a toJSON of its own, which has run already: look at the original.
    const original = (this as Record<string, unknown>)[name];
    if (!(original instanceof Uint8Array)) return value;
    return { [BYTES]: Buffer.from(original).toString('base64') };
  });
  // Headers of a spool hold no control characters; JSON escapes only some of them.
  return json.replaceAll(
    /[\u007f-\u009f]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function read(text: string): Properties {
  return JSON.parse(text, (_, value: unknown) => {
    const tagged = (value as Record<string, unknown> | null)?.[BYTES];
    return typeof tagged === 'string' ? Buffer.from(tagged, 'base64') : value;
  }) as Properties;
}

/** While the broker is away, messages wait as long as it has been away, between these. */
const WAIT_MIN_MS = 500;
const WAIT_MAX_MS = 30_000;

/** The publishers that share the topics of one spool; one handler serves them all. */
class Forwarding {
  readonly broker: unknown;
  readonly publishers: FallbackParts[] = [];
  readonly #now: () => number;
  /** Since when nothing went through; undefined: all is well. */
  #awaySince: number | undefined;

  constructor({ broker, now }: FallbackParts) {
    this.broker = broker;
    this.#now = now;
  }

  readonly handler = async (delivery: Delivery): Promise<Outcome | void> => {
    const publisher = this.publishers.at(-1);
    if (publisher === undefined) return this.#later('no publisher is open');
    const outgoing = await outgoingOf(delivery, this.#now());
    try {
      await publisher.send(outgoing);
      this.#awaySince = undefined;
    } catch (error) {
      const isAway = fallsBack(error) || isRespoolError(error, 'engine.stopping');
      if (isAway) return this.#later(textOf(error));
      // Nobody takes it: that is the message's own trouble, and goes by its policy.
      throw error;
    }
  };

  /** Costs no attempt: an outage, however long, is no reason to give a message up. */
  #later(reason: string): Outcome {
    const now = this.#now();
    this.#awaySince ??= now;
    const waitMs = Math.max(WAIT_MIN_MS, Math.min(WAIT_MAX_MS, now - this.#awaySince));
    return postponed(waitMs, reason);
  }
}

const FORWARDINGS = new WeakMap<FallbackSpool, Map<string, Forwarding>>();

/**
 * Joins those who forward for a spool; the returned function leaves them. The handler stays: a
 * spool would put aside what nobody handles.
 */
function join(parts: FallbackParts): () => void {
  const { spool, topic, policy, broker } = parts;
  const ofSpool = FORWARDINGS.get(spool) ?? new Map<string, Forwarding>();
  FORWARDINGS.set(spool, ofSpool);
  let forwarding = ofSpool.get(topic);
  if (forwarding === undefined) {
    forwarding = new Forwarding(parts);
    spool.handle(`${topic}.#`, forwarding.handler, policy === undefined ? {} : { policy });
    ofSpool.set(topic, forwarding);
  }
  if (forwarding.broker !== broker) {
    throw new RespoolError(
      'config.invalid',
      `cannot use this spool as the fallback of a second broker under the topic "${topic}": ` +
        'messages would go to the wrong one; give each its own "fallbackTopic"',
    );
  }
  const { publishers } = forwarding;
  publishers.push(parts);
  return () => {
    const at = publishers.indexOf(parts);
    if (at >= 0) publishers.splice(at, 1);
  };
}
