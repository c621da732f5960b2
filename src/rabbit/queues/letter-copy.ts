/**
 * letter-copy — a dead letter as another message: a copy that a spool can keep and that goes back
 * into its queue, or what is published when it is sent again or parked. Pure, but for
 * `restoreArchived`, which publishes.
 *
 * What comes back from a spool is what was there, but for what the broker would refuse or act upon:
 * the user id and `x-death` (kept in our headers), CC, and its own counts of deliveries. Always
 * persistent. A copy that is sent or parked tells where the message was first published and how
 * often it was replayed, and holds nothing that the broker would act upon.
 *
 * Called by queue-letters.ts; `restoreArchived` by `respool dlq restore`.
 *
 * Why: docs/decisions/0039-removal-keeps-a-copy-in-the-spool.md
 */

import { AMQP_HEADER } from '../../core/reserved-headers.ts';
import { RespoolError, show, textOf } from '../../core/errors.ts';
import { checkHeaders, TOPIC_MAX_CHARS } from '../../core/limits.ts';
import type {
  KeptCopy,
  Letter,
  LetterVerdict,
  LetterChange,
  LetterRoute,
} from '../../ports/dead-letters.ts';
import type { AmqpMessage, Outgoing, Properties, AmqpTable } from '../connection/amqp.ts';
import { readProperties, writtenProperties } from '../publish/fallback.ts';
import {
  changedCopy,
  HEADER,
  type HistoryWire,
  type Past,
  asInt32Numbers,
  withoutBrokerHeaders,
} from '../message-history.ts';
import { codeText, reasonText } from '../../core/failure.ts';
import type { ReadLetter } from './letter.ts';

/** The queue that it was in, and where it was published, for people; the queue for us too. */
export const ARCHIVED_QUEUE_HEADER: string = 'respool-amqp-queue';
const EXCHANGE = 'respool-amqp-exchange';
const KEY = 'respool-amqp-key';

/**
 * Headers of a copy at the most: what a spool takes by default, less what it writes. Also in
 * docs/reference/dead-letters.md.
 */
export const ARCHIVED_HEADERS_MAX_BYTES: number = 31 * 2 ** 10;

