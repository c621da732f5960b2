/**
 * goqueue-envelope — the body of a GoQueue message: `{ id, action, topic, data, timestamp }`.
 *
 * Reading takes `data` out byte for byte: parsing and writing it again would change numbers that
 * JavaScript cannot hold.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Properties } from '../connection/amqp.ts';

/** What an envelope says about its message. */
export interface OpenEnvelope {
  readonly id: string | undefined;
  readonly topic: string | undefined;
  readonly action: string | undefined;
  /** The payload as it is written in the envelope: JSON. */
  data(): Buffer;
}

/** Opens an envelope; undefined when the body is none. */
export function openEnvelope(content: Buffer): OpenEnvelope | undefined {
  const text = content.toString();
  // Most bodies that are no envelope are told without parsing them.
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
function rawValue(text: string, wanted: string): string {
  let found = 'null';
  let at = text.indexOf('{') + 1;
  while (at < text.length) {
    const nameAt = text.indexOf('"', at);
    if (nameAt < 0) break;
    const nameEnd = stringEnd(text, nameAt);
    const valueAt = text.indexOf(':', nameEnd) + 1;
    const valueEnd = endOfValue(text, valueAt);
    if (JSON.parse(text.slice(nameAt, nameEnd)) === wanted) {
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
export interface GoqueueMessage {
  readonly id: string;
  /** The exchange. */
  readonly topic: string;
  /** The routing key. */
  readonly action: string;
  /** Anything JSON can hold, but not nothing: GoQueue discards a message without data. */
  readonly data: unknown;
  /** When it was made, in milliseconds since the epoch. */
  readonly timestamp: number;
  /** Who publishes it; default: nobody named. */
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
