/**
 * load-config — from a folder, an environment and flags to a configuration that is checked.
 *
 *   flags > respool.config.* > environment and .env > defaults, for each key by itself
 *
 * Also here: which file it is (`findConfigFile`), and what `.env` and the environment set.
 */

import { access, constants, lstat, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { parseEnv } from 'node:util';
import { lilconfig } from 'lilconfig';
import { isRespoolError, RespoolError, show, textOf } from '../../core/errors.ts';
import { isSecretVariable, KnownSecrets } from '../../core/redact.ts';
import { withoutRoutingKeys } from './consumer-view.ts';
import {
  type ConfiguredValues,
  type NamedVariable,
  effectiveConfig,
  type EffectiveConfig,
  type Flags,
} from './effective-config.ts';
import { collectKeys } from './encryption-keys.ts';
import { environmentName, isScalar, KEYS, keysWith, valueOfText } from '../schema/keys.ts';
import { didYouMean, type Origin, withOrigin } from './config-errors.ts';
import { type Environment, type RawConfig, readConfigFile, textOfFile } from './read-file.ts';
import { storesOf } from '../open/stores.ts';
import { sealedBy, transformsOf } from '../open/transforms.ts';
import { checkTokenAtRest } from './serve.ts';

/** Where to look. */
export interface LoadOptions {
  readonly cwd: string;
  /** What `.env` says is added to it, so that a configuration that is a program sees it too. */
  readonly env: Environment;
  /** A file or a folder; default: RESPOOL_CONFIG, or the nearest file upwards from `cwd`. */
  readonly file?: string | undefined;
  /** Values by key, such as `{ 'serve.port': 0 }`. */
  readonly flags?: Flags | undefined;
  /**
   * False: for a tool that does not deliver. Routes are left out, and with them the secrets that
   * only the service's environment has. `consumers`: as false, but consumers stay; `queues`:
   * they stay without their handlers. `outbox`: as false, but the outbox stays; `relay`: with its
   * relay. `alerts`: as `queues`, with the outbox and the alerts, which the others leave out.
   */
  readonly routes?: boolean | 'consumers' | 'queues' | 'outbox' | 'relay' | 'alerts' | undefined;
}

/** A configuration, and where it came from. */
export interface LoadedConfig {
  /** The configuration file; undefined when there is none. */
  readonly file: string | undefined;
  /**
   * What relative paths of the configuration start from: the file's folder, or the working
   * directory. Those of flags and of the environment are absolute where that differs.
   */
  readonly folder: string;
  readonly config: EffectiveConfig;
  /** The topic patterns of the routes, also where routes are left out; undefined: not known. */
  readonly topics: readonly string[] | undefined;
  /** Who said each value, by its key. */
  readonly origins: ReadonlyMap<string, Origin>;
  /** Sentences for people: what is allowed and yet strange. */
  readonly warnings: readonly string[];
  /** Cuts the secrets of this configuration out of a text. */
  readonly hide: (text: string) => string;
  /** Data as it may be shown. */
  readonly redact: (value: unknown, name?: string) => unknown;
}

/** Shorter ones are words like `bearer` more often than secrets. */
const ENV_SECRET_MIN_CHARS = 8;

/** What is not read, by what is asked for. */
const LEFT_OUT: Readonly<Record<string, readonly string[]>> = {
  false: ['routes', 'bounces', 'consumers', 'outbox', 'alerts'],
  consumers: ['routes', 'bounces', 'outbox', 'alerts'],
  queues: ['routes', 'bounces', 'consumers[].deliver', 'outbox', 'alerts'],
  outbox: ['routes', 'bounces', 'consumers', 'outbox.relay', 'alerts'],
  relay: ['routes', 'bounces', 'consumers', 'alerts'],
  alerts: ['routes', 'bounces', 'consumers[].deliver', 'outbox.relay'],
};

/** The values of `routes` that load an outbox, and those that load its relay. */
const OF_OUTBOX: readonly LoadOptions['routes'][] = [true, 'outbox', 'relay', 'alerts'];
const OF_RELAY: readonly LoadOptions['routes'][] = [true, 'relay'];

const NOTHING: RawConfig = { value: {}, filled: new Set(), lent: new Set() };

/** The configuration file that is named or nearest; undefined when there is none. */
export async function configFileOf({
  cwd,
  env,
  file,
}: Pick<LoadOptions, 'cwd' | 'env' | 'file'>): Promise<string | undefined> {
  return findConfigFile(cwd, file ?? (env['RESPOOL_CONFIG'] || undefined));
}

/** Finds, reads and checks the configuration; `config.invalid` says what is wrong and where. */
export async function loadConfig(options: LoadOptions): Promise<LoadedConfig> {
  const secrets = new KnownSecrets();
  try {
    const { cwd, env } = options;
    const file = await configFileOf(options);
    const folder = file === undefined ? path.resolve(cwd) : path.dirname(file);
    const added = await addDotEnv(folder, env);
    collectFrom(env, secrets);
    const without = LEFT_OUT[String(options.routes)] ?? [];
    const reading = { without, added };
    const raw = file === undefined ? NOTHING : await readConfigFile(file, env, secrets, reading);
    return await completeConfig({ ...options, file, folder, raw, added, secrets });
  } catch (error) {
    throw hidden(error, secrets);
  }
}

/** What is left to do when everything is read. */
export async function completeConfig({
  env,
  flags = {},
  file,
  folder,
  cwd = folder,
  raw,
  added,
  secrets,
  routes = true,
}: {
  readonly cwd?: string;
  readonly env: Environment;
  readonly flags?: Flags | undefined;
  readonly file: string | undefined;
  readonly folder: string;
  readonly raw: RawConfig;
  readonly added: ReadonlySet<string>;
  readonly secrets: KnownSecrets;
  readonly routes?: LoadOptions['routes'];
}): Promise<LoadedConfig> {
  collectFrom(env, secrets);
  for (const [name, value] of Object.entries(raw.value)) {
    secrets.collect(name === 'consumers' ? withoutRoutingKeys(value) : value, name);
  }
  const environment = valuesOfEnvironment(env, added);
  for (const key of keysWith('password')) {
    secrets.collect(flags[key]);
    secrets.collect(environment.get(key)?.value);
  }
  const named = new Set<string>();
  for (const key of keysWith('keys')) {
    for (const said of [raw.value[key], environment.get(key)?.value, flags[key]]) {
      const value = typeof said === 'string' ? valueOfText({ kind: 'json' }, said) : said;
      for (const name of collectKeys(value, secrets, env)) named.add(name);
    }
  }
  for (const { key, secret } of KEYS) if (secret === true) secrets.add(flags[key]);
  try {
    const { config, origins, warnings } = effectiveConfig({
      flags,
      raw,
      environment,
      isOfProcess: (value) => isOfProcess(value, env, added),
      file,
      folder,
      cwd,
      ...(await consumersRoom(raw)),
      ...(await outboxRoom(raw, environment, flags, routes)),
      hasHandlers: routes === true || routes === 'consumers',
    });
    await checkStores(config, origins, { file, folder });
    return {
      file,
      folder,
      config,
      topics: raw.topics,
      origins,
      warnings: [
        ...unknownNames(env, named),
        ...warnings,
        ...(await unreadableFiles(config, routes)),
      ].map((text) => secrets.hide(text)),
      hide: (text) => secrets.hide(text),
      redact: (value, name) => secrets.redact(value, name),
    };
  } catch (error) {
    throw hidden(error, secrets);
  }
}

/** What checks consumers, loaded for a configuration that has some. */
async function consumersRoom({ value }: RawConfig): Promise<Pick<ConfiguredValues, 'consumersOf'>> {
  if (value['consumers'] === undefined || value['consumers'] === null) return {};
  const { consumersOf } = await import('./consumers.ts');
  return { consumersOf };
}

/** The checks of an outbox, loaded only for readers that want it, where one is configured. */
async function outboxRoom(
  { value }: RawConfig,
  environment: ReadonlyMap<string, unknown>,
  flags: Flags,
  routes: LoadOptions['routes'],
): Promise<Pick<ConfiguredValues, 'outboxOf' | 'hasRelay'>> {
  const hasRelay = OF_RELAY.includes(routes);
  if (!OF_OUTBOX.includes(routes)) return { hasRelay };
  const inFlags = Object.keys(flags).filter((key) => flags[key] !== undefined);
  const isSaid = [...environment.keys(), ...inFlags].some((key) => key.startsWith('outbox.'));
  if (!isSaid && (value['outbox'] === undefined || value['outbox'] === null)) return { hasRelay };
  const { outboxOf } = await import('./outbox.ts');
  return { outboxOf, hasRelay };
}

/** Sentences about those files of TLS that the reader of this configuration needs. */
async function unreadableFiles(
  { serve, rabbit }: EffectiveConfig,
  routes: LoadOptions['routes'],
): Promise<string[]> {
  return [
    ...(routes === true ? await unreadable(serve.tls, 'serve') : []),
    ...(routes === false ? [] : await unreadable(filesOf(rabbit), 'rabbit')),
  ];
}

/** A sentence for each file of TLS that could not be used. */
async function unreadable(
  files: Readonly<Record<string, string>> = {},
  whose: string,
): Promise<string[]> {
  const problems: string[] = [];
  for (const [name, file] of Object.entries(files)) {
    try {
      await access(file, constants.R_OK);
      if ((await stat(file)).isFile()) continue;
      problems.push(`${whose}.tls.${name}: ${show(file)} is no file`);
    } catch (error) {
      problems.push(`${whose}.tls.${name}: cannot read ${show(file)}: ${reasonOf(error)}`);
    }
  }
  return problems;
}

function filesOf({ tls = {} }: EffectiveConfig['rabbit']): Record<string, string> {
  const { ca, key, cert } = tls;
  return Object.fromEntries(
    Object.entries({ ca, key, cert }).filter(([, file]) => file !== undefined),
  ) as Record<string, string>;
}

function reasonOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'there is no such file';
  return code === 'EACCES' ? 'this user may not' : textOf(error);
}

