/** Orders and styles for the tests of topologies. */

import { randomUUID } from 'node:crypto';
import { ladder } from 'respool';
import {
  perAttempt,
  perDelay,
  type QueuePlanRequest,
  type QueueSpec,
  type QueueType,
  shared,
  type Topology,
  type TopologyStyle,
} from 'respool/rabbit';

const TYPES: readonly QueueType[] = ['quorum', 'classic'];

/** Every style, with names that begin with a prefix where they are not those of the queue. */
export const STYLES: Readonly<Record<string, (prefix: string) => TopologyStyle>> = {
  perAttempt: () => perAttempt(),
  'perDelay by queue': () => perDelay(),
  'perDelay by exchange': (prefix) => perDelay({ by: 'exchange', exchange: `${prefix}.shop` }),
  shared: (prefix) => shared({ prefix }),
};

/** Every style with every type, as rows of a table. */
export const KINDS: readonly (readonly [string, QueueType])[] = Object.keys(STYLES).flatMap(
  (style) => TYPES.map((type) => [style, type] as const),
);

export function orderOf(order: Partial<QueuePlanRequest> = {}): QueuePlanRequest {
  return {
    queue: 'orders',
    type: 'quorum',
    policy: ladder(['2s', '250ms', '2s']),
    extraWaitsMs: [],
    bindings: [],
    durable: true,
    exclusive: false,
    autoDelete: false,
    queueArguments: {},
    ...order,
  };
}

/** A prefix that no other test uses. */
export function freshPrefix(): string {
  return `t-${randomUUID().slice(0, 13)}`;
}

export function queueOf(topology: Topology, name: string): QueueSpec {
  const found = topology.queues.find((queue) => queue.name === name);
  if (found === undefined) throw new Error(`no queue "${name}" in the topology`);
  return found;
}
