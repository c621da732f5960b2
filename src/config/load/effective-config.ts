/**
 * effective-config — flags over file over environment over defaults, key by key, then checked.
 *
 * No I/O: load-config.ts has read everything before. Each key is checked by schema/keys.ts, lists
 * and sections by files of their own here; describe.ts shows the result, with the origin of each
 * value.
 */

import path from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import { spoolSettingsOf, type SpoolOptions } from '../../spool/options.ts';
import { alertsOf, type EffectiveAlerts } from './alerts.ts';
import { CONSUMER_DEFAULTS } from './consumer-view.ts';
import type { consumersOf, EffectiveConsumer } from './consumers.ts';
import { deadLettersOf, type EffectiveDeadLetters, RULE_DEFAULTS } from './dead-letters.ts';
import type {
  Config,
  LogConfig,
  MetricsConfig,
  RabbitConfig,
  ServeConfig,
  TracingConfig,
} from '../schema/define-config.ts';
import {
  isScalar,
  isTokenHash,
  type KeyKind,
  configKeyOf,
  KEYS,
  valueOfText,
} from '../schema/keys.ts';
import type { EffectiveOutbox, outboxOf } from './outbox.ts';
import { policiesOf } from './policies.ts';
import { checkKeys, configError, type Origin, withOrigin } from './config-errors.ts';
import { isProgram, type RawConfig } from './read-file.ts';
import { describeHandler, type EffectiveRoute, routesOf, unreachedRoutes } from './routes.ts';
import { checkTokenAtRest, checkTokenHash, hostsOf, tlsOf, tokensOf } from './serve.ts';
import { STORE_DEFAULTS } from '../schema/options.ts';
import { withKeyFiles } from './encryption-keys.ts';

/** A value and the name of where it stood. */
export interface NamedVariable {
  readonly value: unknown;
  readonly name: string;
  /** True when it stood in `.env`, not in the environment itself. */
  readonly isOfFile: boolean;
}

/** A configuration that is checked, with its defaults. */
export interface EffectiveConfig
  extends Omit<
    Config,
    | 'concurrency'
    | 'policies'
    | 'routes'
    | 'bounces'
    | 'rabbit'
    | 'consumers'
    | 'outbox'
    | 'deadLetters'
    | 'serve'
    | 'metrics'
    | 'tracing'
    | 'alerts'
    | 'log'
  > {
  readonly concurrency: number;
  readonly policies: Readonly<Record<string, RetryPolicy>>;
  readonly routes: readonly EffectiveRoute[];
  readonly bounces: readonly EffectiveRoute[];
  readonly rabbit: RabbitConfig;
  readonly consumers: readonly EffectiveConsumer[];
  readonly outbox?: EffectiveOutbox;
  readonly deadLetters: EffectiveDeadLetters;
  readonly serve: EffectiveServe;
  readonly metrics: Required<MetricsConfig>;
  readonly tracing: Required<TracingConfig>;
  readonly alerts: EffectiveAlerts;
  readonly log: Required<LogConfig>;
}

/** What the service goes by. */
type EffectiveServe = Required<Omit<ServeConfig, 'token' | 'tls' | 'limits'>> &
  Pick<ServeConfig, 'token' | 'tls'> & {
    readonly limits: Required<NonNullable<ServeConfig['limits']>>;
  };

/** Values of keys, such as `{ 'serve.port': 0 }`; texts are understood. */
export type Flags = Readonly<Record<string, unknown>>;

/** What was read, by who said it. */
export interface ConfiguredValues {
  readonly flags: Flags;
  readonly raw: RawConfig;
  readonly environment: ReadonlyMap<string, NamedVariable>;
  /** Whether a variable of the process has this value, and no file `.env`. */
  readonly isOfProcess: (value: unknown) => boolean;
  readonly file: string | undefined;
  readonly folder: string;
  readonly cwd: string;
  /** False: for a tool that does not deliver. */
  readonly hasHandlers: boolean;
  /** Loaded for a configuration that has some. */
  readonly consumersOf?: typeof consumersOf;
  /** Loaded where something is said of an outbox, for readers that want it (load-config.ts). */
  readonly outboxOf?: typeof outboxOf;
  /** False: for a tool that does not send. */
  readonly hasRelay: boolean;
}

/** The outcome: what holds, who said it, and what is strange about it. */
interface EffectiveResult {
  readonly config: EffectiveConfig;
  readonly origins: ReadonlyMap<string, Origin>;
  readonly warnings: readonly string[];
}

