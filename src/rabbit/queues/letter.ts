/**
 * letter — a message of a dead or parked queue as a letter: where it first died, of what, how
 * often, and where it belongs. Pure.
 *
 * Our own headers know best, then those of the system that shares the queue, then what the broker
 * wrote. Promise: whatever the headers hold, there is a letter, and its texts have no control
 * characters and a limit.
 *
 * `x-death` has one entry for each queue and reason. A message that goes round between a work queue
 * and a queue with a time to live is counted twice a round: once rejected, once expired. So:
 * - entries of the queue that it is in are return trips, and do not count;
 * - queues with any reason but `expired` are where work failed: all their counts are summed;
 * - queues with `expired` only are waits; they count where no work queue counted as often, since
 *   a consumer that publishes to a wait queue leaves no other trace;
 * - attempts that we counted ourselves are added to the former, and the waits between them are not.
 * With `reasons` or `queues` (DeathRule) none of this holds: the entries that match are summed.
 *
 * Why: docs/decisions/: 0037 and 0038.
 */

import { hash } from 'node:crypto';
import type { Headers } from '../../core/entry.ts';
import { textOf } from '../../core/errors.ts';
import { codeText, REASON_MAX_CHARS, reasonText } from '../../core/failure.ts';
import { groupOf, type GroupParts } from '../../core/letter-query.ts';
import { KEY_MAX_CHARS } from '../../core/limits.ts';
import type { Letter, LetterKind, LetterRoute } from '../../ports/dead-letters.ts';
import type { AmqpMessage, Properties, AmqpTable } from '../connection/amqp.ts';
import { writtenProperties } from '../publish/fallback.ts';
import {
  countOf,
  HEADER,
  type HistoryWire,
  ownerQueueOf,
  type Past,
  type QueuePlace,
  readPast,
  respoolWire,
  sureOwner,
} from '../message-history.ts';
import { type Millis, SECOND_MS } from '../../core/duration.ts';
import { compileGlob } from '../../core/glob.ts';

/** How much of a header is shown, and how many are. Both also in docs/reference/dead-letters.md. */
export const LETTER_HEADER_MAX_CHARS = 4_096;
export const LETTER_HEADERS_MAX = 256;

/** What is known of the queue that the message is in. */
export interface LetterPlace extends QueuePlace {
  readonly kind: LetterKind;
  readonly wire?: HistoryWire | undefined;
}

/** What a message is, with what it takes to write its copy. */
export interface ReadLetter {
  readonly letter: Letter;
  /** Where it was first published; undefined: unknown. */
  readonly beginning: FirstRoute | undefined;
  /** The queue that it belongs to; undefined: unknown. */
  readonly owner: string | undefined;
  readonly past: Past;
}

/** The route by which a message was first published. */
interface FirstRoute {
  readonly exchange: string;
  readonly routingKey: string;
}

/** Reads a message as it is in its queue. */
export function readLetter(message: AmqpMessage, place: LetterPlace): ReadLetter {
  const headers = message.properties.headers ?? {};
  const past = pastOf(message, place);
  const deaths = xDeathsOf(headers);
  const elsewhere = deaths.filter((death) => death.queue !== place.queue);
  const known = { message, headers, past, place, deaths: elsewhere };
  const owner = queueOf(known);
  const beginning = beginningOf(known);
  const { exchange, routingKey } = beginning ?? message.fields;
  const at = owner ?? place.queue;
  const origin = exchange === '' && owner === undefined ? '' : shown(`${exchange}/${owner ?? ''}`);
  const topic = shown(routingKey === '' ? at : routingKey);
  const digest = digestOf(message);
  const id = idOf(message, place.wire) ?? digest;
  const { contentType } = message.properties;
  const later = new LazyDetails({
    headers,
    past,
    deaths: elsewhere,
    queue: place.queue,
    at,
    origin,
  });
  const letter: Letter = {
    id,
    key: id === digest ? id : `${id}.${digest.slice(0, KEY_DIGEST_CHARS)}`,
    kind: place.kind,
    place: place.queue,
    topic,
    origin,
    home: homeOf(known, owner),
    get code() {
      return later.cause.code;
    },
    get reason() {
      return later.cause.reason;
    },
    get group() {
      return later.group;
    },
    get deaths() {
      return later.deaths;
    },
    attempts: past.attempts,
    replays: countOf(headers[HEADER.replays]),
    replayedBy: usable(headers[HEADER.replay]),
    isRedelivered: message.fields.redelivered,
    enqueuedAt: past.firstAt || undefined,
    get diedAt() {
      return later.cause.diedAt;
    },
    size: message.content.length,
    contentType: typeof contentType === 'string' ? shown(contentType) : undefined,
    get headers() {
      return later.headers;
    },
  };
  return { letter, beginning, owner, past };
}