/** Making stores and transforms opens nothing, and says what is wrong with their options. */
async function checkStores(
  config: EffectiveConfig,
  origins: ReadonlyMap<string, Origin>,
  { file, folder }: { readonly file: string | undefined; readonly folder: string },
): Promise<void> {
  try {
    const { entries } = await storesOf(config, folder);
    await transformsOf(config, folder);
    await sealedBy(config, entries, folder);
  } catch (error) {
    throw withOrigin(error, origins, file);
  }
}

/** A configuration that is a program takes its secrets from there without our seeing it. */
function collectFrom(env: Environment, secrets: KnownSecrets): void {
  for (const [name, value = ''] of Object.entries(env)) {
    if (value.length < ENV_SECRET_MIN_CHARS) continue;
    if (isSecretVariable(name)) secrets.add(value);
  }
}

/** The same error, without what it should not say; its cause could say it again. */
function hidden(error: unknown, secrets: KnownSecrets): unknown {
  if (!isRespoolError(error)) return error;
  return new RespoolError(error.code, secrets.hide(error.message));
}

// The configuration file: the one that is named, or the nearest upwards.

/** Extensions of a configuration file; `isProgram` of read-file.ts knows which are programs. */
export const EXTENSIONS = ['ts', 'mts', 'js', 'mjs', 'json', 'yaml', 'yml'] as const;

