/**
 * delivery-limit — what it costs to look into a queue. A quorum queue counts what is given back,
 * and drops a message that was delivered more often than its limit: looking is refused where that
 * can happen, or where it is unknown whether it can. Also whether no other client holds messages of
 * the queue.
 *
 * By experiment: 3.10.8 and 4.0.5 count a nack and the end of a channel alike; 4.3.6 counts only
 * the latter. 4.x has a limit of 20 where none is set; a negative one means no limit there, and
 * gives up at the first return on 3.x. Of an argument and a policy the lower holds.
 *
 * Called by queue-letters.ts and sweep-queue.ts; `hasNoOtherConsumer` by the former alone.
 *
 * Why: docs/decisions/0036-looking-is-refused-when-it-could-drop.md
 */

import { show } from '../../core/errors.ts';
import type { Caution } from '../../ports/dead-letters.ts';
import type { PolicyInfo, QueueInfo, Management } from '../management/management.ts';
import { appliedPolicy } from '../topology/effective.ts';
import { inFull, quoteName } from '../topology/explain.ts';
import { DELIVERY_LIMIT_DEFAULT, DELIVERY_LIMIT_SAFE } from '../topology/parts.ts';
import type { Clock } from '../../ports/clock.ts';
import { sleep } from '../../system/wait.ts';
import { type AmqpConnection, passiveQueues } from '../connection/amqp.ts';

/** Of which queue, and who can tell. */
interface CautionOptions {
  readonly queue: string;
  readonly management: Management | undefined;
  /** Of the broker, as it said when the connection was opened; asked for when it is not known. */
  readonly version: string | undefined;
  /** The caller's assurance that looking drops nothing; used if the limit is unknown. */
  readonly isTrusted?: boolean;
}

/** Asks the management API what holds for a queue, and judges it. */
export async function cautionOf(options: CautionOptions): Promise<Caution> {
  const { queue, management, isTrusted = false } = options;
  if (management === undefined) {
    return isTrusted
      ? TRUSTED
      : unknownCaution(queue, 'there is no management API to ask', 'give its URL');
  }
  const info = await management.queue(queue);
  if (info === undefined) {
    const vhost = inFull(management.vhost);
    const why = `the management API has no such queue in the virtual host ${vhost}`;
    return isTrusted ? TRUSTED : unknownCaution(queue, why, 'check both');
  }
  if (info.type !== 'quorum') return judgeCaution({ info, vhost: management.vhost, ...NOTHING });
  const [version, [policies, operatorPolicies]] = await Promise.all([
    options.version ?? management.overview().then((overview) => overview.version),
    // n.b. Only a policymaker may list them; without them effective definitions are still shown,
    // which know both: one without the other could miss a limit.
    Promise.all([management.policies(), management.operatorPolicies()]).catch(
      () => [undefined, []] as const,
    ),
  ]);
  return judgeCaution({ info, version, policies, operatorPolicies, vhost: management.vhost });
}

/** A queue as it is at the broker. */
interface CautionFacts {
  readonly info: QueueInfo;
  readonly version: string;
  /** undefined: they may not be seen. */
  readonly policies: readonly PolicyInfo[] | undefined;
  readonly operatorPolicies: readonly PolicyInfo[];
  readonly vhost: string;
}

/** What looking costs. Pure. */
export function judgeCaution(facts: CautionFacts): Caution {
  const { info, version } = facts;
  if (info.type === 'classic' || info.type === undefined) return { kind: 'free' };
  if (info.type !== 'quorum') {
    return {
      kind: 'refused',
      text: `it is of type ${show(info.type)}, out of which no single message can be taken`,
      remedy: 'use a quorum queue for dead messages',
    };
  }
  const [major = 0, minor = 0] = version.split('.').map((part) => Number.parseInt(part, 10) || 0);
  if (major > 4 || (major === 4 && minor >= 3)) return { kind: 'free' };
  const limits = limitsOf(facts);
  const limit = effectiveLimit(limits, major);
  if (limit !== undefined && limit < DELIVERY_LIMIT_SAFE) {
    return {
      kind: 'refused',
      text: whyRefused(limit, limits, major),
      remedy: remedyOf(facts, limits),
    };
  }
  const what = limit === undefined ? 'no delivery limit' : `a delivery limit of ${limit}`;
  return {
    kind: 'counted',
    text: `RabbitMQ ${version} counts each look as a delivery; with ${what} nothing comes of it`,
  };
}

interface Limits {
  readonly argument: number | undefined;
  readonly policy: number | undefined;
  readonly operator: number | undefined;
}

function limitsOf({ info, policies, operatorPolicies }: CautionFacts): Limits {
  // The broker itself says what both policies add up to, a little late.
  const own =
    policies === undefined ? info.policyDefinition : appliedPolicy(info, policies, []).definition;
  return {
    argument: numberOr(info.arguments['x-delivery-limit']),
    policy: numberOr(own['delivery-limit']),
    operator: numberOr(appliedPolicy(info, [], operatorPolicies).definition['delivery-limit']),
  };
}

