/**
 * routes — which handler delivers which topic, checked, and the ready-made handlers created;
 * also for the `deliver` of consumers, alerts and an outbox.
 */

import { RespoolError } from '../../core/errors.ts';
import { patternsCovering } from '../../core/topic.ts';
import { checkTopicPattern, isPlainObject } from '../../core/limits.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import {
  exec,
  type ExecOptions,
  http,
  type HttpOptions,
  type ReadyHandler,
} from '../../deliver/index.ts';
import type { Handler } from '../../ports/handler.ts';
import {
  checkKeys,
  configError,
  didYouMean,
  inSection,
  readItem,
  refuseTwice,
} from './config-errors.ts';
import type { RouteConfig } from '../schema/define-config.ts';
import { ROUTE_KEYS } from '../schema/items.ts';
import { configPolicyOf } from './policies.ts';

type RouteValues = Required<Pick<RouteConfig, 'concurrency' | 'timeout'>>;

/** A route that is checked, with its defaults. */
export interface EffectiveRoute extends RouteValues {
  readonly topic: string;
  readonly deliver: Handler | ReadyHandler;
  readonly policy?: RetryPolicy | string;
}

/** What checking a list of routes needs to know. */
export interface RouteContext {
  /** `routes` or `bounces`. */
  readonly key: string;
  /** What relative paths start from. */
  readonly folder: string;
  readonly policies: Readonly<Record<string, RetryPolicy>>;
  /** Paths of texts that were filled in, and may mean a number. */
  readonly filled: ReadonlySet<string>;
}

const DELIVER_ALLOWED = '{ http: { url: … } }, { exec: [command, …] } or a handler';

const ROUTES_MAX = 10_000;

/** Checks a list of routes and makes their handlers. */
export function routesOf(value: unknown, parts: RouteContext): readonly EffectiveRoute[] {
  if (value === undefined) return [];
  const { key } = parts;
  if (!Array.isArray(value) || value.length > ROUTES_MAX) {
    throw configError(key, value, `a list of at most ${ROUTES_MAX} routes`);
  }
  const routes = value.map((one: unknown, at) => routeOf(one, `${key}[${at}]`, parts));
  const advice = ', and the first match wins; take one of them out';
  refuseTwice(key, routes, { of: 'topic', advice });
  return routes;
}

/** Sentences about routes that never get a message: those before them take all of theirs. */
export function unreachedRoutes(routes: readonly EffectiveRoute[], key: string): string[] {
  const topics = routes.map(({ topic }) => topic);
  return topics.flatMap((topic, at) => {
    const before = patternsCovering(topics.slice(0, at), topic);
    if (before === undefined) return [];
    const names = before.map((one) => `${key}[${one}] "${topics[one] ?? ''}"`).join(' and ');
    const take = before.length === 1 ? 'takes all' : 'take all together';
    return [`${key}[${at}] "${topic}" gets nothing: ${names} before it ${take}`];
  });
}

/** What a handler does, as it may be shown. */
export function describeHandler(
  handler: Handler | ReadyHandler,
): Readonly<Record<string, unknown>> {
  const name = handler.name === '' ? '(function)' : handler.name;
  if (!('describe' in handler) || typeof handler.describe !== 'function') return { handler: name };
  try {
    const told: unknown = handler.describe();
    return isPlainObject(told) ? told : { handler: name };
  } catch {
    // What a handler cannot tell about itself must not keep it from delivering.
    return { handler: name };
  }
}

function routeOf(value: unknown, key: string, parts: RouteContext): EffectiveRoute {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw configError(key, value, '{ topic, deliver, … }');
  }
  checkKeys(key, value, Object.keys(ROUTE_KEYS));
  const route = value as Readonly<Record<string, unknown>>;
  const policy = route['policy'];
  return {
    topic: topicOf(route['topic'], `${key}.topic`),
    deliver: deliverHandlerOf(route['deliver'], `${key}.deliver`, parts),
    ...(policy === undefined ? {} : { policy: routePolicy(policy, `${key}.policy`, parts) }),
    ...readItem<RouteValues>({ table: ROUTE_KEYS, item: route, key, filled: parts.filled }),
  };
}

function topicOf(topic: unknown, key: string): string {
  try {
    return checkTopicPattern(topic);
  } catch {
    throw configError(key, topic, 'dot-separated words, * for one word, # for any number');
  }
}

/** A policy as data, or the name of one that there is. */
export function routePolicy(
  policy: unknown,
  key: string,
  { policies }: Pick<RouteContext, 'policies'>,
): RetryPolicy | string {
  if (typeof policy !== 'string') return configPolicyOf(policy, key);
  if (policy === 'default' || Object.hasOwn(policies, policy)) return policy;
  if (policy === 'postfix' || policy === 'noRetry') return configPolicyOf(policy, key);
  const known = ['default', ...Object.keys(policies).filter((name) => name !== 'default')];
  throw new RespoolError(
    'config.invalid',
    `cannot use "${policy}" as "${key}": there is no such policy${didYouMean(policy, known)}; ` +
      `known are ${known.join(', ')}`,
  );
}

/** A handler, or the ready-made one of these options. */
export function deliverHandlerOf(
  value: unknown,
  key: string,
  { folder }: Pick<RouteContext, 'folder'>,
): Handler | ReadyHandler {
  if (typeof value === 'function') return fromFolder(value as Handler | ReadyHandler, folder);
  if (!isPlainObject(value)) throw configError(key, value, DELIVER_ALLOWED);
  checkKeys(key, value, ['http', 'exec']);
  const isHttp = 'http' in value;
  if (isHttp === 'exec' in value) throw configError(key, Object.keys(value), DELIVER_ALLOWED);
  return isHttp
    ? httpOf(value['http'], `${key}.http`)
    : execOf(value['exec'], `${key}.exec`, folder);
}

/** A configuration means its own folder, wherever the service is started. */
function fromFolder(handler: Handler | ReadyHandler, folder: string): Handler | ReadyHandler {
  const isOurs = 'from' in handler && typeof handler.from === 'function';
  return isOurs ? (handler.from?.(folder) ?? handler) : handler;
}

function httpOf(value: unknown, key: string): ReadyHandler {
  if (!isPlainObject(value))
    throw configError(key, typeof value, 'an object of options, such as { url }');
  return inSection(key, () => http(value as unknown as HttpOptions));
}

function execOf(value: unknown, key: string, folder: string): Handler | ReadyHandler {
  const { command, ...options } = (
    isPlainObject(value) ? value : { command: value }
  ) as ExecOptions & {
    readonly command?: readonly string[];
  };
  if (!Array.isArray(command)) {
    throw configError(
      isPlainObject(value) ? `${key}.command` : key,
      // Not shown: arguments may carry passwords.
      typeof command,
      'a list: command, arguments',
    );
  }
  const wrong = command.findIndex((word: unknown) => typeof word !== 'string');
  if (wrong !== -1) {
    const word: unknown = command[wrong];
    const isPlainWord = typeof word === 'number' || typeof word === 'boolean';
    const hint = isPlainWord ? `; write "${String(word)}" in quotes` : '';
    const list = isPlainObject(value) ? `${key}.command` : key;
    throw configError(`${list}[${wrong}]`, word, `text${hint}`);
  }
  return inSection(key, () => fromFolder(exec(command as readonly string[], options), folder));
}
