/**
 * x-death — where and why a broker gave a message up, by `x-death` or our copy of it, and how often
 * it died by everything that counted it. Pure.
 *
 * `x-death` has one entry for each queue and reason. A message that goes round between a work queue
 * and a queue with a time to live is counted twice a round: once rejected, once expired. So:
 * - entries of the queue in which it lies are return trips, and do not count;
 * - queues with any reason but `expired` are where work failed: all their counts are summed;
 * - queues with `expired` only are waits; they count where no work queue counted as often, since
 *   a consumer that publishes to a wait queue leaves no other trace;
 * - attempts that we counted ourselves are added to the former, and the waits between them are not.
 *
 * Why: docs/decisions/0037-deaths-are-not-the-sum-of-x-death.md
 */

import { type Millis, SECOND_MS } from '../../core/duration.ts';
import type { Table } from '../connection/amqp.ts';
import { countOf, H } from '../consume/message-history.ts';
import { compileGlob } from '../../core/glob.ts';

/** One line of `x-death`. */
export interface Death {
  readonly queue: string;
  /** `rejected`, `expired`, `maxlen`, `delivery_limit`. */
  readonly reason: string;
  readonly exchange: string;
  readonly keys: readonly string[];
  readonly at: Millis | undefined;
}

/** Only this many are read: a hostile header may hold any number. */
const DEATHS_READ_MAX = 200;

/** The copy of a stripped `x-death` that we keep is shorter. */
const KEPT_MAX_CHARS = 65_536;

/** All of them, the newest first; what is not one is left out. */
export function xDeathsOf(headers: Table): readonly Death[] {
  return xDeathLines(headers, DEATHS_READ_MAX).flatMap(deathOf);
}

/** The first lines as they are, the newest first: whatever is in them. */
function xDeathLines(headers: Table, max: number): readonly unknown[] {
  const told = headers['x-death'] ?? kept(headers[H.deaths]);
  return Array.isArray(told) ? told.slice(0, max) : [];
}

/** What we kept of it when the message was last published without it. */
function kept(text: unknown): unknown {
  if (typeof text !== 'string' || text.length > KEPT_MAX_CHARS) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    // Somebody else wrote into our header.
    return undefined;
  }
}

function deathOf(entry: unknown): Death[] {
  if (typeof entry !== 'object' || entry === null) return [];
  const { queue, reason, exchange, time, 'routing-keys': keys } = entry as Table;
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
  const seconds = typeof time === 'object' && time !== null ? (time as Table)['value'] : time;
  const ms = countOf(seconds) * SECOND_MS;
  return Number.isSafeInteger(ms) && ms > 0 ? ms : undefined;
}

/** What is known of where it lies, and which deaths count. */
export interface DeathRule {
  /** The queue in which the message lies. */
  readonly sweptQueue: string;
  /** Only deaths for these reasons: `rejected`, `expired`, `maxlen`, `delivery_limit`. */
  readonly reasons?: readonly string[] | undefined;
  /** Only deaths in queues that fit one of these patterns. */
  readonly queues?: readonly string[] | undefined;
}

/** Only this many entries are read: a hostile header may hold any number. */
const ENTRIES_MAX = 1_000;

/** How often the message with these headers died. */
export function deathsOf(headers: Table | undefined, rule: DeathRule): number {
  return createDeathCounter(rule)(headers);
}

/** The same for many messages: patterns are read once. */
export function createDeathCounter(rule: DeathRule): (headers: Table | undefined) => number {
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

function allDeaths(headers: Table, sweptQueue: string): number {
  const entries = entriesOf(headers).filter(({ queue }) => queue !== sweptQueue);
  const work = new Set(entries.filter(({ reason }) => reason !== 'expired').map(queueOf));
  const atWork = sum(entries.filter(({ queue }) => work.has(queue)).map(countIn));
  const attempts = countOf(headers[H.attempts]);
  if (attempts > 0) return sum([atWork, attempts]);
  return Math.max(atWork, sum(entries.filter(({ queue }) => !work.has(queue)).map(countIn)));
}

function entriesOf(headers: Table): readonly Entry[] {
  return xDeathLines(headers, ENTRIES_MAX).flatMap(entryOf);
}

function entryOf(told: unknown): Entry[] {
  if (typeof told !== 'object' || told === null) return [];
  const { queue, reason, count } = told as Table;
  if (typeof queue !== 'string' || typeof reason !== 'string') return [];
  // n.b. Old releases wrote one entry for each death, without a count.
  return [{ queue, reason, count: count === undefined ? 1 : countOf(count) }];
}

const queueOf = ({ queue }: Entry): string => queue;
const countIn = ({ count }: Entry): number => count;

function sum(counts: readonly number[]): number {
  const all = counts.reduce((total, count) => total + count, 0);
  return Math.min(all, Number.MAX_SAFE_INTEGER);
}
