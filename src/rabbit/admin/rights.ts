/** rights — what the user may do beside what a topology needs. Pure. */

import { show } from '../../core/errors.ts';
import type { Permissions } from './management/index.ts';
import type { QueuePlan, Topology } from '../topology/model.ts';
import { bad, ok, warn } from './findings.ts';
import type { Finding } from './reports.ts';

/** The default exchange, as permissions call it. */
const DEFAULT_EXCHANGE = 'amq.default';
const SHOWN_MAX = 5;

interface Need {
  readonly right: 'configure' | 'write' | 'read';
  readonly names: readonly string[];
  /** Without it nothing is consumed or retried; otherwise only declaring is refused. */
  readonly isVital: boolean;
}

export function rightsFindings(
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
    `${todo}; or let somebody else declare it, and consume with declare: 'verify'`,
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
