/**
 * shared — sharing queues with the consumers of another system, so that a fleet can be moved one
 * consumer at a time.
 *
 * Promise: queues and exchanges are declared exactly as the other system's code declares them
 * (a second declarer is refused otherwise), its counters are read and written as it does
 * itself, and our own headers ride along. Safety beyond that is added by policies of the broker.
 */

import type { AmqpMessage, AmqpTable } from '../connection/amqp.ts';
import { countOf, HEADER, type Past, type HistoryWire } from '../message-history.ts';
import { type TopologyRoute, assemble } from '../topology/styles.ts';
import type {
  PolicySpec,
  QueuePlanRequest,
  QueuePlan,
  QueueSpec,
  Route,
  TopologyStyle,
} from '../topology/model.ts';
import * as parts from '../topology/parts.ts';

/** How to share queues with one other system. */
export interface Compat {
  readonly name: 'goqueue' | 'spring' | 'outbox';
  readonly wire: HistoryWire;
  readonly style: TopologyStyle;
  /** What stays unsafe while queues are shared, in sentences for `doctor` and for people. */
  readonly unsafe: readonly string[];
}

/** The past as headers tell it, continued by what the other system counted since. */
export function continuedHeaders(
  own: Past,
  foreign: { readonly attempts: number; readonly exchange: string; readonly routingKey: string },
): Past {
  const { exchange, routingKey } = foreign;
  if (foreign.attempts <= own.attempts) return { ...own, exchange, routingKey };
  // They tried it after us: what we knew about the time between is over.
  return { ...own, exchange, routingKey, attempts: foreign.attempts, lost: 0, restMs: 0 };
}

/** Where a message was first published; our own headers know best. */
export function originOf(
  { properties, fields }: AmqpMessage,
  foreign: { readonly exchange: string | undefined; readonly routingKey: string | undefined },
): { readonly exchange: string; readonly routingKey: string } {
  const headers = properties.headers ?? {};
  return {
    exchange: nonEmpty(headers[HEADER.exchange]) ?? foreign.exchange ?? fields.exchange,
    routingKey: nonEmpty(headers[HEADER.routingKey]) ?? foreign.routingKey ?? fields.routingKey,
  };
}

/** A text that says something; headers of other systems may be there and empty. */
export function nonEmpty(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The highest of several counters: each only ever grows, and only one side raises each. */
export function highest(...counters: readonly unknown[]): number {
  return Math.max(0, ...counters.map((value) => countOf(value)));
}

/** What makes the plan of a shared queue. */
interface SharedQueue {
  readonly request: QueuePlanRequest;
  /** Arguments of the main queue in their code; the user's `queueArguments` are laid over them. */
  readonly mainArguments: AmqpTable;
  readonly foreign: parts.TopologyPart;
  readonly routes: readonly TopologyRoute[];
  readonly policies: readonly PolicySpec[];
  /** The queue of their own that dead messages go to; undefined: ours, `{queue}.dlq`. */
  readonly deadQueue?: string | undefined;
  /** Their declaration of it, where we know it. */
  readonly deadArguments?: AmqpTable;
}

/** Their main queue and wait queues, with a dead and a parked queue. */
export function planShared(shared: SharedQueue): QueuePlan {
  const { request, mainArguments, foreign, routes, policies, deadQueue, deadArguments } = shared;
  const { queue } = request;
  const args = { ...mainArguments, ...request.queueArguments };
  const main: QueueSpec = { ...queueOf(queue, 'main', args), ...lifeOf(request) };
  // Only the queues that we add and the user's bindings are taken from our own styles.
  const plain = { ...request, durable: true, exclusive: false, autoDelete: false };
  const own = parts.home({ ...plain, queueArguments: {} }, NOWHERE);
  const added = (own.queues ?? []).filter(({ role }) => role === 'parked');
  const dead = deadOf(own, deadQueue, deadArguments);
  const home: parts.TopologyPart = {
    exchanges: own.exchanges ?? [],
    queues: [main, ...dead, ...added],
    bindings: (own.bindings ?? []).filter((one) => one.exchange !== NOWHERE),
  };
  const plan = assemble(request, [home, foreign], routes);
  const deadRoute: Route = { exchange: '', key: deadQueue ?? parts.deadName(queue) };
  return {
    ...plan,
    type: args['x-queue-type'] === 'quorum' ? 'quorum' : 'classic',
    topology: { ...plan.topology, policies },
    dead: deadRoute,
  };
}

/** Not an exchange: it marks the dead-letter binding of our own styles, which is left out. */
const NOWHERE = ' ';

function deadOf(
  own: parts.TopologyPart,
  theirs: string | undefined,
  args: AmqpTable | undefined,
): readonly QueueSpec[] {
  if (theirs !== undefined) return [];
  const dead = (own.queues ?? []).filter(({ role }) => role === 'dead');
  return args === undefined ? dead : dead.map((queue) => ({ ...queue, arguments: args }));
}

function lifeOf({
  durable,
  exclusive,
  autoDelete,
}: QueuePlanRequest): Pick<QueueSpec, 'durable' | 'exclusive' | 'autoDelete'> {
  return { durable, exclusive, autoDelete };
}

/** A durable queue with exactly these arguments. */
export function queueOf(name: string, role: QueueSpec['role'], args: AmqpTable): QueueSpec {
  return { name, role, durable: true, exclusive: false, autoDelete: false, arguments: args };
}

/** Our own policy for queues of theirs; above those of priority 0, which it replaces there. */
export function compatPolicyOf(name: string, pattern: string, definition: AmqpTable): PolicySpec {
  return { name: `respool.${name}`, pattern, definition, priority: 1 };
}

/** A name as a part of a policy's pattern. */
export function literal(name: string): string {
  return name.replaceAll(/[\\^$.|?*+()[\]{}]/g, String.raw`\$&`);
}

/** Dead-lettering that keeps its messages; n.b. without `reject-publish` it would not be active. */
export const KEEPS_ALL: AmqpTable = {
  'dead-letter-strategy': 'at-least-once',
  overflow: 'reject-publish',
};
