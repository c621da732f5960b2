/** options — checks of the options of middleware, made when it is created, before any delivery. */

import { RespoolError, show } from '../core/errors.ts';
import { type OptionTable, type OptionValues, readOptions } from '../core/option-table.ts';

/**
 * The option that every middleware with a sense of time has; `npm run options` writes `ts` and
 * `about` into their interfaces. Other rooms have CLOCK_OPTION of core/option-table.ts.
 */
export const CLOCK = {
  kind: 'code',
  ts: 'Clock',
  about: "time; the machine's unless given, a test gives its virtual one",
} as const;

/** The options of a middleware, with their defaults; refuses what is no object. */
export function checkMiddlewareOptions<const Table extends OptionTable>(
  what: string,
  options: object,
  table: Table,
): OptionValues<Table> {
  const given: unknown = options;
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw optionError(
      `options of ${what}`,
      given,
      `an object with ${Object.keys(table).join(', ')}`,
    );
  }
  return readOptions({ what }, given, table);
}

/** Refuses what is not a function. */
export function checkFunction(what: string, value: unknown): void {
  if (typeof value !== 'function') throw optionError(what, value, 'a function');
}

/** Refuses an object that lacks one of the methods that will be called. */
export function checkMethods(what: string, value: unknown, names: readonly string[]): void {
  const given = value as Readonly<Record<string, unknown>> | null | undefined;
  const missing = names.find((name) => typeof given?.[name] !== 'function');
  if (missing === undefined) return;
  throw optionError(
    what,
    value,
    `an object with the methods ${names.join(', ')}; it has no ${missing}`,
  );
}

/** The error for an option that cannot be used. */
export function optionError(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed}`,
  );
}
