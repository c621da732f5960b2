/**
 * inflow — what else leads into the queues that a migration is to remove: queues that dead-letter
 * there, by argument, policy or operator policy, and exchanges that pass messages on, by a binding
 * or as alternate. Also which exchanges something still sends to, so that remove.ts keeps them.
 *
 * And whether the old topology is what its description says: otherwise messages wait in queues that
 * the migration does not know, and would be lost when their way back is removed; so it is refused
 * before anything is changed.
 *
 *   unknown queue ─dead-letter exchange─▶ exchange ─bindings, alternates─▶ queue to be removed
 *                └─default exchange, by its key, or by the key of each message ─┘
 */

import { RespoolError, show } from '../../core/errors.ts';
import { compileGlob } from '../../core/glob.ts';
import type { AmqpTable } from '../connection/amqp.ts';
import type {
  BindingInfo,
  ExchangeInfo,
  Management,
  PolicyInfo,
  QueueInfo,
} from '../management/management.ts';
import { brokerStateOf, isSameBinding, queueDifferences } from '../topology/broker-state.ts';
import { appliedPolicy } from '../topology/effective.ts';
import { type Difference, describeDifference } from '../topology/explain.ts';
import type { QueueSpec, Topology } from '../topology/model.ts';
import { isInner, isReturn, type Migration, type Move } from './old-topology.ts';

/** What the broker has, in the whole virtual host. */
interface TopologyWorld {
  readonly queues: readonly QueueInfo[];
  readonly exchanges: ReadonlyMap<string, ExchangeInfo>;
  readonly bindings: readonly BindingInfo[];
  readonly policies: readonly PolicyInfo[];
  readonly operatorPolicies: readonly PolicyInfo[];
}

/** A way into a queue that is to be removed, from something that no topology describes. */
export interface Inflow {
  readonly kind: 'queue' | 'exchange';
  readonly source: string;
  /** The queue that is to be removed. */
  readonly target: string;
  /** False: it depends on each message, and only messages in the source can show it. */
  readonly isCertain: boolean;
  /** What the source holds; undefined: not counted yet, or an exchange. */
  readonly messages: number | undefined;
}

/** Every way from something unknown into a queue that leaves. */
function inflowsOf(move: Move, world: TopologyWorld): Inflow[] {
  const leaving = new Set(move.leaving.map(({ name }) => name));
  if (leaving.size === 0) return [];
  const known = new Set([...leaving, ...move.topology.queues.map(({ name }) => name)]);
  const map: RouteMap = { move, world, leaving };
  const byQueue = world.queues
    .filter(({ name }) => !known.has(name))
    .flatMap((queue) => queueInflows(queue, map));
  return [...byQueue, ...exchangeInflows(map)];
}

/** Exchanges that something still sends to: bindings, dead-lettering, alternates. */
export function usedExchanges(world: TopologyWorld): ReadonlySet<string> {
  return new Set([
    ...world.bindings.flatMap(({ exchange, destination, to }) =>
      to === 'exchange' ? [exchange, destination] : [exchange],
    ),
    ...world.queues.flatMap((queue) => deadLettersOf(queue, world).map(({ exchange }) => exchange)),
    ...[...world.exchanges.values()].flatMap((exchange) => alternatesOf(exchange, world)),
  ]);
}

interface RouteMap {
  readonly move: Move;
  readonly world: TopologyWorld;
  readonly leaving: ReadonlySet<string>;
}

function queueInflows(queue: QueueInfo, map: RouteMap): Inflow[] {
  const { name, messages } = queue;
  const isTimed = valuesOf(queue, 'message-ttl', map.world).length > 0;
  const reached = deadLettersOf(queue, map.world).flatMap(({ exchange, key }) =>
    reach({ exchange, key, isCertain: true, passed: [] }, map),
  );
  return (
    reached
      // n.b. Left out: remove.ts keeps the old queue while these hold messages (`sharedWaitOf`).
      .filter(({ isCertain, isWayBack }) => isCertain || !isWayBack || !isTimed)
      .map(({ target, isCertain }) => ({
        kind: 'queue',
        source: name,
        target,
        isCertain,
        messages,
      }))
  );
}

function exchangeInflows(map: RouteMap): Inflow[] {
  const { move, world } = map;
  const described = [...(move.described?.exchanges ?? []), ...move.topology.exchanges];
  const known = new Set(described.map(({ name }) => name));
  return [...world.exchanges.values()].flatMap((exchange): Inflow[] => {
    const { name } = exchange;
    if (name === '' || known.has(name)) return [];
    const bound = world.bindings.filter((one) => one.exchange === name && one.to === 'exchange');
    const next = [...alternatesOf(exchange, world), ...bound.map((one) => one.destination)];
    return next
      .flatMap((to) => reach({ exchange: to, key: undefined, isCertain: false, passed: [] }, map))
      .map(({ target }) => ({
        kind: 'exchange',
        source: name,
        target,
        isCertain: true,
        messages: undefined,
      }));
  });
}

