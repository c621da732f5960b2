/** Messages as they lie in a dead queue, and the letters that are made of them. */

import type { AmqpMessage, Properties } from 'respool/rabbit';
import type { Letter } from 'respool/dead-letters';
import { type LetterPlace, readLetter } from '../../../src/rabbit/queues/letter.ts';
import type { Table } from '../amqp.ts';

export const QUEUE = 'orders.dlq';

export function letterOf(
  headers: Table | undefined,
  parts: {
    readonly properties?: Properties;
    readonly fields?: Partial<AmqpMessage['fields']>;
    readonly place?: Partial<LetterPlace>;
    readonly content?: string;
  } = {},
): Letter {
  const message: AmqpMessage = {
    content: Buffer.from(parts.content ?? 'body'),
    fields: {
      deliveryTag: 1,
      redelivered: false,
      exchange: 'dlx',
      routingKey: QUEUE,
      ...parts.fields,
    },
    properties: { messageId: 'm1', ...parts.properties, headers },
  };
  const place: LetterPlace = { queue: QUEUE, role: undefined, of: [], kind: 'dead' };
  return readLetter(message, { ...place, ...parts.place }).letter;
}

/** An entry of `x-death`, as amqplib reads it. */
export function death(queue: string, reason: string, more: Table = {}): Table {
  return { queue, reason, count: 1, exchange: 'shop', 'routing-keys': ['order.new'], ...more };
}

export const at = (seconds: number): Table => ({ time: { '!': 'timestamp', value: seconds } });
