/**
 * policies — retry policies as data: `{ exponential: { first: '5s', attempts: 20 } }`.
 *
 * Every constructor of core/policy.ts by its name, with the same options; also a policy as it is.
 */

import type { Duration } from '../../core/duration.ts';
import { isPlainObject } from '../../core/limits.ts';
import {
  checkPolicy,
  custom,
  exponential,
  type ExponentialOptions,
  fixed,
  ladder,
  linear,
  type LinearOptions,
  noRetry,
  POLICY_TABLES,
  type PolicyName,
  postfix,
  type RetryPolicy,
} from '../../core/policy.ts';
import { checkItemName, checkKeys, configError, inSection } from './config-errors.ts';

type Data = Readonly<Record<string, unknown>>;

interface Maker {
  /** What its first argument is called when it is written among the options. */
  readonly first?: string;
  make(options: Data): RetryPolicy;
}

const MAKERS: Readonly<Record<PolicyName, Maker>> = {
  fixed: {
    first: 'delay',
    make: ({ delay, ...options }) => fixed(delay as Duration, options),
  },
  linear: { make: (options) => linear(options as unknown as LinearOptions) },
  exponential: { make: (options) => exponential(options as unknown as ExponentialOptions) },
  ladder: {
    first: 'delays',
    make: ({ delays, ...options }) => ladder(delays as readonly Duration[], options),
  },
  postfix: { make: (options) => postfix(options) },
  noRetry: { make: () => noRetry() },
  custom: {
    first: 'name',
    make: ({ name, rungs, ...options }) =>
      custom(name as string, rungs as readonly Duration[], options),
  },
};

const NAMES = Object.keys(POLICY_TABLES);
const COMMON = Object.keys(POLICY_TABLES.postfix);
const ALLOWED = `one of ${NAMES.join(', ')} with its options`;

/** The policies of a configuration, by name. */
export function policiesOf(value: unknown, key = 'policies'): Record<string, RetryPolicy> {
  if (value === undefined) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw configError(key, value, 'an object of names to policies');
  }
  const pairs = Object.entries(value).map(([name, policy]: [string, unknown]) => [
    checkItemName(key, name, 'names of '),
    configPolicyOf(policy, `${key}.${name}`),
  ]);
  return Object.fromEntries(pairs) as Record<string, RetryPolicy>;
}

/** A policy that a configuration wrote down. */
export function configPolicyOf(value: unknown, key: string): RetryPolicy {
  if (typeof value === 'string') {
    if (value === 'postfix' || value === 'noRetry')
      return value === 'postfix' ? postfix() : noRetry();
    throw configError(key, value, `postfix, noRetry, or ${ALLOWED}`);
  }
  if (typeof value !== 'object' || value === null) throw configError(key, value, ALLOWED);
  if ('backoff' in value) return inSection(key, () => checkPolicy(value as RetryPolicy, key));
  const data = isPlainObject(value) ? value : { ...value };
  const [name, second] = Object.keys(data).filter(isPolicyName);
  if (name === undefined || second !== undefined) {
    checkKeys(key, data, [...NAMES, ...COMMON]);
    throw configError(key, value, ALLOWED);
  }
  return make(name, data, key);
}

function isPolicyName(name: string): name is PolicyName {
  return NAMES.includes(name);
}

function make(name: PolicyName, data: Data, key: string): RetryPolicy {
  const maker = MAKERS[name];
  const names = Object.keys(POLICY_TABLES[name]);
  const { [name]: inner, ...beside } = data;
  const options = isPlainObject(inner) ? { ...inner } : {};
  const isShort = !isPlainObject(inner) && inner !== null && inner !== true;
  if (isShort) {
    // `fixed: '5s'` and `ladder: ['2s']`: the one argument that is no option stands alone.
    if (maker.first === undefined)
      throw configError(`${key}.${name}`, inner, 'an object of options');
    options[maker.first] = inner;
  }
  checkKeys(`${key}.${name}`, options, names);
  checkKeys(key, beside, names);
  return inSection(`${key}.${name}`, () => maker.make({ ...beside, ...options }));
}
