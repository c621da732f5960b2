/**
 * message-history — the history of a message, read from its headers and written into those of its
 * successor; which main queue it belongs to; the id of one that came without (`generatedId`); and
 * the copy of it that goes to another queue.
 *
 * The names are our own, or those of another system that shares the queues (compat/). None of our
 * own begins with `x-`: such headers belong to the broker, which overwrites, ignores or evaluates
 * them, differently in every version. `x-retry-policy` is only read: publishers set it.
 *
 * Why: docs/decisions/0019-our-headers-have-no-x-prefix.md
 */

import { DURATION_MAX_MS } from '../core/duration.ts';
import type { Headers } from '../core/entry.ts';
import { CODE_MAX_CHARS, type Failure, failure } from '../core/failure.ts';
import { POLICY_HEADER } from '../core/reserved-headers.ts';
import {
  type AmqpMessage,
  type AmqpTable,
  type Outgoing,
  type Properties,
  SHORT_MAX_BYTES,
} from './connection/amqp.ts';
import type { QueuePlan, QueueRole, Route } from './topology/model.ts';

/** The history of a message. */
export interface Past {
  /** Attempts made and counted before this delivery. */
  readonly attempts: number;
  /** Deliveries in a row that were lost with their consumer, as far as headers show. */
  readonly lost: number;
  readonly postponed: number;
  /** Where it was first published. */
  readonly exchange: string;
  readonly routingKey: string;
  /** When it was first published or seen, in milliseconds since the epoch; 0: unknown. */
  readonly firstAt: number;
  /** How long it still has to wait before it may be handled, in milliseconds. */
  readonly restMs: number;
  readonly firstFailedAt: number | undefined;
  readonly lastFailure: Failure | undefined;
  readonly lastFailedAt: number | undefined;
  /** Its time to live from `firstAt` on, in milliseconds; undefined: it never expires. */
  readonly expiresAfterMs: number | undefined;
  /** The name of the policy it asks for. */
  readonly policy: string | undefined;
  readonly notes: Headers;
}

/** Why a message is in a dead or parked queue. */
export interface HistoryEnding {
  readonly kind: 'dead' | 'parked';
  readonly code: string;
  readonly reason: string;
  readonly at: number;
  readonly by: string;
}

/** What a successor of a message records. */
export interface Successor {
  readonly past: Past;
  /** The queue that it comes from. */
  readonly queue: string;
  /** Its id, in case it has none. */
  readonly id: string;
  readonly ending?: HistoryEnding;
  /** Headers that it is routed by. */
  readonly routing: AmqpTable | undefined;
}

/** A wire format of the history. */
export interface HistoryWire {
  readonly name: 'respool' | 'goqueue' | 'spring' | 'outbox';
  read(message: AmqpMessage, queue: string): Past;
  /** The properties, headers included, that a successor is published with. */
  write(message: AmqpMessage, successor: Successor): Properties;
  /** The payload, if the body is an envelope around it. */
  unwrap?(message: AmqpMessage): Buffer;
  /** The message's id, if it is not only among the properties. */
  id?(message: AmqpMessage): string | undefined;
}

/** Names of our headers. */
export const HEADER = {
  attempts: 'respool-attempts',
  lost: 'respool-lost',
  postponed: 'respool-postponed',
  exchange: 'respool-exchange',
  routingKey: 'respool-routing-key',
  queue: 'respool-queue',
  firstAt: 'respool-first-at',
  restMs: 'respool-rest-ms',
  expiresAfterMs: 'respool-expires-after-ms',
  policy: 'respool-policy',
  notes: 'respool-notes',
  deaths: 'respool-deaths',
  userId: 'respool-user-id',
  /** The id that was generated for a message without one. */
  generatedId: 'respool-generated-id',
  /** Distinguishes messages in flight with the same route and id; no meaning afterwards. */
  send: 'respool-send',
  code: 'respool-code',
  reason: 'respool-reason',
  permanence: 'respool-permanence',
  firstFailedAt: 'respool-first-failed-at',
  lastFailedAt: 'respool-last-failed-at',
  ended: 'respool-ended',
  endedCode: 'respool-ended-code',
  endedReason: 'respool-ended-reason',
  endedAt: 'respool-ended-at',
  endedBy: 'respool-ended-by',
  /** How often an operator replayed it, by which replay last, and when. */
  replays: 'respool-replays',
  /** As REPLAY_HEADER of core/reserved-headers.ts. */
  replay: 'respool-replay',
  replayedAt: 'respool-replayed-at',
  /** The queue that a sweep took it from, when, and its deaths by then. */
  sweptFrom: 'respool-swept-from',
  sweptAt: 'respool-swept-at',
  sweptDeaths: 'respool-swept-deaths',
} as const;

