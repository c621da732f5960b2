/** field-text — one `name=value` of a line for people: its end is plain to see. */

import { safe } from './safe-text.ts';

/** A name and what it is; undefined is left out. */
export type Field = readonly [name: string, value: string | number | undefined];

/** ` name=value`, in quotes where the value has blanks or quotes, or is none. */
export function fieldText([name, value]: Field): string {
  if (value === undefined) return '';
  const text = typeof value === 'number' ? String(value) : safe(value);
  // A reason is always in quotes.
  const isBare = name !== 'reason' && text !== '' && !/[\s"=]/.test(text);
  return ` ${safe(name)}=${isBare ? text : JSON.stringify(text)}`;
}
