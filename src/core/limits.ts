/**
 * limits — the limits of what a message and a page may have, with their names, and the checks of
 * input: ids, topics, headers, keys, numbers, option names, kinds of records. Also the ranges of
 * replays. Limits of one part are in its own file.
 *
 * A value outside its limit is refused before anything is written, with code, value (unless it may
 * be secret) and allowed range.
 */

import type { Headers } from './entry.ts';
import { RespoolError, show } from './errors.ts';

/**
 * Also in the names of files (stores/filesystem); `idRange` of stores/shared relies on it. This and
 * what follows, but for refs and ports, is also in docs/reference/limits.md, most of it in
 * test/core/limits.test.ts.
 */
export const ID_PATTERN: RegExp = /^[0-9a-z][0-9a-z_-]{0,63}$/;
/**
 * The name of a stored body: the message id, and a suffix that makes it unique (`refOf` of
 * spool/caretaker.ts). Also part of names in the body stores of filesystem and s3. The text of
 * ports/body-store.ts names it.
 */
export const REF_MAX_CHARS = 128;
export const REF_PATTERN: RegExp = /^[0-9a-z][0-9a-z_-]{0,127}$/;
export const TOPIC_MAX_CHARS = 255;
export const HEADER_NAME_PATTERN: RegExp = /^[A-Za-z0-9._-]{1,128}$/;
export const HEADERS_MAX = 64;
/** Default limit of all headers of a message together, in bytes. */
export const HEADERS_MAX_BYTES: number = 32 * 2 ** 10;
export const KEY_MAX_CHARS = 255;
export const PRIORITY_DEFAULT = 5;
export const PRIORITY_MAX = 9;
export const PORT_MAX = 65_535;
/** The most entries of a list, as `ListQuery` promises. Also in docs/reference/http-api.md. */
export const PAGE_MAX = 500;

/** The smallest and the largest allowed number. */
export interface NumberRange {
  readonly min: number;
  readonly max: number;
}

/** The numbers of a replay, for its options, command lines and rules alike. */
export const REPLAY_RANGES = {
  /** Letters. */
  max: { min: 1, max: 1_000_000_000 },
  /** Letters. */
  canary: { min: 0, max: 1_000_000_000 },
  /** Letters per second. */
  rate: { min: 1, max: 1_000_000 },
  /** Letters on their way. */
  window: { min: 1, max: 1_000 },
  /** Percent. */
  stopAbove: { min: 0, max: 100 },
  /** Replays of one letter. */
  replaysMax: { min: 1, max: 1_000 },
} as const;

const TOPIC_PATTERN = /^[A-Za-z0-9_-]+(?:[.:/][A-Za-z0-9_-]+)*$/;
const TOPIC_PATTERN_SYNTAX = /^(?:[A-Za-z0-9_:/-]+|\*|#)(?:\.(?:[A-Za-z0-9_:/-]+|\*|#))*$/;

// oxlint-disable-next-line no-control-regex -- control characters are exactly what is refused here.
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const RESERVED_NAMES = new Set(['__proto__', 'constructor', 'prototype']);

/** Refuses an id that could not be a file name, a subject or an object key everywhere. */
export function checkId(id: unknown): string {
  if (typeof id === 'string' && ID_PATTERN.test(id)) return id;
  throw invalid('id', id, '1 to 64 of 0-9 a-z _ -, starting with a letter or digit');
}

/** Refuses the name of a body that could not be a file name or an object key everywhere. */
export function checkRef(ref: unknown): string {
  if (typeof ref === 'string' && REF_PATTERN.test(ref)) return ref;
  const allowed = `1 to ${REF_MAX_CHARS} of 0-9 a-z _ -, starting with a letter or digit`;
  throw invalid('ref of a body', ref, allowed);
}

/** Refuses a topic that is not words joined by `.`, `:` or `/`; `what` names it in the error. */
export function checkTopic(topic: unknown, what = 'topic'): string {
  const fits =
    typeof topic === 'string' && topic.length <= TOPIC_MAX_CHARS && TOPIC_PATTERN.test(topic);
  if (fits) return topic;
  const allowed = `words of A-Z a-z 0-9 _ - joined by . : /, up to ${TOPIC_MAX_CHARS} characters`;
  throw invalid(what, topic, allowed);
}

/** Refuses a topic pattern: words, `*` for one word, `#` for any number. */
export function checkTopicPattern(pattern: unknown): string {
  const fits =
    typeof pattern === 'string' &&
    pattern.length <= TOPIC_MAX_CHARS &&
    TOPIC_PATTERN_SYNTAX.test(pattern);
  if (fits) return pattern;
  throw invalid('topic pattern', pattern, 'dot-separated words, * for one word, # for any number');
}

/** Refuses header names and values that another protocol could misread. */
export function checkHeaders(headers: unknown, maxBytes: number): Headers {
  if (headers === undefined) return {};
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers)) {
    throw invalid('headers', headers, 'an object of names to strings');
  }
  const names = Object.keys(headers);
  if (names.length > HEADERS_MAX) throw tooMuch('headers', names.length, `${HEADERS_MAX} headers`);
  let totalBytes = 0;
  const clean: Record<string, string> = {};
  for (const name of names) {
    const value: unknown = (headers as Record<string, unknown>)[name];
    if (!HEADER_NAME_PATTERN.test(name) || RESERVED_NAMES.has(name)) {
      throw invalid('header name', name, '1 to 128 of A-Z a-z 0-9 . _ -');
    }
    if (!isText(value)) {
      throw invalid(`header "${name}"`, value, 'well-formed text without control characters');
    }
    totalBytes += name.length + utf8Bytes(value);
    clean[name] = value;
  }
  if (totalBytes > maxBytes) throw tooMuch('headers', totalBytes, `${maxBytes} bytes in all`);
  return clean;
}

