/**
 * json — the body of a request as JSON, within bounds, and without names that could change what
 * objects are.
 *
 * What is read here blocks everybody else: so the bytes are looked over before they are parsed, and
 * what was parsed before a schema sees it. Both stop at the first thing that is too much.
 */

import { isRespoolError, RespoolError, show } from '../../core/errors.ts';
import { scanJson } from '../../core/scan-json.ts';
import { HttpRefusal } from './refusal.ts';
import { checkEncoding } from '../http-values.ts';

/** As RESERVED_NAMES of core/limits.ts. */
const RESERVED = new Set(['__proto__', 'constructor', 'prototype']);
/** The one name below which everything is the caller's own data, kept as text. */
const OPAQUE = 'body';
/** Levels outside of bodies. Also in docs/reference/http-api.md. */
const DEPTH_MAX = 16;
/** Levels in all, bodies included. Also in docs/reference/http-api.md. */
const DEPTH_IN_ALL_MAX = 256;
/**
 * Values in one request, bodies included: 1.5 million names take a second to parse. Also in
 * docs/reference/http-api.md.
 */
const VALUES_MAX = 500_000;
/**
 * Values in one request outside of bodies: 1,000 messages with all the headers they may have. Also
 * in docs/reference/http-api.md.
 */
const OWN_VALUES_MAX = 100_000;
/**
 * Values in one list outside of bodies: as many ids as a request may have (IDS_MAX of
 * routes/schemas.ts). Also in docs/reference/http-api.md.
 */
const LIST_MAX = 5_000;
/** Names in one object outside of bodies. Also in docs/reference/http-api.md. */
const NAMES_MAX = 100;

/**
 * Reads JSON; refuses other content types and encodings, too much of it, reserved and duplicate
 * names, and numbers that JavaScript would change. Called by endpoint.ts.
 */
export function jsonOf(bytes: Uint8Array, request: Request): unknown {
  const type = request.headers.get('content-type') ?? '';
  if (!/^application\/json *(?:;|$)/i.test(type)) {
    const text = 'send JSON with the header "content-type: application/json"';
    throw new HttpRefusal(415, 'content-type', text);
  }
  checkEncoding(request.headers.get('content-encoding') ?? undefined);
  let value: unknown;
  try {
    const names = checkBytes(bytes);
    const text = UTF8.decode(bytes);
    value = JSON.parse(text);
    if (namesIn(value) !== names) throw duplicateNameError(text);
    new Look().over(value, 0);
  } catch (error) {
    if (isRespoolError(error)) throw error;
    throw new HttpRefusal(
      400,
      'json.invalid',
      'cannot read the body of the request as JSON in UTF-8',
    );
  }
  return value;
}

/** Whether bytes are an object or a list in JSON, from the first byte to the last. */
export function isJson(bytes: Uint8Array): boolean {
  if (bytes[0] !== OBJECT_BEGINS && bytes[0] !== LIST_BEGINS) return false;
  try {
    JSON.parse(UTF8.decode(bytes));
    return true;
  } catch {
    return false;
  }
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const CAPITAL_E = 0x45;
const LIST_BEGINS = 0x5b;
const BACKSLASH = 0x5c;
const LIST_ENDS = 0x5d;
const SMALL_E = 0x65;
const OBJECT_BEGINS = 0x7b;
const OBJECT_ENDS = 0x7d;

/** Counts levels, values and names without parsing: 16 MiB take some 30 ms. Returns the names. */
function checkBytes(bytes: Uint8Array): number {
  let names = 0;
  let depth = 0;
  let values = 1;
  let isText = false;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (isText) {
      if (byte === BACKSLASH) at += 1;
      else if (byte === QUOTE) isText = false;
    } else if (byte === QUOTE) isText = true;
    else if (byte === COMMA) values += 1;
    else if (byte === COLON) names += 1;
    else if (byte === MINUS || isDigit(byte)) {
      const end = endOfNumber(bytes, at);
      checkNumber(bytes.subarray(at, end));
      at = end - 1;
    } else if (byte === LIST_BEGINS || byte === OBJECT_BEGINS) {
      depth += 1;
      values += 1;
      if (depth > DEPTH_IN_ALL_MAX) throw tooMuch(`${DEPTH_IN_ALL_MAX} levels`);
    } else if (byte === LIST_ENDS || byte === OBJECT_ENDS) depth -= 1;
    if (values > VALUES_MAX) throw tooMuch(`${VALUES_MAX} values`);
  }
  return names;
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE;
}

