/** declare-setup — a connection to the real broker, small topologies, and a broom for both. */

import {
  type AmqpConnection,
  type BindingSpec,
  createManagement,
  type ExchangeSpec,
  type Management,
  type QueueSpec,
  type Topology,
} from 'respool/rabbit';
import { service } from '../../services/index.ts';
import { administer, freshName } from '../admin/management/setup.ts';
import { connectAmqp, type Table } from '../amqp.ts';

export interface Bundle extends AsyncDisposable {
  readonly connection: AmqpConnection;
  readonly management: Management;
  /** The first part of all names of the test. */
  readonly prefix: string;
}

/** Everything that is named after the prefix goes when the test is over. */
export async function setup(): Promise<Bundle> {
  const connection = await connectAmqp(await service('rabbitmq'));
  const management = createManagement({ url: await service('rabbitmq-management') });
  const prefix = freshName('top');
  return {
    connection,
    management,
    prefix,
    [Symbol.asyncDispose]: async () => {
      management.forget();
      const isOurs = ({ name }: { name: string }): boolean => name.startsWith(prefix);
      const sweep = async (what: string, named: readonly { name: string }[]): Promise<void> => {
        for (const { name } of named.filter(isOurs)) {
          await administer('DELETE', `/${what}/%2F/${encodeURIComponent(name)}`);
        }
      };
      await sweep('queues', await management.queues());
      await sweep('exchanges', await management.exchanges());
      await sweep('policies', await management.policies());
      await management.close();
      await connection.close();
    },
  };
}

/** A connection of somebody else. */
export async function connectAs(user: {
  name: string;
  password: string;
}): Promise<AmqpConnection & AsyncDisposable> {
  const url = new URL(await service('rabbitmq'));
  url.username = user.name;
  url.password = encodeURIComponent(user.password);
  const connection = await connectAmqp(url.href);
  return Object.assign(connection, { [Symbol.asyncDispose]: () => connection.close() });
}

/** A quorum queue that is safe on every release: from 4.0 on, one without a limit is not. */
export function queueSpec(
  name: string,
  args: Table = {},
  rest: Partial<QueueSpec> = {},
): QueueSpec {
  const isQuorum = (args['x-queue-type'] ?? 'quorum') === 'quorum';
  return {
    name,
    role: 'main',
    durable: true,
    exclusive: false,
    autoDelete: false,
    arguments: {
      'x-queue-type': 'quorum',
      ...(isQuorum ? { 'x-delivery-limit': 1_000_000 } : {}),
      ...args,
    },
    ...rest,
  };
}

export function exchangeSpec(name: string, rest: Partial<ExchangeSpec> = {}): ExchangeSpec {
  return {
    name,
    type: 'topic',
    durable: true,
    autoDelete: false,
    internal: false,
    arguments: {},
    ...rest,
  };
}

export function bindingSpec(queue: string, exchange: string, key: string): BindingSpec {
  return { queue, exchange, key, arguments: {} };
}

export function topologyOf(parts: Partial<Topology>): Topology {
  return { exchanges: [], queues: [], bindings: [], policies: [], ...parts };
}

/** A queue behind an exchange, with a wait queue whose messages come back. */
export function smallTopology(prefix: string): Topology {
  const [main, wait, exchange] = [`${prefix}.main`, `${prefix}.wait`, `${prefix}.ex`];
  return topologyOf({
    exchanges: [exchangeSpec(exchange), exchangeSpec(`${prefix}.back`, { type: 'headers' })],
    queues: [
      queueSpec(main),
      queueSpec(
        wait,
        {
          'x-message-ttl': 60_000,
          'x-dead-letter-exchange': `${prefix}.back`,
          'x-dead-letter-strategy': 'at-least-once',
          'x-overflow': 'reject-publish',
        },
        { role: 'wait' },
      ),
    ],
    bindings: [
      bindingSpec(main, exchange, 'a.*'),
      {
        ...bindingSpec(main, `${prefix}.back`, ''),
        arguments: { 'x-match': 'all', 'return-to': main },
      },
    ],
  });
}
