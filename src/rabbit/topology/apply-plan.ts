/**
 * apply-plan — what applying a topology would do, and what is at the broker that no longer belongs
 * to it. Changes nothing.
 *
 * With the management API everything is compared by what it tells. Without it, things are asked
 * for one by one, and those that exist are declared again as wanted: an equal declaration does
 * nothing, another one is refused and names the first argument that differs.
 *
 * Applying it: declare.ts.
 */

import { checkNames } from '../../core/limits.ts';
import type { BindingInfo, QueueInfo, Management } from '../management/management.ts';
import { type AmqpConnection, onParallelChannels, refusalCode } from '../connection/amqp.ts';
import * as compare from './broker-state.ts';
import { type ApplyOptions, TOPOLOGY_OPTIONS } from './declare.ts';
import { isSameBinding, type Snapshot, takeSnapshot } from './broker-state.ts';
import {
  describeDifference,
  type Difference,
  differenceOf,
  explainRefusal,
  inFull,
} from './explain.ts';
import type { BindingSpec, ExchangeSpec, QueueSpec, Topology } from './model.ts';

/**
 * `create`: applying makes it. `same`: nothing to do. `different`: applying would stop there.
 * `extra`: ours by its name, and not in the topology. `unknown`: it cannot be seen from here.
 */
type PlanState = 'create' | 'same' | 'different' | 'extra' | 'unknown';

interface PlanItem {
  readonly what: 'exchange' | 'policy' | 'queue' | 'binding';
  /** Of a binding: `exchange → queue (key, arguments)`. */
  readonly name: string;
  readonly state: PlanState;
  /** What differs; without the management API the first only. */
  readonly differences: readonly Difference[];
  /** Why it is extra or unknown. */
  readonly note?: string;
}

/** In the order in which it would be applied; what is extra comes last. */
export interface Plan {
  readonly items: readonly PlanItem[];
  readonly counts: Readonly<Record<PlanState, number>>;
}

/**
 * Compares a topology with the broker.
 *
 * @example
 * import {
 *   applyTopology,
 *   createManagement,
 *   describePlan,
 *   mergeTopologies,
 *   planTopology,
 *   verifyTopology,
 * } from 'respool/rabbit';
 * const management = createManagement({ url: 'http://localhost:15672' });
 * const topology = mergeTopologies([consumer.plan]);
 * for (const line of describePlan(await planTopology(amqp, topology, { management }))) {
 *   console.log(line);
 * }
 * await applyTopology(amqp, topology, { management });
 * const problems = await verifyTopology(amqp, topology, { management });
 */
export async function planTopology(
  connection: AmqpConnection,
  topology: Topology,
  options: ApplyOptions = {},
): Promise<Plan> {
  checkNames('planTopology', options, Object.keys(TOPOLOGY_OPTIONS));
  const { management } = options;
  const items =
    management === undefined
      ? await planByDeclares(connection, topology)
      : await planByManagement(management, topology);
  const counts = { create: 0, same: 0, different: 0, extra: 0, unknown: 0 };
  for (const { state } of items) counts[state] += 1;
  return { items, counts };
}

/** The plan for people: a line for everything that is not the same already, and a sum. */
export function describePlan({ items, counts }: Plan): readonly string[] {
  const lines = items
    .filter(({ state }) => state !== 'same')
    .map(({ what, name, state, differences, note }) => {
      const more = [...differences.map(describeDifference), ...(note === undefined ? [] : [note])];
      const said = more.length === 0 ? '' : `: ${more.join(', ')}`;
      return `${SIGNS[state]} ${state} ${what} ${what === 'binding' ? name : inFull(name)}${said}`;
    });
  const sum = (Object.keys(SIGNS) as PlanState[]).map((state) => `${counts[state]} ${state}`);
  return [...lines, sum.join(', ')];
}

const SIGNS: Readonly<Record<PlanState, string>> = {
  create: '+',
  same: '=',
  different: '!',
  extra: '-',
  unknown: '?',
};

