/**
 * options — what `createConsumer` takes, checked, with its defaults; and the other systems that
 * share queues, by their names (`compatOf`).
 */

import { type Duration, durationMs } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkOneOf } from '../../core/limits.ts';
import {
  CLOCK_OPTION,
  DICE_OPTION,
  type Option,
  type OptionTable,
  readGroup,
  readOptions,
} from '../../core/option-table.ts';
import {
  BACKOFFS_OPTION,
  type BackoffFunction,
  checkPolicy,
  ladder,
  type RetryPolicy,
  rungs,
} from '../../core/policy.ts';
import { checkTracer, TRACING_OPTION } from '../../engine/tracing.ts';
import type { Middleware } from '../../ports/handler.ts';
import type { Logger } from '../../ports/logger.ts';
import type { StandardSchema } from '../../ports/schema.ts';
import type { Tracer } from '../../ports/tracer.ts';
import { goqueue, GOQUEUE_OPTIONS } from '../compat/goqueue.ts';
import { outbox, OUTBOX_COMPAT_OPTIONS } from '../compat/outbox.ts';
import type { Compat } from '../compat/shared.ts';
import { spring, SPRING_OPTIONS } from '../compat/spring.ts';
import type { AmqpTable } from '../connection/amqp.ts';
import { type ContentCodec, type Decode, decodersOf } from '../publish/codecs.ts';
import { BROKER_OPTIONS, type ConnectionChoice } from '../connection/connection.ts';
import { respoolWire, type HistoryWire } from '../message-history.ts';
import type { SubscribeOptions } from './subscription.ts';
import type {
  QueuePlanRequest,
  QueuePlan,
  QueueType,
  TopologyStyle,
  UserBinding,
} from '../topology/model.ts';
import { shared } from '../topology/styles.ts';

/** The options of every consumer, in the order of its error texts. */
const CONSUMER = {
  ...BROKER_OPTIONS,
  name: {
    kind: 'text',
    type: 'text',
    default: 'respool',
    about: 'names the connection, and the consumer in `by` of its verdicts',
  },
  clock: CLOCK_OPTION,
  dice: DICE_OPTION,
  queue: { kind: 'text', type: 'a name', required: true, about: 'the queue to consume' },
  bindings: {
    kind: 'data',
    type: 'a list of `{ exchange, key, type, arguments }`',
    ts: 'readonly UserBinding[]',
    about:
      'what leads into it; `key` is `#` by default, with `*` and `#` at a topic exchange; `type` ' +
      'declares the exchange (`topic`), `false` assumes that it exists',
  },
  topology: {
    kind: 'code',
    type: '`shared()`, `perDelay()` or `perAttempt()`',
    ts: 'TopologyStyle',
    defaultText: '`shared()`',
    about: '[how messages wait](#names-at-the-broker)',
  },
  type: {
    kind: 'choice',
    choices: ['quorum', 'classic'],
    ts: 'QueueType',
    default: 'quorum',
    about: 'the type of all queues that it declares',
  },
  policy: {
    kind: 'code',
    type: 'a [policy](../how-to/retry-policies.md)',
    ts: 'RetryPolicy',
    defaultText: "`ladder(['5s', '30s', '2m', '10m', '1h'])`",
    about: 'when to retry, and when to give up',
  },
  policies: {
    kind: 'code',
    type: 'policies by name',
    ts: 'Readonly<Record<string, RetryPolicy>>',
    about: 'policies that messages can select by the header `respool-policy`',
  },
  backoffs: BACKOFFS_OPTION,
  waits: {
    kind: 'data',
    type: 'a list of durations, up to 64',
    ts: 'readonly Duration[]',
    defaultText: '1m and 1h, if no policy waits as long; with `compat` none',
    about: 'additional wait queues besides those of the policies',
  },
  prefetch: {
    kind: 'number',
    min: 1,
    max: 2_000,
    default: 20,
    about:
      'deliveries that the broker sends ahead; what waits for a slot longer than 28m less ' +
      '`timeout` is given back',
  },
  concurrency: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 10,
    about: 'handlers that run at once',
  },
  timeout: {
    kind: 'duration',
    min: '1ms',
    max: '25m',
    default: '5m',
    about:
      'how long one attempt may take; the broker ends a consumer whose delivery takes 30 minutes',
  },
  compat: {
    kind: 'data',
    type: '`goqueue`, `spring`, `outbox`, or the results of their functions',
    ts: "Compat['name'] | Compat",
    about:
      'shares queues with [another system](../how-to/move-from-another-consumer.md); not with ' +
      '`topology`',
  },
  declare: {
    kind: 'choice',
    choices: ['apply', 'verify', 'none'],
    ts: 'Declare',
    default: 'apply',
    about:
      '`apply` declares what is missing, `verify` only compares, `none` assumes that it exists; ' +
      'at every connect',
  },
  maxLost: {
    kind: 'number',
    min: 0,
    max: 1_000_000,
    default: 10,
    about: 'consumers lost in a row with a message before it is parked',
  },
  middleware: {
    kind: 'code',
    type: 'a list of functions',
    ts: 'readonly Middleware[]',
    about: 'wrappers around the handler; the first is the outermost',
  },
  schema: {
    kind: 'code',
    type: 'a Standard Schema',
    ts: 'StandardSchema<Body>',
    about: 'what the decoded body must match; one that does not goes to the dead queue',
  },
  decoders: {
    kind: 'code',
    type: 'a list of `{ contentType, encode, decode }`',
    ts: 'readonly ContentCodec[]',
    defaultText: 'JSON, text, bytes',
    about: 'for `value()` and `schema`',
  },
  consumerTag: {
    kind: 'text',
    type: 'text',
    defaultText: "the broker's",
    about: 'the name of the subscription',
  },
  consumeArguments: {
    kind: 'data',
    type: 'a table',
    ts: 'AmqpTable',
    about: 'arguments of the subscription',
  },
  exclusive: {
    kind: 'boolean',
    defaultText: '`false`',
    about:
      'no other consumer is allowed. Quorum queues of most releases ignore it: there, give the ' +
      'queue the argument `x-single-active-consumer`',
  },
  priority: {
    kind: 'data',
    type: 'a number',
    ts: 'number',
    defaultText: '0',
    about: 'of the subscription: higher ones are served first',
  },
  queueOptions: {
    kind: 'group',
    ts: 'QueueDeclareOptions',
    about: 'how the [main queue](#queueoptions) is declared',
    options: {
      durable: {
        kind: 'boolean',
        default: true,
        about: 'survives a restart of the broker; a quorum queue always does',
      },
      exclusive: {
        kind: 'boolean',
        default: false,
        about: 'belongs to the connection alone; a quorum queue never does',
      },
      autoDelete: {
        kind: 'boolean',
        default: false,
        about: 'is deleted with its last consumer; a quorum queue never is',
      },
      arguments: {
        kind: 'data',
        type: 'a table',
        ts: 'AmqpTable',
        about: 'further arguments of its declaration',
      },
    },
  },
  tracing: TRACING_OPTION,
  logger: {
    kind: 'code',
    type: 'a [logger](logs.md)',
    ts: 'Logger',
    about: 'gets a line for every event',
  },
} as const;

