/**
 * publisher-headers — refuses headers that AMQP or the broker would not take, before they are sent
 * or kept: the broker answers some of them by ending the channel, and with it everything that is on
 * its way there.
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { Table } from '../connection/amqp.ts';

/** More keys for one message: the broker wants lists. */
const KEY_LISTS = ['CC', 'BCC'] as const;

/** The name of a header, in bytes. */
const NAME_MAX_BYTES = 255;
/** Tables and lists within each other; a cycle has no end. */
const DEPTH_MAX = 32;

/** Which list of further keys is none; undefined: all is well. */
export function badKeyList(headers: Table): string | undefined {
  for (const name of KEY_LISTS) {
    const value = headers[name];
    if (value === undefined) continue;
    const isList = Array.isArray(value) && value.every((key) => typeof key === 'string');
    if (!isList) {
      return `cannot use ${show(value)} as header "${name}": allowed is a list of routing keys`;
    }
  }
  return undefined;
}

/** Refuses what no broker takes, so that it fails the same way with a fallback and without. */
export function checkHeaders(headers: Table): void {
  const bad = badKeyList(headers);
  if (bad !== undefined) throw new RespoolError('message.invalid', bad);
  for (const [name, value] of Object.entries(headers)) {
    checkName(name);
    checkValue(name, value, 1);
  }
}

function checkName(name: string): void {
  // n.b. No character takes more than three bytes for each unit of its length.
  if (name.length * 3 <= NAME_MAX_BYTES || Buffer.byteLength(name) <= NAME_MAX_BYTES) return;
  const text = `cannot use header ${show(name)}: its name may have ${NAME_MAX_BYTES} bytes`;
  throw new RespoolError('message.invalid', text);
}

function checkValue(name: string, value: unknown, depth: number): void {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return;
    case 'number':
      // n.b. amqplib takes Infinity, and neither of these.
      if (!Number.isNaN(value) && value !== -Infinity) return;
      throw refused(name, value, "{ '!': 'double', value }");
    case 'bigint':
      throw refused(name, value, "{ '!': 'int64', value }");
    case 'undefined':
      // Left out of a table; a list has no gaps.
      if (depth === 1) return;
      break;
    case 'object':
      if (value === null) return;
      checkObject(name, value, depth);
      return;
    default:
  }
  throw refused(name, value);
}

function checkObject(name: string, value: object, depth: number): void {
  if (Buffer.isBuffer(value)) return;
  if (depth > DEPTH_MAX) {
    const text = `cannot use header "${name}": it is nested more than ${DEPTH_MAX} deep`;
    throw new RespoolError('message.invalid', text);
  }
  if (Array.isArray(value)) {
    for (const one of value as unknown[]) checkValue(name, one, depth + 1);
    return;
  }
  // With a type of its own amqplib takes what it would have to guess otherwise.
  if (Object.hasOwn(value, '!')) return;
  // n.b. It would write a Date as an empty table, and bytes that are no Buffer as one of numbers.
  if (value instanceof Date) {
    throw refused(name, value, "{ '!': 'timestamp', value: seconds }, or text");
  }
  if (Object.prototype.toString.call(value) !== '[object Object]') throw refused(name, value);
  for (const [inner, one] of Object.entries(value)) {
    checkName(inner);
    if (one !== undefined) checkValue(name, one, depth + 1);
  }
}

const ALLOWED = 'text, a number, a boolean, null, a Buffer, or a list or table of them';

function refused(name: string, value: unknown, instead: string = ALLOWED): RespoolError {
  const text = `cannot use ${show(value)} in header "${name}": AMQP has no such value`;
  return new RespoolError('message.invalid', `${text}; use ${instead}`);
}
