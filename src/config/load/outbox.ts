/**
 * outbox — the outbox of a configuration and its relay, checked, with the ready-made handler made.
 * Nothing is connected here: open/open-outbox.ts does that. load-config.ts loads it only where a
 * configuration has an outbox.
 */

import path from 'node:path';
import { type Duration, durationMs, MINUTE_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkTopicPattern, isPlainObject } from '../../core/limits.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import { redactUrls } from '../../core/redact.ts';
import type { ReadyHandler } from '../../deliver/index.ts';
import { type CleanUp, RELAY_TOPICS_MAX } from '../../outbox/types.ts';
import type { Handler } from '../../ports/handler.ts';
import type { Sink } from '../../ports/sink.ts';
import { shownUrl } from '../../rabbit/connection/connection.ts';
import { namesOf } from '../../stores/postgres/options.ts';
import { PG_OPTIONS } from '../open/server-stores.ts';
import type { OutboxConfig, RelayConfig } from '../schema/define-config.ts';
import { checkBrokerUrl } from '../schema/keys.ts';
import { checkItemName, checkKeys, configError, inSection, readItem } from './config-errors.ts';
import { EXCHANGE_TARGET_KEYS, OUTBOX_KEYS, RELAY_KEYS } from '../schema/options.ts';
import { describeHandler, deliverHandlerOf, routePolicy } from './routes.ts';
import { parseStore } from './store-url.ts';

/** Where the outbox is. */
type OutboxPlace =
  | { readonly kind: 'postgres'; readonly url: string; readonly address: string }
  /** An absolute path. */
  | { readonly kind: 'sqlite'; readonly file: string; readonly address: string };

/** Where its relay sends to. */
export type EffectiveTarget =
  | { readonly kind: 'amqp'; readonly url: string; readonly exchange: string }
  /** The spool of the same configuration. */
  | { readonly kind: 'spool' }
  | { readonly kind: 'deliver'; readonly deliver: Handler | ReadyHandler }
  | { readonly kind: 'sink'; readonly sink: Sink };

type RelayValues = Required<Omit<RelayConfig, 'to' | 'expires'>> & Pick<RelayConfig, 'expires'>;

interface OutboxValues extends Pick<OutboxConfig, 'expires'> {
  readonly schema: unknown;
}

/** A relay that is checked, with its defaults. */
export interface EffectiveRelay extends RelayValues {
  /** As it was said. */
  readonly to: unknown;
  readonly target: EffectiveTarget;
  readonly topics: readonly string[];
}

/** An outbox that is checked, with its defaults. */
export interface EffectiveOutbox {
  /** As it was said. */
  readonly store: string;
  readonly place: OutboxPlace;
  /** PostgreSQL only. */
  readonly schema?: string;
  /** Default: as the store has it. */
  readonly tables?: string;
  readonly listenUrl?: string;
  readonly expires?: Duration;
  /** Those of the configuration but `default`, and its own over them. */
  readonly policies: Readonly<Record<string, RetryPolicy>>;
  /** Undefined: no relay runs here. */
  readonly relay?: EffectiveRelay;
}

/** What checking an outbox needs to know. */
interface OutboxConfigContext {
  /** What relative paths start from. */
  readonly folder: string;
  readonly policies: Readonly<Record<string, RetryPolicy>>;
  /** The broker of a relay that names none. */
  readonly url: string | undefined;
  /** False: the reader of the configuration does not send, and `relay` is left out. */
  readonly hasRelay: boolean;
}

type Data = Readonly<Record<string, unknown>>;

const STORE_ALLOWED =
  'postgres://… or sqlite:FILE, the database of your application, such as ' +
  'postgres://host/shop or sqlite:./app.db';
const TO_ALLOWED =
  '{ amqp: url, exchange: name }, { spool: true }, { http: { url: … } }, ' +
  '{ exec: [command, …] }, a handler or a sink';