function endOfNumber(bytes: Uint8Array, begin: number): number {
  let at = begin + 1;
  while (isDigit(bytes[at]) || IN_NUMBERS.has(bytes[at])) at += 1;
  return at;
}

const IN_NUMBERS = new Set<number | undefined>([PLUS, MINUS, POINT, CAPITAL_E, SMALL_E]);
/** Whole numbers with as many characters or fewer, and no exponent, are always exact. */
const EXACT_CHARS = 15;

/** `JSON.parse` rounds whole numbers beyond 2^53, and makes too large ones null when written. */
function checkNumber(bytes: Uint8Array): void {
  const isShort = bytes.length <= EXACT_CHARS;
  if (isShort && !bytes.includes(SMALL_E) && !bytes.includes(CAPITAL_E)) return;
  const text = UTF8.decode(bytes);
  const value = Number(text);
  const isInfinite = Math.abs(value) === Infinity;
  // n.b. JavaScript writes 2^63 as 9223372036854776000, and reads that as the same number.
  const isRounded =
    /^-?\d+$/.test(text) && String(value) !== text && BigInt(text) !== BigInt(value);
  if (!isInfinite && !isRounded) return;
  const why =
    `cannot use the number ${show(text)} in JSON: it would be changed; send it as text, ` +
    'or the JSON as the bytes of a body';
  throw new HttpRefusal(400, 'json.invalid', why);
}

/** Number of keys in all objects; lower than in the text if there is a duplicate key. */
function namesIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const inside: readonly unknown[] = Object.values(value);
  let names = Array.isArray(value) ? 0 : inside.length;
  for (const one of inside) names += namesIn(one);
  return names;
}

/** Of two values under one key `JSON.parse` silently keeps only the last. */
function duplicateNameError(text: string): HttpRefusal {
  const { duplicateKeyAt } = scanJson(text);
  const name =
    duplicateKeyAt === undefined ? undefined : NAME.exec(text.slice(duplicateKeyAt))?.[0];
  const what = name === undefined ? 'a name' : `the name ${show(JSON.parse(name))}`;
  const why =
    `cannot use JSON with a duplicate key: ${what} appears twice in one object; ` +
    'remove one of them';
  return new HttpRefusal(400, 'json.invalid', why);
}

const NAME = /^"(?:[^"\\]|\\.){0,200}"/;

/** Validates everything except message bodies, in one pass. */
class Look {
  #values = 0;

  over(value: unknown, depth: number): void {
    this.#values += 1;
    if (this.#values > OWN_VALUES_MAX) throw tooMuch(`${OWN_VALUES_MAX} values outside of bodies`);
    if (typeof value !== 'object' || value === null) return;
    if (depth > DEPTH_MAX) throw tooMuch(`${DEPTH_MAX} levels outside of bodies`);
    if (Array.isArray(value)) {
      if (value.length > LIST_MAX) throw tooMuch(`${LIST_MAX} values in one list`);
      for (const one of value) this.over(one, depth + 1);
      return;
    }
    const names = Object.keys(value);
    if (names.length > NAMES_MAX) throw tooMuch(`${NAMES_MAX} names in one object`);
    for (const name of names) {
      if (RESERVED.has(name)) {
        throw new RespoolError('config.invalid', `cannot use the name "${name}" in JSON`);
      }
      if (name !== OPAQUE) this.over((value as Record<string, unknown>)[name], depth + 1);
    }
  }
}

function tooMuch(what: string): HttpRefusal {
  return new HttpRefusal(400, 'json.too-much', `cannot use JSON of more than ${what}`, {
    code: 'limit.exceeded',
  });
}