function numberOr(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}

/** undefined: there is none. */
function effectiveLimit({ argument, policy, operator }: Limits, major: number): number | undefined {
  const all = [argument, policy, operator].filter((limit) => limit !== undefined);
  if (major < 4) return all.length === 0 ? undefined : Math.min(...all);
  if (all.length === 0) return DELIVERY_LIMIT_DEFAULT;
  const real = all.filter((limit) => limit >= 0);
  return real.length === 0 ? undefined : Math.min(...real);
}

function whyRefused(limit: number, { argument, policy, operator }: Limits, major: number): string {
  if (limit < 0) return `its delivery limit is ${limit}, and ${major}.x drops at the first return`;
  const isSet = argument ?? policy ?? operator;
  const whose = isSet === undefined ? 'the broker gives it' : 'it has';
  return `${whose} a delivery limit of ${limit}: looked at more often, a message is dropped`;
}

/**
 * What to do; commands stand on lines of their own, to be copied.
 *
 * n.b. One policy holds for a queue: the new one has to say what the present one says.
 */
function remedyOf(facts: CautionFacts, limits: Limits): string {
  const { info, policies, operatorPolicies, vhost } = facts;
  if (limits.argument !== undefined && limits.argument < DELIVERY_LIMIT_SAFE) {
    return (
      `its argument x-delivery-limit is ${limits.argument}, which no policy can lift: move its ` +
      `messages to a queue with x-delivery-limit ${DELIVERY_LIMIT_SAFE}`
    );
  }
  if (limits.operator !== undefined && limits.operator < DELIVERY_LIMIT_SAFE) {
    const [operators] = appliedPolicy(info, [], operatorPolicies).names;
    const remedy = `lift "delivery-limit" in the operator policy ${show(operators)}`;
    return `${remedy}\nrun: rabbitmqctl set_operator_policy`;
  }
  const present = appliedPolicy(info, policies ?? [], []);
  const [name] = present.names;
  const priority = (policies?.find((policy) => policy.name === name)?.priority ?? 0) + 1;
  const definition = { ...present.definition, 'delivery-limit': DELIVERY_LIMIT_SAFE };
  const pattern = `^${info.name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
  const policy = { pattern, definition, priority, 'apply-to': 'queues' };
  const own = `respool-limit-${info.name}`;
  return (
    'lift it by a policy\n' +
    `run: rabbitmqctl set_policy -p ${quoteName(vhost)} --priority ${priority} --apply-to queues ` +
    `${quoteName(own)} ${quoteName(pattern)} ${quoteName(JSON.stringify(definition))}\n` +
    `or run over HTTP: PUT /api/policies/${encodeURIComponent(vhost)}/${encodeURIComponent(own)} ` +
    JSON.stringify(policy)
  );
}

const NOTHING = { version: '', policies: [], operatorPolicies: [] } as const;

const TRUSTED: Caution = {
  kind: 'counted',
  text: 'the delivery limit of this queue is unknown; it was declared to be high enough',
};

function unknownCaution(queue: string, why: string, todo: string): Caution {
  return {
    kind: 'refused',
    text:
      `it is unknown whether the queue ${inFull(queue)} drops messages that are looked at: ` + why,
    remedy: `${todo}, or say that the delivery limit of this queue is high enough (--trust-limit)`,
  };
}

/** RabbitMQ counts every 5 s (NUMBERS of management.ts); and some room. */
const TOLD_LATE_MS = 6_000;
/** How long until others are taken to hold what is still counted as unacked. */
const TOLD_WITHIN_MS: number = 2 * TOLD_LATE_MS;
const ASK_EVERY_MS = 500;

interface AloneOptions {
  readonly queue: string;
  readonly connection: AmqpConnection;
  readonly management: Management | undefined;
  readonly clock: Clock;
}

/**
 * Whether no other client holds messages of a queue: those cannot be seen, they are neither
 * delivered to us nor gone. Asked when we hold nothing ourselves.
 *
 * The broker reports consumers at once. Messages that are held without a consumer are shown by the
 * management API only, up to 5 s late; until then it may still count what we held ourselves.
 */
export async function hasNoOtherConsumer({
  queue,
  connection,
  management,
  clock,
}: AloneOptions): Promise<boolean> {
  const found = (await passiveQueues(connection, [queue])).get(queue);
  const state = found !== undefined && 'found' in found ? found.found : undefined;
  if (state === undefined || state.consumerCount > 0) return false;
  if (management === undefined) return true;
  const deadline = clock.monotonic() + TOLD_WITHIN_MS;
  await sleep(clock, TOLD_LATE_MS);
  for (;;) {
    management.forget();
    const info = await management.queue(queue);
    if ((info?.unacked ?? 0) === 0) return info !== undefined;
    if (clock.monotonic() >= deadline) return false;
    await sleep(clock, ASK_EVERY_MS);
  }
}
