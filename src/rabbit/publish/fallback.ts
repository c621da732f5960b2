/**
 * fallback — a durable spool that keeps what the broker cannot take now, and forwards it later.
 *
 *   publish ─broker away, blocked or unknown─▶ spool ─broker is back: handler─▶ confirm publisher
 *
 * The message id stays the same, whatever id the spool gives: what got through after all is
 * recognised as a duplicate. This file knows a spool only as `FallbackSpool`. What was on a channel
 * that ended goes on alone, one by one, over a channel of its own (a suspect).
 *
 * The properties of a message are kept as one line of JSON, with a tag around what JSON has no word
 * for: `{ "respool-bytes": "…" }`. A table of a user that looks like such a tag is put into a tag
 * itself. Nothing is changed silently: what comes back is what went in, or it is refused.
 * queues/ keeps archived letters in the same form: what was written once must stay readable.
 */

import type { Headers } from '../../core/entry.ts';
import { isRespoolError, RespoolError, show, textOf } from '../../core/errors.ts';
import { RetryableError } from '../../core/failure.ts';
import { type Outcome, postponed } from '../../core/verdict.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import type { Delivery } from '../../ports/handler.ts';
import type { Outgoing, Properties } from '../connection/amqp.ts';
import { isNack } from './confirm-publisher.ts';

/** What a fallback needs of a spool; createSpool makes one. */
export interface FallbackSpool {
  enqueue(message: {
    readonly topic: string;
    readonly headers: Headers;
    readonly body: Uint8Array;
    readonly expires?: number;
  }): Promise<{ readonly id: string }>;
  handle(
    pattern: string,
    handler: (delivery: Delivery) => Promise<Outcome | void>,
    options?: { readonly policy?: RetryPolicy | string },
  ): () => void;
}

/** Publishes, as the publisher itself does. */
export type Send = (outgoing: Outgoing) => Promise<void>;

/** How a fallback is used. */
interface FallbackOptions {
  readonly spool: FallbackSpool;
  /** The first word of its topics. */
  readonly topic: string;
  readonly policy: RetryPolicy | string | undefined;
  readonly send: Send;
  /** The same over a channel that nothing else uses. */
  readonly sendAlone: Send;
  /** The same for publishers of the same broker: its address, or the connection itself. */
  readonly broker: unknown;
  readonly now: () => number;
}

