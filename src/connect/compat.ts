/** compat — whose queues are shared: another system by its name, or as a program has made it. */

import { didYouMean } from './nearest.ts';
import { refused } from './problems.ts';

const COMPAT_NAMES = ['goqueue', 'spring', 'outbox'] as const;

/** Another system by its name, or made by a program. */
export type CompatConfig = (typeof COMPAT_NAMES)[number] | object;

/** The system that a configuration names, or undefined. */
export function compatOf(given: unknown, key: string): CompatConfig | undefined {
  if (given === undefined) return undefined;
  if (typeof given === 'object' && given !== null) return given;
  const name = COMPAT_NAMES.find((one) => one === given);
  if (name !== undefined) return name;
  const hint = typeof given === 'string' ? didYouMean(given, COMPAT_NAMES) : '';
  throw refused(key, given, `${COMPAT_NAMES.join(' | ')}, or what their functions make${hint}`);
}
