/**
 * message — what `publish` takes, checked; what middleware sees of it; and the message
 * that goes to the broker. sink.ts builds its from what a relay sends, fallback.ts from messages
 * of a spool. sink.ts, options.ts and outbox/message.ts take checks from here (`checkShort`,
 * `badKeyList`).
 */

import { type Duration, durationMs, type Millis } from '../../core/duration.ts';
import { type ErrorCode, RespoolError, show } from '../../core/errors.ts';
import { checkFields } from '../../core/limits.ts';
import {
  type AmqpTable,
  type Outgoing,
  type Properties,
  SHORT_MAX_BYTES,
} from '../connection/amqp.ts';

/** A message to publish. */
export interface PublishMessage {
  /** The routing key; at the exchange `''` the name of a queue. */
  readonly key: string;
  /** Default: the publisher's. */
  readonly exchange?: string;
  /** A value for the encoder of its content type; bytes go as they are; nothing: empty. */
  readonly body?: unknown;
  readonly headers?: AmqpTable;
  /** Up to 255 bytes; default: a new UUIDv7. The same on every try: what consumers dedupe by. */
  readonly id?: string;
  readonly type?: string;
  readonly correlationId?: string;
  readonly replyTo?: string;
  /** How long it is worth anything; the broker drops it after that, or lets it die. */
  readonly expiration?: Duration;
  /** 0 to 255; default: the publisher's. */
  readonly priority?: number;
  /** Milliseconds since the epoch, or a Date; default: now. AMQP keeps whole seconds. */
  readonly timestamp?: Millis | Date;
  readonly contentType?: string;
  readonly contentEncoding?: string;
}

/** A message as middleware sees it: checked and complete, its body not yet encoded. */
export interface Publication {
  readonly id: string;
  readonly exchange: string;
  readonly key: string;
  readonly body: unknown;
  readonly headers: AmqpTable;
  readonly contentType: string;
  readonly contentEncoding?: string | undefined;
  readonly timestamp: Millis;
  readonly type?: string | undefined;
  readonly correlationId?: string | undefined;
  readonly replyTo?: string | undefined;
  readonly expirationMs?: number | undefined;
  readonly priority?: number | undefined;
}

/** What became of a message: a queue of the broker has it, or the fallback. */
export interface PublishedMessage {
  readonly id: string;
  readonly via: 'broker' | 'spool';
}

/**
 * Wraps a publish; the first of a list is the outermost. `next` takes a changed publication, or
 * goes on with the same.
 */
export type PublishMiddleware = (
  publication: Publication,
  next: (changed?: Publication) => Promise<PublishedMessage>,
) => Promise<PublishedMessage>;

/** What a publisher says about messages that do not say it themselves. */
export interface Defaults {
  readonly exchange: string;
  readonly headers: AmqpTable;
  readonly priority: number | undefined;
  readonly makeId: (now: Millis) => string;
  readonly contentType: (body: unknown, own: string | undefined) => string;
}

const NAMES = [
  'key',
  'exchange',
  'body',
  'headers',
  'id',
  'type',
  'correlationId',
  'replyTo',
  'expiration',
  'priority',
  'timestamp',
  'contentType',
  'contentEncoding',
];

/** The message, checked, with what the publisher adds. */
export function publicationOf(
  message: PublishMessage,
  defaults: Defaults,
  now: Millis,
): Publication {
  if (typeof message !== 'object' || message === null) {
    const text = `cannot publish ${show(message)}: a message is an object with a key`;
    throw new RespoolError('message.invalid', text);
  }
  checkFields(message, NAMES);
  const { headers, expiration, id } = message;
  if (headers !== undefined && (typeof headers !== 'object' || headers === null)) {
    throw invalid('headers', headers, 'an object of names to values');
  }
  return {
    id: id === undefined ? defaults.makeId(now) : checkShort('id', id),
    exchange: message.exchange === undefined ? defaults.exchange : short(message, 'exchange', ''),
    key: checkShort('key', message.key),
    body: message.body,
    headers: headers === undefined ? defaults.headers : { ...defaults.headers, ...headers },
    contentType: defaults.contentType(message.body, short(message, 'contentType')),
    contentEncoding: short(message, 'contentEncoding'),
    timestamp: timeOf(message.timestamp, now),
    type: short(message, 'type'),
    correlationId: short(message, 'correlationId'),
    replyTo: short(message, 'replyTo'),
    expirationMs: expiration === undefined ? undefined : durationMs(expiration, 'expiration'),
    priority: priorityOf(message.priority, defaults.priority),
  };
}

/** n.b. The broker ends a channel that says this without consuming there. */
const DIRECT_REPLY = 'amq.rabbitmq.reply-to';

/** The message for the broker. */
export function outgoingOf(
  publication: Publication,
  content: Buffer,
  common: { readonly deliveryMode: number; readonly appId: string | undefined },
): Outgoing {
  const { exchange, key, expirationMs, headers, replyTo } = publication;
  // Here, and not with the rest: middleware may have changed them.
  checkMessageHeaders(headers);
  if (replyTo === DIRECT_REPLY) {
    throw invalid('replyTo', replyTo, 'a queue; only the channel that consumes there may say this');
  }
  const properties: Properties = {
    messageId: publication.id,
    // n.b. AMQP counts seconds.
    timestamp: Math.floor(publication.timestamp / 1_000),
    headers,
    contentType: publication.contentType,
    contentEncoding: publication.contentEncoding,
    deliveryMode: common.deliveryMode,
    appId: common.appId,
    type: publication.type,
    correlationId: publication.correlationId,
    replyTo,
    priority: publication.priority,
    expiration: expirationMs === undefined ? undefined : String(expirationMs),
  };
  return { exchange, key, content, properties };
}

