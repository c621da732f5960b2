/**
 * effective — what holds for a queue when its arguments and the policies of the broker are taken
 * together, and where that is not what the topology is built on. Pure.
 *
 * Of two numbers the lower holds; of anything else the argument.
 */

import type { AmqpTable } from '../connection/amqp.ts';
import type { PolicyInfo, QueueInfo } from '../management/management.ts';
import type { PolicySpec, QueueSpec } from './model.ts';
import { DELIVERY_LIMIT_DEFAULT } from './parts.ts';

/** What policies and arguments both can say; as an argument with `x-` before it. */
const SETTINGS = [
  'message-ttl',
  'expires',
  'max-length',
  'max-length-bytes',
  'overflow',
  'dead-letter-exchange',
  'dead-letter-routing-key',
  'dead-letter-strategy',
  'delivery-limit',
] as const;

type Effective = Readonly<Partial<Record<(typeof SETTINGS)[number], unknown>>>;

/** What holds for a queue at the broker that is not what its arguments and our policies say. */
interface OverruledSetting {
  readonly setting: string;
  readonly have: unknown;
  readonly want: unknown;
}

/** What policies of the broker say of a queue. */
interface AppliedPolicy {
  /** Their names. */
  readonly names: readonly string[];
  readonly definition: AmqpTable;
}

/**
 * The policies that hold for a queue, worked out by us: the broker tells them with its counts, up
 * to 5 s after they came into force.
 */
export function appliedPolicy(
  info: QueueInfo,
  policies: readonly PolicyInfo[],
  operatorPolicies: readonly PolicyInfo[],
): AppliedPolicy {
  const own = chosen(info, policies);
  const operators = chosen(info, operatorPolicies);
  if (own === UNREADABLE || operators === UNREADABLE) {
    const names = [info.policy, info.operatorPolicy].filter((name) => name !== undefined);
    return { names, definition: info.policyDefinition };
  }
  const names = [own, operators].flatMap((policy) => policy?.name ?? []);
  const definition: Record<string, unknown> = { ...own?.definition };
  for (const [setting, limit] of Object.entries(operators?.definition ?? {})) {
    definition[setting] = lower(definition[setting], limit) ?? limit;
  }
  return { names, definition };
}

/** Where a policy of the broker makes a queue another one; arguments are compared elsewhere. */
export function overruledSettings(
  spec: QueueSpec,
  policies: readonly PolicySpec[],
  info: QueueInfo,
  applied: AppliedPolicy,
): OverruledSetting[] {
  const want = effectiveOf(spec.arguments, ownPolicy(spec.name, policies));
  const have = effectiveOf(info.arguments, applied.definition);
  return SETTINGS.filter(
    (setting) =>
      want[setting] !== have[setting] &&
      !isUnlimited(setting, applied) &&
      spec.arguments[`x-${setting}`] === info.arguments[`x-${setting}`],
  ).map((setting) => ({ setting, have: have[setting], want: want[setting] }));
}

/** n.b. 3.x takes no such policy; from 4.0 on a negative limit means none, or leaves the other. */
function isUnlimited(setting: string, { definition }: AppliedPolicy): boolean {
  return setting === 'delivery-limit' && Number(definition[setting]) < 0;
}

/** What can lose messages of a queue as it is at the broker; undefined: nothing that we know. */
export function hazardOf(
  info: QueueInfo,
  applied: AppliedPolicy,
  version: string,
): string | undefined {
  const have = effectiveOf(info.arguments, applied.definition);
  if (have['dead-letter-strategy'] === 'at-least-once') {
    if (info.type !== 'quorum') return 'only quorum queues dead-letter at least once';
    if (have.overflow !== 'reject-publish') {
      return (
        'its overflow is not "reject-publish", so that it dead-letters at most once, whatever ' +
        'its strategy says'
      );
    }
  }
  const isLimited = have['delivery-limit'] === undefined && majorOf(version) >= 4;
  if (info.type === 'quorum' && isLimited) {
    return (
      'it has no delivery limit of its own, so that the broker takes ' +
      String(DELIVERY_LIMIT_DEFAULT)
    );
  }
  return undefined;
}

function effectiveOf(args: AmqpTable, policy: AmqpTable): Effective {
  const effective: Record<string, unknown> = {};
  for (const setting of SETTINGS) {
    const [byArgument, byPolicy] = [args[`x-${setting}`], policy[setting]];
    const value = lower(byArgument, byPolicy) ?? byArgument ?? byPolicy;
    if (value !== undefined) effective[setting] = value;
  }
  return effective;
}

function lower(one: unknown, other: unknown): number | undefined {
  return typeof one === 'number' && typeof other === 'number' ? Math.min(one, other) : undefined;
}

function majorOf(version: string): number {
  return Number.parseInt(version, 10) || 0;
}

/** A pattern that only the broker's own engine can read. */
const UNREADABLE: unique symbol = Symbol('unreadable');

/** The broker lets one policy hold: of those that match the one with the highest priority. */
function chosen<T extends Pick<PolicyInfo, 'pattern' | 'priority'>>(
  queue: Pick<QueueInfo, 'name' | 'type'>,
  policies: readonly (T & Partial<Pick<PolicyInfo, 'applyTo'>>)[],
): T | undefined | typeof UNREADABLE {
  const reach = ['all', 'queues', `${queue.type ?? ''}_queues`];
  const candidates = policies.filter(({ applyTo = 'queues' }) => reach.includes(applyTo));
  try {
    const matching = candidates.filter(({ pattern }) => new RegExp(pattern).test(queue.name));
    return matching.toSorted((a, b) => b.priority - a.priority)[0];
  } catch {
    return UNREADABLE;
  }
}

function ownPolicy(name: string, policies: readonly PolicySpec[]): AmqpTable {
  const policy = chosen({ name, type: undefined }, policies);
  return policy === undefined || policy === UNREADABLE ? {} : policy.definition;
}
