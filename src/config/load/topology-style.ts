/** topology-style — the style of a topology by its name, as data, or as a program has made it. */

import { isPlainObject } from '../../core/plain-object.ts';
import type { TopologyStyle } from '../../rabbit/topology/model.ts';
import { perAttempt } from '../../rabbit/topology/per-attempt.ts';
import { perDelay } from '../../rabbit/topology/per-delay.ts';
import { shared } from '../../rabbit/topology/shared.ts';
import { didYouMean } from './did-you-mean.ts';
import { checkKeys, configError, inSection } from './config-errors.ts';

type StyleName = (typeof STYLE_NAMES)[number];

const STYLE_NAMES = ['shared', 'perDelay', 'perAttempt'] as const;

interface Maker {
  readonly options: readonly string[];
  make(options: Readonly<Record<string, unknown>>): TopologyStyle;
}

const MAKERS: Readonly<Record<StyleName, Maker>> = {
  shared: { options: ['prefix'], make: (options) => shared(options) },
  perDelay: { options: ['by', 'exchange'], make: (options) => perDelay(options) },
  perAttempt: { options: [], make: () => perAttempt() },
};

const ALLOWED = `${STYLE_NAMES.join(' | ')}, one of them with its options, or a style`;

/** The style that a configuration names, or undefined. */
export function styleOf(given: unknown, key: string): TopologyStyle | undefined {
  if (given === undefined) return undefined;
  if (typeof given === 'string') {
    if (!isStyleName(given)) {
      throw configError(key, given, `${ALLOWED}${didYouMean(given, STYLE_NAMES)}`);
    }
    return MAKERS[given].make({});
  }
  if (isStyle(given)) return given;
  if (!isPlainObject(given)) throw configError(key, given, ALLOWED);
  checkKeys(key, given, STYLE_NAMES);
  const [name, second] = Object.keys(given).filter(isStyleName);
  if (name === undefined || second !== undefined) throw configError(key, given, ALLOWED);
  const options = given[name] ?? {};
  const whole = `${key}.${name}`;
  if (!isPlainObject(options)) throw configError(whole, options, 'an object of options');
  checkKeys(whole, options, MAKERS[name].options);
  return inSection(whole, () => MAKERS[name].make(options));
}

function isStyleName(name: string): name is StyleName {
  return (STYLE_NAMES as readonly string[]).includes(name);
}

function isStyle(given: unknown): given is TopologyStyle {
  if (typeof given !== 'object' || given === null) return false;
  const { name, plan } = given as Partial<TopologyStyle>;
  return typeof name === 'string' && typeof plan === 'function';
}
