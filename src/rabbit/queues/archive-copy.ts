/**
 * archive-copy — a message of a queue as a copy that a spool can keep, and back into its queue.
 *
 * What comes back is what was there, but for what the broker would refuse or act upon: the user id
 * and `x-death` (kept in our headers), CC, and its own counts of deliveries. Always persistent.
 *
 * Why: docs/decisions/0039-removal-keeps-a-copy-in-the-spool.md
 */

import { AMQP_HEADER } from '../../core/reserved-headers.ts';
import { RespoolError, show, textOf } from '../../core/errors.ts';
import { checkHeaders, TOPIC_MAX_CHARS } from '../../core/limits.ts';
import type { KeptCopy, Letter } from '../../ports/dead-letters.ts';
import type { AmqpMessage, Outgoing, Properties } from '../connection/amqp.ts';
import { readProperties, writtenProperties } from '../publish/fallback-properties.ts';
import { H, wide, withoutBrokers } from '../consume/message-history.ts';

/** The queue that it was in, and where it was published, for people; the queue for us too. */
export const ARCHIVED_QUEUE_HEADER: string = 'respool-amqp-queue';
const EXCHANGE = 'respool-amqp-exchange';
const KEY = 'respool-amqp-key';

/** What a spool takes by default, less what it writes itself. */
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
  kept: Pick<KeptCopy, 'headers' | 'body'>,
  outlet: { send(outgoing: Outgoing): Promise<void> },
): Promise<void> {
  await outlet.send(restoredOf(kept));
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
  const said = userId === undefined ? {} : { [H.userId]: userId };
  return {
    ...properties,
    deliveryMode: 2,
    headers: wide({ ...withoutBrokers(headers), ...said }),
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
