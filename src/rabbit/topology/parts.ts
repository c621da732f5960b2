/**
 * parts — what every style is made of: the main queue with its dead and parked queue, wait queues,
 * and the way back from them.
 *
 *   wait queue ─TTL─▶ return exchange ─▶ main queue
 *                          └─ no such queue ─▶ unrouted exchange ─▶ unrouted queue
 *
 * The way back never leads through the default exchange: that one can have no alternate, and 32
 * messages whose queue is missing would keep everything behind them in the wait queue.
 */

import { DAY_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkOneOf } from '../../core/limits.ts';
import { rungs } from '../../core/policy.ts';
import type { AmqpTable } from '../connection/amqp.ts';
import {
  type BindingSpec,
  checkName,
  type ExchangeSpec,
  isBrokersOwn,
  type QueuePlanRequest,
  type QueueRole,
  type QueueSpec,
  type QueueType,
  type Topology,
} from './model.ts';

/**
 * Delays of one policy that each need a wait queue. Also in docs/reference/rabbit.md and
 * docs/how-to/consume-rabbitmq.md.
 */
export const RUNGS_MAX = 64;
/** Wait queues beyond those of the policy. Also in docs/reference/rabbit.md. */
export const EXTRA_WAITS_MAX = 64;
/**
 * The longest wait in one queue; what is left is waited for in another round. The broker counts a
 * TTL in 32 bits of milliseconds, 49.7 days. Also in docs/reference/rabbit.md.
 */
const WAIT_MAX_MS = 49 * DAY_MS;
/**
 * Delivery limit of the quorum queues that we declare; it and higher ones count as unlimited
 * (queues/delivery-limit.ts). n.b. −1, unlimited from 4.0 on, makes a 3.x give up a message at its
 * first return. Also in docs/guarantees.md, docs/reference/rabbit.md and
 * docs/how-to/sweep-dead-queues.md.
 */
export const DELIVERY_LIMIT_SAFE = 1_000_000;
/**
 * The broker's own delivery limit of a quorum queue that sets none, from 4.0 on. Also in
 * docs/guarantees.md, docs/reference/rabbit.md, docs/how-to/sweep-dead-queues.md and decision 0036.
 */
export const DELIVERY_LIMIT_DEFAULT = 20;

/** What a part adds to a topology. */
export type TopologyPart = Partial<Omit<Topology, 'policies'>>;

export function exchange(
  name: string,
  type: ExchangeSpec['type'],
  args: AmqpTable = {},
): ExchangeSpec {
  return { name, type, durable: true, autoDelete: false, internal: false, arguments: args };
}

export function binding(
  queue: string,
  from: string,
  key: string,
  args: AmqpTable = {},
): BindingSpec {
  return { queue, exchange: from, key, arguments: args };
}

/** Where dead letters of a queue go: an exchange, and the key they get (default: they keep it). */
interface Leads {
  readonly to: string;
  readonly key?: string;
}

/** A queue in which messages wait for a fixed time, and from which they go on by themselves. */
export function waitQueue(name: string, waitMs: number, type: QueueType, leads: Leads): QueueSpec {
  return queueOf(name, 'wait', {
    ...argumentsOf(type),
    'x-message-ttl': waitMs,
    ...deadLettering(type, leads),
  });
}

/** The exchanges that wait queues lead to, all with one way out for what has no queue. */
export function wayBack(
  type: QueueType,
  exchanges: Readonly<Record<string, 'direct' | 'headers'>>,
  unrouted: string,
): TopologyPart {
  const withWayOut = Object.entries(exchanges).map(([name, kind]) =>
    exchange(name, kind, { 'alternate-exchange': unrouted }),
  );
  return {
    exchanges: [...withWayOut, exchange(unrouted, 'fanout')],
    queues: [queueOf(unrouted, 'unrouted', argumentsOf(type))],
    bindings: [binding(unrouted, unrouted, '')],
  };
}

export function deadName(queue: string): string {
  return `${queue}.dlq`;
}

export function parkedName(queue: string): string {
  return `${queue}.parked`;
}

/** The main queue with its bindings, and the two queues where messages end. */
export function home(request: QueuePlanRequest, deadLetterExchange: string): TopologyPart {
  const dead = deadName(request.queue);
  const bound = request.bindings.map((value, at) => userBinding(request.queue, value, at));
  return {
    exchanges: bound.flatMap((part) => part.exchanges ?? []),
    queues: [
      mainQueue(request, { to: deadLetterExchange, key: dead }),
      queueOf(dead, 'dead', argumentsOf(request.type)),
      queueOf(parkedName(request.queue), 'parked', argumentsOf(request.type)),
    ],
    bindings: [
      ...bound.flatMap((part) => part.bindings ?? []),
      binding(dead, deadLetterExchange, dead),
    ],
  };
}

/** Every wait that needs a queue, in milliseconds, ascending; other delays are rounded up. */
export function waitsOf(request: QueuePlanRequest): number[] {
  return distinctWaits([...policyWaits(request), ...extraWaits(request)]);
}