/** Checks the outbox of a configuration and makes the handler of its relay. */
export function outboxOf(value: unknown, parts: OutboxConfigContext): EffectiveOutbox | undefined {
  const { relay, ...said } = (value ?? {}) as Data;
  const hasRelay = parts.hasRelay && relay !== undefined;
  if (Object.keys(said).length === 0 && !hasRelay) return undefined;
  const place = placeOf(said['store'], parts);
  const { tables, listenUrl } = said;
  const values = readItem<OutboxValues>({ table: OUTBOX_KEYS, item: said, key: 'outbox' });
  const { expires } = values;
  const schema = schemaOf(said, values.schema, place);
  if (tables !== undefined && typeof tables !== 'string') {
    throw configError('outbox.tables', tables, 'text');
  }
  if (tables === '' && place.kind === 'sqlite') {
    throw configError(
      'outbox.tables',
      tables,
      'what names of tables in SQLite begin with, as outbox_',
    );
  }
  if (listenUrl !== undefined && place.kind === 'sqlite') throw onlyPostgres('outbox.listenUrl');
  if (schema !== undefined) inSection('outbox', () => namesOf(schema, tables ?? ''));
  return {
    store: said['store'] as string,
    place,
    ...(schema === undefined ? {} : { schema }),
    ...(tables === undefined ? {} : { tables }),
    ...(listenUrl === undefined ? {} : { listenUrl: listenUrl as string }),
    ...(expires === undefined ? {} : { expires }),
    policies: { ...inherited(parts.policies), ...policiesOf(said['policies'], parts) },
    ...(hasRelay ? { relay: relayOf(relay as Data, { ...parts, place, expires }) } : {}),
  };
}

function placeOf(value: unknown, { folder }: OutboxConfigContext): OutboxPlace {
  const key = 'outbox.store';
  if (value === undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot use nothing as "${key}": name the database of the outbox there, or with --store: ` +
        `allowed is ${STORE_ALLOWED}`,
    );
  }
  if (typeof value !== 'string' || !/^(?:postgres(?:ql)?|sqlite):/i.test(value)) {
    throw configError(key, typeof value === 'string' ? redactUrls(value) : value, STORE_ALLOWED);
  }
  const { kind, path: at, url = '', options } = parseStore(value, key);
  if (kind === 'sqlite') {
    checkKeys(`${key}?`, options, []);
    const file = path.resolve(folder, at);
    return { kind, file, address: `sqlite:${file}` };
  }
  for (const name of ['schema', 'tables', 'listenUrl']) {
    if (!Object.hasOwn(options, name)) continue;
    throw configError(`${key}?${name}`, options[name], `to say it as "outbox.${name}"`);
  }
  checkKeys(`${key}?`, options, PG_OPTIONS);
  const query = new URLSearchParams(options as Record<string, string>).toString();
  const address = url.replace(/^([a-z0-9]+:\/\/)[^/]*@/i, '$1');
  return { kind: 'postgres', url: query === '' ? url : `${url}?${query}`, address };
}

/** Names are checked by the store itself, in PostgreSQL and in SQLite alike. */
function schemaOf(data: Data, schema: unknown, { kind }: OutboxPlace): string | undefined {
  if (kind === 'sqlite') {
    if (data['schema'] === undefined) return undefined;
    throw onlyPostgres('outbox.schema');
  }
  if (typeof schema === 'string') return schema;
  throw configError('outbox.schema', schema, 'a name');
}

function onlyPostgres(key: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use "${key}": it is of PostgreSQL, and "outbox.store" is SQLite; take it out`,
  );
}

/**
 * The policies that the outbox knows by name. Not `default`: it was written for the messages of the
 * spool, and two quick attempts there would be two for committed events, too.
 */
function inherited({
  default: _default,
  ...named
}: Readonly<Record<string, RetryPolicy>>): Readonly<Record<string, RetryPolicy>> {
  return named;
}

/** Its own policies by name: as data, or one of the configuration by its name. */
function policiesOf(
  value: unknown,
  { policies }: OutboxConfigContext,
): Readonly<Record<string, RetryPolicy>> {
  const key = 'outbox.policies';
  if (value === undefined) return {};
  if (!isPlainObject(value)) throw configError(key, value, 'an object of names to policies');
  const pairs = Object.entries(value).flatMap(([name, said]) => {
    checkItemName(key, name, 'names of ');
    const found = routePolicy(said, `${key}.${name}`, { policies });
    const policy = typeof found === 'string' ? policies[found] : found;
    // One that is not written down is the outbox's own default.
    return policy === undefined ? [] : [[name, policy] as const];
  });
  return Object.fromEntries(pairs);
}

interface RelayContext extends OutboxConfigContext {
  readonly place: OutboxPlace;
  /** Of the outbox. */
  readonly expires: Duration | undefined;
}

