/** compat — whose queues are shared: another system by its name, or as a program has made it. */

import { isPlainObject } from '../../core/plain-object.ts';
import type { Compat } from '../../rabbit/compat/shared.ts';
import { goqueue } from '../../rabbit/compat/goqueue.ts';
import { outbox } from '../../rabbit/compat/outbox.ts';
import { spring } from '../../rabbit/compat/spring.ts';
import { didYouMean } from './did-you-mean.ts';
import { checkKeys, configError, inSection } from './config-errors.ts';

const COMPAT_NAMES = ['goqueue', 'spring', 'outbox'] as const satisfies Compat['name'][];

type Options = Readonly<Record<string, unknown>>;

const MAKERS: Readonly<Record<Compat['name'], (options: Options) => Compat>> = {
  goqueue: (options) => goqueue(options),
  spring: (options) => spring(options),
  outbox: (options) => outbox(options),
};

const ALLOWED = `${COMPAT_NAMES.join(' | ')}, one of them with its options, or what they make`;

/** The system that a configuration names, or undefined. */
export function compatOf(given: unknown, key: string): Compat | undefined {
  if (given === undefined) return undefined;
  if (typeof given === 'string') {
    if (isName(given)) return MAKERS[given]({});
    throw configError(key, given, `${ALLOWED}${didYouMean(given, COMPAT_NAMES)}`);
  }
  if (isMade(given)) return given;
  if (!isPlainObject(given)) throw configError(key, given, ALLOWED);
  checkKeys(key, given, COMPAT_NAMES);
  const [name, second] = Object.keys(given).filter(isName);
  if (name === undefined || second !== undefined) throw configError(key, given, ALLOWED);
  const options = given[name] ?? {};
  if (!isPlainObject(options)) throw configError(`${key}.${name}`, options, 'an object of options');
  return inSection(`${key}.${name}`, () => MAKERS[name](options));
}

function isName(name: string): name is Compat['name'] {
  return (COMPAT_NAMES as readonly string[]).includes(name);
}

function isMade(given: unknown): given is Compat {
  if (typeof given !== 'object' || given === null) return false;
  const { wire, style } = given as Partial<Compat>;
  return typeof wire === 'object' && typeof style === 'object';
}