interface Step {
  readonly exchange: string;
  /** Undefined: the routing key of each message. */
  readonly key: string | undefined;
  readonly isCertain: boolean;
  readonly passed: readonly string[];
}

interface Reached {
  readonly target: string;
  readonly isCertain: boolean;
  /** By the binding that leads back from the described wait queues. */
  readonly isWayBack: boolean;
}

function reach({ exchange, key, isCertain, passed }: Step, map: RouteMap): Reached[] {
  const { world, leaving } = map;
  if (exchange === '') {
    const targets = key === undefined ? [...leaving] : [key].filter((name) => leaving.has(name));
    const isSure = isCertain && key !== undefined;
    return targets.map((target) => ({ target, isCertain: isSure, isWayBack: false }));
  }
  const info = world.exchanges.get(exchange);
  if (info === undefined || passed.includes(exchange)) return [];
  const on = { key, passed: [...passed, exchange] };
  const found: Reached[] = [];
  let isTaken = false;
  for (const binding of world.bindings) {
    if (binding.exchange !== exchange) continue;
    const fit = fits(info.type, binding.key, key);
    if (fit === 'no') continue;
    isTaken ||= fit === 'yes';
    const isSure = isCertain && fit === 'yes';
    if (binding.to === 'exchange') {
      found.push(...reach({ ...on, exchange: binding.destination, isCertain: isSure }, map));
    } else if (leaving.has(binding.destination) && !isTakenOver(binding, map.move)) {
      const isWayBack = isReturn(binding, map.move);
      found.push({ target: binding.destination, isCertain: isSure, isWayBack });
    }
  }
  if (isTaken) return found;
  const alternates = alternatesOf(info, world);
  const beyond = alternates.flatMap((to) => reach({ ...on, exchange: to, isCertain: false }, map));
  return [...found, ...beyond];
}

/** Whether a binding takes a message with this key. */
function fits(type: string, pattern: string, key: string | undefined): 'yes' | 'maybe' | 'no' {
  if (type === 'fanout') return 'yes';
  if (type === 'topic' && pattern === '#') return 'yes';
  if (key === undefined || (type !== 'direct' && type !== 'topic')) return 'maybe';
  if (type === 'direct') return pattern === key ? 'yes' : 'no';
  return fitsTopic(pattern.split('.'), key.split('.')) ? 'yes' : 'no';
}

function fitsTopic(pattern: readonly string[], words: readonly string[]): boolean {
  const [first, ...rest] = pattern;
  if (first === undefined) return words.length === 0;
  if (first === '#') {
    return fitsTopic(rest, words) || (words.length > 0 && fitsTopic(pattern, words.slice(1)));
  }
  const [word, ...more] = words;
  return word !== undefined && (first === '*' || first === word) && fitsTopic(rest, more);
}

/** The new main queue has the same binding: what comes by it is not lost with the old one. */
export function isTakenOver(binding: BindingInfo, { mains, topology }: Move): boolean {
  const queue = mains.get(binding.destination);
  if (queue === undefined) return false;
  const successor = { ...binding, destination: queue };
  return topology.bindings.some((one) => isSameBinding(one, successor));
}

/** Where a queue dead-letters to. */
function deadLettersOf(queue: QueueInfo, world: TopologyWorld): Pick<Step, 'exchange' | 'key'>[] {
  const exchanges = valuesOf(queue, 'dead-letter-exchange', world).map(String);
  const keys = valuesOf(queue, 'dead-letter-routing-key', world).map(String);
  const all = keys.length === 0 ? [undefined] : keys;
  return exchanges.flatMap((exchange) => all.map((key) => ({ exchange, key })));
}

/**
 * A setting of a queue: the argument, else what policies say. What the broker says of them may be
 * 5 s old, and what we work out misses policies that this user may not see: both count.
 */
function valuesOf(queue: QueueInfo, setting: string, world: TopologyWorld): unknown[] {
  const argument = queue.arguments[`x-${setting}`];
  if (argument !== undefined) return [argument];
  const { definition } = appliedPolicy(queue, world.policies, world.operatorPolicies);
  const said = [definition[setting], queue.policyDefinition[setting]];
  return [...new Set(said.filter((value) => value !== undefined))];
}

function alternatesOf(
  { name, policy, arguments: args }: ExchangeInfo,
  world: TopologyWorld,
): string[] {
  const argument = args['alternate-exchange'];
  if (typeof argument === 'string') return [argument];
  const definitions: AmqpTable[] = world.policies
    .filter((one) => one.name === policy || appliesTo(one, name))
    .map(({ definition }) => definition);
  const named = definitions.map((definition) => definition['alternate-exchange']);
  return [...new Set(named.filter((value) => typeof value === 'string'))];
}

/** n.b. Any that matches: the broker reports only later which of several applies. */
function appliesTo({ applyTo, pattern }: PolicyInfo, exchange: string): boolean {
  if (applyTo !== 'all' && applyTo !== 'exchanges') return false;
  try {
    return new RegExp(pattern).test(exchange);
  } catch {
    return true;
  }
}

