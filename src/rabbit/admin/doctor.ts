/**
 * doctor — what is wrong, or could become so, between some plans and the broker that they live on.
 *
 * Promise: changes nothing and takes no message; where one part cannot be looked at, the others
 * still are.
 */

import { show, textOf } from '../../core/errors.ts';
import type { AmqpConnection } from '../connection/amqp.ts';
import { mergeTopologies } from '../topology/merge.ts';
import type { QueuePlan, Topology } from '../topology/model.ts';
import { takeSnapshot } from '../topology/snapshot.ts';
import { type Problem, verifyTopology } from '../topology/verify.ts';
import { amqpOf, plannedQueues, versionOf } from './inspect-broker.ts';
import type { Management, Permissions } from './management/index.ts';
import { queueFindings } from './queue-safety.ts';
import { bad, type DoctorOptions, type Finding, ok, type SharedWith, warn } from './reports.ts';
import { queueStats } from './stats.ts';
import { versionFindings } from './version-quirks.ts';

/** Looks at everything; the worst is not first, related things are together. */
export async function doctor(options: DoctorOptions): Promise<readonly Finding[]> {
  const { management, plans } = options;
  const connection = await amqpOf(options.connection);
  const topology = mergeTopologies(plans);
  const queues = plannedQueues(plans);
  const version = versionOf(connection) ?? (await toldVersion(management));
  const at: At = { options, connection, topology };
  return [
    ...versionFindings(version, queues),
    ...(management === undefined ? [WITHOUT_MANAGEMENT] : await alarms(management)),
    ...(await attempt('topology', () => topologyFindings(at), ASSUMED)),
    ...(await attempt('queues', () => queuesFindings(at))),
    ...(await attempt('stats', () => statsFindings(at))),
    ...(await attempt('user', () => userFindings(at))),
    ...systemsOf(options).flatMap(({ name, unsafe }) =>
      unsafe.map((text) => warn(`compat.${name}`, text, 'goes away when all consumers are moved')),
    ),
    DELETED,
  ];
}

function systemsOf({ compat = [] }: DoctorOptions): SharedWith[] {
  return [compat].flat();
}

interface At {
  readonly options: DoctorOptions;
  readonly connection: AmqpConnection;
  readonly topology: Topology;
}

const WITHOUT_MANAGEMENT = warn(
  'management',
  'without the management API only the existence of queues and exchanges can be seen: not their ' +
    'arguments, bindings, policies, permissions, alarms and what is being dead-lettered',
  'name it: --management-url http://…:15672, or rabbit.managementUrl',
);

/** What is said of a part that could not be looked at. */
const ASSUMED = ', which is assumed, not verified';

/** Nothing can be done about it afterwards, so it is said before. */
const DELETED = ok(
  'queue.deleted',
  'messages in a deleted queue are lost, whatever its settings: let respool ' +
    'rabbit topology migrate or drain empty a queue before',
);

async function toldVersion(management: Management | undefined): Promise<string | undefined> {
  const told = await management?.overview().catch(() => undefined);
  return told?.version;
}

async function alarms(management: Management): Promise<readonly Finding[]> {
  return attempt('alarms', async () => {
    const report = await management.alarms();
    if (report.isWell) return [ok('broker.alarms', 'no alarm of memory or disk')];
    const where = report.alarms.map(({ node, resource }) => `${resource} at ${node}`);
    return [
      bad(
        'broker.alarms',
        `the broker accepts no messages: alarm of ${where.join(', ') || 'some resource'}`,
        'free memory or disk there; nothing is retried until then',
      ),
    ];
  });
}

async function topologyFindings({ options, connection, topology }: At): Promise<Finding[]> {
  const { management } = options;
  const problems = await verifyTopology(connection, topology, { management });
  if (problems.length > 0) return problems.map(problemFinding);
  const { length } = topology.queues;
  const there = `all ${length} queues with their exchanges are there`;
  if (management !== undefined) return [ok('topology', `${there}, and as they should be`)];
  const text = `${there}; their arguments and bindings are assumed, not verified`;
  return [warn('topology', text, WITHOUT_MANAGEMENT.todo)];
}

function problemFinding({ kind, text, todo }: Problem): Finding {
  return bad(kind, text, todo);
}

async function queuesFindings({ options, topology }: At): Promise<Finding[]> {
  const { management, plans } = options;
  if (management === undefined) return [];
  const snapshot = await takeSnapshot(management, topology);
  const planned = plannedQueues(plans);
  const found = queueFindings(planned, snapshot);
  const there = planned.filter(({ spec }) => snapshot.queues.has(spec.name));
  // Where none is there, nothing was looked at: that they are missing is said elsewhere.
  if (found.length > 0 || there.length === 0) return found;
  const which = there.length === planned.length ? 'no queue' : 'no queue that is there';
  return [ok('queues', `${which} can lose what it was given`)];
}

