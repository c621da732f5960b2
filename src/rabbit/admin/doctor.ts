/**
 * doctor — what is wrong, or could become so, between some plans and the broker that they live on:
 * alarms, topology, permissions, the settings of queues, and what its version means for them.
 *
 * Promise: changes nothing and takes no message; where one part cannot be looked at, the others
 * still are.
 *
 * Whether a queue can lose messages follows from its arguments and policies taken together,
 * whichever client declared them.
 */

import { formatDuration } from '../../core/duration.ts';
import { show, textOf } from '../../core/errors.ts';
import { type AmqpConnection, type AmqpTable, versionOf } from '../connection/amqp.ts';
import type { ExchangeInfo, Management, Permissions, QueueInfo } from '../management/management.ts';
import { type Snapshot, takeSnapshot } from '../topology/broker-state.ts';
import { appliedPolicy } from '../topology/effective.ts';
import {
  mergeTopologies,
  type PlannedQueue,
  plannedQueues,
  type QueuePlan,
  type QueueSpec,
  type Topology,
} from '../topology/model.ts';
import { DELIVERY_LIMIT_DEFAULT, DELIVERY_LIMIT_SAFE } from '../topology/parts.ts';
import { type Problem, verifyTopology } from '../topology/verify.ts';
import { amqpOf } from '../connection/connection.ts';
import {
  bad,
  type DoctorOptions,
  type BrokerFinding,
  okBroker,
  type SharedWith,
  warn,
} from './reports.ts';
import { queueStats } from './stats.ts';

/**
 * Looks at everything; the worst is not first, related things are together.
 *
 * @example
 * import { createManagement, doctor, dumpText, dumpTopology, queueStats } from 'respool/rabbit';
 * const management = createManagement({ url: 'http://localhost:15672' });
 * const plans = [consumer.plan];
 * for (const { level, name, text, todo } of await doctor({ connection, management, plans })) {
 *   if (level !== 'ok') console.warn(name, text, todo);
 * }
 * const { hints } = await queueStats({ connection, management, plans });
 * console.log(dumpText(await dumpTopology({ management, plans })), hints);
 */