/** The waits that the policy asks for. */
export function policyWaits({ queue, policy }: QueuePlanRequest): number[] {
  const waits = distinctWaits(rungs(policy));
  if (waits.length <= RUNGS_MAX) return waits;
  throw new RespoolError(
    'policy.invalid',
    `cannot make wait queues for queue ${show(queue)}: its policy has ${waits.length} different ` +
      `delays, allowed are ${RUNGS_MAX}; use fewer attempts, a lower "max", ` +
      `or a ladder with fewer rungs`,
  );
}

/** The waits that were asked for beside the policy. */
export function extraWaits({ queue, extraWaitsMs }: QueuePlanRequest): number[] {
  const bad = extraWaitsMs.find((waitMs) => !Number.isInteger(waitMs) || waitMs < 0);
  if (bad !== undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot make a wait queue of ${show(bad)} ms for queue ${show(queue)}: ` +
        'allowed are whole milliseconds, 0 or more',
    );
  }
  const waits = distinctWaits(extraWaitsMs);
  if (waits.length <= EXTRA_WAITS_MAX) return waits;
  throw new RespoolError(
    'config.invalid',
    `cannot make ${waits.length} extra wait queues for queue ${show(queue)}: allowed are ` +
      `${EXTRA_WAITS_MAX}; leave some out, delays are rounded up to the next`,
  );
}

/** What a message can wait in one queue for this delay; 0 needs no queue. */
export function cappedWait(delayMs: number): number {
  return Math.min(delayMs, WAIT_MAX_MS);
}

function distinctWaits(delays: readonly number[]): number[] {
  const waits = delays.map(cappedWait).filter((waitMs) => waitMs > 0);
  return [...new Set(waits)].toSorted((a, b) => a - b);
}

function queueOf(name: string, role: QueueRole, args: AmqpTable): QueueSpec {
  return { name, role, durable: true, exclusive: false, autoDelete: false, arguments: args };
}

/** Arguments common to all queues of a type. A full quorum queue refuses instead of dropping. */
function argumentsOf(type: QueueType): AmqpTable {
  if (type === 'classic') return { 'x-queue-type': 'classic' };
  return {
    'x-queue-type': 'quorum',
    'x-delivery-limit': DELIVERY_LIMIT_SAFE,
    'x-overflow': 'reject-publish',
  };
}

/** n.b. Without `reject-publish` the broker takes the strategy, and does not follow it. */
function deadLettering(type: QueueType, { to, key }: Leads): AmqpTable {
  return {
    'x-dead-letter-exchange': to,
    ...(key === undefined ? {} : { 'x-dead-letter-routing-key': key }),
    ...(type === 'quorum' ? { 'x-dead-letter-strategy': 'at-least-once' } : {}),
  };
}

function mainQueue(request: QueuePlanRequest, leads: Leads): QueueSpec {
  const { queue, type, durable, exclusive, autoDelete } = request;
  if (type === 'quorum' && (!durable || exclusive || autoDelete)) {
    throw new RespoolError(
      'config.invalid',
      `cannot declare queue ${show(queue)} of type quorum: it must be durable, not exclusive and ` +
        "not autoDelete; change that, or use type: 'classic'",
    );
  }
  const args = {
    ...argumentsOf(type),
    ...deadLettering(type, leads),
    ...request.queueArguments,
  };
  checkArguments(queue, type, args);
  return { name: queue, role: 'main', durable, exclusive, autoDelete, arguments: args };
}

/** Refuses user arguments that would weaken the queue's guarantees. */
function checkArguments(queue: string, type: QueueType, args: AmqpTable): void {
  const refuse = (name: string, todo: string): never => {
    throw new RespoolError(
      'config.invalid',
      `cannot declare queue ${show(queue)} with ${name}: ${show(args[name])}: ${todo}`,
    );
  };
  if (args['x-queue-type'] !== type) refuse('x-queue-type', `use the option type instead`);
  const limit = args['x-delivery-limit'];
  if (typeof limit === 'number' && limit < 0) {
    refuse('x-delivery-limit', 'a 3.x gives up every message at its first return; use a number');
  }
  const keepsAll = args['x-dead-letter-strategy'] === 'at-least-once';
  if (keepsAll && args['x-overflow'] !== 'reject-publish') {
    refuse(
      'x-overflow',
      'only reject-publish goes with dead-lettering at least once; set x-dead-letter-strategy to ' +
        "'at-most-once' if messages may be dropped",
    );
  }
}

function userBinding(
  queue: string,
  value: QueuePlanRequest['bindings'][number],
  at: number,
): TopologyPart {
  const { exchange: from, key = '#', type = 'topic', arguments: args } = value;
  const isThere = type === false || isBrokersOwn(from);
  if (!isBrokersOwn(from)) checkName(`bindings[${at}].exchange`, from);
  if (type !== false) checkOneOf(`bindings[${at}].type`, type, EXCHANGE_TYPES);
  return {
    exchanges: isThere ? [] : [exchange(from, type)],
    bindings: [binding(queue, from, key, args)],
  };
}

const EXCHANGE_TYPES: readonly ExchangeSpec['type'][] = ['direct', 'topic', 'fanout', 'headers'];