/** Every name a configuration file may have. */
const NAMES: readonly string[] = EXTENSIONS.map((extension) => `respool.config.${extension}`);

/** The file to read, or undefined if none exists; `named` is a file or a folder. */
async function findConfigFile(cwd: string, named: string | undefined): Promise<string | undefined> {
  if (named === undefined) return searchUpwards(path.resolve(cwd));
  const target = path.resolve(cwd, named);
  const found = await stat(target).catch(() => undefined);
  if (found === undefined) {
    if (await isLink(target)) throw deadLink(target);
    throw new RespoolError(
      'config.invalid',
      `cannot read the configuration ${show(named)}: there is no such file or folder`,
    );
  }
  if (!found.isDirectory()) return checkExtension(target);
  const file = await onlyOneIn(target);
  if (file !== undefined) return file;
  throw new RespoolError(
    'config.invalid',
    `cannot find a configuration in ${show(named)}: none of ${NAMES.join(', ')} is there`,
  );
}

async function searchUpwards(from: string): Promise<string | undefined> {
  // Found is not loaded: a program must not run before we know that it is the only one.
  const asFound = (file: string): string => file;
  const search = lilconfig('respool', {
    searchPlaces: [...NAMES],
    loaders: Object.fromEntries(EXTENSIONS.map((extension) => [`.${extension}`, asFound])),
    stopDir: path.parse(from).root,
    ignoreEmptySearchPlaces: false,
    cache: false,
  });
  await refuseStrange(from);
  try {
    const found = await search.search(from);
    return found === null ? undefined : await onlyOneIn(path.dirname(found.filepath));
  } catch (error) {
    if (isRespoolError(error)) throw error;
    throw new RespoolError('config.invalid', `cannot read the configuration: ${textOf(error)}`);
  }
}