/** A way into a spool, and back out of it. */
export interface Fallback {
  /** Resolves when the spool has it; `why` is what the broker or the gate said. */
  keep(outgoing: Outgoing, why: RespoolError): Promise<void>;
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
export function openFallback(parts: FallbackOptions): Fallback {
  const leave = join(parts);
  return {
    async keep(outgoing, why) {
      await parts.spool.enqueue(messageOf(outgoing, parts.topic, endedChannel(why)));
    },
    close: leave,
  };
}

// Stored: messages of earlier versions wait in spools under these names.
const EXCHANGE = 'rabbit-exchange';
const KEY = 'rabbit-key';
const PROPERTIES = 'rabbit-properties';
/** A header, or a note: the channel ended while this was on its way. */
const SUSPECT = 'rabbit-suspect';
const SUSPECT_TEXT = 'the channel ended while it was on its way';

/** Leaves room for the prefix within the limit of a topic. */
const TOPIC_PART_MAX_CHARS = 200;

/**
 * n.b. The spool makes the id, and there is no key to dedupe by. A spool remembers both long after
 * a message was forwarded, and a second try looks like a second message: so a duplicate,
 * which consumers recognise by its message id, is preferred to a loss.
 */
function messageOf(
  { exchange, key, content, properties }: Outgoing,
  topic: string,
  isSuspect: boolean,
): Parameters<FallbackSpool['enqueue']>[0] {
  const { expiration } = properties;
  const part = exchange.replaceAll(/[^A-Za-z0-9_-]+/g, '-').slice(0, TOPIC_PART_MAX_CHARS);
  return {
    topic: `${topic}.${part === '' ? 'default' : part}`,
    headers: {
      [EXCHANGE]: exchange,
      [KEY]: key,
      [PROPERTIES]: writtenProperties(properties),
      ...(isSuspect ? { [SUSPECT]: SUSPECT_TEXT } : {}),
    },
    body: content,
    ...(expiration === undefined ? {} : { expires: Number(expiration) }),
  };
}

/**
 * Whether a channel ended with the message on it: perhaps because of it. A refusal by a queue that
 * is full has a cause too; a confirm that is late, or an alarm, has none.
 */
function endedChannel(error: unknown): boolean {
  if (!isRespoolError(error, 'broker.unconfirmed') || error.cause === undefined) return false;
  return !isNack(error.cause);
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
  const properties = readProperties(text);
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

/** While the broker is unreachable, messages wait as long as it has been so, between these. */
const WAIT_MIN_MS = 500;
const WAIT_MAX_MS = 30_000;

/**
 * How long a suspect may wait for its turn. One whose confirm is late must not use up the time of
 * all those behind it: they come again, at no cost.
 */
const TURN_WAIT_MAX_MS = 5_000;

/** The publishers that share the topics of one spool; one handler serves them all. */
class Forwarding {
  broker: unknown;
  readonly publishers: FallbackOptions[] = [];
  readonly #now: () => number;
  /** Since when nothing went through; undefined: all is well. */
  #awaySince: number | undefined;
  /** Ends when the last suspect so far has its answer. */
  #lane: Promise<void> = Promise.resolve();

  constructor({ broker, now }: FallbackOptions) {
    this.broker = broker;
    this.#now = now;
  }

  readonly handler = async (delivery: Delivery): Promise<Outcome | void> => {
    const isSuspect =
      delivery.attempt > 1 ||
      delivery.headers[SUSPECT] !== undefined ||
      delivery.notes[SUSPECT] !== undefined;
    return isSuspect ? this.#inTurn(() => this.#forward(delivery, true)) : this.#forward(delivery);
  };

  /**
   * One that ends its channel, as the broker does with what it cannot accept, would take along all
   * others there, again and again. So whatever was on a channel that ended goes alone, over a
   * channel of its own; if that ends too it was an attempt, and its policy knows when to give up.
   */
  async #forward(delivery: Delivery, isAlone = false): Promise<Outcome | void> {
    delivery.signal.throwIfAborted();
    const publisher = this.publishers.at(-1);
    if (publisher === undefined) return this.#later('no publisher is open');
    const outgoing = await outgoingOf(delivery, this.#now());
    try {
      await (isAlone ? publisher.sendAlone(outgoing) : publisher.send(outgoing));
      this.#awaySince = undefined;
    } catch (error) {
      if (endedChannel(error)) {
        if (isAlone) throw error;
        delivery.note(SUSPECT, SUSPECT_TEXT);
        return postponed(WAIT_MIN_MS, textOf(error));
      }
      const isAway = fallsBack(error) || isRespoolError(error, 'engine.stopping');
      if (isAway) return this.#later(textOf(error));
      // Unroutable: the message's own failure, so its policy applies.
      throw error;
    }
  }

  #inTurn(work: () => Promise<Outcome | void>): Promise<Outcome | void> {
    const since = this.#now();
    const done = this.#lane.then(() => {
      const isLate = this.#now() - since > TURN_WAIT_MAX_MS;
      return isLate ? postponed(WAIT_MIN_MS, 'others go before it, one by one') : work();
    });
    this.#lane = done.then(noop, noop);
    return done;
  }

  /** Costs no attempt: an outage, however long, is no reason to give a message up. */
  #later(reason: string): Outcome {
    const now = this.#now();
    this.#awaySince ??= now;
    const waitMs = Math.max(WAIT_MIN_MS, Math.min(WAIT_MAX_MS, now - this.#awaySince));
    return postponed(waitMs, reason);
  }
}

function noop(): void {
  // The caller that waits for its turn does not depend on how the one before ended.
}

const FORWARDINGS = new WeakMap<FallbackSpool, Map<string, Forwarding>>();