type Values = Map<string, { readonly value: unknown; readonly origin: Origin }>;

const PLACES = ['store', 'entries', 'bodies'] as const;
const CONCURRENCY_MIN = 10;
const CONCURRENCY_MAX = 10_000;
const TOKEN_SHORT_CHARS = 16;

/** Puts together what holds, and checks it. */
export function effectiveConfig(configuredValues: ConfiguredValues): EffectiveResult {
  const origins = new Map<string, Origin>();
  try {
    const values = mergeSources(configuredValues);
    for (const [key, { origin }] of values) origins.set(key, origin);
    for (const { key, check } of KEYS) {
      const found = values.get(key);
      if (found !== undefined) check?.(found.value, key);
    }
    return complete(values, origins, configuredValues);
  } catch (error) {
    throw withOrigin(error, origins, configuredValues.file);
  }
}

function mergeSources(values: ConfiguredValues): Values {
  const merged: Values = new Map();
  for (const source of [ofFlags(values), ofFile(values), ofEnvironment(values)]) {
    const taken = withoutOvertakenPlaces(source, merged);
    for (const [key, found] of taken) if (!merged.has(key)) merged.set(key, found);
  }
  const hasPlaces = merged.has('entries') || merged.has('bodies');
  for (const { key, byDefault } of KEYS) {
    if (merged.has(key)) continue;
    const isPlace = key === 'store' || key === 'entries' || key === 'bodies';
    const value = isPlace ? STORE_DEFAULTS[key] : byDefault;
    // Either one store for both, or one for each.
    if (value === undefined || (isPlace && (key === 'store') === hasPlaces)) continue;
    merged.set(key, { value, origin: { from: 'default', name: '' } });
  }
  return merged;
}

