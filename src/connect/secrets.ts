/**
 * secrets — what must not be printed, found by its name or by its place in a URL.
 *
 * Whoever loads a configuration collects its secrets here, and lets every text that goes out pass
 * through `hide`.
 */

import { decoded, HIDDEN, isSecretName, maskUrls } from '../core/secret-text.ts';

export { HIDDEN, maskUrls };

/** Shorter ones are part of too many ordinary words to be cut out of a text. */
const HIDE_MIN_CHARS = 6;

/** Data that goes deeper goes round in circles. */
const DEPTH_MAX = 32;

/** Whether a variable of the environment is not to be seen. */
export function isSecretVariable(name: string): boolean {
  // The folder that a shell stands in is no password.
  return name !== 'PWD' && isSecretName(name);
}

/** The secrets of one configuration. */
export class Secrets {
  readonly #values = new Set<string>();

  /** Remembers a text that is not to be seen. */
  add(value: unknown): void {
    if (typeof value === 'string' && value.length >= HIDE_MIN_CHARS) this.#values.add(value);
  }

  /** Remembers whatever a configuration holds under the name of a secret, at any depth. */
  collect(value: unknown, name = '', depth = 0): void {
    if (depth > DEPTH_MAX) return;
    if (typeof value === 'string') {
      if (isSecretName(name)) this.add(value);
      for (const text of new Set([value, decoded(value)])) this.#collectUsers(text);
      return;
    }
    if (Array.isArray(value)) for (const item of value) this.collect(item, name, depth + 1);
    else if (isPlain(value)) {
      for (const [inner, item] of Object.entries(value)) {
        // What stands inside a secret is one; a list of tokens also holds their names.
        const isInside = isSecretName(name) && name !== 'tokens' && !isSecretName(inner);
        this.collect(item, isInside ? name : inner, depth + 1);
      }
    }
  }

  /** The passwords of the addresses in a text; alone, a user is a token. */
  #collectUsers(text: string): void {
    for (const [, userinfo = ''] of text.matchAll(/:\/\/([^\s/?#,]+)@/g)) {
      const [user, ...parts] = userinfo.split(':');
      for (const part of parts.length === 0 && /^nats:/i.test(text) ? [user] : parts) {
        this.add(part);
        this.add(decoded(part ?? ''));
      }
    }
  }

  /** A text without the secrets that are known, and without what URLs should not show. */
  hide(text: string): string {
    let hidden = text;
    // The longest first: one secret may be the beginning of another.
    for (const value of [...this.#values].toSorted((a, b) => b.length - a.length)) {
      for (const form of formsOf(value)) hidden = hidden.replaceAll(form, HIDDEN);
      hidden = hideCut(hidden, value);
    }
    return maskUrls(hidden);
  }

  /** Data with secrets hidden, by name and by value; what is no data becomes its kind. */
  redact(value: unknown, name = '', depth = 0): unknown {
    if (depth > DEPTH_MAX) return '(deep)';
    if (value === undefined || value === null || typeof value === 'boolean') return value;
    if (isSecretName(name) && typeof value !== 'object') return HIDDEN;
    if (typeof value === 'string') return this.hide(value);
    if (typeof value === 'number') return value;
    if (Array.isArray(value)) return value.map((item) => this.redact(item, name, depth + 1));
    if (isPlain(value)) {
      const pairs = Object.entries(value).map(([inner, item]) => [
        inner,
        this.redact(item, inner, depth + 1),
      ]);
      return Object.fromEntries(pairs);
    }
    return typeof value === 'function' ? '(function)' : '(object)';
  }
}

/** A secret as it is, in a quoted text, in a URL, and in the name of a host. */
function formsOf(secret: string): ReadonlySet<string> {
  const quoted = JSON.stringify(secret).slice(1, -1);
  const inUrl = secret.isWellFormed() ? [encodeURI(secret), encodeURIComponent(secret)] : [];
  return new Set([secret, quoted, ...inUrl, secret.toLowerCase()]);
}

/** Error texts cut long values short, and with them a secret at the end. */
function hideCut(text: string, secret: string): string {
  const parts = text.split('…');
  const clean = parts.slice(0, -1).map((part) => {
    for (let length = secret.length - 1; length >= HIDE_MIN_CHARS; length -= 1) {
      if (part.endsWith(secret.slice(0, length))) return part.slice(0, -length) + HIDDEN;
    }
    return part;
  });
  return [...clean, parts.at(-1) ?? ''].join('…');
}

/** An object that is data: from a literal or a parser. */
export function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