/**
 * Adds a publisher to those that forward for a spool; the returned function removes it. The handler
 * stays: without one the spool would hold the messages.
 */
function join(parts: FallbackOptions): () => void {
  const { spool, topic, policy, broker } = parts;
  const ofSpool = FORWARDINGS.get(spool) ?? new Map<string, Forwarding>();
  FORWARDINGS.set(spool, ofSpool);
  let forwarding = ofSpool.get(topic);
  if (forwarding === undefined) {
    forwarding = new Forwarding(parts);
    spool.handle(`${topic}.#`, forwarding.handler, policy === undefined ? {} : { policy });
    ofSpool.set(topic, forwarding);
  }
  const { publishers } = forwarding;
  // No publisher is left of the old one: this may be the same broker over a new connection.
  if (publishers.length === 0) forwarding.broker = broker;
  if (forwarding.broker !== broker) {
    throw new RespoolError(
      'config.invalid',
      `cannot use this spool as the fallback of a second broker under the topic "${topic}": ` +
        'messages would go to the wrong one; give each its own "fallbackTopic", or close the ' +
        'publishers of the first',
    );
  }
  publishers.push(parts);
  return () => {
    const at = publishers.indexOf(parts);
    if (at >= 0) publishers.splice(at, 1);
  };
}

const BYTES = 'respool-bytes';
const NUMBER = 'respool-number';
const INTEGER = 'respool-integer';
const DATE = 'respool-date';
const TABLE = 'respool-table';
const TAGS: ReadonlySet<string> = new Set([BYTES, NUMBER, INTEGER, DATE, TABLE]);

/** The properties as text without control characters: a header of a spool holds none. */
export function writtenProperties(properties: Properties): string {
  return JSON.stringify(written(properties)).replaceAll(
    // JSON escapes only those below.
    /[\u007f-\u009f]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** The properties that were written. */
export function readProperties(text: string): Properties {
  return readValue(JSON.parse(text)) as Properties;
}

function written(value: unknown): unknown {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value;
    case 'number':
      // JSON writes null for some of these, and 0 for -0.
      if (Number.isFinite(value) && !Object.is(value, -0)) return value;
      return { [NUMBER]: Object.is(value, -0) ? '-0' : String(value) };
    case 'bigint':
      return { [INTEGER]: String(value) };
    case 'object':
      return value === null ? null : writtenObject(value);
    default:
      throw new RespoolError(
        'message.invalid',
        `cannot write down ${show(value)} in the properties of a message: allowed are text, ` +
          'numbers, booleans, null, bytes, dates, and lists and tables of them',
      );
  }
}

// n.b. No toJSON is asked: a Buffer and a Date have one.
function writtenObject(value: object): unknown {
  if (value instanceof Uint8Array) return { [BYTES]: Buffer.from(value).toString('base64') };
  if (value instanceof Date) return { [DATE]: written(value.getTime()) };
  if (Array.isArray(value)) return Array.from(value, written);
  const pairs = Object.entries(value)
    .filter(([, one]) => one !== undefined)
    .map(([name, one]) => [name, written(one)] as const);
  const table: unknown = Object.fromEntries(pairs);
  const isLikeTag = pairs.length === 1 && TAGS.has(pairs[0]?.[0] ?? '');
  return isLikeTag ? { [TABLE]: table } : table;
}

function readValue(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(readValue);
  const pairs = Object.entries(value);
  const [name, inner] = pairs.length === 1 ? (pairs[0] ?? ['', undefined]) : ['', undefined];
  switch (name) {
    case BYTES:
      return Buffer.from(String(inner), 'base64');
    case NUMBER:
      return Number(inner);
    case INTEGER:
      return BigInt(String(inner));
    case DATE:
      return dateOf(readValue(inner));
    case TABLE:
      return readTable(Object.entries(inner as object));
    default:
      return readTable(pairs);
  }
}

function readTable(pairs: readonly (readonly [string, unknown])[]): unknown {
  return Object.fromEntries(pairs.map(([name, value]) => [name, readValue(value)]));
}

function dateOf(ms: unknown): Date {
  return new Date(Number(ms));
}
