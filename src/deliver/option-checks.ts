/** option-checks — checks of options that are lists or records of texts. */

import { RespoolError, show } from '../core/errors.ts';

/** Refuses an option that is not a list. */
export function checkOptionList(what: string, list: unknown, allowed: string): readonly unknown[] {
  if (Array.isArray(list)) return list;
  throw refused(what, list, allowed);
}

/** Refuses an option that is not a list of texts that pass the test. */
export function checkTexts(
  what: string,
  list: unknown,
  allowed: string,
  fits: (text: string) => boolean,
): readonly string[] {
  return checkOptionList(what, list, `a list of texts: ${allowed}`).map((text) => {
    if (typeof text === 'string' && fits(text)) return text;
    throw refused(what, text, allowed);
  });
}

/** Refuses an option that is not an object of names to texts; gives its pairs. */
export function checkRecord(
  what: string,
  record: unknown,
  allowed: string,
): readonly (readonly [name: string, value: string])[] {
  if (typeof record !== 'object' || record === null || Array.isArray(record)) {
    throw refused(what, record, allowed);
  }
  return Object.entries(record).map(([name, value]: [string, unknown]) => {
    if (typeof value === 'string') return [name, value] as const;
    throw refused(`${what}.${name}`, value, 'a text');
  });
}

/** The error of an option that is not what it may be. */
export function refused(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed}`,
  );
}
