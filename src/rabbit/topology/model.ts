/**
 * model — a topology as data: exchanges, queues, bindings and policies, and where a message of a
 * queue goes by each verdict. Built by styles (pure), carried out by declare.ts.
 *
 * Several topologies become one by `mergeTopologies`: equal things are merged, and different things
 * of one name are refused here, before the broker refuses them with a 406. What the broker allows
 * as a name is checked here too, and the queues of several plans are listed (`plannedQueues`).
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { Option } from '../../core/option-table.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import { type AmqpTable, SHORT_MAX_BYTES } from '../connection/amqp.ts';

/** Replicated and safe (`quorum`, the default), or plain (`classic`). */
export type QueueType = 'quorum' | 'classic';

/** An exchange of a topology. */
export interface ExchangeSpec {
  readonly name: string;
  readonly type: 'direct' | 'topic' | 'fanout' | 'headers';
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly internal: boolean;
  readonly arguments: AmqpTable;
}

/** What a queue is there for. */
export type QueueRole = 'main' | 'wait' | 'dead' | 'parked' | 'unrouted';

/** A queue of a topology, with its role. */
export interface QueueSpec {
  readonly name: string;
  readonly role: QueueRole;
  readonly durable: boolean;
  readonly exclusive: boolean;
  readonly autoDelete: boolean;
  readonly arguments: AmqpTable;
}

/** A binding of a topology. */
export interface BindingSpec {
  readonly queue: string;
  readonly exchange: string;
  readonly key: string;
  readonly arguments: AmqpTable;
}

/** A broker policy: adds safety to queues whose arguments another system has set. */
export interface PolicySpec {
  readonly name: string;
  /** A regular expression over queue names. */
  readonly pattern: string;
  readonly definition: AmqpTable;
  readonly priority: number;
}

/** Everything that has to be at the broker. */
export interface Topology {
  readonly exchanges: readonly ExchangeSpec[];
  readonly queues: readonly QueueSpec[];
  readonly bindings: readonly BindingSpec[];
  /** Needs the management API; without it they are named by `doctor` and exported. */
  readonly policies: readonly PolicySpec[];
}

/** A binding of a user's exchange to the queue. */
export interface UserBinding {
  // Written by `npm run options`: edit the table of options instead.
  /** The exchange. */
  readonly exchange: string;
  /** A routing key, with `*` and `#` at a topic exchange. Default `#`. */
  readonly key?: string;
  /** Declares the exchange with this type; `false`: it is there already. Default `topic`. */
  readonly type?: ExchangeSpec['type'] | false;
  /** Further arguments of the binding. */
  readonly arguments?: AmqpTable;
}

/** The options of a binding. */
export const BINDING_OPTIONS: Readonly<Record<keyof UserBinding, Option>> = {
  exchange: { kind: 'text', required: true, about: 'the exchange' },
  key: {
    kind: 'text',
    default: '#',
    secret: false,
    about: 'a routing key, with `*` and `#` at a topic exchange',
  },
  type: {
    kind: 'choice',
    choices: ['direct', 'topic', 'fanout', 'headers', false],
    ts: "ExchangeSpec['type'] | false",
    default: 'topic',
    about: 'declares the exchange with this type; `false`: it is there already',
  },
  arguments: {
    kind: 'data',
    ts: 'AmqpTable',
    schema: 'anyObject',
    about: 'further arguments of the binding',
  },
};

/** What a style is asked to build for. */
export interface QueuePlanRequest {
  readonly queue: string;
  readonly type: QueueType;
  readonly policy: RetryPolicy;
  /** Delays that need a wait queue beyond those of the policy, in milliseconds. */
  readonly extraWaitsMs: readonly number[];
  readonly bindings: readonly UserBinding[];
  /** Options of the main queue itself. */
  readonly durable: boolean;
  readonly exclusive: boolean;
  readonly autoDelete: boolean;
  readonly queueArguments: AmqpTable;
}

/** Where a message is published to. */
export interface Route {
  readonly exchange: string;
  readonly key: string;
  /** Headers that routing needs; they are taken off again when the message comes back. */
  readonly headers?: AmqpTable;
}

/** A wait queue, by the route that leads into it. */
export interface WaitRoute extends Route {
  /**
   * How long it waits there before it comes back. May be shorter than what was asked for: then
   * the rest is waited for in another round.
   */
  readonly waitMs: number;
}

/** What is asked of the wait queues. */
export interface WaitRequest {
  readonly delayMs: number;
  /** The attempt that just ended, 1 for the first; 0 for a message that was not tried. */
  readonly attempt: number;
  /** The routing key that the message first came with. */
  readonly routingKey: string;
}

/** The topology of one queue, and the routes in it. */
export interface QueuePlan {
  readonly queue: string;
  readonly type: QueueType;
  readonly topology: Topology;
  /** The wait queues' delays, ascending. */
  readonly waitsMs: readonly number[];
  /** The shortest wait that is long enough, or the longest there is. */
  wait(request: WaitRequest): WaitRoute;
  /** To the end of the queue, without waiting. */
  readonly again: Route;
  readonly dead: Route;
  readonly parked: Route;
}

/** A way to build wait queues: `perAttempt()`, `perDelay()`, `shared()`, that of another system. */
export interface TopologyStyle {
  readonly name: string;
  plan(request: QueuePlanRequest): QueuePlan;
}