/** Refuses a dedupe key, destination or the like: empty, too long, with control characters. */
export function checkKey(what: string, key: unknown): string {
  if (isText(key) && key !== '' && key.length <= KEY_MAX_CHARS) return key;
  throw invalid(what, key, `1 to ${KEY_MAX_CHARS} well-formed characters, no control characters`);
}

/** Refuses a priority that is not a whole number 0–9. */
export function checkPriority(priority: unknown): number {
  if (priority === undefined) return PRIORITY_DEFAULT;
  const value = Number.isInteger(priority) ? Number(priority) : -1;
  if (value >= 0 && value <= PRIORITY_MAX) return value;
  throw invalid('priority', priority, `a whole number 0 (first) to ${PRIORITY_MAX} (last)`);
}

/** Refuses what is not a list, such as one value alone. */
export function checkList(what: string, list: unknown, allowed: string): readonly unknown[] {
  if (Array.isArray(list)) return list;
  throw invalid(what, list, allowed);
}

/** Refuses what is not a list of ids. Whether there is a message of an id is the store's answer. */
export function checkIds(ids: unknown): void {
  const wrong = checkList('ids', ids, IDS_ALLOWED).findIndex((id) => typeof id !== 'string');
  if (wrong >= 0) throw invalid(`ids[${wrong}]`, (ids as unknown[])[wrong], IDS_ALLOWED);
}

const IDS_ALLOWED = "a list of message ids, such as ['id']";

/** Refuses a setting outside its range, by its name. */
export function checkNumber(
  what: string,
  value: unknown,
  range: NumberRange,
  isWhole = true,
): number {
  if (isInRange(value, range, isWhole)) return value;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is a ${isWhole ? 'whole ' : ''}number ` +
      `${range.min} to ${range.max}`,
  );
}

/** Whether a value is a number, whole if wanted, within a range. */
export function isInRange(
  value: unknown,
  { min, max }: NumberRange,
  isWhole: boolean,
): value is number {
  const isNumber = typeof value === 'number' && (!isWhole || Number.isInteger(value));
  return isNumber && value >= min && value <= max;
}

/** Refuses a setting that is not one of a list of words. */
export function checkOneOf<const T extends string>(
  what: string,
  value: unknown,
  allowed: readonly T[],
): T {
  const found = allowed.find((word) => word === value);
  if (found !== undefined) return found;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}": allowed is ${allowed.join(' | ')}`,
  );
}

/** Refuses option names that do not exist, so that a typing error is not silently a default. */
export function checkNames(what: string, value: object, texts: readonly string[]): void {
  if (!isObject(value)) {
    // n.b. Not the value: in place of options it may be an address with a password.
    const type = value === null ? 'null' : typeof value;
    throw new RespoolError(
      'config.invalid',
      `cannot use a value of type ${type} as options of ${what}: allowed is an object with ` +
        texts.join(', '),
    );
  }
  const name = unknownName(value, texts);
  if (name === undefined) return;
  throw new RespoolError(
    'config.invalid',
    `there is no option "${name}" of ${what}: known are ${texts.join(', ')}`,
  );
}

/** The prefixes of the kinds of records that other rooms may keep beside the messages. */
const RECORD_KINDS = ['dlq.', 'alert.'] as const;

/** Refuses a kind of records without one of these prefixes: the others are the spool's own. */
export function checkRecordKind(kind: unknown): void {
  const fits =
    typeof kind === 'string' &&
    RECORD_KINDS.some((prefix) => kind.startsWith(prefix) && kind !== prefix);
  if (fits) return;
  const [letters, alerts] = RECORD_KINDS;
  throw new RespoolError(
    'config.invalid',
    `cannot use records of kind ${show(kind)}: those of dead letters begin with "${letters}", ` +
      `those of alerts with "${alerts}"`,
  );
}

/** Refuses fields of a message that do not exist, as `checkNames` does for options. */
export function checkFields(message: object, texts: readonly string[]): void {
  const name = unknownName(message, texts);
  if (name === undefined) return;
  throw new RespoolError(
    'message.invalid',
    `there is no field "${name}" of a message: known are ${texts.join(', ')}`,
  );
}

function isObject(value: unknown): boolean {
  return (typeof value === 'object' && value !== null) || typeof value === 'function';
}

function unknownName(value: object, texts: readonly string[]): string | undefined {
  return Object.keys(value).find((name) => !texts.includes(name));
}

/** Half a surrogate pair cannot be written as UTF-8: it would come back as another character. */
function isText(value: unknown): value is string {
  return typeof value === 'string' && !CONTROL.test(value) && value.isWellFormed();
}

function utf8Bytes(text: string): number {
  let bytes = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    // A surrogate counts two: its pair makes the four bytes of one character.
    if (unit < 0x80) bytes += 1;
    else if (unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff)) bytes += 2;
    else bytes += 3;
  }
  return bytes;
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'message.invalid',
    `cannot use ${show(value)} as ${what}: allowed is ${allowed}`,
  );
}

function tooMuch(what: string, value: number, allowed: string): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot accept ${what}: ${value} is more than the allowed ${allowed}`,
  );
}

/** An object that is data: from a literal or a parser. */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
