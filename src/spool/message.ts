/**
 * message — what enqueue takes, checked, and the envelope made of it.
 */

import { type Duration, DURATION_MAX_MS, durationMs, type Millis } from '../core/duration.ts';
import type { BodyInfo, Envelope, Headers } from '../core/entry.ts';
import { RespoolError, show } from '../core/errors.ts';
import { POLICY_HEADER } from '../core/reserved-headers.ts';
import {
  checkFields,
  checkHeaders,
  checkId,
  checkKey,
  checkPriority,
  checkTopic,
} from '../core/limits.ts';
import type { BodyInput } from './body.ts';

/** Everything about a message but its body. */
export interface MessageOptions {
  /** Words joined by dots; picks the handler. */
  readonly topic: string;
  readonly headers?: Headers;
  /** The name of a policy; otherwise header `x-retry-policy`, the handler's, the default. */
  readonly policy?: string;
  /** 0 first … 9 last; default 5. */
  readonly priority?: number;
  /** Not before this much later. */
  readonly delay?: Duration;
  /** Not before this time: milliseconds since the epoch, or a Date. */
  readonly dueAt?: Millis | Date;
  /** Bounces when it was not delivered this long after the enqueue. */
  readonly expires?: Duration;
  /** Where it goes, for per-destination limits. */
  readonly destination?: string;
  /** An id of the caller's: 1 to 64 of `0-9 a-z _ -`. The same id again is a duplicate. */
  readonly id?: string;
  /** The same key again is a duplicate, also for a while after the delivery. */
  readonly dedupeKey?: string;
  /**
   * Messages of one key are delivered one at a time, in the order they were enqueued; up to 255
   * characters. Refused where the store keeps no order.
   */
  readonly orderKey?: string;
}

/** A message to enqueue. */
export interface Message extends MessageOptions {
  /** Text, bytes, a JSON value, a stream of bytes; nothing: empty. */
  readonly body?: BodyInput;
}

/** A message that was checked, before its body. */
export interface CheckedMessage {
  readonly envelope: Omit<Envelope, 'body'>;
  readonly policy: string | null;
  readonly dueAt: Millis;
}

const NAMES = [
  'topic',
  'headers',
  'policy',
  'priority',
  'delay',
  'dueAt',
  'expires',
  'destination',
  'id',
  'dedupeKey',
  'orderKey',
  'body',
];

/** Refuses what is outside the limits; nothing is written before. */
export function checkMessage(
  message: MessageOptions,
  context: {
    readonly now: Millis;
    /** The time that claims go by, if it is not `now`: a message without a delay is due by then. */
    readonly earliest?: Millis;
    readonly headerMaxBytes: number;
    readonly makeId: (now: Millis) => string;
  },
): CheckedMessage {
  if (typeof message !== 'object' || message === null) {
    throw new RespoolError(
      'message.invalid',
      'cannot enqueue: a message is an object with a topic',
    );
  }
  checkFields(message, NAMES);
  const { now } = context;
  const topic = checkTopic(message.topic);
  const headers = checkHeaders(message.headers, context.headerMaxBytes);
  const envelope: Omit<Envelope, 'body'> = {
    id: message.id === undefined ? context.makeId(now) : checkId(message.id),
    topic,
    headers,
    enqueuedAt: now,
    priority: checkPriority(message.priority),
    ...rareParts(message, now),
  };
  // A wait never goes past the expiry: at that moment the message is claimed, to bounce.
  const { expiresAt = Number.POSITIVE_INFINITY } = envelope;
  const dueAt = Math.min(dueAtOf(message, now, context.earliest ?? now), expiresAt);
  return { envelope, policy: policyOf(message, headers), dueAt };
}

/** The fields that most messages do not have. */
function rareParts(
  { id, expires, dedupeKey, destination, orderKey }: MessageOptions,
  now: Millis,
): Partial<Envelope> | undefined {
  const hasNone =
    id === undefined &&
    expires === undefined &&
    dedupeKey === undefined &&
    destination === undefined &&
    orderKey === undefined;
  if (hasNone) return undefined;
  return {
    ...(id === undefined ? {} : { ownId: true as const }),
    ...(expires === undefined ? {} : { expiresAt: now + durationMs(expires, 'expires') }),
    ...(dedupeKey === undefined ? {} : { dedupeKey: checkKey('dedupeKey', dedupeKey) }),
    ...(destination === undefined ? {} : { destination: checkKey('destination', destination) }),
    ...(orderKey === undefined ? {} : { orderKey: checkKey('orderKey', orderKey) }),
  };
}

/** The envelope with its body. */
export function withBody(envelope: Omit<Envelope, 'body'>, body: BodyInfo): Envelope {
  return { ...envelope, body };
}

/** A copy for later: a caller that has to wait may fill the same object again meanwhile. */
export function ownMessage<M extends MessageOptions>(message: M): M {
  if (typeof message !== 'object' || message === null) return message;
  const { headers } = message;
  const isPlain = typeof headers === 'object' && headers !== null && !Array.isArray(headers);
  return { ...message, ...(isPlain ? { headers: { ...headers } } : {}) };
}

function policyOf(message: MessageOptions, headers: Headers): string | null {
  if (message.policy !== undefined) return checkKey('policy', message.policy);
  return Object.hasOwn(headers, POLICY_HEADER) ? (headers[POLICY_HEADER] ?? null) : null;
}

function dueAtOf(message: MessageOptions, now: Millis, earliest: Millis): Millis {
  if (message.delay !== undefined && message.dueAt !== undefined) {
    throw new RespoolError('message.invalid', 'cannot use both delay and dueAt: give one of them');
  }
  if (message.delay !== undefined) {
    const delayMs = durationMs(message.delay, 'delay');
    return delayMs === 0 ? earliest : now + delayMs;
  }
  if (message.dueAt === undefined) return earliest;
  const at = message.dueAt instanceof Date ? message.dueAt.getTime() : message.dueAt;
  // Refused too: what no Date can hold. It could be stored, but not shown or written as a name.
  if (!Number.isSafeInteger(at) || at < 0 || at > now + DURATION_MAX_MS) {
    throw new RespoolError(
      'message.invalid',
      `cannot use ${show(message.dueAt)} as dueAt: allowed is a Date or whole milliseconds since ` +
        `1970, up to ${new Date(now + DURATION_MAX_MS).toISOString()} (100 years from now)`,
    );
  }
  // A time in the past means now: waiting messages go in the order they came.
  return Math.max(at, earliest);
}
