/**
 * broker-state — the current state of a topology's objects, from the management API; and how it
 * differs from what should be there, argument by argument.
 */

import { isDeepStrictEqual } from 'node:util';
import { show } from '../../core/errors.ts';
import type { AmqpTable } from '../connection/amqp.ts';
import type {
  BindingInfo,
  ExchangeInfo,
  Management,
  PolicyInfo,
  QueueInfo,
} from '../management/management.ts';
import type { Difference } from './explain.ts';
import type { BindingSpec, ExchangeSpec, PolicySpec, QueueSpec, Topology } from './model.ts';

/** Up to this many queues are asked for one by one; beyond it the whole list is cheaper. */
const ASKED_SINGLY_MAX = 40;

export interface Snapshot {
  /** Of RabbitMQ, such as `3.10.8`. */
  readonly version: string;
  readonly exchanges: ReadonlyMap<string, ExchangeInfo>;
  readonly queues: ReadonlyMap<string, QueueInfo>;
  readonly bindings: readonly BindingInfo[];
  readonly policies: ReadonlyMap<string, PolicyInfo>;
  readonly operatorPolicies: readonly PolicyInfo[];
}

export async function takeSnapshot(management: Management, topology: Topology): Promise<Snapshot> {
  // What was just declared must be seen.
  management.forget();
  const names = topology.queues.map(({ name }) => name);
  const [{ version }, exchanges, queues, bindings, policies, operatorPolicies] = await Promise.all([
    management.overview(),
    management.exchanges(),
    queuesOf(management, names),
    management.bindings(),
    management.policies(),
    management.operatorPolicies(),
  ]);
  return {
    version,
    exchanges: byName(exchanges),
    queues,
    bindings,
    policies: byName(policies),
    operatorPolicies,
  };
}

function byName<T extends { readonly name: string }>(things: readonly T[]): Map<string, T> {
  return new Map(things.map((thing) => [thing.name, thing]));
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
interface BrokerState {
  readonly exchanges: ReadonlyMap<string, ExchangeInfo>;
  readonly bindings: readonly BindingInfo[];
  readonly policies: readonly PolicyInfo[];
}

export async function brokerStateOf(management: Management): Promise<BrokerState> {
  const [exchanges, bindings, policies] = await Promise.all([
    management.exchanges(),
    management.bindings(),
    // n.b. Only a policymaker may list them; without them effective definitions are still shown.
    management.policies().catch(() => []),
  ]);
  return { exchanges: new Map(exchanges.map((one) => [one.name, one])), bindings, policies };
}

export function exchangeDifferences(want: ExchangeSpec, have: ExchangeInfo): Difference[] {
  return [
    ...fieldDifferences(
      { type: want.type, durable: want.durable, internal: want.internal },
      { type: have.type, durable: have.durable, internal: have.internal },
    ),
    ...fieldDifferences({ autoDelete: want.autoDelete }, { autoDelete: have.autoDelete }),
    ...fieldDifferences(want.arguments, have.arguments),
  ];
}

export function queueDifferences(want: QueueSpec, have: QueueInfo): Difference[] {
  const { 'x-queue-type': type, ...wanted } = want.arguments;
  const { 'x-queue-type': _, ...there } = have.arguments;
  return [
    // Without an explicit type, the default of the virtual host applies.
    ...(type === undefined
      ? []
      : fieldDifferences({ 'x-queue-type': type }, { 'x-queue-type': have.type })),
    ...fieldDifferences(
      { durable: want.durable, exclusive: want.exclusive, autoDelete: want.autoDelete },
      { durable: have.durable, exclusive: have.exclusive, autoDelete: have.autoDelete },
    ),
    ...fieldDifferences(wanted, there),
  ];
}

export function policyDifferences(want: PolicySpec, have: PolicyInfo): Difference[] {
  return [
    ...fieldDifferences(
      { pattern: want.pattern, priority: want.priority },
      { pattern: have.pattern, priority: have.priority },
    ),
    ...fieldDifferences(want.definition, have.definition),
  ];
}

/** Two bindings are one when all four of these are the same. */
export function isSameBinding(want: BindingSpec, have: BindingInfo): boolean {
  return (
    have.to === 'queue' &&
    have.destination === want.queue &&
    have.exchange === want.exchange &&
    have.key === want.key &&
    isDeepStrictEqual({ ...have.arguments }, { ...want.arguments })
  );
}

function fieldDifferences(want: AmqpTable, have: AmqpTable): Difference[] {
  const names = new Set([...Object.keys(want), ...Object.keys(have)]);
  const differences: Difference[] = [];
  for (const argument of names) {
    if (isDeepStrictEqual(want[argument], have[argument])) continue;
    differences.push({ argument, have: shown(have[argument]), want: shown(want[argument]) });
  }
  return differences;
}

function shown(value: unknown): string | undefined {
  return value === undefined ? undefined : typeof value === 'string' ? value : show(value);
}