export async function doctor(options: DoctorOptions): Promise<readonly BrokerFinding[]> {
  const { management, plans } = options;
  const connection = await amqpOf(options.connection);
  const topology = mergeTopologies(plans);
  const queues = plannedQueues(plans);
  const version = versionOf(connection) ?? (await managementVersion(management));
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
const DELETED = okBroker(
  'queue.deleted',
  'messages in a deleted queue are lost, whatever its settings: let respool ' +
    'rabbit topology migrate or drain empty a queue before',
);

async function managementVersion(management: Management | undefined): Promise<string | undefined> {
  const overview = await management?.overview().catch(() => undefined);
  return overview?.version;
}

async function alarms(management: Management): Promise<readonly BrokerFinding[]> {
  return attempt('alarms', async () => {
    const report = await management.alarms();
    if (report.isWell) return [okBroker('broker.alarms', 'no alarm of memory or disk')];
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

async function topologyFindings({ options, connection, topology }: At): Promise<BrokerFinding[]> {
  const { management } = options;
  const problems = await verifyTopology(connection, topology, { management });
  if (problems.length > 0) return problems.map(problemFinding);
  const { length } = topology.queues;
  const there = `all ${length} queues with their exchanges are there`;
  if (management !== undefined) return [okBroker('topology', `${there}, and as they should be`)];
  const text = `${there}; their arguments and bindings are assumed, not verified`;
  return [warn('topology', text, WITHOUT_MANAGEMENT.todo)];
}

function problemFinding({ kind, text, todo }: Problem): BrokerFinding {
  return bad(kind, text, todo);
}

async function queuesFindings({ options, topology }: At): Promise<BrokerFinding[]> {
  const { management, plans } = options;
  if (management === undefined) return [];
  const snapshot = await takeSnapshot(management, topology);
  const planned = plannedQueues(plans);
  const found = queueFindings(planned, snapshot);
  const there = planned.filter(({ spec }) => snapshot.queues.has(spec.name));
  // Where none is there, nothing was looked at: that they are missing is said elsewhere.
  if (found.length > 0 || there.length === 0) return found;
  const which = there.length === planned.length ? 'no queue' : 'no queue that is there';
  return [okBroker('queues', `${which} can lose what it was given`)];
}

async function statsFindings({ options }: At): Promise<BrokerFinding[]> {
  const { connection, management, plans } = options;
  const { hints } = await queueStats({ connection, management, plans });
  return hints
    .filter(({ kind }) => kind !== 'missing')
    .map(({ kind, level, text, todo }) => ({ level, name: `stats.${kind}`, text, todo }));
}

async function userFindings({ options, topology }: At): Promise<BrokerFinding[]> {
  const { management, plans } = options;
  if (management === undefined) return [];
  const { user = management.username } = options;
  return rightsFindings(user, await management.permissions(user), { plans, topology });
}

/** One part that fails must not hide the others. */
async function attempt(
  part: string,
  look: () => Promise<readonly BrokerFinding[]>,
  instead = '',
): Promise<readonly BrokerFinding[]> {
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
): BrokerFinding[] {
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
  return [okBroker('user.permissions', `the user ${show(user)} may do everything that is needed`)];
}

function needsOf(plans: readonly QueuePlan[], { queues, exchanges, bindings }: Topology): Need[] {
  const queueNames = queues.map(({ name }) => name);
  const exchangeNames = exchanges.map(({ name }) => name);
  const bound = bindings.map(({ exchange }) => exchange).filter((name) => name !== '');
  const deadLetters = queues.map(({ arguments: args }) => args['x-dead-letter-exchange']);
  const leads = deadLetters.filter((name): name is string => typeof name === 'string');
  return [
    { right: 'read', names: plans.map(({ queue }) => queue), isVital: true },
    { right: 'write', names: unique(plans.flatMap(exchangesOf)), isVital: true },
    { right: 'configure', names: unique([...queueNames, ...exchangeNames]), isVital: false },
    { right: 'write', names: unique([...queueNames, ...leads.map(named)]), isVital: false },
    { right: 'read', names: unique([...queueNames, ...bound]), isVital: false },
  ];
}

/** The exchanges that messages of a plan are published to. */
function exchangesOf(plan: QueuePlan): string[] {
  const waits = plan.waitsMs.map((delayMs) =>
    plan.wait({ delayMs, attempt: 1, routingKey: plan.queue }),
  );
  return [plan.again, plan.dead, plan.parked, ...waits].map(({ exchange }) => named(exchange));
}

function named(exchange: string): string {
  return exchange === '' ? DEFAULT_EXCHANGE : exchange;
}

function lackFinding(
  user: string,
  { right, isVital }: Need,
  lacking: readonly string[],
): BrokerFinding {
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
): BrokerFinding[] {
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
    okBroker('broker.version', `RabbitMQ ${version}`),
    ...(quorum.length > 0 ? quorumTraps(version, at, quorum) : []),
    ...(classic.length > 0 ? classicTraps(version, at) : []),
    ...cycleTrap(version, at),
    ...(at >= release(4, 0)
      ? [
          okBroker(
            'broker.message-size',
            `${version} takes messages of up to 16 MiB, 3.x up to 128 MiB`,
          ),
        ]
      : []),
  ];
}

function quorumTraps(
  version: string,
  at: number,
  quorum: readonly PlannedQueue[],
): BrokerFinding[] {
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
              '3 minutes (seen on 3.10 and 4.0, not on 4.3; 4.1 and 4.2 were not tested)',
            'nothing is lost; watch "leaving" in respool rabbit stats, or upgrade to 4.3',
          ),
        ]
      : [];
  return [...late, ...limitTraps(version, at, quorum)];
}

function limitTraps(version: string, at: number, quorum: readonly PlannedQueue[]): BrokerFinding[] {
  const limitOf = ({ spec }: PlannedQueue): unknown => spec.arguments['x-delivery-limit'];
  const isModern = at >= release(4, 0);
  const negative = quorum.filter((queue) => Number(limitOf(queue)) < 0);
  if (negative.length > 0 && !isModern) {
    return [
      bad(
        'queue.delivery-limit',
        `x-delivery-limit is negative for ${namesOf(negative)}: RabbitMQ ${version} gives up ` +
          'every message there at its first return',
        `use a large number, such as ${DELIVERY_LIMIT_SAFE}`,
      ),
    ];
  }
  const without = quorum.filter((queue) => limitOf(queue) === undefined);
  if (!isModern) return [];
  if (without.length === 0) {
    const text =
      `RabbitMQ ${version} gives up messages after ${DELIVERY_LIMIT_DEFAULT} deliveries where no ` +
      'limit is set';
    return [okBroker('broker.delivery-limit', `${text}; these queues set their own`)];
  }
  return [
    warn(
      'broker.delivery-limit',
      `RabbitMQ ${version} gives up a message after ${DELIVERY_LIMIT_DEFAULT} deliveries where ` +
        `no limit is set: that is so for ${namesOf(without)} unless a policy says otherwise`,
      `set a policy with delivery-limit ${DELIVERY_LIMIT_SAFE} for them`,
    ),
  ];
}

function classicTraps(version: string, at: number): BrokerFinding[] {
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

function cycleTrap(version: string, at: number): BrokerFinding[] {
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

/** A lower limit is reached by a consumer that crashes again and again. */
const DELIVERY_LIMIT_LOW = 1_000;

/** What is unsafe about the queues of plans, in their order. */
function queueFindings(queues: readonly PlannedQueue[], snapshot: Snapshot): BrokerFinding[] {
  return queues.flatMap(({ spec }) => {
    const info = snapshot.queues.get(spec.name);
    if (info === undefined) return [];
    const queue: Judged = { spec, info, of: settingsOf(info, snapshot) };
    return [
      ...typeFinding(queue),
      ...stateFinding(queue),
      ...strategyFinding(queue),
      ...dropFinding(queue),
      ...limitFinding(queue, snapshot.version),
      ...lifeFinding(queue),
      ...returnFinding(queue, snapshot),
    ];
  });
}

interface Judged {
  readonly spec: QueueSpec;
  readonly info: QueueInfo;
  /** What holds, by the name that policies use. */
  readonly of: (setting: string) => unknown;
}

/** Of two numbers the lower holds; of anything else the argument. */
function settingsOf(info: QueueInfo, snapshot: Snapshot): (setting: string) => unknown {
  const policies = [...snapshot.policies.values()];
  const { definition } = appliedPolicy(info, policies, snapshot.operatorPolicies);
  return (setting) => {
    const [one, other] = [info.arguments[`x-${setting}`], definition[setting]];
    if (typeof one === 'number' && typeof other === 'number') return Math.min(one, other);
    return one ?? other;
  };
}

function typeFinding({ spec, info }: Judged): BrokerFinding[] {
  const wanted = spec.arguments['x-queue-type'];
  if (wanted === undefined || info.type === undefined || wanted === info.type) return [];
  return [
    bad(
      'queue.type',
      `the queue ${show(spec.name)} is of type ${info.type}, planned is ${show(wanted)}`,
      'move to a queue of another name: respool rabbit topology migrate',
    ),
  ];
}

function stateFinding({ spec, info }: Judged): BrokerFinding[] {
  const { state } = info;
  if (state === undefined || state === 'running' || state === 'idle') return [];
  return [
    bad(
      'queue.state',
      `the queue ${show(spec.name)} is ${show(state)}, not running`,
      'see that its nodes are up: rabbitmq-diagnostics cluster_status',
    ),
  ];
}

function strategyFinding({ spec, info, of }: Judged): BrokerFinding[] {
  if (info.type !== 'quorum' || of('dead-letter-exchange') === undefined) return [];
  const isAsked = of('dead-letter-strategy') === 'at-least-once';
  if (isAsked && of('overflow') === 'reject-publish') return [];
  const why = isAsked
    ? 'it asks for at least once, which is not in force without overflow reject-publish'
    : 'its strategy is not at-least-once';
  return [
    bad(
      'queue.strategy',
      `the ${spec.role} queue ${show(spec.name)} dead-letters at most once: ${why}`,
      'set a policy with dead-letter-strategy at-least-once and overflow reject-publish',
    ),
  ];
}

function dropFinding({ spec, of }: Judged): BrokerFinding[] {
  const limit = of('max-length') ?? of('max-length-bytes');
  const overflow = of('overflow');
  if (limit === undefined || String(overflow).startsWith('reject-publish')) return [];
  return [
    bad(
      'queue.drops',
      `the ${spec.role} queue ${show(spec.name)} has a length limit of ${show(limit)} and drops ` +
        'its oldest messages when it is full',
      'set overflow reject-publish: then publishers are refused, and keep the message',
    ),
  ];
}

function limitFinding({ spec, info, of }: Judged, version: string): BrokerFinding[] {
  if (info.type !== 'quorum') return [];
  const isModern = Number.parseInt(version, 10) >= 4;
  const limit = of('delivery-limit') ?? (isModern ? DELIVERY_LIMIT_DEFAULT : undefined);
  if (typeof limit !== 'number' || limit >= DELIVERY_LIMIT_LOW) return [];
  // n.b. There −1 means without limit.
  if (limit < 0 && isModern) return [];
  const isKept = of('dead-letter-exchange') !== undefined;
  const todo =
    `set a policy with delivery-limit ${DELIVERY_LIMIT_SAFE}, or such an argument in a new ` +
    'queue';
  const what = `the ${spec.role} queue ${show(spec.name)} has a delivery limit of ${limit}`;
  if (limit < 0) {
    return [bad('queue.delivery-limit', `${what}: 3.x gives up at the first return`, todo)];
  }
  return [
    isKept
      ? warn('queue.delivery-limit', `${what}: a crash costs every message in hand one`, todo)
      : bad('queue.delivery-limit', `${what} and no dead-letter exchange: then it is lost`, todo),
  ];
}

/** What ends messages, or the queue with them, by time alone. */
function lifeFinding({ spec, of }: Judged): BrokerFinding[] {
  const found: BrokerFinding[] = [];
  const expires = of('expires');
  if (typeof expires === 'number') {
    const span = formatDuration(expires);
    found.push(
      bad(
        'queue.expires',
        `the ${spec.role} queue ${show(spec.name)} is deleted with its messages when no consumer ` +
          `uses it for ${span}`,
        'take "expires" out of its policy or arguments',
      ),
    );
  }
  const ttl = of('message-ttl');
  const planned = spec.arguments['x-message-ttl'];
  if (typeof ttl !== 'number' || ttl === planned) return found;
  const isShorter = spec.role === 'wait' && typeof planned === 'number';
  if (spec.role === 'wait' && !isShorter) return found;
  const what = `the ${spec.role} queue ${show(spec.name)} has a TTL of ${formatDuration(ttl)}`;
  const todo = 'keep the pattern of that policy off this queue';
  return [
    ...found,
    isShorter
      ? bad('queue.ttl', `${what} instead of ${formatDuration(planned)}: retries are early`, todo)
      : bad('queue.ttl', `${what}: messages that are not consumed in time are removed`, todo),
  ];
}

/** Without an alternate exchange 32 messages that no queue takes stop a whole wait queue. */
function returnFinding({ spec, of }: Judged, snapshot: Snapshot): BrokerFinding[] {
  if (spec.role !== 'wait') return [];
  const name = of('dead-letter-exchange');
  const what = `the wait queue ${show(spec.name)}`;
  const apply = 'declare the topology: respool rabbit topology apply';
  if (typeof name !== 'string') {
    return [bad('queue.return', `${what} leads nowhere: its messages are dropped`, apply)];
  }
  if (name === '') {
    const todo = 'use a topology of our own, or watch "leaving" in respool rabbit stats';
    const text =
      `${what} leads back through the default exchange, which cannot have an alternate: 32 ` +
      'messages whose queue is gone stop all behind them';
    return [warn('exchange.alternate', text, todo)];
  }
  const exchange = snapshot.exchanges.get(name);
  if (exchange === undefined) {
    return [bad('queue.return', `${what} leads to ${show(name)}, which does not exist`, apply)];
  }
  if (alternateOf(exchange, snapshot) !== undefined) return [];
  const text =
    `${what} leads back through the exchange ${show(name)}, which has no alternate exchange: 32 ` +
    'messages that no queue takes stop all behind them';
  return [warn('exchange.alternate', text, 'give it one by a policy (alternate-exchange)')];
}

function alternateOf({ policy, arguments: args }: ExchangeInfo, snapshot: Snapshot): unknown {
  const definition: AmqpTable = snapshot.policies.get(policy ?? '')?.definition ?? {};
  return args['alternate-exchange'] ?? definition['alternate-exchange'];
}