async function statsFindings({ options }: At): Promise<Finding[]> {
  const { connection, management, plans } = options;
  const { hints } = await queueStats({ connection, management, plans });
  return hints
    .filter(({ kind }) => kind !== 'missing')
    .map(({ kind, level, text, todo }) => ({ level, name: `stats.${kind}`, text, todo }));
}

async function userFindings({ options, topology }: At): Promise<Finding[]> {
  const { management, plans } = options;
  if (management === undefined) return [];
  const { user = management.username } = options;
  return rightsFindings(user, await management.permissions(user), { plans, topology });
}

/** One part that fails must not hide the others. */
async function attempt(
  part: string,
  look: () => Promise<readonly Finding[]>,
  instead = '',
): Promise<readonly Finding[]> {
  try {
    return await look();
  } catch (error) {
    const text = `cannot look at ${show(part)}${instead}: ${textOf(error)}`;
    return [warn(`${part}.failed`, text, 'fix what the message names, then check again')];
  }
}

// What the user may do beside what a topology needs. Pure.

/** The default exchange, as permissions call it. */
const DEFAULT_EXCHANGE = 'amq.default';
const SHOWN_MAX = 5;

interface Need {
  readonly right: 'configure' | 'write' | 'read';
  readonly names: readonly string[];
  /** Without it nothing is consumed or retried; otherwise only declaring is refused. */
  readonly isVital: boolean;
}

function rightsFindings(
  user: string,
  permissions: Permissions,
  { plans, topology }: { readonly plans: readonly QueuePlan[]; readonly topology: Topology },
): Finding[] {
  if (permissions.kind === 'hidden') {
    return [
      warn(
        'user.permissions',
        `what the user ${show(user)} may do cannot be seen`,
        'look as an administrator: rabbitmqctl list_user_permissions',
      ),
    ];
  }
  if (permissions.kind === 'none') {
    const todo = 'rabbitmqctl set_permissions';
    return [bad('user.permissions', `the user ${show(user)} may do nothing here`, todo)];
  }
  const found = needsOf(plans, topology).flatMap((need) => {
    const lacking = need.names.filter((name) => !allows(permissions[need.right], name));
    return lacking.length === 0 ? [] : [lackFinding(user, need, lacking)];
  });
  if (found.length > 0) return found;
  return [ok('user.permissions', `the user ${show(user)} may do everything that is needed`)];
}

function needsOf(plans: readonly QueuePlan[], { queues, exchanges, bindings }: Topology): Need[] {
  const queueNames = queues.map(({ name }) => name);
  const exchangeNames = exchanges.map(({ name }) => name);
  const bound = bindings.map(({ exchange }) => exchange).filter((name) => name !== '');
  const deadLetters = queues.map(({ arguments: args }) => args['x-dead-letter-exchange']);
  const leads = deadLetters.filter((name): name is string => typeof name === 'string');
  return [
    { right: 'read', names: plans.map(({ queue }) => queue), isVital: true },
    { right: 'write', names: unique(plans.flatMap(roadsOf)), isVital: true },
    { right: 'configure', names: unique([...queueNames, ...exchangeNames]), isVital: false },
    { right: 'write', names: unique([...queueNames, ...leads.map(named)]), isVital: false },
    { right: 'read', names: unique([...queueNames, ...bound]), isVital: false },
  ];
}

/** The exchanges that messages of a plan are published to. */
function roadsOf(plan: QueuePlan): string[] {
  const waits = plan.waitsMs.map((delayMs) =>
    plan.wait({ delayMs, attempt: 1, routingKey: plan.queue }),
  );
  return [plan.again, plan.dead, plan.parked, ...waits].map(({ exchange }) => named(exchange));
}

function named(exchange: string): string {
  return exchange === '' ? DEFAULT_EXCHANGE : exchange;
}

function lackFinding(user: string, { right, isVital }: Need, lacking: readonly string[]): Finding {
  const shown = lacking.slice(0, SHOWN_MAX).map(show).join(', ');
  const more = lacking.length > SHOWN_MAX ? ` and ${lacking.length - SHOWN_MAX} more` : '';
  const text = `the user ${show(user)} lacks the permission to ${right} ${shown}${more}`;
  const todo = 'give it: rabbitmqctl set_permissions';
  if (isVital) return bad(`user.${right}`, `${text}: messages cannot be retried`, todo);
  return warn(
    `user.${right}`,
    `${text}: it cannot declare the topology`,
    `${todo}; or let an administrator declare it, and consume with declare: 'verify'`,
  );
}

/** n.b. An empty pattern allows nothing, and a pattern may match anywhere in the name. */
function allows(pattern: string, name: string): boolean {
  if (pattern === '') return false;
  try {
    return new RegExp(pattern, 'u').test(name);
  } catch {
    // A pattern that only the broker can read: no reason to warn.
    return true;
  }
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names)];
}