/** What one source says about places; a source further up may have said it in the other way. */
function withoutOvertakenPlaces(source: Values, above: Values): Values {
  const [store, ...apart] = PLACES.map((key) => source.get(key));
  const other = apart.find((match) => match !== undefined);
  if (store !== undefined && other !== undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot use "store" together with "entries" or "bodies", ${other.origin.name}: name one ` +
        'store for both, or one for each',
    );
  }
  const left = new Map(source);
  if (above.has('store')) for (const key of ['entries', 'bodies']) left.delete(key);
  if (above.has('entries') || above.has('bodies')) left.delete('store');
  return left;
}

function ofFlags(configuredValues: ConfiguredValues): Values {
  const values: Values = new Map();
  for (const [name, value] of Object.entries(configuredValues.flags)) {
    const key = configKeyOf(name);
    if (value === undefined) continue;
    if (key === undefined || !isScalar(key)) {
      checkKeys(
        '',
        { [name]: value },
        KEYS.filter(isScalar).map((one) => one.key),
      );
      continue;
    }
    if (key.secret === true) {
      throw new RespoolError(
        'config.invalid',
        `cannot take "${name}" from the command line, where every user of this machine can read ` +
          'it: set it in the environment, or its hash in the configuration file',
      );
    }
    values.set(name, {
      value:
        typeof value === 'string'
          ? resolvePath(key, valueOfText(key, value), configuredValues)
          : value,
      origin: { from: 'flag', name: key.flag ?? `--${name}` },
    });
  }
  return values;
}

function ofEnvironment(configuredValues: ConfiguredValues): Values {
  const values: Values = new Map();
  for (const [name, given] of configuredValues.environment) {
    const key = configKeyOf(name);
    const isHere = key !== undefined && !given.isOfFile;
    const value = isHere ? resolvePath(key, given.value, configuredValues) : given.value;
    values.set(name, { value, origin: { from: 'environment', name: given.name } });
  }
  return values;
}

/** The keys that hold other keys: `serve`, `serve.tls`. */
const GROUPS: ReadonlySet<string> = new Set(
  KEYS.flatMap(({ key }) => {
    const words = key.split('.').slice(0, -1);
    return words.map((_, at) => words.slice(0, at + 1).join('.'));
  }),
);

function ofFile({ raw, file, isOfProcess }: ConfiguredValues): Values {
  const values: Values = new Map();
  const origin: Origin = { from: 'file', name: file ?? '' };
  // What a program took from the environment is found by its value.
  const isLent = (key: string, value: unknown): boolean =>
    (raw.lent.has(key) || (file !== undefined && isProgram(file))) && isOfProcess(value);
  const walk = (group: string, input: object): void => {
    const prefix = group === '' ? '' : `${group}.`;
    checkKeys(group, input, namesIn(prefix));
    for (const [name, value] of Object.entries(input) as [string, unknown][]) {
      const key = `${prefix}${name}`;
      const known = configKeyOf(key);
      // In YAML a key with nothing behind it is null: as if it were not there.
      if (value === undefined || value === null) continue;
      if (known !== undefined) {
        if (key === 'serve.token' && !isLent(key, value)) checkTokenAtRest(value);
        const isText = typeof value === 'string' && raw.filled.has(key);
        values.set(key, { value: isText ? valueOfText(known, value) : value, origin });
      } else if (GROUPS.has(key)) {
        if (typeof value !== 'object' || Array.isArray(value)) {
          throw configError(key, value, `an object of ${namesIn(`${key}.`).join(', ')}`);
        }
        walk(key, value);
      }
    }
  };
  walk('', raw.value);
  return values;
}

function namesIn(prefix: string): string[] {
  const below = KEYS.map(({ key }) => key).filter((key) => key.startsWith(prefix));
  return [...new Set(below.map((key) => key.slice(prefix.length).split('.')[0] ?? ''))];
}

/** Makes policies, routes and the rest of what depends on several keys. */
function complete(
  values: Values,
  origins: Map<string, Origin>,
  configuredValues: ConfiguredValues,
): EffectiveResult {
  const tree = treeOf(values);
  const { folder, raw } = configuredValues;
  const policies = policiesOf(tree['policies']);
  const parts = { folder, policies, filled: raw.filled };
  const routes = routesOf(tree['routes'], { ...parts, key: 'routes' });
  const bounces = routesOf(tree['bounces'], { ...parts, key: 'bounces' });
  const rabbit = rabbitOf(tree['rabbit'], folder);
  const { url } = rabbit;
  const { hasHandlers } = configuredValues;
  const backoffs = tree['backoffs'] as Config['backoffs'];
  const ofConsumers = { ...parts, url, hasHandlers, backoffs };
  const consumers = configuredValues.consumersOf?.(tree['consumers'], ofConsumers) ?? [];
  const { hasRelay } = configuredValues;
  const outbox = configuredValues.outboxOf?.(tree['outbox'], { folder, policies, url, hasRelay });
  const deadLetters = deadLettersOf(tree['deadLetters'], parts);
  const wanted = [...routes, ...bounces].reduce((sum, { concurrency }) => sum + concurrency, 0);
  const byDefault: Origin = { from: 'default', name: '' };
  for (const key of ['routes', 'bounces']) {
    for (const name of defaultedIn(tree[key], key)) origins.set(name, byDefault);
  }
  for (const name of defaultedIn(tree['consumers'], 'consumers', CONSUMER_DEFAULTS)) {
    origins.set(name, byDefault);
  }
  const { rules } = (tree['deadLetters'] ?? {}) as Readonly<Record<string, unknown>>;
  for (const name of defaultedIn(rules, 'deadLetters.rules', RULE_DEFAULTS)) {
    origins.set(name, byDefault);
  }
  const warnings = [...unreachedRoutes(routes, 'routes'), ...unreachedRoutes(bounces, 'bounces')];
  if (tree['concurrency'] === undefined) {
    tree['concurrency'] = Math.min(CONCURRENCY_MAX, Math.max(CONCURRENCY_MIN, wanted));
    origins.set('concurrency', byDefault);
  }
  if (tree['destinationConcurrency'] === undefined && [...routes, ...bounces].some(hasManyUrls)) {
    tree['destinationConcurrency'] = { '*': 5 };
    origins.set('destinationConcurrency', byDefault);
  }
  spoolSettingsOf(spoolOptionsOf({ ...tree, policies } as unknown as EffectiveConfig));
  const serve = tree['serve'] as Record<string, unknown>;
  checkTokenHash(serve['token']);
  const tls = tlsOf(serve['tls'], (file) => path.resolve(folder, file));
  const config = {
    ...tree,
    policies,
    routes,
    bounces,
    rabbit,
    consumers,
    outbox,
    deadLetters,
    serve: { ...serve, tokens: tokensOf(serve['tokens']), hosts: hostsOf(serve['hosts']), ...tls },
    metrics: { aliases: [], ...(tree['metrics'] as MetricsConfig) },
    alerts: alertsOf(tree['alerts'], {
      folder,
      replayRules: deadLetters.rules.map(({ name }) => name),
      queues:
        configuredValues.consumersOf === undefined
          ? undefined
          : consumers.map(({ queue }) => queue),
      topics: routes.map(({ topic }) => topic),
    }),
    log: { redact: [], ...(tree['log'] as LogConfig) },
  } as unknown as EffectiveConfig;
  warnings.push(...strange(config, wanted));
  return { config, origins, warnings };
}

/** What of a configuration createSpool itself takes, stores apart. */
export function spoolOptionsOf(config: EffectiveConfig): SpoolOptions {
  const pairs = SPOOL_KEYS.filter((key) => config[key] !== undefined).map((key) => [
    key,
    config[key],
  ]);
  return Object.fromEntries(pairs) as SpoolOptions;
}

const SPOOL_KEYS = [
  'policies',
  'backoffs',
  'concurrency',
  'destinationConcurrency',
  'lease',
  'settle',
  'retention',
  'limits',
  'poll',
  'unhandled',
  'requireDurability',
  'caretaker',
  'middleware',
] as const satisfies readonly (keyof EffectiveConfig & keyof SpoolOptions)[];

/** What the items of a list (routes, consumers, rules) left to their defaults, by whole names. */
function defaultedIn(
  list: unknown,
  key: string,
  names: readonly string[] = ['concurrency', 'timeout'],
): string[] {
  const routes = (list ?? []) as readonly Readonly<Record<string, unknown>>[];
  return routes.flatMap((route, at) =>
    names.filter((name) => route[name] === undefined).map((name) => `${key}[${at}].${name}`),
  );
}

/** The broker, with the files of TLS by their absolute paths. */
function rabbitOf(value: unknown, folder: string): RabbitConfig {
  const rabbit = (value ?? {}) as RabbitConfig;
  const { tls } = rabbit;
  if (tls === undefined) return rabbit;
  const files = Object.entries({ ca: tls.ca, key: tls.key, cert: tls.cert })
    .filter(([, file]) => file !== undefined)
    .map(([name, file]) => [name, path.resolve(folder, file ?? '')]);
  return { ...rabbit, tls: { ...tls, ...Object.fromEntries(files) } };
}

function hasManyUrls({ deliver }: EffectiveRoute): boolean {
  return describeHandler(deliver)['urls'] !== undefined;
}

function strange({ concurrency, serve }: EffectiveConfig, amount: number): string[] {
  const warnings: string[] = [];
  if (concurrency < amount) {
    warnings.push(
      `concurrency is ${concurrency}, the routes may use ${amount}: one that hangs can take the ` +
        'slots of the others',
    );
  }
  const { token } = serve;
  if (token !== undefined && !isTokenHash(token) && token.length < TOKEN_SHORT_CHARS) {
    warnings.push(`serve.token has fewer than ${TOKEN_SHORT_CHARS} characters: it can be guessed`);
  }
  return warnings;
}

function treeOf(values: Values): Record<string, unknown> {
  const tree: Record<string, unknown> = {};
  for (const [key, { value }] of values) {
    const words = key.split('.');
    const last = words.pop() ?? '';
    let node = tree;
    for (const word of words) node = (node[word] ??= {}) as Record<string, unknown>;
    node[last] = value;
  }
  return tree;
}

/** Where paths start from. */
interface BaseFolders {
  /** For what flags and the environment say. */
  readonly cwd: string;
  /** For everything else. */
  readonly folder: string;
}

const STORES: readonly string[] = ['store', 'entries', 'bodies', 'outbox.store'];

/** A value that was said in the working directory, so that it means the same in the folder. */
function resolvePath(
  { key, kind, secret }: KeyKind,
  value: unknown,
  { cwd, folder }: BaseFolders,
): unknown {
  if (secret === 'keys') return withKeyFiles(value, cwd);
  if (typeof value !== 'string' || value.includes('\0')) return value;
  const [, scheme = '', place = '', options = ''] = STORES.includes(key)
    ? (/^((?:sqlite|file):)([^?]*)(.*)$/is.exec(value) ?? [])
    : kind === 'file'
      ? ['', '', value, '']
      : [];
  if (place === '' || path.isAbsolute(place)) return value;
  const meant = path.resolve(cwd, place);
  // As it was written, wherever that says the same.
  if (meant === path.resolve(folder, place)) return value;
  if (scheme !== '' && meant.includes('?')) {
    throw configError(key, value, 'a place without "?" in its whole path');
  }
  return `${scheme}${meant}${options}`;
}