/** Every option of `createConsumer`. */
export const CONSUMER_OPTIONS: Readonly<Record<keyof ConsumerOptions, Option>> = CONSUMER;

/** How the main queue is declared, beyond what its style needs. */
export interface QueueDeclareOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Survives a restart of the broker; a quorum queue always does. Default true. */
  readonly durable?: boolean;
  /** Belongs to the connection alone; a quorum queue never does. Default false. */
  readonly exclusive?: boolean;
  /** Is deleted with its last consumer; a quorum queue never is. Default false. */
  readonly autoDelete?: boolean;
  /** Further arguments of its declaration. */
  readonly arguments?: AmqpTable;
}

/** Which queue is consumed, and how. */
export interface ConsumerOptions<Body = unknown> extends ConnectionChoice {
  // Written by `npm run options`: edit the table of options instead.
  /** The queue to consume. */
  readonly queue: string;
  /**
   * What leads into it; `key` is `#` by default, with `*` and `#` at a topic exchange; `type`
   * declares the exchange (`topic`), `false` assumes that it exists.
   */
  readonly bindings?: readonly UserBinding[];
  /** How messages wait. Default `shared()`. */
  readonly topology?: TopologyStyle;
  /** The type of all queues that it declares. Default `quorum`. */
  readonly type?: QueueType;
  /** When to retry, and when to give up. Default `ladder(['5s', '30s', '2m', '10m', '1h'])`. */
  readonly policy?: RetryPolicy;
  /** Policies that messages can select by the header `respool-policy`. */
  readonly policies?: Readonly<Record<string, RetryPolicy>>;
  /** Delay functions for `custom` policies. */
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
  /**
   * Additional wait queues besides those of the policies. Default 1m and 1h, if no policy waits as
   * long; with `compat` none.
   */
  readonly waits?: readonly Duration[];
  /**
   * Deliveries that the broker sends ahead; what waits for a slot longer than 28m less `timeout` is
   * given back. 1 to 2,000; default 20.
   */
  readonly prefetch?: number;
  /** Handlers that run at once. 1 to 10,000; default 10. */
  readonly concurrency?: number;
  /**
   * How long one attempt may take; the broker ends a consumer whose delivery takes 30 minutes. 1ms
   * to 25m; default 5m.
   */
  readonly timeout?: Duration;
  /** Shares queues with another system; not with `topology`. */
  readonly compat?: Compat['name'] | Compat;
  /**
   * `apply` declares what is missing, `verify` only compares, `none` assumes that it exists; at
   * every connect. Default `apply`.
   */
  readonly declare?: Declare;
  /** Consumers lost in a row with a message before it is parked. 0 to 1,000,000; default 10. */
  readonly maxLost?: number;
  /** Wrappers around the handler; the first is the outermost. */
  readonly middleware?: readonly Middleware[];
  /** What the decoded body must match; one that does not goes to the dead queue. */
  readonly schema?: StandardSchema<Body>;
  /** For `value()` and `schema`. Default JSON, text, bytes. */
  readonly decoders?: readonly ContentCodec[];
  /** The name of the subscription. Default the broker's. */
  readonly consumerTag?: string;
  /** Arguments of the subscription. */
  readonly consumeArguments?: AmqpTable;
  /**
   * No other consumer is allowed. Quorum queues of most releases ignore it: there, give the queue
   * the argument `x-single-active-consumer`. Default `false`.
   */
  readonly exclusive?: boolean;
  /** Of the subscription: higher ones are served first. Default 0. */
  readonly priority?: number;
  /** How the main queue is declared. */
  readonly queueOptions?: QueueDeclareOptions;
  /** Writes spans. */
  readonly tracing?: Tracer;
  /** Gets a line for every event. */
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

/** As the texts of `policy` above and in config/schema/items.ts say. */
const POLICY_DEFAULT: RetryPolicy = ladder(['5s', '30s', '2m', '10m', '1h']);
const WAITS_DEFAULT: readonly Duration[] = ['1m', '1h'];

/** Checks what was given. */
export function consumerSettings(options: ConsumerOptions): ConsumerSettings {
  const values = readOptions({ what: 'createConsumer' }, options, CONSUMER);
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
    plan: planOf({ ...options, type: values.type }, [policy, ...policies.values()], compat),
    wire: compat?.wire ?? respoolWire,
    policy,
    policies,
    backoffs,
    subscription: subscriptionOf(options, values.prefetch),
    concurrency: values.concurrency,
    timeoutMs: values.timeoutMs,
    declare: values.declare,
    maxLost: values.maxLost,
    middleware,
    schema,
    decode: decodersOf(options.decoders),
    tracer: checkTracer(options.tracing),
  };
}

