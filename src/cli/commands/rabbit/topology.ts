/** topology — what the queues need at the broker: verified, planned, applied, dumped, exported. */

import type { Broker } from '../../../config/load/brokers.ts';
import { dumpText, dumpTopology } from '../../../rabbit/admin/dump.ts';
import { applyTopology } from '../../../rabbit/topology/declare.ts';
import { toDefinitions } from '../../../rabbit/topology/definitions.ts';
import { mergeTopologies } from '../../../rabbit/topology/model.ts';
import { describePlan, type Plan, planTopology } from '../../../rabbit/topology/apply-plan.ts';
import { toTerraform } from '../../../rabbit/topology/terraform.ts';
import { verifyTopology } from '../../../rabbit/topology/verify.ts';
import { ask } from '../../ui/confirm.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { chooseQueues } from './queues.ts';
import { type BrokerAccess, reach } from './reach.ts';

/** Prints what differs from the plan; returns 1 if anything does. */
export async function verify(context: CommandContext): Promise<ExitCode> {
  const { out } = context;
  const { loaded, brokers } = await chooseQueues(context);
  let count = 0;
  for (const broker of brokers) {
    const { amqp, management } = await reach(context, loaded, broker);
    const problems = await verifyTopology(amqp, broker.topology, { management });
    count += problems.length;
    if (out.json) {
      // Without the management API only what exists was seen.
      const source = management === undefined ? 'passive' : 'management';
      const notLookedAt = management === undefined ? UNSEEN : [];
      const ok = problems.length === 0;
      await out.object({ broker: broker.address, ok, source, notLookedAt, problems });
      continue;
    }
    for (const { text, todo } of problems) {
      await out.line(`${out.style('red', 'bad')}  ${safe(text)}`);
      await out.line(`     → ${safe(todo)}`);
    }
    if (problems.length === 0) {
      const said = management === undefined ? seenOf(broker) : wellOf(broker);
      await out.line(`${out.style('green', 'ok')}   ${said}`);
    }
  }
  return count > 0 ? EXIT.refused : EXIT.done;
}

/** What a passive declare does not show; see `seenOf`. */
const UNSEEN = ['bindings', 'policies', 'arguments'];

function wellOf(broker: Broker): string {
  return `${countsText(broker)} at ${broker.address}: there, as it should be`;
}

/** Without the management API. */
function seenOf(broker: Broker): string {
  const [exchanges, queues, ...unseen] = partsOf(broker);
  return (
    `${exchanges}, ${queues} at ${broker.address}: there; ${unseen.join(', ')} and all ` +
    'arguments not looked at (needs the management API: --management-url)'
  );
}

/** Prints what applying would do; returns 1 if it would stop. */
export async function plan(context: CommandContext): Promise<ExitCode> {
  const { loaded, brokers } = await chooseQueues(context);
  let isClash = false;
  for (const broker of brokers) {
    const { amqp, management } = await reach(context, loaded, broker);
    const found = await planTopology(amqp, broker.topology, { management });
    await tellPlan(context, broker, found);
    isClash ||= found.counts.different > 0;
  }
  return isClash ? EXIT.refused : EXIT.done;
}

async function tellPlan({ out }: CommandContext, broker: Broker, plan: Plan): Promise<void> {
  if (out.json) {
    await out.object({ broker: broker.address, ...plan });
    return;
  }
  for (const line of describePlan(plan)) await out.line(safe(line));
}

/** Creates what is missing. If anything differs, at any broker, nothing is created. */
export async function apply(context: CommandContext): Promise<ExitCode> {
  const { out } = context;
  if (context.options.flag('dryRun')) return plan(context);
  const { loaded, brokers } = await chooseQueues(context);
  const planned: Planned[] = [];
  for (const broker of brokers) {
    const reached = await reach(context, loaded, broker);
    const { amqp, management } = reached;
    planned.push({
      broker,
      reached,
      found: await planTopology(amqp, broker.topology, { management }),
    });
  }
  const clashes = planned.filter(({ found }) => found.counts.different > 0);
  for (const { broker, found } of clashes) await tellPlan(context, broker, found);
  if (clashes.length > 0) {
    out.note(
      'existing objects that differ are never changed: use other names or options, or migrate',
    );
    return EXIT.refused;
  }
  let isWhole = true;
  for (const one of planned) isWhole = (await applyAt(context, one)) && isWhole;
  return isWhole ? EXIT.done : EXIT.refused;
}

