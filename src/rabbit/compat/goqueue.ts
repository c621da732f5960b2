/**
 * goqueue — sharing queues with consumers of GoQueue (Go): its topology, its headers, and the JSON
 * envelope around a body.
 *
 *   {queue} ─fails─▶ {queue}__retry_exchange (topic) ─▶ {queue}__retry.{n}
 *      ▲                                                    │ expiration of the message
 *      └──────────── {queue}__retry_dlx (fanout) ◀──────────┘
 *
 * `goqueue-retry-count` is the number of attempts that failed; a message with the count n waits in
 * the queue n. Their level queues have no TTL, so the delay is part of the wire: the message's
 * `expiration`. A queue lets go of a message only at its head, so each level has one delay of
 * ours, never another: none of our messages blocks another. Theirs can hold ours back, not hasten.
 *
 * Not reproduced: their delays are ten times what they say (we write milliseconds as meant); what
 * they publish past the last level has no queue and is lost (we bind one there that leads to the
 * dead queue); a retry drops most properties (we keep all).
 */

import { RespoolError, show } from '../../core/errors.ts';
import { type OptionTable, readOptions } from '../../core/option-table.ts';
import type { AmqpMessage, Properties, AmqpTable } from '../connection/amqp.ts';
import {
  HEADER,
  type Past,
  readPast,
  respoolWire,
  type Successor,
  asInt32Numbers,
  type HistoryWire,
} from '../message-history.ts';
import {
  checkPlanRequest,
  delayLabel,
  plainDelayMs,
  type TopologyRoute,
} from '../topology/styles.ts';
import type { QueuePlanRequest, QueuePlan } from '../topology/model.ts';
import * as parts from '../topology/parts.ts';
import * as compat from './shared.ts';

// The body of a GoQueue message: `{ id, action, topic, data, timestamp }`.
//
// Reading takes `data` out byte for byte: parsing and writing it again would change numbers that
// JavaScript cannot hold.

/** What an envelope says about its message. */
interface OpenEnvelope {
  readonly id: string | undefined;
  readonly topic: string | undefined;
  readonly action: string | undefined;
  /** The payload as it is written in the envelope: JSON. */
  data(): Buffer;
}

