/** Carries a topology to a real broker and takes it away again, by plain calls. */

import type { AmqpMessage, Route, Topology } from 'respool/rabbit';
import type { AmqpChannel, AmqpConfirmChannel } from '../amqp.ts';

/** Declares everything; a difference to what is there is a 406 and closes the channel. */
export async function declareAll(channel: AmqpChannel, topology: Topology): Promise<void> {
  for (const { name, type, ...options } of topology.exchanges) {
    await channel.assertExchange(name, type, options);
  }
  for (const { name, ...options } of topology.queues) await channel.assertQueue(name, options);
  for (const { queue, exchange, key, arguments: args } of topology.bindings) {
    await channel.bindQueue(queue, exchange, key, args);
  }
}

export async function removeAll(channel: AmqpChannel, topology: Topology): Promise<void> {
  for (const { name } of topology.queues) await channel.deleteQueue(name);
  for (const { name } of topology.exchanges) await channel.deleteExchange(name);
}

/** Publishes by a road; resolves when it is confirmed, rejects when it came back. */
export async function send(channel: AmqpConfirmChannel, route: Route, id: string): Promise<void> {
  const returned = returnedIds(channel);
  const properties = { messageId: id, headers: route.headers, persistent: true, mandatory: true };
  await new Promise<void>((resolve, reject) => {
    channel.publish(route.exchange, route.key, Buffer.from(id), properties, (error) => {
      if (error === null || error === undefined) resolve();
      else reject(new Error('not confirmed', { cause: error }));
    });
  });
  if (returned.has(id)) throw new Error(`message ${id} was returned: no queue at ${route.key}`);
}

const RETURNED = new WeakMap<AmqpChannel, Set<string>>();

function returnedIds(channel: AmqpChannel): Set<string> {
  const known = RETURNED.get(channel);
  if (known !== undefined) return known;
  const ids = new Set<string>();
  RETURNED.set(channel, ids);
  channel.on('return', (message: AmqpMessage) => ids.add(message.properties.messageId ?? ''));
  return ids;
}

/** A message with the time at which it came. */
export interface Arrival {
  readonly id: string;
  readonly at: number;
  readonly message: AmqpMessage;
}

export interface Inbox {
  readonly arrivals: Arrival[];
  /** Resolves when so many messages came in all. */
  until(count: number): Promise<void>;
  /** Resolves with the message of this id. */
  of(id: string): Promise<Arrival>;
}

/** Consumes a queue. Nothing is acked unless a test does it. */
export async function openInbox(channel: AmqpChannel, queue: string): Promise<Inbox> {
  const arrivals: Arrival[] = [];
  const watchers = new Set<() => void>();
  await channel.consume(queue, (message) => {
    if (message === null) return;
    const id = message.properties.messageId ?? '';
    arrivals.push({ id, at: performance.now(), message });
    for (const look of watchers) look();
  });
  const when = <T>(find: () => T | undefined): Promise<T> =>
    new Promise((resolve) => {
      const look = (): void => {
        const found = find();
        if (found === undefined) return;
        watchers.delete(look);
        resolve(found);
      };
      watchers.add(look);
      look();
    });
  return {
    arrivals,
    until: async (count) => {
      await when(() => (arrivals.length >= count ? true : undefined));
    },
    of: (id) => when(() => arrivals.find((arrival) => arrival.id === id)),
  };
}
