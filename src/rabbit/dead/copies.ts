/**
 * copies — what is published when a letter is sent again or parked. Pure.
 *
 * Promise: the copy tells where the message was first published and how often it was replayed, and
 * holds nothing that the broker would act upon.
 */

import type { Fate, LetterChange, LetterRoute } from '../../ports/dead-letters.ts';
import type { AmqpMessage, Outgoing, Table } from '../amqp.ts';
import { H } from '../headers.ts';
import { copyOf } from '../operate/home.ts';
import type { Past, Wire } from '../wire.ts';
import type { ReadLetter } from './letter.ts';

/** What a copy is made of. */
export interface CopyParts {
  readonly message: AmqpMessage;
  readonly read: ReadLetter;
  readonly wire: Wire | undefined;
  readonly now: number;
}

type QueueRoute = Extract<LetterRoute, { readonly kind: 'queue' }>;

/** A message as it is sent again: with fresh attempts, repaired where that was asked for. */
export function sentCopy(
  { message, read, wire, now }: CopyParts,
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
  return marked(copyWith({ message: changed, read, wire, now }, to, past), marks);
}

/** A message as it is put aside for a person. */
export function parkedCopy(
  parts: CopyParts,
  queue: string,
  { code, reason, by }: Extract<Fate, { readonly kind: 'park' }>,
): Outgoing {
  const ending = {
    [H.ended]: 'parked',
    [H.endedCode]: code,
    [H.endedReason]: reason,
    [H.endedAt]: parts.now,
    [H.endedBy]: by,
  };
  return marked(copyWith(parts, { exchange: '', key: queue }, {}), ending);
}

function copyWith(
  { message, read, wire }: CopyParts,
  { exchange, key }: { readonly exchange: string; readonly key: string },
  past: Partial<Past>,
): Outgoing {
  const { owner, letter, beginning } = read;
  const copy = copyOf(message, {
    to: { exchange, key },
    owner: owner ?? letter.place,
    id: letter.id,
    past: { ...beginning, ...past },
    wire,
  });
  // What nobody knows is not said: a later reader would take the dead queue for its home.
  return marked(copy, {
    ...(owner === undefined ? { [H.queue]: undefined } : {}),
    ...(beginning === undefined ? { [H.exchange]: undefined, [H.routingKey]: undefined } : {}),
  });
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

function marked(outgoing: Outgoing, marks: Table): Outgoing {
  const headers = withHeaders(outgoing.properties.headers, marks);
  return { ...outgoing, properties: { ...outgoing.properties, headers } };
}

/** null and undefined take a header away. */
function withHeaders(headers: Table | undefined, changes: Table): Table {
  const all = Object.entries({ ...headers, ...changes });
  return Object.fromEntries(all.filter(([, value]) => value !== null && value !== undefined));
}