/** The copy of a message; refuses what no spool could keep, and then it has to stay. */
export function archiveCopyOf(
  { id, place }: Letter,
  message: AmqpMessage,
  reason: string,
): KeptCopy {
  const { exchange, routingKey } = message.fields;
  const headers = {
    [AMQP_HEADER]: writtenProperties(message.properties),
    [ARCHIVED_QUEUE_HEADER]: place,
    [EXCHANGE]: oneLine(exchange),
    [KEY]: oneLine(routingKey),
  };
  try {
    checkHeaders(headers, ARCHIVED_HEADERS_MAX_BYTES);
  } catch (error) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot keep a copy of message ${show(id)} of queue ${show(place)} in the spool: its ` +
        `properties do not fit (${textOf(error)}); it stays where it is: export it, then remove ` +
        'it without a copy',
      { cause: error },
    );
  }
  return {
    id,
    topic: topicOf(place),
    headers,
    body: new Uint8Array(message.content),
    reason,
  };
}

/** Publishes a kept copy into its queue again; resolves when the broker has it there. */
export async function restoreArchived(
  copy: Pick<KeptCopy, 'headers' | 'body'>,
  publisher: { send(outgoing: Outgoing): Promise<void> },
): Promise<void> {
  await publisher.send(restoredOf(copy));
}

/** What is published to put it back. */
export function restoredOf({ headers, body }: Pick<KeptCopy, 'headers' | 'body'>): Outgoing {
  const { [AMQP_HEADER]: text, [ARCHIVED_QUEUE_HEADER]: queue } = headers;
  if (text === undefined || queue === undefined || queue === '') {
    throw new RespoolError(
      'message.invalid',
      `cannot put a message back into its queue: headers ${AMQP_HEADER} and ` +
        `${ARCHIVED_QUEUE_HEADER} are needed; only what was kept from a queue has them`,
    );
  }
  const content = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  return { exchange: '', key: queue, content, properties: restorable(propertiesIn(text)) };
}

function propertiesIn(text: string): Properties {
  try {
    const read: unknown = readProperties(text);
    if (typeof read === 'object' && read !== null && !Array.isArray(read)) return read;
    throw new TypeError('it holds no properties');
  } catch (error) {
    throw new RespoolError(
      'message.invalid',
      `cannot put a message back into its queue: its header ${AMQP_HEADER} cannot be read: ` +
        textOf(error),
      { cause: error },
    );
  }
}

/** n.b. The broker refuses a user id that is not ours. */
function restorable({ userId, headers, ...properties }: Properties): Properties {
  const said = userId === undefined ? {} : { [HEADER.userId]: userId };
  return {
    ...properties,
    deliveryMode: 2,
    headers: asInt32Numbers({ ...withoutBrokerHeaders(headers), ...said }),
  };
}

/** A topic that every spool takes. */
function topicOf(queue: string): string {
  const words = queue
    .replaceAll(/[^A-Za-z0-9_.-]+/g, '-')
    .slice(0, TOPIC_MAX_CHARS - PREFIX.length - 1)
    .split('.')
    .filter((word) => word !== '');
  return [PREFIX, ...words].join('.');
}

const PREFIX = 'rabbit';

function oneLine(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ').toWellFormed();
}

/** What a copy is made of. */
interface ReplayCopyOptions {
  readonly message: AmqpMessage;
  readonly read: ReadLetter;
  readonly wire: HistoryWire | undefined;
  readonly now: number;
}

type QueueRoute = Extract<LetterRoute, { readonly kind: 'queue' }>;

/** A message as it is sent again: with fresh attempts, repaired where that was asked for. */
export function sentCopy(
  { message, read, wire, now }: ReplayCopyOptions,
  to: QueueRoute,
  { change, replay }: Extract<LetterVerdict, { readonly kind: 'send' }>,
): Outgoing {
  const marks = {
    [HEADER.replays]: read.letter.replays + 1,
    [HEADER.replay]: replay,
    [HEADER.replayedAt]: now,
  };
  const past = { attempts: 0, lost: 0, postponed: 0, restMs: 0, ...lifeOf(read.past, now) };
  const changed = change === undefined ? message : changedBy(message, change);
  const isAsRead = change === undefined;
  return copyWith({ message: changed, read, wire, now, isAsRead }, { to, past, marks });
}

/** A message as it is put aside for a person. */
export function parkedCopy(
  parts: ReplayCopyOptions,
  queue: string,
  { code, reason, by }: Extract<LetterVerdict, { readonly kind: 'park' }>,
): Outgoing {
  const ending = {
    [HEADER.ended]: 'parked',
    [HEADER.endedCode]: codeText(code),
    [HEADER.endedReason]: reasonText(reason),
    [HEADER.endedAt]: parts.now,
    [HEADER.endedBy]: by,
  };
  const to = { exchange: '', key: queue };
  return copyWith({ ...parts, isAsRead: true }, { to, past: {}, marks: ending });
}

interface CopyChange {
  readonly to: { readonly exchange: string; readonly key: string };
  readonly past: Partial<Past>;
  readonly marks: AmqpTable;
}

function copyWith(
  { message, read, wire, isAsRead }: ReplayCopyOptions & { readonly isAsRead: boolean },
  { to, past, marks }: CopyChange,
): Outgoing {
  const { owner, letter, beginning } = read;
  const { exchange, key } = to;
  const copy = changedCopy(message, {
    to: { exchange, key },
    owner: owner ?? letter.place,
    id: letter.id,
    past: { ...beginning, ...past },
    // n.b. A repair may have changed it, and other systems' wires go by the queue.
    read: wire === undefined && isAsRead ? read.past : undefined,
    wire,
  });
  // Unknown values are left out: a later reader would take the dead queue for its home.
  const unknown = {
    ...(owner === undefined ? { [HEADER.queue]: undefined } : {}),
    ...(beginning === undefined
      ? { [HEADER.exchange]: undefined, [HEADER.routingKey]: undefined }
      : {}),
  };
  const headers = withHeaders(copy.properties.headers, { ...unknown, ...marks });
  return { ...copy, properties: { ...copy.properties, headers } };
}

/** Removes an expiration that has passed: an operator wants the message delivered. */
function lifeOf({ firstAt, expiresAfterMs }: Past, now: number): Partial<Past> {
  const isOver = expiresAfterMs !== undefined && firstAt + expiresAfterMs <= now;
  return isOver ? { expiresAfterMs: undefined } : {};
}

function changedBy(
  message: AmqpMessage,
  { body, contentType, headers }: LetterChange,
): AmqpMessage {
  const { properties } = message;
  return {
    ...message,
    content: body === undefined ? message.content : Buffer.from(body),
    properties: {
      ...properties,
      ...(contentType === undefined ? {} : { contentType }),
      headers: withHeaders(properties.headers, headers ?? {}),
    },
  };
}

/** null and undefined take a header away; one that was null before stays. */
function withHeaders(headers: AmqpTable | undefined, changes: AmqpTable): AmqpTable {
  const all: Record<string, unknown> = { ...headers, ...changes };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined) delete all[name];
  }
  return all;
}