async function planByManagement(management: Management, topology: Topology): Promise<PlanItem[]> {
  const snapshot = await takeSnapshot(management, topology);
  const names = await management.queues({ columns: ['name', 'messages'], detail: 'totals' });
  return [
    ...exchangesOf(topology).map((want) => {
      const have = snapshot.exchanges.get(want.name);
      return item('exchange', want.name, have && compare.exchangeDifferences(want, have));
    }),
    ...topology.policies.map((want) => {
      const have = snapshot.policies.get(want.name);
      return item('policy', want.name, have && compare.policyDifferences(want, have));
    }),
    ...topology.queues.map((want) => {
      const have = snapshot.queues.get(want.name);
      return item('queue', want.name, have && compare.queueDifferences(want, have));
    }),
    ...bindingsOf(topology).map((want) => bindingItem(want, topology, snapshot)),
    ...extraQueues(topology, names).map(({ name, messages }) => ({
      ...item('queue', name, []),
      state: 'extra' as const,
      note: `a wait queue that this topology does not use, with ${messages ?? 'unknown'} messages`,
    })),
    ...extraBindings(topology, snapshot.bindings).map(({ destination, ...binding }) => ({
      ...item('binding', bindingName({ ...binding, queue: destination }), []),
      state: 'extra' as const,
      note: 'it is not in this topology',
    })),
  ];
}

function bindingItem(want: BindingSpec, topology: Topology, snapshot: Snapshot): PlanItem {
  const isThere = snapshot.bindings.some((have) => compare.isSameBinding(want, have));
  const made = item('binding', bindingName(want), isThere ? [] : undefined);
  const { exchange } = want;
  const isOurs = topology.exchanges.some(({ name }) => name === exchange);
  if (isThere || isOurs || snapshot.exchanges.has(exchange)) return made;
  return { ...made, state: 'different', note: noExchange(exchange) };
}

/** undefined differences: it is not there. */
function item(
  what: PlanItem['what'],
  name: string,
  differences: readonly Difference[] | undefined,
): PlanItem {
  if (differences === undefined) return { what, name, state: 'create', differences: [] };
  return { what, name, state: differences.length === 0 ? 'same' : 'different', differences };
}

type Thing =
  | { readonly what: 'exchange'; readonly name: string; readonly want: ExchangeSpec }
  | { readonly what: 'queue'; readonly name: string; readonly want: QueueSpec };

async function planByDeclares(connection: AmqpConnection, topology: Topology): Promise<PlanItem[]> {
  const exchanges = exchangesOf(topology).map(
    (want): Thing => ({ what: 'exchange', name: want.name, want }),
  );
  const queues = topology.queues.map((want): Thing => ({ what: 'queue', name: want.name, want }));
  const found = await askAll(connection, [...exchanges, ...queues]);
  const missing = await missingExchanges(connection, topology);
  const itemOf = (thing: Thing): PlanItem => found.get(thing) ?? item(thing.what, thing.name, []);
  const policies = topology.policies.map(({ name }) => unknown('policy', name));
  const made = [...exchanges, ...queues].map(itemOf);
  const isNew = (what: string, name: string): boolean =>
    made.some((one) => one.what === what && one.name === name && one.state === 'create');
  const bindings = bindingsOf(topology).map((want): PlanItem => {
    const name = bindingName(want);
    const { queue, exchange } = want;
    if (missing.has(exchange)) {
      return { ...unknown('binding', name), state: 'different', note: noExchange(exchange) };
    }
    const isCreated = isNew('queue', queue) || isNew('exchange', exchange);
    return isCreated ? item('binding', name, undefined) : unknown('binding', name);
  });
  return [...exchanges.map(itemOf), ...policies, ...queues.map(itemOf), ...bindings];
}

/** What is not the same; the rest is. */
async function askAll(
  connection: AmqpConnection,
  things: readonly Thing[],
): Promise<ReadonlyMap<Thing, PlanItem>> {
  const found = new Map<Thing, PlanItem>();
  await onParallelChannels(
    connection,
    things,
    async (channel, { what, name, want }) => {
      // Looked for first: declaring what is not there would create it.
      if (what === 'queue') {
        await channel.checkQueue(name);
        await channel.assertQueue(name, want);
      } else {
        await channel.checkExchange(name);
        await channel.assertExchange(name, want.type, want);
      }
    },
    (error, thing) => found.set(thing, refusedItem(error, thing)),
  );
  return found;
}