/** Headers for one publish only: those that the `shared` style routes by, and HEADER.send. */
const ROUTING = new Set<string>(['wait-for', 'return-to', HEADER.send]);
const ENDING = new Set<string>([
  HEADER.ended,
  HEADER.endedCode,
  HEADER.endedReason,
  HEADER.endedAt,
  HEADER.endedBy,
]);

/** Headers that the broker wrote, or would act upon again; its counts: `brokerCount`, letter.ts. */
const BROKERS =
  /^(?:x-death|x-first-death-.*|x-last-death-.*|x-delivery-count|x-acquired-count|CC|BCC)$/;

/**
 * Longest `x-death` of which a copy is kept, in characters of JSON. Also in
 * docs/reference/rabbit.md.
 */
const DEATHS_MAX_CHARS = 4_096;
/**
 * Longest header of notes; those that do not fit are left out. Also in docs/reference/rabbit.md.
 */
const NOTES_MAX_CHARS = 16_384;

const NO_HEADERS: Headers = Object.freeze({});

/**
 * Headers with their numbers as 32-bit integers, which most clients write and expect.
 *
 * n.b. A delivery does not show how wide a number was, and amqplib writes the narrowest type that
 * fits: a Java consumer that reads an Integer would throw at a Byte. A whole number that was
 * written as a float becomes an integer.
 */
export function asInt32Numbers(headers: AmqpTable): AmqpTable {
  const typed: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(headers)) {
    const isInt = typeof value === 'number' && Number.isInteger(value) && value === (value | 0);
    typed[name] = isInt && !name.startsWith('respool-') ? { '!': 'int', value } : value;
  }
  return typed;
}

/** Whether it has none of our headers: most messages are delivered for the first time. */
function isFresh(headers: AmqpTable | undefined): boolean {
  if (headers === undefined) return true;
  for (const name in headers) if (name.startsWith('respool-')) return false;
  return true;
}

/** Our own wire format. */
export const respoolWire: HistoryWire = {
  name: 'respool',
  read: readPast,
  write: writeSuccessor,
};

/** The history in our headers. */
export function readPast(message: AmqpMessage): Past {
  const { headers, expiration, timestamp } = message.properties;
  const { exchange, routingKey } = message.fields;
  if (isFresh(headers)) {
    return {
      attempts: 0,
      lost: 0,
      postponed: 0,
      exchange,
      routingKey,
      firstAt: fromSeconds(timestamp),
      restMs: 0,
      firstFailedAt: undefined,
      lastFailure: undefined,
      lastFailedAt: undefined,
      expiresAfterMs: spanOf(expiration),
      policy: textOr(headers?.[POLICY_HEADER], undefined),
      notes: NO_HEADERS,
    };
  }
  const table = headers ?? {};
  return {
    attempts: countOf(table[HEADER.attempts]),
    lost: countOf(table[HEADER.lost]),
    postponed: countOf(table[HEADER.postponed]),
    exchange: nameOr(table[HEADER.exchange], exchange),
    routingKey: nameOr(table[HEADER.routingKey], routingKey),
    firstAt: countOf(table[HEADER.firstAt]) || fromSeconds(timestamp),
    restMs: Math.min(DURATION_MAX_MS, countOf(table[HEADER.restMs])),
    firstFailedAt: countOf(table[HEADER.firstFailedAt]) || undefined,
    lastFailure: failureOf(table),
    lastFailedAt: countOf(table[HEADER.lastFailedAt]) || undefined,
    expiresAfterMs: spanOf(table[HEADER.expiresAfterMs]) ?? spanOf(expiration),
    policy: textOr(table[HEADER.policy], undefined) ?? textOr(table[POLICY_HEADER], undefined),
    notes: notesOf(table[HEADER.notes]),
  };
}