/** One topology of several, or of the plans of several queues. */
export function mergeTopologies(value: readonly (Topology | QueuePlan)[]): Topology {
  const all = value.map((one) => ('topology' in one ? one.topology : one));
  return {
    exchanges: byName(
      'exchange',
      all.flatMap((one) => one.exchanges),
    ),
    queues: byName(
      'queue',
      all.flatMap((one) => one.queues),
    ),
    bindings: eachOnce(all.flatMap((one) => one.bindings)),
    policies: byName(
      'policy',
      all.flatMap((one) => one.policies),
    ),
  };
}

function byName<T extends { readonly name: string }>(what: string, items: readonly T[]): T[] {
  const found = new Map<string, T>();
  for (const item of items) {
    const before = found.get(item.name);
    if (before === undefined) found.set(item.name, item);
    else refuseDifference(what, before, item);
  }
  return [...found.values()];
}

function eachOnce<T>(items: readonly T[]): T[] {
  return [...new Map(items.map((item) => [stableText(item), item])).values()];
}

function refuseDifference<T extends { readonly name: string }>(what: string, a: T, b: T): void {
  const first = flat(a);
  const second = flat(b);
  const differing = [...new Set([...first.keys(), ...second.keys()])].filter(
    (key) => stableText(first.get(key)) !== stableText(second.get(key)),
  );
  if (differing.length === 0) return;
  const account = differing.map(
    (key) => `${key} is ${valueOf(first.get(key))} and ${valueOf(second.get(key))}`,
  );
  throw new RespoolError(
    'topology.mismatch',
    `cannot put topologies together: they have two different kinds of ${what} ${show(a.name)}: ` +
      `${account.join(', ')}; use one type and one set of options for all queues that share it, ` +
      'or other names',
  );
}

/** Arguments beside the other fields, so that a difference is named by itself. */
function flat(item: object): Map<string, unknown> {
  return new Map(
    Object.entries(item).flatMap(([key, value]) =>
      key === 'arguments' || key === 'definition'
        ? Object.entries(value as object)
        : [[key, value]],
    ),
  );
}

function valueOf(value: unknown): string {
  return value === undefined ? 'not set' : show(value);
}

/** A value as text in which the order of keys does not matter. */
function stableText(value: unknown): string {
  return (
    JSON.stringify(value, (_key, part: unknown) =>
      typeof part === 'object' && part !== null && !Array.isArray(part)
        ? Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)))
        : part,
    ) ?? 'undefined'
  );
}

const ROLES: readonly QueueRole[] = ['main', 'wait', 'dead', 'parked', 'unrouted'];

/** A queue of one or several plans. */
export interface PlannedQueue {
  readonly spec: QueueSpec;
  readonly type: QueuePlan['type'];
  readonly of: readonly string[];
  readonly waitMs: number | undefined;
}

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
  const all = [...found.values()].map((one) => ({ ...one, waitMs: waitMsOf(one.spec) }));
  return all.toSorted(
    (a, b) =>
      ROLES.indexOf(a.spec.role) - ROLES.indexOf(b.spec.role) ||
      (a.waitMs ?? 0) - (b.waitMs ?? 0) ||
      (a.spec.name < b.spec.name ? -1 : 1),
  );
}

/** How long messages wait in a wait queue, by its arguments; undefined for other queues. */
export function waitMsOf({ role, arguments: args }: QueueSpec): number | undefined {
  const ttl = args['x-message-ttl'];
  return role === 'wait' && typeof ttl === 'number' ? ttl : undefined;
}

/** Names that begin like this belong to the broker. */
const BROKERS_OWN = 'amq.';

/** True for exchanges such as `amq.topic`, which always exist. */
export function isBrokersOwn(name: unknown): boolean {
  return typeof name === 'string' && name.startsWith(BROKERS_OWN);
}

/** Refuses what is not a name at a broker; `what` is the option that it came in. */
export function checkName(what: string, name: unknown): string {
  const flaw = flawOf(name);
  if (flaw === undefined) return name as string;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(name)} as "${what}": ${flaw}; choose another name`,
  );
}

/** Refuses names that are too long with what we have added to them. */
export function checkNamesOf(topology: Topology, base: string): void {
  for (const { name } of topology.queues) checkMadeName('queue', name, base);
  for (const { name } of topology.exchanges) checkMadeName('exchange', name, base);
  for (const { key, queue } of topology.bindings) {
    const bytes = Buffer.byteLength(key);
    if (bytes <= SHORT_MAX_BYTES) continue;
    throw new RespoolError(
      'config.invalid',
      `cannot bind queue ${show(queue)} by the key ${show(key)}: it has ${bytes} bytes, ` +
        `allowed are ${SHORT_MAX_BYTES}; choose a shorter key`,
    );
  }
}

function checkMadeName(what: string, name: string, base: string): void {
  const flaw = flawOf(name);
  if (flaw === undefined) return;
  throw new RespoolError(
    'config.invalid',
    `cannot build the topology of queue ${show(base)}: the ${what} ${JSON.stringify(name)} ` +
      `belongs to it, and ${flaw}; choose another name to begin with`,
  );
}

function flawOf(name: unknown): string | undefined {
  if (typeof name !== 'string' || name === '') return 'a name is a string that is not empty';
  if (isBrokersOwn(name)) return `names that begin with "${BROKERS_OWN}" belong to the broker`;
  // n.b. The broker takes line breaks out of names, silently: we would look for another queue.
  if (/\p{Cc}/u.test(name)) return 'a name has no control characters';
  if (!name.isWellFormed()) return 'it cannot be written as UTF-8';
  const bytes = Buffer.byteLength(name);
  if (bytes <= SHORT_MAX_BYTES) return undefined;
  return `names have at most ${SHORT_MAX_BYTES} bytes, this one has ${bytes}`;
}