/** What is known of a message without its body: a letter may be kept for long. */
interface LetterRecord
  extends Pick<Known, 'headers' | 'past' | 'deaths'>,
    Omit<GroupParts, keyof Cause> {
  /** The queue that it is in. */
  readonly queue: string;
}

/**
 * What few callers need, made on request: a replay of thousands needs none of it.
 *
 * n.b. `at` is the queue, not the routing key: those may have the id of an order in them.
 */
class LazyDetails {
  readonly #record: LetterRecord;
  #cause: Cause | undefined;
  #group: string | undefined;
  #headers: Headers | undefined;
  #deaths: number | undefined;

  constructor(report: LetterRecord) {
    this.#record = report;
  }

  get cause(): Cause {
    return (this.#cause ??= causeOf(this.#record));
  }

  get group(): string {
    const { at, origin } = this.#record;
    return (this.#group ??= groupOf({ ...this.cause, at, origin }));
  }

  get headers(): Headers {
    return (this.#headers ??= shownHeaders(this.#record.headers));
  }

  get deaths(): number {
    const { headers, queue } = this.#record;
    return (this.#deaths ??= deathsOf(headers, { sweptQueue: queue }));
  }
}

interface Known {
  readonly message: AmqpMessage;
  readonly headers: AmqpTable;
  readonly past: Past;
  readonly place: LetterPlace;
  /** In other queues than the one it is in, the newest first. */
  readonly deaths: readonly Death[];
}

/** n.b. Wires of other systems look into bodies; what they cannot read is no reason to stop. */
function pastOf(message: AmqpMessage, { wire = respoolWire, of, queue }: LetterPlace): Past {
  try {
    return wire.read(message, of[0] ?? queue);
  } catch {
    return readPast(message);
  }
}

/** The main queue that it belongs to, or else the one that it first died in. */
function queueOf({ message, headers, place, deaths }: Known): string | undefined {
  const isOther = (queue: string | undefined): queue is string =>
    queue !== undefined && queue !== place.queue && queue !== headers[HEADER.sweptFrom];
  const planned = place.of.length > 0 ? ownerQueueOf(message, place) : undefined;
  const said = [planned, sureOwner(message)].find(isOther);
  if (said !== undefined) return said;
  // Where it was rejected it was worked on; where it only ever expired it may just have waited.
  const works = new Set(deaths.filter(({ reason }) => reason !== 'expired').map(queueName));
  const first = nameOf(headers['x-first-death-queue']);
  const candidates = [first, ...deaths.map(queueName).toReversed()].filter(isOther);
  return candidates.find((queue) => works.has(queue)) ?? candidates[0];
}

function queueName({ queue }: Death): string {
  return queue;
}

/** n.b. The delivery itself tells only how it came into the dead queue. */
function beginningOf({ message, headers, past, deaths }: Known): FirstRoute | undefined {
  const { fields } = message;
  const { exchange, routingKey } = past;
  const isKnown =
    headers[HEADER.routingKey] !== undefined ||
    routingKey !== fields.routingKey ||
    exchange !== fields.exchange;
  if (isKnown) return { exchange, routingKey };
  const oldest = deaths.at(-1);
  if (oldest === undefined) return undefined;
  return { exchange: oldest.exchange, routingKey: oldest.keys[0] ?? routingKey };
}

function homeOf(
  { headers, past, place }: Known,
  owner: string | undefined,
): LetterRoute | undefined {
  if (owner !== undefined) return { kind: 'queue', exchange: '', key: owner };
  const isSaid = [headers[HEADER.exchange], headers[HEADER.routingKey]].every(
    (one) => typeof one === 'string',
  );
  if (!isSaid) return undefined;
  const { exchange, routingKey: key } = past;
  const isHere =
    exchange === '' && (key === '' || key === place.queue || key === headers[HEADER.sweptFrom]);
  return isHere ? undefined : { kind: 'queue', exchange, key };
}

interface Cause {
  readonly code: string;
  readonly reason: string;
  readonly diedAt: number | undefined;
}

function causeOf({ headers, past, deaths }: LetterRecord): Cause {
  const death = deaths[0];
  const endedAt = countOf(headers[HEADER.endedAt]) || undefined;
  const ended = wordOf(headers[HEADER.endedCode]);
  if (ended !== undefined) {
    const reason = cut(headers[HEADER.endedReason]);
    return { code: codeText(ended), reason, diedAt: endedAt ?? death?.at };
  }
  const { lastFailure, lastFailedAt } = past;
  const diedAt = endedAt ?? death?.at ?? lastFailedAt;
  // What a broker did after the last failure that we know of is what it died of.
  const isLater = death !== undefined && (death.at ?? 0) > (lastFailedAt ?? 0);
  if (lastFailure !== undefined && !(isLater && death.reason !== 'expired')) {
    return { code: lastFailure.code, reason: lastFailure.reason, diedAt };
  }
  const thrown = wordOf(headers[EXCEPTION]);
  if (thrown !== undefined) return { code: EXCEPTION_CODE, reason: cut(thrown), diedAt };
  if (death === undefined) return { code: 'unknown', reason: '', diedAt };
  const { reason, queue } = death;
  return { code: codeText(`amqp.${reason}`), reason: cut(`${reason} in queue "${queue}"`), diedAt };
}

/** Spring writes the message of an exception here when it gives a message up. */
const EXCEPTION = 'x-exception-message';
const EXCEPTION_CODE = 'spring.exception';

/**
 * This much of the digest tells two messages of one id apart. Both also in
 * docs/reference/dead-letters.md.
 */
const KEY_DIGEST_CHARS = 12;
const DIGEST_CHARS = 24;

/** What the broker counts, as `brokerCount` of delivery.ts: it differs from look to look. */
const COUNTED = new Set(['x-delivery-count', 'x-acquired-count']);

/** A digest of all that stays the same while the message is here. */
export function digestOf({ content, properties }: AmqpMessage): string {
  const text = Buffer.from(`${lasting(properties)}\n`);
  return hash('sha256', Buffer.concat([text, content])).slice(0, DIGEST_CHARS);
}

function lasting(properties: Properties): string {
  // n.b. In an order of its own: the broker changes it when it adds its count.
  const pairs = Object.entries(properties.headers ?? {})
    .filter(([name]) => !COUNTED.has(name))
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  // Mostly so, and several times as quick.
  if (pairs.every(([, value]) => isPlain(value))) {
    const { headers: _, ...others } = properties;
    return JSON.stringify([others, pairs]);
  }
  try {
    // Without headers and with an empty table of them is the same.
    return writtenProperties({ ...properties, headers: Object.fromEntries(pairs) });
  } catch {
    // Nested too deep, or not what a broker could send: its first level has to do.
    return `${textOf(properties.messageId)}\n${pairs.map(([name]) => name).join('\n')}`;
  }
}

function isPlain(value: unknown): boolean {
  return typeof value === 'string' || typeof value === 'boolean' || Number.isSafeInteger(value);
}

function idOf(message: AmqpMessage, wire: HistoryWire | undefined): string | undefined {
  try {
    return usable(wire?.id?.(message)) ?? usable(message.properties.messageId);
  } catch {
    return usable(message.properties.messageId);
  }
}

/** A text that can be an id or a name as it is. */
function usable(value: unknown): string | undefined {
  if (typeof value !== 'string' || value === '' || value.length > KEY_MAX_CHARS) return undefined;
  return CONTROL.test(value) || !value.isWellFormed() ? undefined : value;
}

function nameOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function wordOf(value: unknown): string | undefined {
  return typeof value === 'string' && value.trim() !== '' ? value : undefined;
}

/** A reason as it is kept: one line, cut at its limit. */
function cut(value: unknown): string {
  return typeof value === 'string' ? reasonText(value.slice(0, REASON_MAX_CHARS + 1)) : '';
}

const CONTROL = /\p{Cc}/u;
const CONTROLS = /\p{Cc}+/gu;

function shown(text: string): string {
  const isLong = text.length > LETTER_HEADER_MAX_CHARS;
  const short = isLong ? `${text.slice(0, LETTER_HEADER_MAX_CHARS - 1)}…` : text;
  return (CONTROL.test(short) ? short.replaceAll(CONTROLS, ' ') : short).toWellFormed();
}

function shownHeaders(headers: AmqpTable): Headers {
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers).slice(0, LETTER_HEADERS_MAX)) {
    if (name === '__proto__') continue;
    texts[shown(name)] = shown(headerText(value));
  }
  return texts;
}

/** Tables and lists as JSON, bytes as base64. */
function headerText(value: unknown): string {
  return value instanceof Uint8Array ? Buffer.from(value).toString('base64') : textOf(value);
}

/** One line of `x-death`. */
export interface Death {
  readonly queue: string;
  /** `rejected`, `expired`, `maxlen`, `delivery_limit`. */
  readonly reason: string;
  readonly exchange: string;
  readonly keys: readonly string[];
  readonly at: Millis | undefined;
}

/**
 * Lines read for where it came from and of what it died (`xDeathsOf`): a hostile header may hold
 * any number. For counts: ENTRIES_MAX. Also in docs/reference/dead-letters.md.
 */
const DEATHS_READ_MAX = 200;

/** What is longer is not ours: DEATHS_MAX_CHARS of message-history.ts is less. */
const KEPT_MAX_CHARS = 65_536;

/** The first DEATHS_READ_MAX, the newest first; what is not one is left out. */
export function xDeathsOf(headers: AmqpTable): readonly Death[] {
  return xDeathLines(headers, DEATHS_READ_MAX).flatMap(deathOf);
}

/** The first lines as they are, the newest first: whatever is in them. */
function xDeathLines(headers: AmqpTable, max: number): readonly unknown[] {
  const deaths = headers['x-death'] ?? kept(headers[HEADER.deaths]);
  return Array.isArray(deaths) ? deaths.slice(0, max) : [];
}

/** What we kept of it when the message was last published without it. */
function kept(text: unknown): unknown {
  if (typeof text !== 'string' || text.length > KEPT_MAX_CHARS) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    // Another program wrote our header.
    return undefined;
  }
}

function deathOf(entry: unknown): Death[] {
  if (typeof entry !== 'object' || entry === null) return [];
  const { queue, reason, exchange, time, 'routing-keys': keys } = entry as AmqpTable;
  if (typeof queue !== 'string' || queue === '') return [];
  return [
    {
      queue,
      reason: typeof reason === 'string' && REASON.test(reason) ? reason : 'unknown',
      exchange: typeof exchange === 'string' ? exchange : '',
      keys: Array.isArray(keys) ? keys.filter((key) => typeof key === 'string') : [],
      at: timeOf(time),
    },
  ];
}

const REASON = /^[a-z_-]{1,32}$/;

/** n.b. amqplib wraps it: `{ '!': 'timestamp', value: seconds }`. */
function timeOf(time: unknown): Millis | undefined {
  const seconds = typeof time === 'object' && time !== null ? (time as AmqpTable)['value'] : time;
  const ms = countOf(seconds) * SECOND_MS;
  return Number.isSafeInteger(ms) && ms > 0 ? ms : undefined;
}

/** What is known of where it is, and which deaths count. */
export interface DeathRule {
  /** The queue that the message is in. */
  readonly sweptQueue: string;
  /** Only deaths for these reasons: `rejected`, `expired`, `maxlen`, `delivery_limit`. */
  readonly reasons?: readonly string[] | undefined;
  /** Only deaths in queues that fit one of these patterns. */
  readonly queues?: readonly string[] | undefined;
}

/**
 * Lines read for how often it died: a hostile header may hold any number. For the rest:
 * DEATHS_READ_MAX. Also in docs/reference/dead-letters.md.
 */
const ENTRIES_MAX = 1_000;

/** How often the message with these headers died. */
export function deathsOf(headers: AmqpTable | undefined, rule: DeathRule): number {
  return createDeathCounter(rule)(headers);
}

/** The same for many messages: patterns are read once. */
export function createDeathCounter(rule: DeathRule): (headers: AmqpTable | undefined) => number {
  const { sweptQueue, reasons = [], queues = [] } = rule;
  if (reasons.length === 0 && queues.length === 0) {
    return (headers) => (headers === undefined ? 0 : allDeaths(headers, sweptQueue));
  }
  const isReason = new Set(reasons);
  const globs = queues.map(compileGlob);
  const counts = ({ queue, reason }: Entry): boolean =>
    (isReason.size === 0 || isReason.has(reason)) &&
    (globs.length === 0 || globs.some((glob) => glob.match(queue) !== undefined));
  return (headers) =>
    headers === undefined
      ? 0
      : sum(
          entriesOf(headers)
            .filter(counts)
            .map(({ count }) => count),
        );
}

interface Entry {
  readonly queue: string;
  readonly reason: string;
  readonly count: number;
}

function allDeaths(headers: AmqpTable, sweptQueue: string): number {
  const entries = entriesOf(headers).filter(({ queue }) => queue !== sweptQueue);
  const work = new Set(entries.filter(({ reason }) => reason !== 'expired').map(entryQueue));
  const atWork = sum(entries.filter(({ queue }) => work.has(queue)).map(countIn));
  const attempts = countOf(headers[HEADER.attempts]);
  if (attempts > 0) return sum([atWork, attempts]);
  return Math.max(atWork, sum(entries.filter(({ queue }) => !work.has(queue)).map(countIn)));
}

function entriesOf(headers: AmqpTable): readonly Entry[] {
  return xDeathLines(headers, ENTRIES_MAX).flatMap(entryOf);
}

function entryOf(value: unknown): Entry[] {
  if (typeof value !== 'object' || value === null) return [];
  const { queue, reason, count } = value as AmqpTable;
  if (typeof queue !== 'string' || typeof reason !== 'string') return [];
  // n.b. Old releases wrote one entry for each death, without a count.
  return [{ queue, reason, count: count === undefined ? 1 : countOf(count) }];
}

const entryQueue = ({ queue }: Entry): string => queue;
const countIn = ({ count }: Entry): number => count;

function sum(counts: readonly number[]): number {
  const all = counts.reduce((total, count) => total + count, 0);
  return Math.min(all, Number.MAX_SAFE_INTEGER);
}
