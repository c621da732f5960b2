/** describe — what holds and who said it, line by line, without secrets. */

import { isPlainObject } from '../core/limits.ts';
import { describePolicy, type RetryPolicy } from '../core/policy.ts';
import { SECRET_MARK } from '../core/redact.ts';
import { shownReceivers, shownRules } from './load/alerts.ts';
import { bindingText, brokerOf } from './load/consumer-view.ts';
import type { EffectiveConsumer } from './load/consumers.ts';
import { withoutKeys } from './load/encryption-keys.ts';
import { CONSUMER_KEYS } from './schema/items.ts';
import { KEYS } from './schema/keys.ts';
import type { LoadedConfig } from './load/load-config.ts';
import { describeTarget } from './load/outbox.ts';
import { nearestOrigin } from './load/config-errors.ts';
import { describeHandler, type EffectiveRoute } from './load/routes.ts';
import { isStoreData } from './load/store-url.ts';

/** One value that holds. */
export interface ConfigLine {
  /** With dots and places: `routes[0].topic`. */
  readonly key: string;
  /** As it may be shown. */
  readonly value: unknown;
  /** `default`, or the file, the flag or the variable. */
  readonly from: string;
}

/** Every value that holds, defaults included, in the order of docs/reference/config.md. */
export function describeConfig(loaded: LoadedConfig): ConfigLine[] {
  return KEYS.flatMap((key) => {
    if (key.key.startsWith('outbox.')) return outboxLines(loaded, key.key);
    const value = valueAt(loaded.config, key.key);
    if (value === undefined) return [];
    if (key.secret === true) return [lineOf(loaded, key.key, SECRET_MARK)];
    if (key.key === 'routes' || key.key === 'bounces') {
      return (value as readonly EffectiveRoute[]).flatMap((route, at) =>
        routeLines(loaded, `${key.key}[${at}]`, route),
      );
    }
    if (key.key === 'consumers') {
      return (value as readonly EffectiveConsumer[]).flatMap((consumer, at) =>
        consumerLines(loaded, `consumers[${at}]`, consumer),
      );
    }
    if (key.key === 'policies') {
      return Object.entries(value as Readonly<Record<string, RetryPolicy>>).map(([name, policy]) =>
        lineOf(loaded, `policies.${name}`, describePolicy(policy)),
      );
    }
    if (key.key === 'alerts.to') {
      return Object.entries(shownReceivers(loaded.config.alerts)).map(([name, receiver]) =>
        lineOf(loaded, `alerts.to.${name}`, loaded.redact(receiver)),
      );
    }
    if (key.key === 'alerts.rules') {
      return flatLines(loaded, key.key, shownRules(loaded.config.alerts));
    }
    if (isStoreData(value)) return flatLines(loaded, key.key, value);
    if (key.secret === 'keys') return flatLines(loaded, key.key, withoutKeys(value));
    if (key.kind === 'data' || key.kind === 'code') return flatLines(loaded, key.key, value);
    return [lineOf(loaded, key.key, shownValue(loaded, value))];
  });
}

/** Lists and plain objects, each value in them on a line of its own. */
function flatLines(loaded: LoadedConfig, key: string, value: unknown): ConfigLine[] {
  if (Array.isArray(value)) {
    return value.flatMap((item, at) => flatLines(loaded, `${key}[${at}]`, item));
  }
  if (isPlainObject(value)) {
    return Object.entries(value).flatMap(([name, item]) =>
      flatLines(loaded, `${key}.${name}`, item),
    );
  }
  const name = key.split('.').at(-1) ?? '';
  // A list of tokens has names that are no secrets: only the last word of a key counts.
  return [lineOf(loaded, key, loaded.redact(value, name.replace(/\[\d+\]$/, '')))];
}

function routeLines(loaded: LoadedConfig, key: string, route: EffectiveRoute): ConfigLine[] {
  const { topic, deliver, policy, concurrency, timeout } = route;
  const shown: Readonly<Record<string, unknown>> = {
    topic,
    deliver: loaded.redact(describeHandler(deliver)),
    policy: typeof policy === 'object' ? describePolicy(policy) : policy,
    concurrency,
    timeout,
  };
  return Object.entries(shown)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => lineOf(loaded, `${key}.${name}`, value));
}

function consumerLines(
  loaded: LoadedConfig,
  key: string,
  { policyName, deliver, compat, ...consumer }: EffectiveConsumer,
): ConfigLine[] {
  const shown: Readonly<Record<string, unknown>> = {
    ...consumer,
    url: brokerOf(consumer),
    topology: consumer.topology?.name ?? compat?.style.name ?? 'shared',
    policy: policyName ?? (consumer.policy && describePolicy(consumer.policy)),
    bindings: consumer.bindings.map(bindingText),
    compat: compat?.name,
    deliver: deliver === undefined ? undefined : loaded.redact(describeHandler(deliver)),
  };
  return Object.keys(CONSUMER_KEYS).flatMap((name) => {
    const whole = `${key}.${name}`;
    const { [name]: value } = shown;
    if (value === undefined || (Array.isArray(value) && value.length === 0)) return [];
    const isList = name === 'bindings' || name === 'waits';
    return isList ? flatLines(loaded, whole, value) : [lineOf(loaded, whole, value)];
  });
}

/** One key of the outbox, or of its relay. */
function outboxLines(loaded: LoadedConfig, key: string): ConfigLine[] {
  const { outbox } = loaded.config;
  const value = outbox === undefined ? undefined : valueAt({ outbox }, key);
  if (outbox === undefined || value === undefined) return [];
  if (key === 'outbox.store') {
    return [lineOf(loaded, key, loaded.hide(outbox.store))];
  }
  if (key === 'outbox.policies') {
    // Those of the configuration stand above.
    if (!loaded.origins.has(key)) return [];
    return Object.entries(outbox.policies).map(([name, policy]) =>
      lineOf(loaded, `${key}.${name}`, describePolicy(policy)),
    );
  }
  if (key === 'outbox.relay.to') {
    const { target } = outbox.relay ?? {};
    const shown = target === undefined ? undefined : describeTarget(target);
    return [lineOf(loaded, key, loaded.redact(shown))];
  }
  if (Array.isArray(value)) return flatLines(loaded, key, value);
  return [lineOf(loaded, key, loaded.redact(value))];
}

/** A store that was given is an object with a name; everything else is data. */
function shownValue(loaded: LoadedConfig, value: unknown): unknown {
  const isStore = typeof value === 'object' && value !== null && 'open' in value;
  if (!isStore) return loaded.redact(value);
  const { name } = value as { readonly name?: unknown };
  return `(a ${typeof name === 'string' ? loaded.hide(name) : 'given'} store)`;
}

function lineOf({ origins }: LoadedConfig, key: string, value: unknown): ConfigLine {
  const origin = nearestOrigin(key, origins);
  const isDefault = origin === undefined || origin.from === 'default';
  return { key, value, from: isDefault ? 'default' : `${origin.from} ${origin.name}` };
}

function valueAt(config: object, key: string): unknown {
  let node: unknown = config;
  for (const word of key.split('.')) {
    if (typeof node !== 'object' || node === null) return undefined;
    node = (node as Record<string, unknown>)[word];
  }
  return node;
}