/** Headers without those of the broker, of routing, and of an earlier ending. */
function stripped(headers: AmqpTable | undefined): Record<string, unknown> {
  const clean: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (!BROKERS.test(name) && !ROUTING.has(name) && !ENDING.has(name)) clean[name] = value;
  }
  return clean;
}

/**
 * Headers of a message that is put back as it was, without those of the broker: a copied `x-death`
 * makes some releases drop the message when it dies again. Its content is kept in our own header,
 * unless it is too long.
 */
export function withoutBrokerHeaders(headers: AmqpTable | undefined): Record<string, unknown> {
  const kept = Object.entries(headers ?? {}).filter(([name]) => !BROKERS.test(name));
  const clean: Record<string, unknown> = Object.fromEntries(kept);
  const deaths = headers?.['x-death'];
  if (deaths !== undefined) setOrDrop(clean, HEADER.deaths, jsonWithin(deaths, DEATHS_MAX_CHARS));
  return clean;
}

/** The properties as they were, persistent, without those that would act upon the copy. */
function keptProperties({ properties }: AmqpMessage, id: string): Properties {
  const { contentType, contentEncoding, priority, correlationId, replyTo } = properties;
  const { messageId, timestamp, type, appId } = properties;
  return {
    contentType,
    contentEncoding,
    priority,
    correlationId,
    replyTo,
    messageId: messageId ?? id,
    timestamp,
    type,
    appId,
    deliveryMode: 2,
  };
}

/** The headers of a successor: the user's own, and the history. */
function pastHeaders(message: AmqpMessage, successor: Successor): AmqpTable {
  const { past, queue, ending, routing } = successor;
  const headers = stripped(message.properties.headers);
  const deaths = message.properties.headers?.['x-death'];
  if (deaths !== undefined) setOrDrop(headers, HEADER.deaths, jsonWithin(deaths, DEATHS_MAX_CHARS));
  // n.b. The broker refuses a message whose user id is not the connection's.
  const { userId } = message.properties;
  if (userId !== undefined) headers[HEADER.userId] = userId;
  headers[HEADER.attempts] = past.attempts;
  headers[HEADER.lost] = past.lost;
  headers[HEADER.exchange] = past.exchange;
  headers[HEADER.routingKey] = past.routingKey;
  headers[HEADER.queue] = queue;
  headers[HEADER.firstAt] = past.firstAt;
  setOrDrop(headers, HEADER.postponed, past.postponed || undefined);
  setOrDrop(headers, HEADER.restMs, past.restMs || undefined);
  setOrDrop(headers, HEADER.expiresAfterMs, past.expiresAfterMs);
  setOrDrop(headers, HEADER.firstFailedAt, past.firstFailedAt);
  setOrDrop(headers, HEADER.lastFailedAt, past.lastFailedAt);
  setOrDrop(headers, HEADER.code, past.lastFailure?.code);
  setOrDrop(headers, HEADER.reason, past.lastFailure?.reason);
  setOrDrop(headers, HEADER.permanence, past.lastFailure?.permanence);
  const notes = Object.keys(past.notes).length === 0 ? undefined : past.notes;
  setOrDrop(headers, HEADER.notes, notes && notesWithin(notes, NOTES_MAX_CHARS));
  if (ending !== undefined) {
    headers[HEADER.ended] = ending.kind;
    headers[HEADER.endedCode] = ending.code;
    headers[HEADER.endedReason] = ending.reason;
    headers[HEADER.endedAt] = ending.at;
    headers[HEADER.endedBy] = ending.by;
  }
  return routing === undefined ? headers : { ...headers, ...routing };
}