// oxlint-disable-next-line no-control-regex -- control characters are exactly what is refused here.
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Refuses what does not fit into a short string of AMQP. */
export function checkShort(
  what: string,
  value: unknown,
  code: ErrorCode = 'message.invalid',
): string {
  const isText = typeof value === 'string' && !CONTROL.test(value) && value.isWellFormed();
  if (isText && (value.length < 64 || Buffer.byteLength(value) <= SHORT_MAX_BYTES)) return value;
  throw invalid(what, value, `text of up to ${SHORT_MAX_BYTES} bytes, no control characters`, code);
}

function short<T extends string | undefined>(
  message: PublishMessage,
  name: keyof PublishMessage,
  otherwise?: T,
): string | T {
  const value = message[name];
  return value === undefined ? (otherwise as T) : checkShort(name, value);
}

function priorityOf(own: unknown, common: number | undefined): number | undefined {
  if (own === undefined) return common;
  if (Number.isInteger(own) && Number(own) >= 0 && Number(own) <= 255) return Number(own);
  throw invalid('priority', own, 'a whole number 0 (last) to 255 (first)');
}

function timeOf(own: Millis | Date | undefined, now: Millis): Millis {
  if (own === undefined) return now;
  const at: unknown = own instanceof Date ? own.getTime() : own;
  if (Number.isSafeInteger(at) && Number(at) >= 0) return Number(at);
  throw invalid('timestamp', own, 'a Date or whole milliseconds since 1970');
}

function invalid(
  what: string,
  value: unknown,
  allowed: string,
  code: ErrorCode = 'message.invalid',
): RespoolError {
  return new RespoolError(code, `cannot use ${show(value)} as ${what}: allowed is ${allowed}`);
}

// Refuses headers that AMQP or the broker would not take, before they are sent
// or kept: the broker answers some of them by ending the channel, and with it everything that is on
// its way there.

/** More keys for one message: the broker wants lists. */
const KEY_LISTS = ['CC', 'BCC'] as const;

/** Tables and lists within each other; a cycle has no end. */
const DEPTH_MAX = 32;

/** The header whose list of further keys is invalid; undefined if all are valid. */
export function badKeyList(headers: AmqpTable): string | undefined {
  for (const name of KEY_LISTS) {
    const value = headers[name];
    if (value === undefined) continue;
    const isList = Array.isArray(value) && value.every((key) => typeof key === 'string');
    if (!isList) {
      return `cannot use ${show(value)} as header "${name}": allowed is a list of routing keys`;
    }
  }
  return undefined;
}

/** Refuses what no broker takes, so that it fails the same way with a fallback and without. */
export function checkMessageHeaders(headers: AmqpTable): void {
  const bad = badKeyList(headers);
  if (bad !== undefined) throw new RespoolError('message.invalid', bad);
  for (const [name, value] of Object.entries(headers)) {
    checkName(name);
    checkValue(name, value, 1);
  }
}

function checkName(name: string): void {
  // n.b. No character takes more than three bytes for each unit of its length.
  if (name.length * 3 <= SHORT_MAX_BYTES || Buffer.byteLength(name) <= SHORT_MAX_BYTES) return;
  const text = `cannot use header ${show(name)}: its name may have ${SHORT_MAX_BYTES} bytes`;
  throw new RespoolError('message.invalid', text);
}

function checkValue(name: string, value: unknown, depth: number): void {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return;
    case 'number':
      // n.b. amqplib takes Infinity, and neither of these.
      if (!Number.isNaN(value) && value !== -Infinity) return;
      throw refused(name, value, "{ '!': 'double', value }");
    case 'bigint':
      throw refused(name, value, "{ '!': 'int64', value }");
    case 'undefined':
      // Left out of a table; a list has no gaps.
      if (depth === 1) return;
      break;
    case 'object':
      if (value === null) return;
      checkObject(name, value, depth);
      return;
    default:
  }
  throw refused(name, value);
}

function checkObject(name: string, value: object, depth: number): void {
  if (Buffer.isBuffer(value)) return;
  if (depth > DEPTH_MAX) {
    const text = `cannot use header "${name}": it is nested more than ${DEPTH_MAX} deep`;
    throw new RespoolError('message.invalid', text);
  }
  if (Array.isArray(value)) {
    for (const one of value as unknown[]) checkValue(name, one, depth + 1);
    return;
  }
  // With a type of its own amqplib takes what it would have to guess otherwise.
  if (Object.hasOwn(value, '!')) return;
  // n.b. It would write a Date as an empty table, and bytes that are no Buffer as one of numbers.
  if (value instanceof Date) {
    throw refused(name, value, "{ '!': 'timestamp', value: seconds }, or text");
  }
  if (Object.prototype.toString.call(value) !== '[object Object]') throw refused(name, value);
  for (const [inner, one] of Object.entries(value)) {
    checkName(inner);
    if (one !== undefined) checkValue(name, one, depth + 1);
  }
}

const ALLOWED = 'text, a number, a boolean, null, a Buffer, or a list or table of them';

function refused(name: string, value: unknown, instead: string = ALLOWED): RespoolError {
  const text = `cannot use ${show(value)} in header "${name}": AMQP has no such value`;
  return new RespoolError('message.invalid', `${text}; use ${instead}`);
}
