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
  fixed,
  ladder,
  linear,
  noRetry,
  type PolicyOptions,
  postfix,
  type RetryPolicy,
} from '../../core/policy.ts';
import { checkKeys, configError, inSection } from './config-errors.ts';

type Data = Readonly<Record<string, unknown>>;

interface Maker {
  /** What its first argument is called when it is written among the options. */
  readonly first?: string;
  readonly options: readonly string[];
  make(options: Data): RetryPolicy;
}

const COMMON = ['attempts', 'maxAge', 'jitter'] as const satisfies readonly (keyof PolicyOptions)[];

const MAKERS: Readonly<Record<string, Maker>> = {
  fixed: {
    first: 'delay',
    options: ['delay', ...COMMON],
    make: ({ delay, ...options }) => fixed(delay as Duration, options),
  },
  linear: {
    options: ['first', 'step', 'max', ...COMMON],
    make: (options) => linear(options as unknown as Parameters<typeof linear>[0]),
  },
  exponential: {
    options: ['first', 'factor', 'max', ...COMMON],
    make: (options) => exponential(options as unknown as Parameters<typeof exponential>[0]),
  },
  ladder: {
    first: 'delays',
    options: ['delays', 'maxAge', 'jitter'],
    make: ({ delays, ...options }) => ladder(delays as readonly Duration[], options),
  },
  postfix: { options: COMMON, make: (options) => postfix(options) },
  noRetry: { options: [], make: () => noRetry() },
  custom: {
    first: 'name',
    options: ['name', 'rungs', ...COMMON],
    make: ({ name, rungs, ...options }) =>
      custom(name as string, rungs as readonly Duration[], options),
  },
};

const ALLOWED = `one of ${Object.keys(MAKERS).join(', ')} with its options`;

/** The policies of a configuration, by name. */
export function policiesOf(value: unknown, key = 'policies'): Record<string, RetryPolicy> {
  if (value === undefined) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw configError(key, value, 'an object of names to policies');
  }
  const pairs = Object.entries(value).map(([name, policy]: [string, unknown]) => {
    if (/^[A-Za-z0-9._-]{1,64}$/.test(name))
      return [name, configPolicyOf(policy, `${key}.${name}`)];
    throw configError(key, name, 'names of 1 to 64 letters, digits, . _ -');
  });
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
  const names = Object.keys(data).filter((name) => Object.hasOwn(MAKERS, name));
  const [name = '', second] = names;
  const maker = MAKERS[name];
  if (maker === undefined || second !== undefined) {
    checkKeys(key, data, [...Object.keys(MAKERS), ...COMMON]);
    throw configError(key, value, ALLOWED);
  }
  return make(name, maker, data, key);
}

function make(name: string, maker: Maker, data: Data, key: string): RetryPolicy {
  const { [name]: inner, ...beside } = data;
  const options = isPlainObject(inner) ? { ...inner } : {};
  const isShort = !isPlainObject(inner) && inner !== null && inner !== true;
  if (isShort) {
    // `fixed: '5s'` and `ladder: ['2s']`: the one argument that is no option stands alone.
    if (maker.first === undefined)
      throw configError(`${key}.${name}`, inner, 'an object of options');
    options[maker.first] = inner;
  }
  checkKeys(`${key}.${name}`, options, maker.options);
  checkKeys(key, beside, maker.options);
  return inSection(`${key}.${name}`, () => maker.make({ ...beside, ...options }));
}
