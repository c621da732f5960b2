/**
 * redact — the fields of a log line as they may be seen: plain data, without secrets, of bounded
 * size.
 *
 * Pure. Every line that leaves through a logger passes through here. Promise: never throws,
 * whatever it is given, changes nothing of it, and what comes out holds no cycle and only data.
 */

import { HIDDEN, isSecretName, maskText } from './secret-text.ts';

/** What is hidden beside what is always hidden. */
export interface RedactOptions {
  /** Names of fields, at any depth; capitals do not matter. */
  readonly names?: readonly string[];
}

/** Makes lines fit to be seen. */
export interface Redactor {
  fields(fields: object): Record<string, unknown>;
  text(text: string): string;
}

const DEPTH_MAX = 8;
/** Values of one list or object. */
const ITEMS_MAX = 100;
/** Values of one line. */
const VALUES_MAX = 2_000;
/** One text, and all texts of a line. */
const TEXT_MAX_CHARS = 8_192;
const LINE_MAX_CHARS = 65_536;
/** Looked at beyond a cut, so that the end of a secret is still seen with its beginning. */
const BEYOND_CHARS = 4_096;
const NAME_MAX_CHARS = 200;

/** The fields as they may be seen; what was given stays as it is. */
export function redact(fields: object, options: RedactOptions = {}): Record<string, unknown> {
  return createRedactor(options).fields(fields);
}

/** The same for many lines. */
export function createRedactor({ names = [] }: RedactOptions = {}): Redactor {
  const hidden = new Set(names.map((name) => name.toLowerCase()));
  const isHidden = (name: string): boolean => isSecretName(name) || hidden.has(name.toLowerCase());
  return {
    fields: (fields) => new Look(isHidden).fields(fields),
    text: (text) => cutText(text, TEXT_MAX_CHARS),
  };
}

/** One look through the fields of one line. */
class Look {
  readonly #isHidden: (name: string) => boolean;
  /** What is being looked at: to meet it again is a circle. */
  readonly #above = new Set<object>();
  #valuesLeft = VALUES_MAX;
  #charsLeft = LINE_MAX_CHARS;

  constructor(isHidden: (name: string) => boolean) {
    this.#isHidden = isHidden;
  }

  fields(fields: object): Record<string, unknown> {
    const shown = this.#shown(fields, 0);
    // An error alone is the field `err`, as pino has it; anything else that is no object is odd.
    if (isError(fields)) return { err: shown };
    return typeof shown === 'object' && shown !== null && !Array.isArray(shown)
      ? (shown as Record<string, unknown>)
      : { value: shown };
  }

  #shown(value: unknown, depth: number): unknown {
    this.#valuesLeft -= 1;
    if (this.#valuesLeft < 0) return '…';
    switch (typeof value) {
      case 'string':
        return this.#text(value);
      case 'bigint':
        return this.#text(String(value));
      case 'function':
      case 'symbol':
        return `(${typeof value})`;
      case 'object':
        return value === null ? null : this.#object(value, depth);
      default:
        return value;
    }
  }

  #text(text: string): string {
    const shown = cutText(text, Math.min(TEXT_MAX_CHARS, this.#charsLeft));
    this.#charsLeft = Math.max(0, this.#charsLeft - shown.length);
    return shown;
  }

  #object(value: object, depth: number): unknown {
    if (this.#above.has(value)) return '(circle)';
    if (depth >= DEPTH_MAX) return '(deep)';
    this.#above.add(value);
    try {
      return this.#inside(value, depth);
    } catch {
      // A proxy, or a getter of something built in: nobody knows what it holds.
      return '(unreadable)';
    } finally {
      this.#above.delete(value);
    }
  }

  #inside(value: object, depth: number): unknown {
    if (Array.isArray(value)) {
      const items = value.slice(0, ITEMS_MAX).map((item) => this.#shown(item, depth + 1));
      return value.length > ITEMS_MAX ? [...items, `… ${value.length - ITEMS_MAX} more`] : items;
    }
    // Bodies are never shown, not even where somebody hands one over.
    if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
      return `(${value.byteLength} bytes)`;
    }
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
    if (value instanceof URL) return this.#text(value.href);
    if (isError(value)) return this.#error(value, depth);
    if (value instanceof Map || value instanceof Set) return `(${value.size} values)`;
    return this.#record(value, depth);
  }

  #record(value: object, depth: number): Record<string, unknown> {
    const names = Object.keys(value);
    const pairs = names.slice(0, ITEMS_MAX).map((name) => {
      // A name that somebody made of an address is one.
      const shownName = cutText(name, NAME_MAX_CHARS);
      return [shownName, this.#field(value, name, depth)] as const;
    });
    const more = names.length - ITEMS_MAX;
    return Object.fromEntries(more > 0 ? [...pairs, ['…', `${more} more`]] : pairs);
  }

  #field(holder: object, name: string, depth: number): unknown {
    try {
      const value: unknown = Reflect.get(holder, name);
      if (value === undefined || value === null || typeof value === 'boolean') return value;
      return this.#isHidden(name) ? HIDDEN : this.#shown(value, depth + 1);
    } catch {
      return '(unreadable)';
    }
  }

  /** As pino writes one, without its cause: what a client hangs there is a whole connection. */
  #error(error: Error, depth: number): Record<string, unknown> {
    const shown = ['message', 'code', 'stack'].map((name) => [
      name,
      this.#field(error, name, depth),
    ]);
    const type = this.#field(error, 'name', depth);
    const pairs = [['type', type], ...shown].filter(([, value]) => value !== undefined);
    return Object.fromEntries(pairs) as Record<string, unknown>;
  }
}

function isError(value: object): value is Error {
  try {
    return value instanceof Error;
  } catch {
    return false;
  }
}

/** Secrets first, then the cut: half a secret does not look like one. */
function cutText(text: string, maxChars: number): string {
  const masked = maskText(text.length > maxChars ? text.slice(0, maxChars + BEYOND_CHARS) : text);
  if (text.length <= maxChars && masked.length <= maxChars) return masked;
  const cut = masked.slice(0, maxChars).toWellFormed();
  return `${cut}… ${Math.max(0, text.length - maxChars)} more characters`;
}
