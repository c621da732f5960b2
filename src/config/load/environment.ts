/**
 * environment — what RESPOOL_… variables say, and a file `.env` beside the configuration.
 */

import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { parseEnv } from 'node:util';
import { RespoolError, textOf } from '../../core/errors.ts';
import { environmentName, isScalar, KEYS, valueOfText } from '../schema/keys.ts';
import { didYouMean } from './config-errors.ts';
import type { Environment } from './read-file.ts';
import { checkTokenAtRest } from './serve.ts';

const DOT_ENV = '.env';
const PREFIX = 'RESPOOL_';

/** Names that mean something elsewhere: to a client, to a test, to a command that we started. */
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

/** A value and the name of where it stood. */
export interface NamedVariable {
  readonly value: unknown;
  readonly name: string;
  /** True when it stood in `.env`, not in the environment itself. */
  readonly isOfFile: boolean;
}

/**
 * What `.env` added to an environment. Remembered: to whoever reads the configuration again in the
 * same process it would look like the environment's own.
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
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'EISDIR') return added;
    throw new RespoolError('config.invalid', `cannot read ${DOT_ENV}: ${textOf(error)}`);
  }
  const before = ADDED.get(env) ?? new Map<string, string>();
  ADDED.set(env, before);
  const kept = KEPT.get(env) ?? new Set<string>();
  KEPT.set(env, kept);
  for (const [name, value] of Object.entries(parseEnv(text))) {
    if (value !== undefined) kept.add(value);
    // Also one that another source overtakes: clients read it, and it lies there in plain.
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
export function isOfProcess(
  value: unknown,
  env: Environment,
  fromDotEnv: ReadonlySet<string>,
): boolean {
  if (typeof value !== 'string' || KEPT.get(env)?.has(value) === true) return false;
  return Object.keys(env).some((name) => env[name] === value && !fromDotEnv.has(name));
}

/** Every key that the environment sets, by its dotted name. An empty value is not set. */
export function valuesOfEnvironment(
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
export function unknownNames(env: Environment, named: ReadonlySet<string>): readonly string[] {
  const known = [...KEYS.filter(isScalar).map(({ key }) => environmentName(key)), TOKEN_NAME];
  return Object.keys(env)
    .filter((name) => name.startsWith(PREFIX) && !known.includes(name) && !OTHERS.has(name))
    .filter((name) => !named.has(name))
    .filter((name) => !OTHER_BEGINNINGS.some((beginning) => name.startsWith(beginning)))
    .toSorted()
    .map((name) => `the environment's ${name} is no setting${didYouMean(name, known, PREFIX)}`);
}
