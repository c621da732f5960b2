/**
 * consumers — which queues of RabbitMQ are consumed, how and by whom, checked, with the ready-made
 * handlers and the style of their topology made. Nothing is connected here:
 * open/open-consumers.ts does that. Loaded only where a configuration has consumers.
 */

import { type Duration, durationMs } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { isPlainObject } from '../../core/limits.ts';
import { checkOption, type OptionTable } from '../../core/option-table.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import type { ReadyHandler } from '../../deliver/index.ts';
import type { Handler } from '../../ports/handler.ts';
import type { Compat } from '../../rabbit/compat/shared.ts';
import {
  COMPAT_TABLES,
  COMPATS,
  type ConsumerOptions,
  consumerSettings,
} from '../../rabbit/consume/options.ts';
import {
  BINDING_OPTIONS,
  checkName,
  isBrokersOwn,
  mergeTopologies,
  type QueuePlan,
  type TopologyStyle,
  type UserBinding,
} from '../../rabbit/topology/model.ts';
import type { Config, ConsumerConfig } from '../schema/define-config.ts';
import { CONSUMER_KEYS } from '../schema/items.ts';
import {
  checkKeys,
  configError,
  didYouMean,
  inSection,
  readItem,
  refuseTwice,
} from './config-errors.ts';
import { checkBrokerUrl } from '../schema/keys.ts';
import { deliverHandlerOf, type RouteContext, routePolicy } from './routes.ts';
import { EXTRA_WAITS_MAX } from '../../rabbit/topology/parts.ts';
import { perAttempt, perDelay, shared, STYLE_TABLES } from '../../rabbit/topology/styles.ts';

type ConsumerValues = Required<
  Pick<ConsumerConfig, 'type' | 'prefetch' | 'concurrency' | 'timeout' | 'declare' | 'maxLost'>
>;

/** A consumer that is checked, with its defaults. */
export interface EffectiveConsumer extends ConsumerValues {
  readonly url: string;
  readonly queue: string;
  readonly bindings: readonly UserBinding[];
  /** None where `compat` decides. */
  readonly topology?: TopologyStyle;
  /** Default: the consumer's own. */
  readonly policy?: RetryPolicy;
  /** What the policy goes by in the configuration, if it has a name there. */
  readonly policyName?: string;
  readonly compat?: Compat;
  readonly waits?: readonly Duration[];
  /** None where a tool reads the configuration that does not deliver. */
  readonly deliver?: Handler | ReadyHandler;
  /** What it needs at the broker. */
  readonly plan: QueuePlan;
}

/** What checking consumers needs to know. */
interface ConsumerContext extends Omit<RouteContext, 'key'> {
  /** The broker of consumers that name none. */
  readonly url: string | undefined;
  /** False: the reader of the configuration does not deliver, and `deliver` was left out. */
  readonly hasHandlers: boolean;
  readonly backoffs: Config['backoffs'];
}

const CONSUMERS_MAX = 1_000;
const BINDINGS_MAX = 1_000;

/** Checks the consumers of a configuration and makes their handlers. */
export function consumersOf(value: unknown, parts: ConsumerContext): readonly EffectiveConsumer[] {
  if (value === undefined) return [];
  if (!Array.isArray(value) || value.length > CONSUMERS_MAX) {
    throw configError('consumers', value, `a list of at most ${CONSUMERS_MAX} consumers`);
  }
  const consumers = value.map((one: unknown, at) => consumerOf(one, `consumers[${at}]`, parts));
  const advice = '; give that one more concurrency instead';
  refuseTwice('consumers', consumers, { of: 'queue', id: ['url', 'queue'], advice });
  checkTogether(consumers);
  return consumers;
}

/** Refuses consumers of one broker that need two different things of one name. */
function checkTogether(consumers: readonly EffectiveConsumer[]): void {
  for (const url of new Set(consumers.map((one) => one.url))) {
    const plans = consumers.filter((one) => one.url === url).map(({ plan }) => plan);
    inSection('consumers', () => mergeTopologies(plans));
  }
}

function consumerOf(value: unknown, key: string, parts: ConsumerContext): EffectiveConsumer {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw configError(key, value, '{ queue, deliver, … }');
  }
  checkKeys(key, value, Object.keys(CONSUMER_KEYS));
  const consumer = value as Readonly<Record<string, unknown>>;
  const { filled } = parts;
  const compat = madeOf(consumer['compat'], `${key}.compat`, COMPAT);
  const topology = madeOf(consumer['topology'], `${key}.topology`, STYLE);
  const waits = waitsOf(consumer['waits'], `${key}.waits`);
  const settled = {
    url: urlOf(consumer['url'], `${key}.url`, parts),
    queue: inSection(key, () => checkName('queue', consumer['queue'])),
    bindings: bindingsOf(consumer['bindings'], `${key}.bindings`),
    ...(topology === undefined ? {} : { topology }),
    ...readItem<ConsumerValues>({ table: CONSUMER_KEYS, item: consumer, key, filled }),
    ...policyOfConsumer(consumer['policy'], `${key}.policy`, parts),
    ...(compat === undefined ? {} : { compat }),
    ...(waits === undefined ? {} : { waits }),
    ...(parts.hasHandlers
      ? { deliver: deliverHandlerOf(consumer['deliver'], `${key}.deliver`, parts) }
      : {}),
  };
  return { ...settled, plan: planOf(settled, key, parts) };
}

/** The plan; what does not fit together is refused here. */
function planOf(
  consumer: Omit<EffectiveConsumer, 'plan'>,
  key: string,
  parts: ConsumerContext,
): QueuePlan {
  return inSection(key, () => consumerSettings(optionsOf(consumer, parts)).plan);
}