interface Planned {
  readonly broker: Broker;
  readonly reached: BrokerAccess;
  readonly found: Plan;
}

/** Whether everything was made: policies need the management API. */
async function applyAt(
  context: CommandContext,
  { broker, reached, found }: Planned,
): Promise<boolean> {
  const { out } = context;
  const { address, topology } = broker;
  const { amqp, management } = reached;
  const { create, unknown } = found.counts;
  if (create + unknown > 0) {
    if (!out.json) for (const line of describePlan(found)) out.note(safe(line));
    await ask(context, `declare ${countsText(broker)} at ${address}?`);
  }
  const applied = await applyTopology(amqp, topology, { management });
  // `created` is as planned: what was unknown then is not counted.
  if (out.json) await out.object({ broker: address, created: create, ...applied });
  else await out.line(`${countsText(broker)} at ${address}: created ${create}`);
  const missed = applied.policiesNotApplied;
  if (missed.length === 0) return true;
  const names = missed.map((name) => safe(name)).join(', ');
  out.warn(
    `policies need the management API and were not set: ${names}; name it with ` +
      '--management-url, and apply again',
  );
  return false;
}

/** Prints everything as the broker has it, beside what is planned. */
export async function dump(context: CommandContext): Promise<ExitCode> {
  const { io, out } = context;
  const { loaded, brokers } = await chooseQueues(context);
  for (const { plans, address, ...broker } of brokers) {
    const { connection, management } = await reach(context, loaded, { plans, address, ...broker });
    const dumped = await dumpTopology({ connection, management, plans, clock: io.clock });
    if (out.json) await out.object({ broker: address, ...dumped });
    else await out.write(safe(dumpText(dumped), { multiline: true }));
  }
  return EXIT.done;
}

/** Prints what all chosen queues need, as one, without asking a broker. */
export async function exportTopology(context: CommandContext): Promise<ExitCode> {
  const { options, out } = context;
  const { brokers } = await chooseQueues(context);
  const vhosts = [...new Set(brokers.map(({ vhost }) => vhost))];
  const [vhost = '/', second] = vhosts;
  if (second !== undefined) {
    throw new CommandError(
      'usage.invalid',
      `cannot export for several virtual hosts at once (${vhosts.join(', ')}): choose with --queue`,
    );
  }
  const topology = mergeTopologies(brokers.map((one) => one.topology));
  const isTerraform = options.text('format') === 'terraform';
  if (isTerraform) {
    const text = toTerraform(topology, { vhost });
    if (out.json) await out.object({ format: 'terraform', text });
    else await out.write(text.endsWith('\n') ? text : `${text}\n`);
    return EXIT.done;
  }
  const definitions = toDefinitions(topology, { vhost });
  if (out.json) await out.object(definitions);
  else await out.line(JSON.stringify(definitions, null, 2));
  return EXIT.done;
}

interface Size {
  readonly exchanges: number;
  readonly queues: number;
  readonly bindings: number;
  readonly policies: number;
}

function sizeOf({ topology }: Broker): Size {
  const { exchanges, queues, bindings, policies } = topology;
  return {
    exchanges: exchanges.length,
    queues: queues.length,
    bindings: bindings.length,
    policies: policies.length,
  };
}

function countsText(broker: Broker): string {
  return partsOf(broker).join(', ');
}

/** Exchanges and queues first: `seenOf` takes them by position. */
function partsOf(broker: Broker): string[] {
  const { exchanges, queues, bindings, policies } = sizeOf(broker);
  return [
    countText(exchanges, 'exchange', 'exchanges'),
    countText(queues, 'queue', 'queues'),
    countText(bindings, 'binding', 'bindings'),
    ...(policies === 0 ? [] : [countText(policies, 'policy', 'policies')]),
  ];
}

function countText(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`;
}
