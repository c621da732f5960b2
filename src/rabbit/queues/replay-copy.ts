/**
 * replay-copy — what is published when a letter is sent again or parked. Pure.
 *
 * Promise: the copy tells where the message was first published and how often it was replayed, and
 * holds nothing that the broker would act upon.
 */

import { codeText, reasonText } from '../../core/failure.ts';
import type { Fate, LetterChange, LetterRoute } from '../../ports/dead-letters.ts';
import type { AmqpMessage, Outgoing, Table } from '../connection/amqp.ts';
import { H, type Past, type HistoryWire } from '../consume/message-history.ts';
import { changedCopy } from '../admin/owner-queue.ts';
import type { ReadLetter } from './letter.ts';

/** What a copy is made of. */
export interface ReplayCopyParts {
  readonly message: AmqpMessage;
  readonly read: ReadLetter;
  readonly wire: HistoryWire | undefined;
  readonly now: number;
}

type QueueRoute = Extract<LetterRoute, { readonly kind: 'queue' }>;

/** A message as it is sent again: with fresh attempts, repaired where that was asked for. */
export function sentCopy(
  { message, read, wire, now }: ReplayCopyParts,
  to: QueueRoute,
  { change, replay }: Extract<Fate, { readonly kind: 'send' }>,
): Outgoing {
  const marks = {
    [H.replays]: read.letter.replays + 1,
    [H.replay]: replay,
    [H.replayedAt]: now,
  };
  const past = { attempts: 0, lost: 0, postponed: 0, restMs: 0, ...lifeOf(read.past, now) };
  const changed = change === undefined ? message : changedBy(message, change);
  const isAsRead = change === undefined;
  return copyWith({ message: changed, read, wire, now, isAsRead }, { to, past, marks });
}

/** A message as it is put aside for a person. */
export function parkedCopy(
  parts: ReplayCopyParts,
  queue: string,
  { code, reason, by }: Extract<Fate, { readonly kind: 'park' }>,
): Outgoing {
  const ending = {
    [H.ended]: 'parked',
    [H.endedCode]: codeText(code),
    [H.endedReason]: reasonText(reason),
    [H.endedAt]: parts.now,
    [H.endedBy]: by,
  };
  const to = { exchange: '', key: queue };
  return copyWith({ ...parts, isAsRead: true }, { to, past: {}, marks: ending });
}

interface CopyChange {
  readonly to: { readonly exchange: string; readonly key: string };
  readonly past: Partial<Past>;
  readonly marks: Table;
}

function copyWith(
  { message, read, wire, isAsRead }: ReplayCopyParts & { readonly isAsRead: boolean },
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
  // What nobody knows is not said: a later reader would take the dead queue for its home.
  const unknown = {
    ...(owner === undefined ? { [H.queue]: undefined } : {}),
    ...(beginning === undefined ? { [H.exchange]: undefined, [H.routingKey]: undefined } : {}),
  };
  const headers = withHeaders(copy.properties.headers, { ...unknown, ...marks });
  return { ...copy, properties: { ...copy.properties, headers } };
}

/** What nobody wanted any more by its time is wanted again: an operator says so. */
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
function withHeaders(headers: Table | undefined, changes: Table): Table {
  const all: Record<string, unknown> = { ...headers, ...changes };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined) delete all[name];
  }
  return all;
}