/** Refuses what goes by a configuration's name and cannot be read, on the way to the nearest. */
async function refuseStrange(from: string): Promise<void> {
  for (let folder = from; ; folder = path.dirname(folder)) {
    const isFound = (await configFilesIn(folder)).length > 0;
    if (isFound || folder === path.dirname(folder)) return;
  }
}

/** The names of the configuration files in a folder. */
export async function configFilesIn(folder: string): Promise<readonly string[]> {
  const present: string[] = [];
  for (const name of NAMES) {
    const file = path.join(folder, name);
    const found = await stat(file).catch(() => undefined);
    if (found === undefined) {
      // Passed over, another configuration further up would hold in its place.
      if (await isLink(file)) throw deadLink(file);
      continue;
    }
    if (found.isDirectory()) {
      throw new RespoolError(
        'config.invalid',
        `cannot read the configuration ${show(file)}: it is a folder; give it another name`,
      );
    }
    present.push(name);
  }
  return present;
}

async function isLink(file: string): Promise<boolean> {
  return (await lstat(file).catch(() => undefined))?.isSymbolicLink() === true;
}

function deadLink(file: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot read the configuration ${show(file)}: it is a link to a file that is not there; ` +
      'fix the link or remove it',
  );
}

async function onlyOneIn(folder: string): Promise<string | undefined> {
  const [first, second] = await configFilesIn(folder);
  if (second !== undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot choose between "${first}" and "${second}" in ${show(folder)}: keep one of them, ` +
        'or name it with --config',
    );
  }
  return first === undefined ? undefined : path.join(folder, first);
}

function checkExtension(file: string): string {
  if (EXTENSIONS.some((extension) => file.endsWith(`.${extension}`))) return file;
  throw new RespoolError(
    'config.invalid',
    `cannot read the configuration ${show(file)}: its name must end in ${EXTENSIONS.join(', ')}`,
  );
}

// What RESPOOL_… variables say, and a file `.env` beside the configuration.

const DOT_ENV = '.env';
const PREFIX = 'RESPOOL_';

/**
 * Names that mean something elsewhere: to a client, to a test, to a command that we started
 * (`environmentOf` of deliver/exec/exec.ts: a name that is new there has to be here).
 */
const OTHERS: ReadonlySet<string> = new Set([
  'RESPOOL_ATTEMPT',
  'RESPOOL_BODY_SIZE',
  'RESPOOL_CONFIG',
  'RESPOOL_DESTINATION',
  'RESPOOL_ENQUEUED_AT',
  'RESPOOL_ID',
  'RESPOOL_LANE',
  'RESPOOL_LAST_CODE',
  'RESPOOL_LAST_REASON',
  'RESPOOL_TOPIC',
  'RESPOOL_URL',
]);
const OTHER_BEGINNINGS = ['RESPOOL_HEADER_', 'RESPOOL_TEST_'];