function planOf(
  options: ConsumerOptions & { readonly type: QueueType },
  policies: readonly RetryPolicy[],
  compat: Compat | undefined,
): QueuePlan {
  const { topology, queueOptions } = options;
  if (compat !== undefined && topology !== undefined) {
    throw new RespoolError(
      'config.invalid',
      'cannot use "topology" together with "compat": the other system decides over the queues',
    );
  }
  const declared = readGroup('queueOptions', queueOptions, CONSUMER.queueOptions);
  const style = compat?.style ?? topology ?? shared();
  if (typeof style.plan !== 'function') {
    throw invalid('topology', style, 'shared(), perDelay() or perAttempt()');
  }
  const request: QueuePlanRequest = {
    queue: options.queue,
    type: options.type,
    policy: policies[0] ?? POLICY_DEFAULT,
    extraWaitsMs: extraWaits(options.waits, policies, compat !== undefined),
    bindings: options.bindings ?? [],
    ...declared,
    queueArguments: queueOptions?.arguments ?? {},
  };
  return style.plan(request);
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
  // Queues of another system are left unchanged unless the options ask for more.
  const chosen = waits !== undefined ? asked : isShared ? [] : asked.filter((ms) => ms > longestMs);
  // Without any, a message that has to wait had nowhere to go.
  const hasNone = longestMs === 0 && !chosen.some((ms) => ms > 0);
  const own = hasNone ? WAITS_DEFAULT.map((wait) => durationMs(wait, 'waits')) : chosen;
  const first = new Set(rungs(policies[0] ?? POLICY_DEFAULT));
  const all = [...policies.slice(1).flatMap((policy) => rungs(policy)), ...own];
  return [...new Set(all)].filter((ms) => ms > 0 && !first.has(ms)).sort((a, b) => a - b);
}

function subscriptionOf(options: ConsumerOptions, prefetch: number): SubscribeOptions {
  const { consumerTag, exclusive, priority, consumeArguments } = options;
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

/** The other systems, by their names. */
export const COMPATS: Readonly<Record<Compat['name'], (options?: object) => Compat>> = {
  goqueue,
  spring,
  outbox,
};

/** Their options. */
export const COMPAT_TABLES: Readonly<Record<Compat['name'], OptionTable>> = {
  goqueue: GOQUEUE_OPTIONS,
  spring: SPRING_OPTIONS,
  outbox: OUTBOX_COMPAT_OPTIONS,
};

/** A compat by its name, with all its defaults, or the one that was given. */
export function compatOf(compat: Compat | Compat['name']): Compat {
  if (typeof compat === 'object' && compat !== null) return compat;
  return COMPATS[checkOneOf('compat', compat, ['goqueue', 'spring', 'outbox'])]();
}
