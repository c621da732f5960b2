/**
 * as-described — refuses a migration before anything is changed where the old topology is not what
 * its description says: then messages wait in queues that the migration does not know, and would
 * be lost when their way back is removed.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { compileGlob } from '../../core/glob.ts';
import type { QueueInfo, Management } from './management/index.ts';
import { isSameBinding, queueDifferences } from '../topology/compare.ts';
import { type Difference, describeDifference } from '../topology/explain.ts';
import type { QueueSpec, Topology } from '../topology/model.ts';
import { type Inflow, inflowsOf, isTakenOver, type TopologyWorld } from './inflow.ts';
import { brokerStateOf } from './inspect-broker.ts';
import { isInner, type Migration, isReturn } from './migration.ts';

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

/** A main queue has to be exactly as described; around it what decides over messages. */
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
