/**
 * inspect-broker — what the broker has of some plans, without touching a message: over the
 * management API where there is one, else by passive declares, each on a channel that may be lost.
 */

import { RespoolError, textOf } from '../../core/errors.ts';
import {
  type AmqpChannel,
  type AmqpConnection,
  closeChannel,
  type QueueState,
} from '../connection/amqp.ts';
import type {
  BindingInfo,
  ExchangeInfo,
  PolicyInfo,
  QueueInfo,
  Management,
} from './management/index.ts';
import { refusalCode } from '../topology/explain.ts';
import type { QueuePlan, QueueRole, QueueSpec } from '../topology/model.ts';
import type { AnyConnection, LookOptions } from './reports.ts';

/** Up to this many queues are asked for one by one; beyond it the whole list is cheaper. */
const ASKED_SINGLY_MAX = 40;
const ROLES: readonly QueueRole[] = ['main', 'wait', 'dead', 'parked', 'unrouted'];

/** A queue of one or several plans. */
export interface PlannedQueue {
  readonly spec: QueueSpec;
  readonly type: QueuePlan['type'];
  readonly of: readonly string[];
  readonly waitMs: number | undefined;
}

/** What a passive declare says; undefined: there is no such thing. */
export type PassiveQueue<T> = { readonly found: T | undefined } | { readonly problem: string };

/** The queues of all plans, each once: main, wait (shortest first), dead, parked, unrouted. */
export function plannedQueues(plans: readonly QueuePlan[]): PlannedQueue[] {
  const found = new Map<string, { spec: QueueSpec; type: QueuePlan['type']; of: string[] }>();
  for (const plan of plans) {
    for (const spec of plan.topology.queues) {
      const known = found.get(spec.name);
      if (known === undefined) found.set(spec.name, { spec, type: plan.type, of: [plan.queue] });
      else if (!known.of.includes(plan.queue)) known.of.push(plan.queue);
    }
  }
  const all = [...found.values()].map((one) => ({ ...one, waitMs: waitQueueOf(one.spec) }));
  return all.toSorted(
    (a, b) =>
      ROLES.indexOf(a.spec.role) - ROLES.indexOf(b.spec.role) ||
      (a.waitMs ?? 0) - (b.waitMs ?? 0) ||
      (a.spec.name < b.spec.name ? -1 : 1),
  );
}

/** How long messages wait in a queue, by its arguments. */
export function waitQueueOf({ role, arguments: args }: QueueSpec): number | undefined {
  const ttl = args['x-message-ttl'];
  return role === 'wait' && typeof ttl === 'number' ? ttl : undefined;
}

/** Queues by name, as the management API tells. */
export async function queuesOf(
  management: Management,
  names: readonly string[],
): Promise<ReadonlyMap<string, QueueInfo>> {
  const wanted = new Set(names);
  const told =
    names.length <= ASKED_SINGLY_MAX
      ? await Promise.all(names.map((name) => management.queue(name)))
      : (await management.queues()).filter((one) => wanted.has(one.name));
  return new Map(told.flatMap((one) => (one === undefined ? [] : [[one.name, one]])));
}

/** Exchanges, bindings and policies of the virtual host. */
export interface BrokerState {
  readonly exchanges: ReadonlyMap<string, ExchangeInfo>;
  readonly bindings: readonly BindingInfo[];
  readonly policies: readonly PolicyInfo[];
}

export async function brokerStateOf(management: Management): Promise<BrokerState> {
  const [exchanges, bindings, policies] = await Promise.all([
    management.exchanges(),
    management.bindings(),
    // n.b. Only a policymaker may list them; without them effective definitions are still told.
    management.policies().catch(() => []),
  ]);
  return { exchanges: new Map(exchanges.map((one) => [one.name, one])), bindings, policies };
}

/** Depth and consumers by a passive declare, which costs no delivery and changes nothing. */
export async function passiveQueues(
  connection: AmqpConnection,
  names: readonly string[],
): Promise<ReadonlyMap<string, PassiveQueue<QueueState>>> {
  return passively(connection, names, (channel, name) => channel.checkQueue(name));
}

export async function passiveExchanges(
  connection: AmqpConnection,
  names: readonly string[],
): Promise<ReadonlyMap<string, PassiveQueue<unknown>>> {
  return passively(connection, names, (channel, name) => channel.checkExchange(name));
}

async function passively<T>(
  connection: AmqpConnection,
  names: readonly string[],
  ask: (channel: AmqpChannel, name: string) => Promise<T>,
): Promise<ReadonlyMap<string, PassiveQueue<T>>> {
  const answers = new Map<string, PassiveQueue<T>>();
  let channel: AmqpChannel | undefined;
  for (const name of names) {
    channel ??= await openChannel(connection);
    try {
      answers.set(name, { found: await ask(channel, name) });
    } catch (error) {
      // A refusal closed the channel; the next question gets a new one.
      channel = undefined;
      const isMissing = refusalCode(error) === 404;
      answers.set(name, isMissing ? { found: undefined } : { problem: textOf(error) });
    }
  }
  if (channel !== undefined) await closeChannel(channel);
  return answers;
}

/** A channel whose end does not end the process. */
export async function openChannel(connection: AmqpConnection): Promise<AmqpChannel> {
  try {
    const channel = await connection.createChannel();
    channel.on('error', () => undefined);
    return channel;
  } catch (error) {
    const text = `cannot open a channel to RabbitMQ: ${textOf(error)}; connect again`;
    throw new RespoolError('broker.unavailable', text, { cause: error });
  }
}

/** The connection to ask over: that which consumes, of a pair. */
export async function amqpOf(connection: AnyConnection): Promise<AmqpConnection> {
  return 'consuming' in connection ? connection.consuming.tryConnect() : connection;
}

/** The version of the broker, as it said when the connection was opened. */
export function versionOf(connection: AmqpConnection | undefined): string | undefined {
  const version = connection?.connection?.serverProperties?.['version'];
  return typeof version === 'string' ? version : undefined;
}

/** Refuses to look without a management API. */
export function checkLook(what: string, { connection, management }: LookOptions): void {
  if (connection !== undefined || management !== undefined) return;
  throw new RespoolError(
    'config.invalid',
    `cannot tell ${what}: neither a connection nor the management API is given; give one of them`,
  );
}
