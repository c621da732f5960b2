/** options — the checks that every middleware makes when it is built, before any delivery. */

import { RespoolError, show } from '../core/errors.ts';
import { checkNames } from '../core/limits.ts';

/** Refuses options that are no object, or have a name that does not exist. */
export function checkOptions(what: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw refused(`options of ${what}`, options, `an object with ${known.join(', ')}`);
  }
  checkNames(what, options, known);
}

/** Refuses what is not a function. */
export function checkFunction(what: string, value: unknown): void {
  if (typeof value !== 'function') throw refused(what, value, 'a function');
}

/** Refuses an object that lacks one of the methods that will be called. */
export function checkMethods(what: string, value: unknown, names: readonly string[]): void {
  const given = value as Readonly<Record<string, unknown>> | null | undefined;
  const missing = names.find((name) => typeof given?.[name] !== 'function');
  if (missing === undefined) return;
  throw refused(
    what,
    value,
    `an object with the methods ${names.join(', ')}; it has no ${missing}`,
  );
}

/** The error for an option that cannot be used. */
export function refused(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed}`,
  );
}