function relayOf(relay: Data, parts: RelayContext): EffectiveRelay {
  const key = 'outbox.relay';
  const values = readItem<RelayValues>({ table: RELAY_KEYS, item: relay, key });
  return {
    to: relay['to'],
    target: targetOf(relay['to'], `${key}.to`, parts),
    ...(parts.expires === undefined ? {} : { expires: parts.expires }),
    ...values,
    cleanUp: cleanUpOf(values.cleanUp, `${key}.cleanUp`, parts),
    topics: topicsOf(values.topics, `${key}.topics`),
  };
}

function targetOf(value: unknown, key: string, parts: RelayContext): EffectiveTarget {
  if (isSink(value)) return { kind: 'sink', sink: value };
  if (typeof value === 'function') {
    return { kind: 'deliver', deliver: deliverHandlerOf(value, key, parts) };
  }
  if (!isPlainObject(value)) throw configError(key, value, TO_ALLOWED);
  if ('spool' in value) {
    checkKeys(key, value, ['spool']);
    if (value['spool'] === true) return { kind: 'spool' };
    throw configError(`${key}.spool`, value['spool'], 'true; or name another target');
  }
  if ('http' in value || 'exec' in value) {
    return { kind: 'deliver', deliver: deliverHandlerOf(value, key, parts) };
  }
  checkKeys(key, value, [...Object.keys(EXCHANGE_TARGET_KEYS), 'spool', 'http', 'exec']);
  const { exchange, amqp: url = parts.url } = value;
  if (typeof exchange !== 'string') {
    throw configError(
      `${key}.exchange`,
      exchange,
      'the name of an exchange; "" is the default one',
    );
  }
  if (url === undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot use nothing as "${key}.amqp": name the broker there, or as "rabbit.url", such as ` +
        'amqp://user:${RABBIT_PASSWORD}@host:5672/vhost',
    );
  }
  checkBrokerUrl(url, `${key}.amqp`);
  return { kind: 'amqp', url: url as string, exchange };
}

function isSink(value: unknown): value is Sink {
  return typeof value === 'object' && value !== null && 'send' in value && 'close' in value;
}

function cleanUpOf(value: unknown, key: string, { place }: RelayContext): CleanUp {
  if (value === 'at once' || value === 'never') return value;
  if (!isPlainObject(value)) {
    if (typeof value === 'number' || /^\s*\d/.test(String(value))) {
      durationMs(value as Duration, key, { minMs: 1 });
      return value as Duration;
    }
    throw configError(
      key,
      value,
      "'at once', 'never', a duration such as 7d, or { partition, keep }",
    );
  }
  checkKeys(key, value, ['partition', 'keep']);
  if (place.kind === 'sqlite') {
    throw new RespoolError(
      'config.invalid',
      `cannot use partitions as "${key}": they are of PostgreSQL; in SQLite give a duration`,
    );
  }
  const part = (name: 'partition' | 'keep'): Duration => {
    durationMs(value[name] as Duration, `${key}.${name}`, { minMs: MINUTE_MS });
    return value[name] as Duration;
  };
  return { partition: part('partition'), keep: part('keep') };
}

/** One pattern, several with commas, or a list. */
function topicsOf(value: unknown, key: string): readonly string[] {
  const list: unknown = typeof value === 'string' ? value.split(',') : value;
  if (!Array.isArray(list) || list.length === 0 || list.length > RELAY_TOPICS_MAX) {
    throw configError(key, value, `a pattern, or a list of 1 to ${RELAY_TOPICS_MAX}`);
  }
  return list.map((one: unknown) => {
    try {
      return checkTopicPattern(typeof one === 'string' ? one.trim() : one);
    } catch {
      throw new RespoolError(
        'config.invalid',
        `cannot use ${show(one)} as "${key}": allowed are dot-separated words, * for one word, ` +
          '# for any number',
      );
    }
  });
}

/** Where a relay sends to, as it may be shown. Called by describe.ts and open/open-outbox.ts. */
export function describeTarget(to: EffectiveTarget): Readonly<Record<string, unknown>> {
  if (to.kind === 'amqp') return { amqp: shownUrl(to.url), exchange: to.exchange };
  if (to.kind === 'spool') return { spool: true };
  return to.kind === 'sink' ? { sink: to.sink.name } : describeHandler(to.deliver);
}