function writeSuccessor(message: AmqpMessage, successor: Successor): Properties {
  return {
    ...keptProperties(message, successor.id),
    headers: asInt32Numbers(pastHeaders(message, successor)),
  };
}

function setOrDrop(headers: Record<string, unknown>, name: string, value: unknown): void {
  if (value === undefined) delete headers[name];
  else headers[name] = value;
}

/** A whole number that is not negative, as a number or as text; otherwise 0. */
export function countOf(value: unknown): number {
  const number = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value;
  return typeof number === 'number' && Number.isSafeInteger(number) && number > 0 ? number : 0;
}

function spanOf(value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  const ms = countOf(value);
  // n.b. "0" is a time to live too: the message is dropped unless it is consumed at once.
  return ms > 0 || value === '0' || value === 0 ? ms : undefined;
}

function textOr<T>(value: unknown, otherwise: T): string | T {
  return typeof value === 'string' ? value : otherwise;
}

/** n.b. A longer name cannot be published again; another program wrote it. */
function nameOr(value: unknown, otherwise: string): string {
  const name = textOr(value, otherwise);
  return Buffer.byteLength(name) <= SHORT_MAX_BYTES ? name : otherwise;
}

/** AMQP counts seconds; milliseconds, which some clients write, are recognised by their size. */
function fromSeconds(timestamp: unknown): number {
  const value = countOf(timestamp);
  return value > 1e11 ? value : value * 1_000;
}

function failureOf(table: AmqpTable): Failure | undefined {
  const code = table[HEADER.code];
  if (typeof code !== 'string' || code === '') return undefined;
  const permanence = table[HEADER.permanence] === 'permanent' ? 'permanent' : 'transient';
  return failure(permanence, code.slice(0, CODE_MAX_CHARS), textOr(table[HEADER.reason], ''));
}

function notesOf(value: unknown): Headers {
  if (typeof value !== 'string' || value.length > NOTES_MAX_CHARS) return NO_HEADERS;
  try {
    const parsed: unknown = JSON.parse(value);
    if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return NO_HEADERS;
    const texts = Object.entries(parsed).filter(
      ([name, text]) => typeof text === 'string' && name !== '__proto__',
    );
    return Object.fromEntries(texts);
  } catch {
    // Another program wrote into our header: that is no reason to lose the message.
    return NO_HEADERS;
  }
}

/** The first notes that fit: a frame of headers has a limit. */
function notesWithin(notes: Headers, maxChars: number): string {
  const kept: Record<string, string> = {};
  let chars = 2;
  for (const [name, text] of Object.entries(notes)) {
    chars += JSON.stringify(name).length + JSON.stringify(text).length + 2;
    if (chars > maxChars) break;
    kept[name] = text;
  }
  return JSON.stringify(kept);
}

function jsonWithin(value: unknown, maxChars: number): string | undefined {
  const text = JSON.stringify(value);
  return text.length <= maxChars ? text : undefined;
}

/**
 * An id for a message that came without one; a header of the message records it. n.b. Each copy of
 * such a message gets another id, so duplicates cannot be recognised by it.
 */
export function generatedId({ properties }: AmqpMessage, makeId: () => string): string {
  const id = makeId();
  Object.assign(properties, { headers: { ...properties.headers, [HEADER.generatedId]: id } });
  return id;
}

/** Whether the id of a delivery was generated here; false for one that is not from a queue. */
export function hasGeneratedId(delivery: {
  readonly id: string;
  readonly envelope: object;
}): boolean {
  const { message } = delivery.envelope as { readonly message?: AmqpMessage };
  return message?.properties?.headers?.[HEADER.generatedId] === delivery.id;
}

/** What is known of a queue that messages are taken from. */
export interface QueuePlace {
  readonly queue: string;
  readonly role: QueueRole | undefined;
  /** The main queues that it serves. */
  readonly of: readonly string[];
}

