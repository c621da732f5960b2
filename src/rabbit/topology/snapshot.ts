/** snapshot — the current state of a topology's objects, from the management API. */

import type {
  BindingInfo,
  ExchangeInfo,
  PolicyInfo,
  QueueInfo,
  Management,
} from '../admin/management/index.ts';
import type { Topology } from './model.ts';

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
    queues: byName(queues),
    bindings,
    policies: byName(policies),
    operatorPolicies,
  };
}

async function queuesOf(
  management: Management,
  names: readonly string[],
): Promise<readonly QueueInfo[]> {
  if (names.length > ASKED_SINGLY_MAX) {
    const wanted = new Set(names);
    return (await management.queues()).filter(({ name }) => wanted.has(name));
  }
  const found = await Promise.all(names.map((name) => management.queue(name)));
  return found.filter((queue) => queue !== undefined);
}

function byName<T extends { readonly name: string }>(things: readonly T[]): Map<string, T> {
  return new Map(things.map((thing) => [thing.name, thing]));
}