function refusedItem(error: unknown, { what, name }: Thing): PlanItem {
  const code = refusalCode(error);
  if (code === 404) return item(what, name, undefined);
  const difference = differenceOf(error);
  if (difference !== undefined) return item(what, name, [difference]);
  const explained = explainRefusal(error, { act: 'declare', what, name });
  // Not an answer to this question: the connection is gone.
  if (code === undefined || explained.code === 'broker.unavailable') throw explained;
  return { ...unknown(what, name), note: explained.message };
}

/** Exchanges of other systems that bindings need. */
async function missingExchanges(
  connection: AmqpConnection,
  topology: Topology,
): Promise<ReadonlySet<string>> {
  const ours = new Set(topology.exchanges.map(({ name }) => name));
  const named = new Set(bindingsOf(topology).map(({ exchange }) => exchange));
  const missing = new Set<string>();
  await onParallelChannels(
    connection,
    [...named].filter((name) => !ours.has(name)),
    async (channel, name) => {
      await channel.checkExchange(name);
    },
    (error, name) => {
      if (refusalCode(error) !== 404) {
        throw explainRefusal(error, { act: 'check', what: 'exchange', name });
      }
      missing.add(name);
    },
  );
  return missing;
}

function unknown(what: PlanItem['what'], name: string): PlanItem {
  const note = 'only the management API tells';
  return { what, name, state: 'unknown', differences: [], note };
}

function noExchange(exchange: string): string {
  return `there is no exchange ${inFull(exchange)}, and this topology does not declare it`;
}

/** A headers exchange routes by the arguments, and mostly without a key. */
function bindingName({ queue, exchange, key, arguments: args }: BindingSpec): string {
  const given = Object.entries(args).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  const by = key === '' && given.length > 0 ? given : [`key ${inFull(key)}`, ...given];
  return `${inFull(exchange)} → ${inFull(queue)} (${by.join(', ')})`;
}

/** The default exchange is always there, as are the bindings to it. */
function exchangesOf({ exchanges }: Topology): readonly ExchangeSpec[] {
  return exchanges.filter(({ name }) => name !== '');
}

function bindingsOf({ bindings }: Topology): readonly BindingSpec[] {
  return bindings.filter(({ exchange }) => exchange !== '');
}

// What is at the broker under our names and is not in a topology: wait queues of
// former delays, bindings that were taken out of the settings. Pure.
//
// n.b. Wait queues of shared() and of perDelay({ by: 'exchange' }) serve several queues: what one
// topology does not use may be in use by another.

/** The end of a wait queue's name: a delay, or the number of an attempt. */
const NUMBERED = /^(.*?)(\d+)(ms|s)?$/s;

/** The queues of a topology, by name and role. */
interface Named {
  readonly queues: readonly Pick<QueueSpec, 'name' | 'role'>[];
}

function extraQueues<T extends Pick<QueueInfo, 'name'>>(
  topology: Named,
  there: readonly T[],
): readonly T[] {
  const wanted = new Set(topology.queues.map(({ name }) => name));
  const families = familiesOf(topology);
  return there.filter(({ name }) => !wanted.has(name) && families.has(familyOf(name) ?? ''));
}

/** Bindings between a queue of the topology and an exchange that it does not ask for. */
export function extraBindings(
  { queues, bindings }: Topology,
  there: readonly BindingInfo[],
): readonly BindingInfo[] {
  const names = new Set(queues.map(({ name }) => name));
  return there.filter(
    (have) =>
      have.to === 'queue' &&
      have.exchange !== '' &&
      names.has(have.destination) &&
      !bindings.some((want) => isSameBinding(want, have)),
  );
}

/** What comes before the number in the names of our wait queues, whichever style made them. */
function familiesOf({ queues }: Named): ReadonlySet<string> {
  const families = new Set<string>();
  for (const { name, role } of queues) {
    const family = role === 'wait' ? familyOf(name) : undefined;
    if (family !== undefined) families.add(family);
    if (role !== 'main') continue;
    // A style that was used before.
    for (const ending of ['.delay_', '__retry.', '__retry.wait_']) families.add(name + ending);
  }
  families.delete('');
  return families;
}

function familyOf(name: string): string | undefined {
  return NUMBERED.exec(name)?.[1];
}
