/**
 * fallback-properties — the properties of a message as one line of text, and back.
 *
 * JSON, with a tag around what JSON has no word for: `{ "respool-bytes": "…" }`. A table of a user
 * that looks like such a tag is put into a tag itself. Nothing is changed silently: what comes back
 * is what went in, or it is refused.
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { Properties } from '../connection/amqp.ts';

const BYTES = 'respool-bytes';
const NUMBER = 'respool-number';
const INTEGER = 'respool-integer';
const DATE = 'respool-date';
const TABLE = 'respool-table';
const TAGS: ReadonlySet<string> = new Set([BYTES, NUMBER, INTEGER, DATE, TABLE]);

/** The properties as text without control characters: a header of a spool holds none. */
export function writtenProperties(properties: Properties): string {
  return JSON.stringify(written(properties)).replaceAll(
    // JSON escapes only those below.
    /[\u007f-\u009f]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** The properties that were written. */
export function readProperties(text: string): Properties {
  return readValue(JSON.parse(text)) as Properties;
}

function written(value: unknown): unknown {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value;
    case 'number':
      // JSON writes null for some of these, and 0 for -0.
      if (Number.isFinite(value) && !Object.is(value, -0)) return value;
      return { [NUMBER]: Object.is(value, -0) ? '-0' : String(value) };
    case 'bigint':
      return { [INTEGER]: String(value) };
    case 'object':
      return value === null ? null : writtenObject(value);
    default:
      throw new RespoolError(
        'message.invalid',
        `cannot write down ${show(value)} in the properties of a message: allowed are text, ` +
          'numbers, booleans, null, bytes, dates, and lists and tables of them',
      );
  }
}

// n.b. No toJSON is asked: a Buffer and a Date have one.
function writtenObject(value: object): unknown {
  if (value instanceof Uint8Array) return { [BYTES]: Buffer.from(value).toString('base64') };
  if (value instanceof Date) return { [DATE]: written(value.getTime()) };
  if (Array.isArray(value)) return Array.from(value, written);
  const pairs = Object.entries(value)
    .filter(([, one]) => one !== undefined)
    .map(([name, one]) => [name, written(one)] as const);
  const table: unknown = Object.fromEntries(pairs);
  const isLikeTag = pairs.length === 1 && TAGS.has(pairs[0]?.[0] ?? '');
  return isLikeTag ? { [TABLE]: table } : table;
}

function readValue(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(readValue);
  const pairs = Object.entries(value);
  const [name, inner] = pairs.length === 1 ? (pairs[0] ?? ['', undefined]) : ['', undefined];
  switch (name) {
    case BYTES:
      return Buffer.from(String(inner), 'base64');
    case NUMBER:
      return Number(inner);
    case INTEGER:
      return BigInt(String(inner));
    case DATE:
      return dateOf(readValue(inner));
    case TABLE:
      return readTable(Object.entries(inner as object));
    default:
      return readTable(pairs);
  }
}

function readTable(pairs: readonly (readonly [string, unknown])[]): unknown {
  return Object.fromEntries(pairs.map(([name, value]) => [name, readValue(value)]));
}

function dateOf(ms: unknown): Date {
  return new Date(Number(ms));
}
