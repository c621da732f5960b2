/** options — what `createConsumer` takes, checked, with its defaults. */

import { type Duration, durationMs, MINUTE_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import {
  type BackoffFunction,
  checkPolicy,
  ladder,
  type RetryPolicy,
  rungs,
} from '../../core/policy.ts';
import { checkTracer } from '../../engine/tracing.ts';
import type { Middleware } from '../../ports/handler.ts';
import type { Logger } from '../../ports/logger.ts';
import type { StandardSchema } from '../../ports/schema.ts';
import type { Tracer } from '../../ports/tracer.ts';
import type { Table } from '../connection/amqp.ts';
import { type Codec, type Decode, decodersOf } from '../publish/codecs.ts';
import type { Compat } from '../compat/shared.ts';
import { compatOf } from '../compat/index.ts';
import type { ConnectionChoice } from '../connection/connection.ts';
import { respoolWire, type HistoryWire } from './message-history.ts';
import type { SubscribeOptions } from './subscription.ts';
import type {
  QueueOrder,
  QueuePlan,
  QueueType,
  TopologyStyle,
  UserBinding,
} from '../topology/model.ts';
import { shared } from '../topology/shared.ts';

/** How the main queue is declared, beyond what its style needs. */
export interface QueueDeclareOptions {
  /** Default true. */
  readonly durable?: boolean;
  readonly exclusive?: boolean;
  readonly autoDelete?: boolean;
  readonly arguments?: Table;
}

/** Which queue is consumed, and how. */
export interface ConsumerOptions<Body = unknown> extends ConnectionChoice {
  readonly queue: string;
  /** Exchanges that the queue is bound to. */
  readonly bindings?: readonly UserBinding[];
  /** How wait queues are built: `shared()` (default), `perDelay()`, `perAttempt()`. */
  readonly topology?: TopologyStyle;
  /** Default `quorum`. */
  readonly type?: QueueType;
  /** When to try again and when to give up; default `ladder(['5s', '30s', '2m', '10m', '1h'])`. */
  readonly policy?: RetryPolicy;
  /** Policies that messages can ask for by name, in the header `respool-policy`. */
  readonly policies?: Readonly<Record<string, RetryPolicy>>;
  /** Delay functions for `custom` policies, by name. */
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
  /**
   * Wait queues beyond those of the policies, for delays that only a handler or the other side
   * knows; default 1m and 1h, where no policy waits as long.
   */
  readonly waits?: readonly Duration[];
  /** Deliveries that the broker sends ahead, 1 to 2000; default 20. */
  readonly prefetch?: number;
  /** Handlers that run at once, 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /** How long one attempt may take, up to 25m: brokers end a delivery after 30; default 5m. */
  readonly timeout?: Duration;
  /** Shares queues with the consumers of another system. */
  readonly compat?: Compat['name'] | Compat;
  /** Declares what is missing (`apply`, default), only looks (`verify`), or trusts (`none`). */
  readonly declare?: Declare;
  /** How many consumers in a row may end with a message before it is parked; default 10. */
  readonly maxLost?: number;
  readonly middleware?: readonly Middleware[];
  /** A Standard Schema that the decoded body must fit; one that does not goes to the dead queue. */
  readonly schema?: StandardSchema<Body>;
  readonly decoders?: readonly Codec[];
  readonly consumerTag?: string;
  readonly consumeArguments?: Table;
  /**
   * The only consumer of its queue. Quorum queues of most releases ignore it: there, give the queue
   * the argument `x-single-active-consumer`.
   */
  readonly exclusive?: boolean;
  /** The consumer's priority at the broker. */
  readonly priority?: number;
  readonly queueOptions?: QueueDeclareOptions;
  /** Writes spans, as `await openTelemetry()` of `respool/observe` does; default none. */
  readonly tracing?: Tracer;
  /** Gets a line for every event: fields first, text second, as pino has it. */
  readonly logger?: Logger;
}

/** What a consumer does about its topology. */
export type Declare = 'apply' | 'verify' | 'none';

/** The options, checked. */
export interface ConsumerSettings {
  readonly plan: QueuePlan;
  readonly wire: HistoryWire;
  readonly policy: RetryPolicy;
  readonly policies: ReadonlyMap<string, RetryPolicy>;
  readonly backoffs: Readonly<Record<string, BackoffFunction>>;
  readonly subscription: SubscribeOptions;
  readonly concurrency: number;
  readonly timeoutMs: number;
  readonly declare: Declare;
  readonly maxLost: number;
  readonly middleware: readonly Middleware[];
  readonly schema: StandardSchema | undefined;
  readonly decode: Decode;
  readonly tracer: Tracer | undefined;
}

/** What `createConsumer` takes. */
export const CONSUMER_NAMES: readonly string[] = [
  'url',
  'connection',
  'tls',
  'name',
  'clock',
  'dice',
  'queue',
  'bindings',
  'topology',
  'type',
  'policy',
  'policies',
  'backoffs',
  'waits',
  'prefetch',
  'concurrency',
  'timeout',
  'compat',
  'declare',
  'maxLost',
  'middleware',
  'schema',
  'decoders',
  'consumerTag',
  'consumeArguments',
  'exclusive',
  'priority',
  'queueOptions',
  'tracing',
  'logger',
];

const PREFETCH_DEFAULT = 20;
/** n.b. A quorum queue takes no more. */
const PREFETCH_MAX = 2_000;
const CONCURRENCY_DEFAULT = 10;
const CONCURRENCY_MAX = 10_000;
const TIMEOUT_DEFAULT_MS: number = 5 * MINUTE_MS;
/** Brokers end a delivery after thirty minutes. */
const TIMEOUT_MAX_MS: number = 25 * MINUTE_MS;
const MAX_LOST_DEFAULT = 10;
const MAX_LOST_MAX = 1_000_000;
const POLICY_DEFAULT: RetryPolicy = ladder(['5s', '30s', '2m', '10m', '1h']);
const WAITS_DEFAULT: readonly Duration[] = ['1m', '1h'];

/** Checks what was given. */
export function consumerSettings(options: ConsumerOptions): ConsumerSettings {
  checkNames('createConsumer', options, CONSUMER_NAMES);
  const { middleware = [], backoffs = {}, schema } = options;
  const isList = Array.isArray(middleware) && middleware.every((one) => typeof one === 'function');
  if (!isList) throw invalid('middleware', middleware, 'a list of functions');
  if (schema !== undefined && !('~standard' in schema)) {
    throw invalid('schema', schema, 'a Standard Schema (zod, valibot, …)');
  }
  const policy = checkPolicy(options.policy ?? POLICY_DEFAULT, 'policy');
  const policies = new Map(
    Object.entries(options.policies ?? {}).map(([name, one]) => [
      name,
      checkPolicy(one, `policies.${name}`),
    ]),
  );
  refuseUnknownBackoffs([policy, ...policies.values()], backoffs);
  const compat = options.compat === undefined ? undefined : compatOf(options.compat);
  return {
    plan: planOf(options, [policy, ...policies.values()], compat),
    wire: compat?.wire ?? respoolWire,
    policy,
    policies,
    backoffs,
    subscription: subscriptionOf(options),
    concurrency: checkNumber('concurrency', options.concurrency ?? CONCURRENCY_DEFAULT, {
      min: 1,
      max: CONCURRENCY_MAX,
    }),
    timeoutMs: durationMs(options.timeout ?? TIMEOUT_DEFAULT_MS, 'timeout', {
      minMs: 1,
      maxMs: TIMEOUT_MAX_MS,
    }),
    declare: checkOneOf('declare', options.declare ?? 'apply', ['apply', 'verify', 'none']),
    maxLost: checkNumber('maxLost', options.maxLost ?? MAX_LOST_DEFAULT, {
      min: 0,
      max: MAX_LOST_MAX,
    }),
    middleware,
    schema,
    decode: decodersOf(options.decoders),
    tracer: checkTracer(options.tracing),
  };
}

function planOf(
  options: ConsumerOptions,
  policies: readonly RetryPolicy[],
  compat: Compat | undefined,
): QueuePlan {
  const { topology, queueOptions = {} } = options;
  if (compat !== undefined && topology !== undefined) {
    throw new RespoolError(
      'config.invalid',
      'cannot use "topology" together with "compat": the other system decides over the queues',
    );
  }
  checkNames('queueOptions', queueOptions, ['durable', 'exclusive', 'autoDelete', 'arguments']);
  const style = compat?.style ?? topology ?? shared();
  if (typeof style.plan !== 'function') {
    throw invalid('topology', style, 'shared(), perDelay() or perAttempt()');
  }
  const order: QueueOrder = {
    queue: options.queue,
    type: checkOneOf('type', options.type ?? 'quorum', ['quorum', 'classic']),
    policy: policies[0] ?? POLICY_DEFAULT,
    extraWaitsMs: extraWaits(options.waits, policies, compat !== undefined),
    bindings: options.bindings ?? [],
    durable: queueOptions.durable ?? true,
    exclusive: queueOptions.exclusive ?? false,
    autoDelete: queueOptions.autoDelete ?? false,
    queueArguments: queueOptions.arguments ?? {},
  };
  return style.plan(order);
}

/** The delays of further policies, and those that no policy knows. */
function extraWaits(
  waits: readonly Duration[] | undefined,
  policies: readonly RetryPolicy[],
  isShared: boolean,
): number[] {
  const known = policies.flatMap((policy) => rungs(policy));
  const longestMs = Math.max(0, ...known);
  if (waits !== undefined && !Array.isArray(waits))
    throw invalid('waits', waits, 'a list of durations');
  const asked = (waits ?? WAITS_DEFAULT).map((wait, at) => durationMs(wait, `waits[${at}]`));
  // Queues of another system are what they are, unless somebody asks for more.
  const chosen = waits !== undefined ? asked : isShared ? [] : asked.filter((ms) => ms > longestMs);
  // Without any, a message that has to wait had nowhere to go.
  const hasNone = longestMs === 0 && !chosen.some((ms) => ms > 0);
  const own = hasNone ? WAITS_DEFAULT.map((wait) => durationMs(wait, 'waits')) : chosen;
  const first = new Set(rungs(policies[0] ?? POLICY_DEFAULT));
  const all = [...policies.slice(1).flatMap((policy) => rungs(policy)), ...own];
  return [...new Set(all)].filter((ms) => ms > 0 && !first.has(ms)).sort((a, b) => a - b);
}

function subscriptionOf(options: ConsumerOptions): SubscribeOptions {
  const { consumerTag, exclusive, priority, consumeArguments } = options;
  const prefetch = checkNumber('prefetch', options.prefetch ?? PREFETCH_DEFAULT, {
    min: 1,
    max: PREFETCH_MAX,
  });
  return {
    prefetch,
    ...(consumerTag === undefined ? {} : { consumerTag }),
    ...(exclusive === undefined ? {} : { exclusive }),
    ...(priority === undefined ? {} : { priority }),
    ...(consumeArguments === undefined ? {} : { arguments: consumeArguments }),
  };
}

function refuseUnknownBackoffs(
  policies: readonly RetryPolicy[],
  backoffs: Readonly<Record<string, BackoffFunction>>,
): void {
  for (const { backoff } of policies) {
    if (backoff.kind !== 'custom' || Object.hasOwn(backoffs, backoff.name)) continue;
    throw new RespoolError(
      'policy.invalid',
      `cannot use the custom policy "${backoff.name}": give its function in "backoffs"`,
    );
  }
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed}`,
  );
}
