/**
 * doctor — what is wrong, or could become so, between some plans and the broker that they live on.
 *
 * Promise: changes nothing and takes no message; where one part cannot be looked at, the others
 * still are.
 */

import { show, textOf } from '../../core/errors.ts';
import type { AmqpConnection } from '../connection/amqp.ts';
import { mergeTopologies, type QueuePlan, type Topology } from '../topology/model.ts';
import { takeSnapshot } from '../topology/snapshot.ts';
import { type Problem, verifyTopology } from '../topology/verify.ts';
import { amqpOf, plannedQueues, versionOf, type PlannedQueue } from './inspect-broker.ts';
import type { Management, Permissions } from './management/index.ts';
import { queueFindings } from './queue-safety.ts';
import { bad, type DoctorOptions, type Finding, ok, type SharedWith, warn } from './reports.ts';
import { queueStats } from './stats.ts';

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

/**
 * What the version of the broker means for these queues. Pure; each quirk was tried at a broker of
 * that release or stands in its notes.
 */
export function versionFindings(
  version: string | undefined,
  queues: readonly PlannedQueue[],
): Finding[] {
  const at = parse(version);
  if (version === undefined || at === undefined) {
    return [
      warn(
        'broker.version',
        `the broker says ${show(version)} as its version: what is special in it is not known`,
        'give the management API, or look at the version with: rabbitmqctl version',
      ),
    ];
  }
  const quorum = queues.filter(({ type }) => type === 'quorum');
  const classic = queues.filter(({ type }) => type === 'classic');
  return [
    ok('broker.version', `RabbitMQ ${version}`),
    ...(quorum.length > 0 ? quorumTraps(version, at, quorum) : []),
    ...(classic.length > 0 ? classicTraps(version, at) : []),
    ...cycleTrap(version, at),
    ...(at >= release(4, 0)
      ? [ok('broker.message-size', `${version} takes messages of up to 16 MiB, 3.x up to 128 MiB`)]
      : []),
  ];
}

function quorumTraps(version: string, at: number, quorum: readonly PlannedQueue[]): Finding[] {
  if (at < release(3, 10)) {
    return [
      bad(
        'broker.too-old',
        `RabbitMQ ${version} has no message TTL and no dead-lettering at least once for quorum ` +
          'queues: nothing comes back from a wait queue',
        'upgrade to 3.10 or later, or use classic queues',
      ),
    ];
  }
  const late =
    at < release(4, 3)
      ? [
          warn(
            'broker.restart',
            `after a restart of RabbitMQ ${version} retries can come up to 3 minutes late: it ` +
              'begins to dead-letter before its exchanges are there, and tries again every ' +
              '3 minutes (seen on 3.10 and 4.0, not on 4.3; 4.1 and 4.2 are not known)',
            'nothing is lost; watch "leaving" in respool rabbit stats, or upgrade to 4.3',
          ),
        ]
      : [];
  return [...late, ...limitTraps(version, at, quorum)];
}

function limitTraps(version: string, at: number, quorum: readonly PlannedQueue[]): Finding[] {
  const limitOf = ({ spec }: PlannedQueue): unknown => spec.arguments['x-delivery-limit'];
  const isModern = at >= release(4, 0);
  const negative = quorum.filter((queue) => Number(limitOf(queue)) < 0);
  if (negative.length > 0 && !isModern) {
    return [
      bad(
        'queue.delivery-limit',
        `x-delivery-limit is negative for ${namesOf(negative)}: RabbitMQ ${version} gives up ` +
          'every message there at its first return',
        'use a large number, such as 1000000',
      ),
    ];
  }
  const without = quorum.filter((queue) => limitOf(queue) === undefined);
  if (!isModern) return [];
  if (without.length === 0) {
    const text = `RabbitMQ ${version} gives up messages after 20 deliveries where no limit is set`;
    return [ok('broker.delivery-limit', `${text}; these queues set their own`)];
  }
  return [
    warn(
      'broker.delivery-limit',
      `RabbitMQ ${version} gives up a message after 20 deliveries where no limit is set: that is ` +
        `so for ${namesOf(without)} unless a policy says otherwise`,
      'set a policy with delivery-limit 1000000 for them',
    ),
  ];
}

function classicTraps(version: string, at: number): Finding[] {
  const strategy = warn(
    'classic.dead-lettering',
    'classic queues dead-letter at most once: a message that comes back from waiting is lost ' +
      'when its queue cannot take it at that moment',
    "use type: 'quorum' where nothing may be lost",
  );
  if (at < release(3, 13)) return [strategy];
  return [
    strategy,
    warn(
      'classic.confirms',
      `a classic queue of RabbitMQ ${version} confirms before the message is on the disk: a ` +
        'power cut can lose it',
      "use type: 'quorum' where nothing may be lost",
    ),
  ];
}

function cycleTrap(version: string, at: number): Finding[] {
  if (at < release(3, 13) || at > release(3, 13, 2)) return [];
  return [
    bad(
      'broker.cycles',
      `RabbitMQ ${version} drops messages that go round between queues, retries among them`,
      'upgrade to 3.13.3 or later',
    ),
  ];
}

function namesOf(queues: readonly PlannedQueue[]): string {
  const names = queues.map(({ spec }) => show(spec.name));
  const shown = names.slice(0, SHOWN_MAX).join(', ');
  return names.length > SHOWN_MAX ? `${shown} and ${names.length - SHOWN_MAX} more` : shown;
}

function release(major: number, minor: number, patch = 0): number {
  return major * 1_000_000 + minor * 1_000 + patch;
}

function parse(version: string | undefined): number | undefined {
  const found = /^(\d+)\.(\d+)(?:\.(\d+))?/.exec(version ?? '');
  if (found === null) return undefined;
  const [, major, minor, patch] = found;
  return release(Number(major), Number(minor), Number(patch ?? 0));
}
