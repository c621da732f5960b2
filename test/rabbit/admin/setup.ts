/** setup — plans of one's own at the real broker, filled and removed again. */

import { randomUUID } from 'node:crypto';
import { fixed, type RetryPolicy } from 'respool';
import {
  type AmqpConnection,
  applyTopology,
  createManagement,
  type Management,
  type Properties,
  type QueuePlanRequest,
  type QueuePlan,
  type Topology,
} from 'respool/rabbit';
import { service } from '../../services/index.ts';
import { until } from '../until.ts';
import { connectAmqp } from '../amqp.ts';

/** A name that no other test has. */
export function freshName(what: string): string {
  return `t-${what}-${randomUUID().slice(0, 8)}`;
}

export function orderOf(queue: string, more: Partial<QueuePlanRequest> = {}): QueuePlanRequest {
  return {
    queue,
    type: 'quorum',
    policy: POLICY,
    extraWaitsMs: [],
    bindings: [],
    durable: true,
    exclusive: false,
    autoDelete: false,
    queueArguments: {},
    ...more,
  };
}

const POLICY: RetryPolicy = fixed('200ms', { attempts: 3 });

export interface Bench extends AsyncDisposable {
  readonly url: string;
  readonly connection: AmqpConnection;
  readonly management: Management;
  /** Declares plans; everything in them goes at the end. */
  declare(...plans: readonly QueuePlan[]): Promise<void>;
  /** Removed at the end, too. */
  alsoRemove(topology: Partial<Topology>): void;
  publish(queue: string, bodies: readonly string[], properties?: Properties): Promise<void>;
  depth(queue: string): Promise<number | undefined>;
  /** Takes everything out of a queue, for good; what was given back may take a moment to be there. */
  takeAll(queue: string, atLeast?: number): Promise<Taken[]>;
}

export interface Taken {
  readonly body: string;
  readonly properties: Properties;
}

export async function openBench(): Promise<Bench> {
  const url = await service('rabbitmq');
  const connection = await connectAmqp(url);
  connection.on('error', () => undefined);
  const management = createManagement({ url: await service('rabbitmq-management') });
  const removed: Partial<Topology>[] = [];
  return {
    url,
    connection,
    management,
    async declare(...plans) {
      for (const { topology } of plans) {
        removed.push(topology);
        await applyTopology(connection, topology, { management });
      }
    },
    alsoRemove: (topology) => {
      removed.push(topology);
    },
    publish: (queue, bodies, properties) => publishTo(connection, { queue, bodies, properties }),
    depth: (queue) => depthOf(connection, queue),
    takeAll: async (queue, atLeast = 0) => {
      await until(async () =>
        ((await depthOf(connection, queue)) ?? 0) >= atLeast ? true : undefined,
      );
      return takeAll(connection, queue);
    },
    async [Symbol.asyncDispose]() {
      const channel = await connection.createChannel();
      for (const { queues = [], exchanges = [], policies = [] } of removed) {
        for (const { name } of queues) await channel.deleteQueue(name);
        for (const { name } of exchanges) await channel.deleteExchange(name);
        for (const { name } of policies) await management.deletePolicy(name);
      }
      await management.close();
      await connection.close();
    },
  };
}

interface Batch {
  readonly queue: string;
  readonly bodies: readonly string[];
  readonly properties?: Properties | undefined;
}

async function publishTo(
  connection: AmqpConnection,
  { queue, bodies, properties = {} }: Batch,
): Promise<void> {
  const channel = await connection.createConfirmChannel();
  await Promise.all(
    bodies.map(
      (body) =>
        new Promise<void>((resolve, reject) => {
          const options = { messageId: body, deliveryMode: 2, ...properties };
          channel.publish('', queue, Buffer.from(body), options, (error) =>
            error === null || error === undefined
              ? resolve()
              : reject(new Error('not confirmed', { cause: error })),
          );
        }),
    ),
  );
  await channel.close();
}

async function depthOf(connection: AmqpConnection, queue: string): Promise<number | undefined> {
  const channel = await connection.createChannel();
  channel.on('error', () => undefined);
  try {
    const { messageCount } = await channel.checkQueue(queue);
    await channel.close();
    return messageCount;
  } catch {
    return undefined;
  }
}

async function takeAll(connection: AmqpConnection, queue: string): Promise<Taken[]> {
  const total = (await depthOf(connection, queue)) ?? 0;
  const taken: Taken[] = [];
  if (total === 0) return taken;
  const channel = await connection.createChannel();
  await new Promise<void>((resolve, reject) => {
    const onMessage: Parameters<typeof channel.consume>[1] = (message) => {
      if (message === null) return;
      channel.ack(message);
      taken.push({ body: message.content.toString(), properties: message.properties });
      if (taken.length === total) resolve();
    };
    channel.consume(queue, onMessage).catch(reject);
  });
  await channel.close();
  return taken;
}

/** The bodies of everything in a queue, taken out for good. */
export async function bodies(bench: Bench, queue: string, atLeast = 0): Promise<string[]> {
  return (await bench.takeAll(queue, atLeast)).map(({ body }) => body);
}
