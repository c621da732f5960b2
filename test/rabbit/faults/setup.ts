/** setup — what the fault tests of RabbitMQ do beside the consumer. */

import { connect } from 'amqplib';
import type { AmqpConnection } from 'respool/rabbit';
import { service } from '../../services/index.ts';
import { until } from '../until.ts';
import type { AmqpChannel } from '../amqp.ts';

/** A door that a handler waits at. */
export class Gate {
  readonly opened: Promise<void>;
  readonly #open: () => void;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.opened = promise;
    this.#open = resolve;
  }

  open(): void {
    this.#open();
  }
}

/** Closes all connections of this name through the management API; how many there were. */
export async function closeConnections(name: string): Promise<number> {
  const base = await service('rabbitmq-management');
  // The list is as old as the broker's statistics: a new connection is there after a second.
  return until(async () => {
    const listed = (await ask(base, '/api/connections')) as readonly {
      readonly name: string;
      readonly user_provided_name?: string;
    }[];
    const ours = listed.filter((one) => one.user_provided_name?.startsWith(name) === true);
    for (const one of ours) {
      await ask(base, `/api/connections/${encodeURIComponent(one.name)}`, 'DELETE');
    }
    return ours.length > 0 ? ours.length : undefined;
  });
}

/** Asks the management API; undefined where there is nothing to say. */
export async function ask(base: string, path: string, method = 'GET'): Promise<unknown> {
  const { username, password, origin } = new URL(base);
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  const answer = await fetch(`${origin}${path}`, { method, headers: { authorization } });
  const text = await answer.text();
  return text === '' ? undefined : JSON.parse(text);
}

const TRIES = 5;

/**
 * Does something at the broker over a connection of its own. n.b. What is deleted while others
 * declare it can end the connection with an internal error: then it is tried again.
 */
export async function byHand(
  url: string,
  work: (channel: AmqpChannel) => Promise<void>,
): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    const connection = (await connect(url)) as AmqpConnection;
    connection.on('error', () => undefined);
    try {
      const channel = await connection.createChannel();
      channel.on('error', () => undefined);
      await work(channel);
      await connection.close();
      return;
    } catch (error) {
      if (tries === TRIES) throw error;
    }
  }
}
