/**
 * http-values — values of HTTP headers and query parameters, in both directions, and the names of
 * our own headers; for the server and the client.
 */

import type { Duration, Millis } from '../core/duration.ts';
import { RespoolError, show } from '../core/errors.ts';
import { printable } from '../core/failure.ts';
import { HttpRefusal } from './server/refusal.ts';

/** The header that every answer of a service carries, and the version of the API in it. */
export const API_HEADER = 'respool';
export const API_VERSION = 'v1';
/** The id of the store that the service has open; an answer of `/healthz` has it. */
export const STORE_HEADER = 'respool-store';

/** A span: digits alone are milliseconds. Not checked here: the spool reads it. */
export function spanOf(text: string): Duration {
  return DIGITS.test(text) ? Number(text) : text;
}

/** A whole number, 0 or more. */
export function wholeOf(what: string, text: string): number {
  if (DIGITS.test(text)) return Number(text);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(text)} as "${what}": allowed is a whole number`,
  );
}

/** A moment: milliseconds since the epoch, or in ISO 8601 a date, or a time with its UTC offset. */
export function momentOf(what: string, text: string | number): Millis {
  if (typeof text === 'number') return text;
  if (DIGITS.test(text)) return Number(text);
  const at = isTime(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(at)) return at;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(text)} as "${what}": allowed is milliseconds since 1970 or a time such ` +
      'as 2030-01-31T12:00:00Z',
  );
}

/** n.b. `Date.parse` takes 31 February for 3 March. */
function isTime(text: string): boolean {
  if (!ISO.test(text)) return false;
  const [year = 0, month = 0, day = 0] = text.slice(0, 10).split('-').map(Number);
  return new Date(Date.UTC(year, month - 1, day)).getUTCDate() === day;
}

/** Refuses an encoded body: it would be stored compressed, without a record of that. */
export function checkEncoding(encoding: string | undefined): void {
  if (encoding === undefined || /^ *(?:identity)? *$/i.test(encoding)) return;
  throw new HttpRefusal(
    415,
    'content-encoding',
    `cannot use the content-encoding ${show(encoding)}: send the body as it is`,
  );
}

/** A header's value as text: HTTP carries bytes, and we take them for UTF-8. */
export function textOfHeader(name: string, value: string): string {
  if (!BEYOND_ASCII.test(value)) return value;
  const text = Buffer.from(value, 'latin1').toString('utf8');
  if (!text.includes('\uFFFD')) return text;
  throw new RespoolError(
    'message.invalid',
    `cannot read the header "${name}": allowed is text in UTF-8`,
  );
}

/** The other way: text as HTTP carries it. */
export function headerOfText(text: string): string {
  return BEYOND_ASCII.test(text) ? Buffer.from(text, 'utf8').toString('latin1') : text;
}

/** A text of others for a log line: nothing in it can end the line or steer a terminal. */
export function oneLine(text: string): string {
  const cut = text.length > LINE_MAX_CHARS ? `${text.slice(0, LINE_MAX_CHARS)}…` : text;
  return printable(cut);
}

const LINE_MAX_CHARS = 1_000;
const DIGITS = /^\d{1,15}$/;
const ISO = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d))?$/;
const BEYOND_ASCII = /[\u0080-\u{10ffff}]/u;
