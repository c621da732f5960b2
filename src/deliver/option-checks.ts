/**
 * option-checks — checks of options of `http()` and `exec()` that are lists or objects of strings,
 * and the error for an invalid option.
 */

import { RespoolError, show } from '../core/errors.ts';

/** Refuses an option that is not a list. */
export function checkOptionList(what: string, list: unknown, allowed: string): readonly unknown[] {
  if (Array.isArray(list)) return list;
  throw invalidOption(what, list, allowed);
}

/** Refuses an option that is not a list of strings that pass the test. */
export function checkTexts(
  what: string,
  list: unknown,
  allowed: string,
  fits: (text: string) => boolean,
): readonly string[] {
  return checkOptionList(what, list, `a list of texts: ${allowed}`).map((text) => {
    if (typeof text === 'string' && fits(text)) return text;
    throw invalidOption(what, text, allowed);
  });
}

/** Refuses an option that is not an object with strings as values; returns its entries. */
export function checkStringRecord(
  what: string,
  record: unknown,
  allowed: string,
): readonly (readonly [name: string, value: string])[] {
  // Values are not shown: headers and environments carry passwords and tokens.
  if (typeof record !== 'object' || record === null || Array.isArray(record)) {
    throw invalidOption(what, typeof record, allowed);
  }
  return Object.entries(record).map(([name, value]: [string, unknown]) => {
    if (typeof value === 'string') return [name, value] as const;
    throw invalidOption(`${what}.${name}`, typeof value, 'a text');
  });
}

/** The error for an invalid option. */
export function invalidOption(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed}`,
  );
}