/** Opens an envelope; undefined if the body is not an envelope. */
export function openEnvelope(content: Buffer): OpenEnvelope | undefined {
  const text = content.toString();
  // Most bodies that are not envelopes are recognised without parsing them.
  if (!text.includes('"data"') || !/^\s*\{/.test(text)) return undefined;
  let parsed: Readonly<Record<string, unknown>>;
  try {
    parsed = JSON.parse(text) as Readonly<Record<string, unknown>>;
  } catch {
    // Not JSON: the body is the payload, and what it is worth is for the decoder to say.
    return undefined;
  }
  const { id, topic, action } = parsed;
  const isEnvelope = 'data' in parsed && [id, topic, action].some(isName);
  if (!isEnvelope) return undefined;
  return {
    id: isName(id) ? id : undefined,
    topic: isName(topic) ? topic : undefined,
    action: isName(action) ? action : undefined,
    data: () => Buffer.from(rawValue(text, 'data')),
  };
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

/** The text of a member's value in an object that is known to be valid JSON; the last one wins. */
function rawValue(text: string, input: string): string {
  let found = 'null';
  let at = text.indexOf('{') + 1;
  while (at < text.length) {
    const nameAt = text.indexOf('"', at);
    if (nameAt < 0) break;
    const nameEnd = stringEnd(text, nameAt);
    const valueAt = text.indexOf(':', nameEnd) + 1;
    const valueEnd = endOfValue(text, valueAt);
    if (JSON.parse(text.slice(nameAt, nameEnd)) === input) {
      found = text.slice(valueAt, valueEnd).trim();
    }
    at = valueEnd + 1;
  }
  return found;
}

/** The place after the closing quote of the string that begins here. */
function stringEnd(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

/** The place of the comma or brace that ends the value that begins here. */
function endOfValue(text: string, start: number): number {
  let depth = 0;
  let at = start;
  for (;;) {
    const char = text[at];
    if (char === '"') {
      at = stringEnd(text, at);
      continue;
    }
    if (char === '{' || char === '[') depth += 1;
    else if (depth === 0 && (char === ',' || char === '}')) return at;
    else if (char === '}' || char === ']') depth -= 1;
    at += 1;
  }
}

/** What a GoQueue message is made of. */
interface GoqueueMessage {
  readonly id: string;
  /** The exchange. */
  readonly topic: string;
  /** The routing key. */
  readonly action: string;
  /** Anything JSON can hold, but not nothing: GoQueue discards a message without data. */
  readonly data: unknown;
  /** When it was made, in milliseconds since the epoch. */
  readonly timestamp: number;
  /** The publisher's name; default: none. */
  readonly appId?: string;
}

/** Builds a message as the publisher of GoQueue does: body, and properties with its headers. */
export function goqueueEnvelope(message: GoqueueMessage): {
  readonly content: Buffer;
  readonly properties: Properties;
} {
  const { id, topic, action, data, timestamp, appId = '' } = message;
  if (data === undefined || data === null || data === '') {
    throw new RespoolError(
      'message.invalid',
      `cannot put message "${id}" into an envelope of GoQueue: it has no data, and GoQueue ` +
        'discards such a message; give it data, an empty object for example',
    );
  }
  // GoQueue reads whole seconds from the header and nanoseconds from the body: RFC 3339 both.
  const time = new Date(timestamp).toISOString();
  return {
    content: Buffer.from(JSON.stringify({ id, action, topic, data, timestamp: time })),
    properties: {
      contentType: 'application/json',
      messageId: id,
      timestamp: Math.floor(timestamp / 1_000),
      ...(appId === '' ? {} : { appId }),
      headers: {
        'goqueue-app-id': appId,
        'goqueue-message-id': id,
        'goqueue-published-timestamp': time,
        'goqueue-retry-count': 0,
        'goqueue-content-type': 'application/json',
        'goqueue-queue-service-agent': 'goqueue/rabbitmq',
        'goqueue-schema-version': '1.0.0',
      },
    },
  };
}

const GOQUEUE = {
  maxRetries: {
    kind: 'number',
    min: 0,
    max: parts.RUNGS_MAX,
    defaultText: 'the attempts of the policy less one',
    about: 'their `MaxRetryFailedMessage`: how many level queues there are',
  },
} as const satisfies OptionTable;

/** The options of `goqueue`. */
export const GOQUEUE_OPTIONS: OptionTable = GOQUEUE;

/** What their consumers were given. */
export interface GoqueueOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Their `MaxRetryFailedMessage`: how many level queues there are. 0 to 64; default the attempts
   * of the policy less one.
   */
  readonly maxRetries?: number;
}

/** The names of their headers: in the code, and in the document. */
const COUNT = { code: 'goqueue-retry-count', document: 'x-retry-count' } as const;
const TOPIC = { code: 'goqueue-original-topic-name', document: 'x-original-topic' } as const;
const ACTION = { code: 'goqueue-original-action-name', document: 'x-original-action' } as const;
const PUBLISHED = {
  code: 'goqueue-published-timestamp',
  document: 'x-published-timestamp',
} as const;
const MESSAGE_ID = 'goqueue-message-id';

/** How the style tells the wire which `expiration` a message gets; never on the wire itself. */
const EXPIRATION = 'respool-expiration';

/**
 * Shares queues with GoQueue. The policy's attempts are their retries plus one.
 *
 * @example
 * import { createConsumer, goqueue } from 'respool/rabbit';
 * createConsumer({ connection, queue: 'orders', compat: goqueue() }, async () => {});
 */
export function goqueue(options: GoqueueOptions = {}): compat.Compat {
  const { maxRetries } = readOptions({ what: 'goqueue()' }, options, GOQUEUE);
  return {
    name: 'goqueue',
    wire,
    style: { name: 'goqueue', plan: (request) => plan(request, maxRetries) },
    unsafe: UNSAFE,
  };
}

const UNSAFE: readonly string[] = [
  'Queue and level queues are classic and have one copy: a lost disk loses what is in them.',
  'Level queues dead-letter at most once: a broker that dies at that moment can lose a retry.',
  'GoQueue publishes transient messages without confirms, retries too: a restart loses them.',
  'What GoQueue rejects (invalid, moved to the dead letter queue) is discarded unless the policy ' +
    'of the plan is set at the broker.',
  'Every GoQueue consumer of the queue must have the same MaxRetryFailedMessage as the plan: ' +
    'with a lower one it discards what we retry once more, with a higher one a message past our ' +
    'last level is retried and in the dead queue.',
  'A level queue lets go of messages at its head only: GoQueue delay functions that differ from ' +
    'each other or from our policy hold messages back.',
];

const wire: HistoryWire = {
  name: 'goqueue',
  read,
  write,
  unwrap: (message) => openEnvelope(message.content)?.data() ?? message.content,
  id: idOf,
};

function read(message: AmqpMessage, queue: string): Past {
  const headers = message.properties.headers ?? {};
  const own = readPast(message);
  const past = compat.continuedHeaders(own, {
    attempts: compat.highest(headers[COUNT.code], headers[COUNT.document]),
    ...compat.originOf(message, foreignOrigin(message, queue)),
  });
  if (headers[HEADER.firstAt] !== undefined) return past;
  // n.b. Each GoQueue retry sets a new timestamp; the header stays.
  const firstAt = timeOf(headers[PUBLISHED.code]) ?? timeOf(headers[PUBLISHED.document]);
  return firstAt === undefined ? past : { ...past, firstAt };
}

/** Where their headers or their envelope say that it was published first. */
function foreignOrigin(
  { properties, fields, content }: AmqpMessage,
  queue: string,
): { readonly exchange: string | undefined; readonly routingKey: string | undefined } {
  const headers = properties.headers ?? {};
  // A message without an envelope takes the level queue for its origin from its second retry on.
  const isLevel = (value: string | undefined): boolean =>
    value?.startsWith(`${queue}__retry`) === true;
  const first = (...values: unknown[]): string | undefined =>
    values.map(compat.nonEmpty).find((value) => value !== undefined && !isLevel(value));
  const exchange = first(headers[TOPIC.code], headers[TOPIC.document]);
  const routingKey = first(headers[ACTION.code], headers[ACTION.document]);
  if (exchange !== undefined && routingKey !== undefined) return { exchange, routingKey };
  if (!isLevel(fields.exchange)) return { exchange, routingKey };
  const envelope = openEnvelope(content);
  return {
    exchange: exchange ?? envelope?.topic,
    routingKey: routingKey ?? envelope?.action,
  };
}

function timeOf(value: unknown): number | undefined {
  const at = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) || at <= 0 ? undefined : at;
}

/** They have no message id among the properties. */
function idOf({ properties, content }: AmqpMessage): string | undefined {
  return (
    compat.nonEmpty(properties.messageId) ??
    compat.nonEmpty(properties.headers?.[MESSAGE_ID]) ??
    openEnvelope(content)?.id
  );
}

function write(message: AmqpMessage, successor: Successor): Properties {
  const { [EXPIRATION]: asked, ...routing } = successor.routing ?? {};
  const expiration = compat.nonEmpty(asked);
  const { past } = successor;
  const id = idOf(message) ?? successor.id;
  const properties = respoolWire.write(message, { ...successor, id, routing });
  const headers: Record<string, unknown> = { ...properties.headers };
  for (const [{ code, document }, value] of [
    [COUNT, past.attempts],
    [TOPIC, past.exchange],
    [ACTION, past.routingKey],
  ] as const) {
    headers[code] = value;
    // Anyone who counts by the names of the document goes on counting by them.
    if (headers[document] !== undefined) headers[document] = value;
  }
  return {
    ...properties,
    headers: asInt32Numbers(headers),
    ...(expiration === undefined ? {} : { expiration }),
  };
}

function plan(request: QueuePlanRequest, amount: number | undefined): QueuePlan {
  checkPlanRequest(request);
  const { queue, type } = request;
  const retries = amount ?? request.policy.maxAttempts - 1;
  checkRetries(request, retries);
  const into = `${queue}__retry_exchange`;
  const back = `${queue}__retry_dlx`;
  const deadLetters = { to: `${queue}.dlx`, key: parts.deadName(queue) };
  const levels = levelsOf(request, retries);
  const extra = extraRoutes(request, into, levels);
  const pastLast = `${queue}.past-last-retry`;
  const foreign: parts.TopologyPart = {
    exchanges: [
      parts.exchange(into, 'topic'),
      parts.exchange(back, 'fanout'),
      parts.exchange(deadLetters.to, 'direct'),
    ],
    queues: [
      ...levels.map(({ name }) => compat.queueOf(name, 'wait', { 'x-dead-letter-exchange': back })),
      ...extra.map(({ name, waitMs }) => parts.waitQueue(name, waitMs, type, { to: back })),
      // n.b. Not the dead queue itself: the message has an expiration, and would expire there.
      parts.waitQueue(pastLast, PASSES_MS, type, deadLetters),
    ],
    bindings: [
      parts.binding(queue, back, ''),
      ...[...levels, ...extra].map(({ name }) => parts.binding(name, into, name)),
      parts.binding(pastLast, into, levelName(queue, retries + 1)),
      parts.binding(deadLetters.key, deadLetters.to, deadLetters.key),
    ],
  };
  return compat.planShared({
    request,
    mainArguments: {},
    foreign,
    routes: [...levels.filter(({ waitMs }) => waitMs > 0), ...extra],
    policies: [compat.compatPolicyOf(queue, `^${compat.literal(queue)}$`, deadLettering(request))],
  });
}

/** How long a message that is past its last retry stays on its way to the dead queue. */
const PASSES_MS = 1;

/** Their main queue has no dead-letter exchange: what is rejected there would be gone. */
function deadLettering({ queue, queueArguments }: QueuePlanRequest): AmqpTable {
  return {
    'dead-letter-exchange': `${queue}.dlx`,
    'dead-letter-routing-key': parts.deadName(queue),
    ...(queueArguments['x-queue-type'] === 'quorum' ? compat.KEEPS_ALL : {}),
  };
}

type Level = TopologyRoute & { readonly name: string };

function levelName(queue: string, level: number): string {
  return `${queue}__retry.${level}`;
}

function levelsOf(request: QueuePlanRequest, retries: number): Level[] {
  const { queue, policy } = request;
  const isCustom = policy.backoff.kind === 'custom';
  const rungs = isCustom ? parts.policyWaits(request) : [];
  return Array.from({ length: retries }, (_, at): Level => {
    const name = levelName(queue, at + 1);
    const plainMs = isCustom ? (rungs[at] ?? rungs.at(-1) ?? 0) : plainDelayMs(policy, at + 1);
    const waitMs = parts.cappedWait(plainMs);
    const route = { exchange: `${queue}__retry_exchange`, key: name };
    const headers = { [EXPIRATION]: String(waitMs) };
    return { name, waitMs, attempt: at + 1, route: () => ({ ...route, headers }) };
  });
}

/** Waits beyond their levels get queues of our own, with a TTL, that lead back by the same way. */
function extraRoutes(request: QueuePlanRequest, into: string, levels: readonly Level[]): Level[] {
  const covered = new Set(levels.map(({ waitMs }) => waitMs));
  return parts
    .extraWaits(request)
    .filter((waitMs) => !covered.has(waitMs))
    .map((waitMs) => {
      const name = `${request.queue}__retry.wait_${delayLabel(waitMs)}`;
      return { name, waitMs, route: () => ({ exchange: into, key: name }) };
    });
}

function checkRetries({ queue, policy }: QueuePlanRequest, retries: number): void {
  const asked = policy.maxAttempts - 1;
  if (retries > parts.RUNGS_MAX) {
    throw new RespoolError(
      'policy.invalid',
      `cannot share queue ${show(queue)} with GoQueue: its policy has ${retries} retries, each ` +
        `with a queue, allowed are ${parts.RUNGS_MAX}; use fewer attempts`,
    );
  }
  if (asked <= retries) return;
  throw new RespoolError(
    'policy.invalid',
    `cannot share queue ${show(queue)} with GoQueue: its policy has ${asked} retries, but ` +
      `maxRetries is ${retries}, and GoQueue discards what was retried more often; ` +
      `use at most ${retries + 1} attempts`,
  );
}
