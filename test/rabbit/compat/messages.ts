/** Messages for the tests of compat, as a broker would deliver them. */

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { AmqpMessage, Properties } from 'respool/rabbit';
import type { Past, Successor } from '../../../src/rabbit/message-history.ts';

export type System = 'goqueue' | 'spring' | 'outbox';

/** A recorded message and what it has to tell. */
export interface Recorded {
  readonly name: string;
  readonly family: 'code' | 'document';
  readonly queue: string;
  readonly fields: {
    readonly exchange: string;
    readonly routingKey: string;
    readonly redelivered?: boolean;
  };
  readonly properties: Properties;
  readonly body: unknown;
  readonly expected: {
    readonly attempts: number;
    readonly exchange: string;
    readonly routingKey: string;
    readonly firstAt?: number;
    readonly id?: string;
    readonly payload?: unknown;
  };
}

export function recorded(system: System): readonly Recorded[] {
  const file = new URL(`../../fixtures/rabbit/${system}.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')) as readonly Recorded[];
}

export function messageOf(given: Partial<Omit<Recorded, 'expected'>> = {}): AmqpMessage {
  const { fields = { exchange: 'shop', routingKey: 'order.created' }, body = {} } = given;
  return {
    content: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
    fields: { deliveryTag: 1, redelivered: false, ...fields },
    properties: { ...given.properties },
  };
}

/** What comes back of a message: its successor as the next consumer gets it. */
export function nextOf(
  message: AmqpMessage,
  properties: Properties,
  fields: Partial<AmqpMessage['fields']> = {},
): AmqpMessage {
  const { content } = message;
  const { expiration: _, ...kept } = properties;
  const headers = plainHeaders(properties);
  return { content, properties: { ...kept, headers }, fields: { ...message.fields, ...fields } };
}

/** Headers as they arrive: a delivery does not tell how wide a number was. */
export function plainHeaders({ headers = {} }: Properties): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => {
      const isTyped = typeof value === 'object' && value !== null && '!' in value;
      return [name, isTyped ? (value as { readonly value?: unknown }).value : value];
    }),
  );
}

export function successorOf(past: Past, more: Partial<Successor> = {}): Successor {
  return { past, queue: 'orders', id: 'id-of-ours', routing: undefined, ...more };
}

/** A prefix that no other test uses. */
export function freshPrefix(): string {
  return `c-${randomUUID().slice(0, 13)}`;
}