/** Arguments that decide when and to where a queue lets go of its messages. */
const ROUTING = ['x-message-ttl', 'x-dead-letter-exchange', 'x-dead-letter-routing-key'];

/** Everything in the virtual host, freshly queried. */
export async function worldOf(management: Management): Promise<TopologyWorld> {
  management.forget();
  const [surroundings, queues, operatorPolicies] = await Promise.all([
    brokerStateOf(management),
    management.queues(),
    management.operatorPolicies(),
  ]);
  return { ...surroundings, queues, operatorPolicies };
}

/** Throws where the broker has something else than what is described, or more. */
export async function checkAsDescribed(migration: Migration): Promise<void> {
  const { management } = migration.options;
  // Without the management API nothing is removed.
  if (management === undefined) return;
  const world = await worldOf(management);
  const { described } = migration.move;
  if (described !== undefined) checkDescribed(described, migration, world);
  const [inflow] = openInflows(migration, world);
  if (inflow !== undefined) throw refusal(whyInflow(inflow));
}

/** Queues and exchanges that may still route messages into the old queues. */
export function openInflows({ move, options }: Migration, world: TopologyWorld): Inflow[] {
  const globs = (options.unrelated ?? []).map((pattern) => compileGlob(pattern));
  return inflowsOf(move, world).filter(
    ({ source, isCertain, messages }) =>
      isCertain || (messages !== 0 && !globs.some((glob) => glob.match(source) !== undefined)),
  );
}

/** Why a queue cannot be removed, and what to do. */
export function whyInflow({ kind, source, target, isCertain, messages }: Inflow): string {
  const [from, into] = [show(source), show(target)];
  if (kind === 'exchange') {
    return (
      `the exchange ${from}, which is not in the old topology, passes messages on to the old ` +
      `queue ${into}; unbind it or take its alternate exchange off, and run again`
    );
  }
  const holds = messages === undefined ? 'may hold messages' : `holds ${messages} messages`;
  if (isCertain) {
    return (
      `the queue ${from}, which is not in the old topology and ${holds}, dead-letters to the old ` +
      `queue ${into}; describe it (a wait queue: name its delay with --from-delays), or let it ` +
      'run empty and delete it, and run again'
    );
  }
  return (
    `the queue ${from}, which is not in the old topology, ${holds} that may be dead-lettered to ` +
    `the old queue ${into}; describe the old topology with it, wait until it is empty, or, when ` +
    `its messages are none of the old queues, say so (--unrelated ${source}), and run again`
  );
}

function checkDescribed(described: Topology, migration: Migration, world: TopologyWorld): void {
  const there = new Map(world.queues.map((queue) => [queue.name, queue]));
  for (const spec of described.queues) {
    const info = there.get(spec.name);
    const differences = info === undefined ? [] : differencesOf(spec, info);
    if (differences.length > 0) throw different('queue', spec.name, differences);
  }
  for (const { name, type } of described.exchanges) {
    const have = world.exchanges.get(name)?.type;
    if (have === undefined || have === type) continue;
    throw different('exchange', name, [{ argument: 'type', have, want: type }]);
  }
  checkBindings(described, migration, world);
}

/** A main queue must match exactly; of the queues around it, only what routes messages. */
function differencesOf(spec: QueueSpec, info: QueueInfo): Difference[] {
  const all = queueDifferences(spec, info);
  return spec.role === 'main' ? all : all.filter(({ argument }) => ROUTING.includes(argument));
}

/** n.b. Bindings that are missing are not refused: a run before this one may have ended them. */
function checkBindings({ bindings }: Topology, { move }: Migration, world: TopologyWorld): void {
  const mains = new Set(move.leaving.filter(({ role }) => role === 'main').map(nameOf));
  for (const have of world.bindings) {
    const isMain = have.to === 'queue' && mains.has(have.destination);
    const isKnown =
      bindings.some((one) => isSameBinding(one, have)) ||
      isInner(have.exchange, move) ||
      isReturn(have, move) ||
      isTakenOver(have, move);
    if (!isMain || isKnown) continue;
    throw refusal(
      `the old queue ${show(have.destination)} is bound to the exchange ${show(have.exchange)} ` +
        `by the key ${show(have.key)}, which is not in its description; describe it (a binding ` +
        `for both queues: --binding ${have.exchange}:${have.key}), or unbind it, and run again`,
    );
  }
}

function nameOf({ name }: { readonly name: string }): string {
  return name;
}

function different(
  what: 'exchange' | 'queue',
  name: string,
  differences: readonly Difference[],
): RespoolError {
  const said = differences.map(describeDifference).join(', ');
  return refusal(
    `the old ${what} ${show(name)} is not as described: ${said}; describe the old topology as it ` +
      'is (--from-topology, --from-compat, --from-type, --from-delays; a program gives every ' +
      'name and argument in "from"), or leave this queue as it is',
  );
}

function refusal(why: string): RespoolError {
  return new RespoolError('topology.mismatch', `cannot migrate: ${why}. Nothing was changed`);
}