/** The service's token by the name that clients know too. */
const TOKEN_NAME = 'RESPOOL_TOKEN';
const TOKEN_NAMES: readonly string[] = [environmentName('serve.token'), TOKEN_NAME];

/**
 * What `.env` added to an environment. Remembered, because a second read of the configuration in
 * the same process would take it for the environment's own.
 */
const ADDED = new WeakMap<Environment, Map<string, string>>();

/** Every value that `.env` had for an environment, also those that were set already. */
const KEPT = new WeakMap<Environment, Set<string>>();

/**
 * Adds what `.env` in this folder says to the environment; what is set already stays. Returns the
 * names it added.
 */
export async function addDotEnv(folder: string, env: Environment): Promise<ReadonlySet<string>> {
  const added = new Set<string>();
  const file = path.resolve(folder, DOT_ENV);
  let bytes: Buffer;
  try {
    bytes = await readFile(file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'EISDIR') return added;
    throw new RespoolError('config.invalid', `cannot read ${DOT_ENV}: ${textOf(error)}`);
  }
  const before = ADDED.get(env) ?? new Map<string, string>();
  ADDED.set(env, before);
  const kept = KEPT.get(env) ?? new Set<string>();
  KEPT.set(env, kept);
  for (const [name, value] of Object.entries(parseEnv(textOfFile(bytes, file)))) {
    if (value !== undefined) kept.add(value);
    // Also one that another source overrides: clients read it, and it is stored in clear text.
    const isToken = TOKEN_NAMES.includes(name) && value !== '';
    if (isToken) checkTokenAtRest(value, `${name} in ${DOT_ENV}`);
    const isOurs = before.get(name) === file && env[name] === value;
    if (env[name] !== undefined && !isOurs) continue;
    env[name] = value;
    before.set(name, file);
    added.add(name);
  }
  return added;
}

/** Whether a variable of the process has this value, and no file `.env` has it. */
function isOfProcess(value: unknown, env: Environment, fromDotEnv: ReadonlySet<string>): boolean {
  if (typeof value !== 'string' || KEPT.get(env)?.has(value) === true) return false;
  return Object.keys(env).some((name) => env[name] === value && !fromDotEnv.has(name));
}

/** Every key that the environment sets, by its dotted name. An empty value is not set. */
function valuesOfEnvironment(
  env: Environment,
  fromDotEnv: ReadonlySet<string>,
): ReadonlyMap<string, NamedVariable> {
  const values = new Map<string, NamedVariable>();
  for (const key of KEYS.filter(isScalar)) {
    const names = key.key === 'serve.token' ? TOKEN_NAMES : [environmentName(key.key)];
    const name = names.find((one) => (env[one] ?? '') !== '');
    if (name === undefined) continue;
    const isOfFile = fromDotEnv.has(name);
    values.set(key.key, {
      value: valueOfText(key, env[name] ?? ''),
      name: isOfFile ? `${name} in ${DOT_ENV}` : name,
      isOfFile,
    });
  }
  return values;
}

/** A warning for each unknown RESPOOL_… name; `named` are the names of keys. */
function unknownNames(env: Environment, named: ReadonlySet<string>): readonly string[] {
  const known = [...KEYS.filter(isScalar).map(({ key }) => environmentName(key)), TOKEN_NAME];
  return Object.keys(env)
    .filter((name) => name.startsWith(PREFIX) && !known.includes(name) && !OTHERS.has(name))
    .filter((name) => !named.has(name))
    .filter((name) => !OTHER_BEGINNINGS.some((beginning) => name.startsWith(beginning)))
    .toSorted()
    .map((name) => `the environment's ${name} is no setting${didYouMean(name, known, PREFIX)}`);
}