/** The role of a queue in the plans; undefined if none of them has it. */
export function queuePlaceOf(queue: string, plans: readonly QueuePlan[]): QueuePlace {
  const owners = plans.filter((plan) => plan.topology.queues.some((one) => one.name === queue));
  // A dead queue of another system may be named only by the route to it.
  const byRoute = plans.filter((plan) => isDefaultRouteTo(plan.dead, queue));
  const all = owners.length > 0 ? owners : byRoute;
  const spec = owners[0]?.topology.queues.find((one) => one.name === queue);
  const role = spec?.role ?? (byRoute.length > 0 ? 'dead' : undefined);
  return { queue, role, of: all.map((plan) => plan.queue) };
}

/** The main queue of a message; undefined: unknown, or none of these. */
export function ownerQueueOf(
  message: AmqpMessage,
  { queue, role, of }: QueuePlace,
): string | undefined {
  const [only, ...more] = of;
  const sure = sureOwner(message);
  if (only === undefined) {
    const said = sure ?? likelyOwner(message);
    return said === queue ? undefined : said;
  }
  const isAlone = more.length === 0;
  if (isAlone && (role === 'dead' || role === 'parked')) return only;
  // n.b. Queues of others may share a wait queue: what names one of them is not ours to move.
  if (sure !== undefined) return of.includes(sure) ? sure : undefined;
  if (isAlone) return only;
  return [likelyOwner(message), message.fields.routingKey].find(
    (owner) => owner !== undefined && of.includes(owner),
  );
}

/** The main queue that our headers name. */
export function sureOwner({ properties }: AmqpMessage): string | undefined {
  const { 'return-to': back, [HEADER.queue]: queue } = properties.headers ?? {};
  return queueNameOf(back) ?? queueNameOf(queue);
}

/** The queue in which the broker first gave it up. */
export function likelyOwner({ properties }: AmqpMessage): string | undefined {
  return queueNameOf(properties.headers?.['x-first-death-queue']);
}

function queueNameOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** What changes in the copy. */
export interface CopyChange {
  readonly to: Route;
  /** The main queue that it belongs to. */
  readonly owner: string;
  /** The main queue that it belonged to, by which its past is read; default: the same. */
  readonly from?: string;
  /** The id that it gets where it has none. */
  readonly id: string;
  readonly past?: Partial<Past>;
  /** Its history, if it was read already. */
  readonly read?: Past | undefined;
  /** It stays dead or parked: why is kept. */
  readonly keepsEnding?: boolean;
  readonly wire?: HistoryWire | undefined;
}

/**
 * The copy of a message, with its past and without what the broker would act upon: a copied
 * `x-death` makes some releases drop it, a per-message TTL ends its wait early.
 */
export function changedCopy(message: AmqpMessage, change: CopyChange): Outgoing {
  const { to, owner, wire = respoolWire } = change;
  const read = change.read ?? wire.read(message, change.from ?? owner);
  const past = { ...read, ...change.past };
  const properties = wire.write(message, {
    past,
    queue: owner,
    id: change.id,
    routing: to.headers,
  });
  const ending = change.keepsEnding === true ? endingOf(message.properties.headers) : {};
  return {
    exchange: to.exchange,
    key: to.key,
    content: message.content,
    properties: { ...properties, headers: { ...properties.headers, ...ending } },
  };
}

/**
 * A message out of a wait queue, without its TTL. Level queues of GoQueue have none of their own:
 * there it is the wait of the message, and would be taken for the time after which it expires.
 */
export function outOfWait(message: AmqpMessage): AmqpMessage {
  const { expiration: _, ...properties } = message.properties;
  return { ...message, properties };
}

function endingOf(headers: AmqpTable | undefined): AmqpTable {
  return Object.fromEntries(Object.entries(headers ?? {}).filter(([name]) => ENDING.has(name)));
}

function isDefaultRouteTo({ exchange, key }: Route, queue: string): boolean {
  return exchange === '' && key === queue;
}