/** What `createConsumer` takes. */
export function optionsOf(
  {
    policyName: _name,
    deliver: _deliver,
    plan: _plan,
    ...options
  }: Omit<EffectiveConsumer, 'plan'> & Partial<Pick<EffectiveConsumer, 'plan'>>,
  { backoffs }: { readonly backoffs?: Config['backoffs'] | undefined },
): ConsumerOptions {
  return { ...options, ...(backoffs === undefined ? {} : { backoffs }) };
}

function urlOf(value: unknown, key: string, { url }: ConsumerContext): string {
  const found = value ?? url;
  if (found === undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot use nothing as "${key}": name the broker there, or once for all consumers as ` +
        '"rabbit.url", such as amqp://user:${RABBIT_PASSWORD}@host:5672/vhost',
    );
  }
  checkBrokerUrl(found, key);
  return found as string;
}

function bindingsOf(value: unknown, key: string): readonly UserBinding[] {
  return listOf(value, key, BINDINGS_MAX, 'bindings').map((one, at) => {
    const whole = `${key}[${at}]`;
    if (!isPlainObject(one)) throw configError(whole, one, '{ exchange, key, type, arguments }');
    checkKeys(whole, one, Object.keys(BINDING_OPTIONS));
    const { exchange, key: routingKey, type, arguments: args } = one;
    if (typeof exchange !== 'string' || !isBrokersOwn(exchange)) {
      inSection(whole, () => checkName('exchange', exchange));
    }
    if (routingKey !== undefined && typeof routingKey !== 'string') {
      throw configError(`${whole}.key`, routingKey, 'text, with * and # at a topic exchange');
    }
    if (type !== undefined) checkOption(`${whole}.type`, type, BINDING_OPTIONS.type);
    if (args !== undefined && !isPlainObject(args)) {
      throw configError(`${whole}.arguments`, args, 'an object');
    }
    return one as unknown as UserBinding;
  });
}

function policyOfConsumer(
  value: unknown,
  key: string,
  parts: ConsumerContext,
): Pick<EffectiveConsumer, 'policy' | 'policyName'> {
  const found = value === undefined ? 'default' : routePolicy(value, key, parts);
  if (typeof found !== 'string') return { policy: found };
  // One that is not written down is the consumer's own default, not the spool's.
  const { [found]: policy } = parts.policies;
  return { ...(policy === undefined ? {} : { policy }), policyName: found };
}

function waitsOf(value: unknown, key: string): readonly Duration[] | undefined {
  if (value === undefined) return undefined;
  return listOf(value, key, EXTRA_WAITS_MAX, 'durations').map((one, at) => {
    durationMs(one as Duration, `${key}[${at}]`, { minMs: 1 });
    return one as Duration;
  });
}

function listOf(value: unknown, key: string, max: number, what: string): readonly unknown[] {
  if (value === undefined) return [];
  if (Array.isArray(value) && value.length <= max) return value;
  throw configError(key, value, `a list of at most ${max} ${what}`);
}

/** What a configuration names, with options or without, or a program has made. */
interface Makers<Name extends string, Made> {
  readonly tables: Readonly<Record<Name, OptionTable>>;
  /** What they are called together when a program has made one. */
  readonly made: string;
  readonly isMade: (value: unknown) => value is Made;
  readonly make: (name: Name, options: object) => Made;
}

const COMPAT: Makers<Compat['name'], Compat> = {
  tables: COMPAT_TABLES,
  made: 'what they make',
  isMade: isCompat,
  make: (name, options) => COMPATS[name](options),
};

const STYLE: Makers<keyof typeof STYLE_TABLES, TopologyStyle> = {
  tables: STYLE_TABLES,
  made: 'a style',
  isMade: isStyle,
  make: (name, options) => STYLES[name](options),
};

const STYLES: Readonly<Record<keyof typeof STYLE_TABLES, (options: object) => TopologyStyle>> = {
  shared,
  perDelay,
  perAttempt,
};

/** What a configuration names, or undefined. */
function madeOf<Name extends string, Made>(
  value: unknown,
  key: string,
  { tables, made, isMade, make }: Makers<Name, Made>,
): Made | undefined {
  if (value === undefined) return undefined;
  const names = Object.keys(tables);
  const isName = (name: string): name is Name => names.includes(name);
  const allowed = `${names.join(' | ')}, one of them with its options, or ${made}`;
  if (typeof value === 'string') {
    if (isName(value)) return make(value, {});
    throw configError(key, value, `${allowed}${didYouMean(value, names)}`);
  }
  if (isMade(value)) return value;
  if (!isPlainObject(value)) throw configError(key, value, allowed);
  checkKeys(key, value, names);
  const [name, second] = Object.keys(value).filter(isName);
  if (name === undefined || second !== undefined) throw configError(key, value, allowed);
  const options = value[name] ?? {};
  const whole = `${key}.${name}`;
  if (!isPlainObject(options)) throw configError(whole, options, 'an object of options');
  checkKeys(whole, options, Object.keys(tables[name]));
  return inSection(whole, () => make(name, options));
}

function isCompat(value: unknown): value is Compat {
  if (typeof value !== 'object' || value === null) return false;
  const { wire, style } = value as Partial<Compat>;
  return typeof wire === 'object' && typeof style === 'object';
}

function isStyle(value: unknown): value is TopologyStyle {
  if (typeof value !== 'object' || value === null) return false;
  const { name, plan } = value as Partial<TopologyStyle>;
  return typeof name === 'string' && typeof plan === 'function';
}
