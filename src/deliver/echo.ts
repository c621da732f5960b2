/**
 * echo — takes the secrets of a request out of what its receiver says.
 *
 * Receivers quote what they got, and what they say is kept with the message and shown. Pure.
 */

import { HIDDEN, looksSecret, urlSecrets } from './hide.ts';

/** Shorter ones are part of too many ordinary words to be cut out of a text. */
const SECRET_MIN_CHARS = 6;
/** Written by us, known to everyone, and named like a secret. */
const OPEN_HEADERS: ReadonlySet<string> = new Set(['idempotency-key']);

/** What a request carries. */
export interface Carried {
  readonly url: URL;
  /** Names in lower case, values as they are sent. */
  readonly headers: Readonly<Record<string, string>>;
  readonly keys: readonly Buffer[];
}

/** A text without the secrets of the request, also without the start of one at its end. */
export function hideEchoes(text: string, carried: Carried): string {
  if (text.length < SECRET_MIN_CHARS) return text;
  const forms = new Set(secretsOf(carried).flatMap(formsOf));
  let hidden = text;
  // The longest first: one secret may be a part of another.
  const sorted = [...forms].filter(isLong).sort((a, b) => b.length - a.length);
  for (const form of sorted) hidden = hidden.replaceAll(form, HIDDEN);
  // Only the start of an answer is read, and that may end within a secret.
  for (const form of sorted) {
    for (let length = Math.min(form.length, hidden.length); length >= SECRET_MIN_CHARS; length--) {
      if (hidden.endsWith(form.slice(0, length))) hidden = hidden.slice(0, -length) + HIDDEN;
    }
  }
  return hidden;
}

function isLong(text: string): boolean {
  return text.length >= SECRET_MIN_CHARS;
}

function secretsOf({ url, headers, keys }: Carried): readonly string[] {
  const named = Object.entries(headers).filter(
    ([name]) => looksSecret(name) && !OPEN_HEADERS.has(name),
  );
  return [
    ...named.flatMap(([, value]) => partsOf(value)),
    ...keys.flatMap((key) => [key.toString(), key.toString('base64'), key.toString('hex')]),
    ...urlSecrets(url),
  ];
}

/** `Bearer x` is x, `Basic x` is also what it stands for, and a cookie is each of its values. */
function partsOf(value: string): readonly string[] {
  const [, scheme = '', bare = value] = /^([a-z-]{1,20}) +(.+)$/i.exec(value) ?? [];
  const values = bare.split(/[\s;,]+/).map((part) => part.slice(part.indexOf('=') + 1));
  const plain = scheme.toLowerCase() === 'basic' ? Buffer.from(bare, 'base64').toString() : '';
  return [value, bare, ...values, plain, plain.slice(plain.indexOf(':') + 1)];
}

/** As it is, as the UTF-8 that headers carry, in quotes, in a URL; each as others write it too. */
function formsOf(secret: string): readonly string[] {
  const read = Buffer.from(secret, 'latin1').toString();
  const wide = [secret, read].filter((text) => text.isWellFormed());
  return wide.flatMap((text) => {
    const quoted = JSON.stringify(text).slice(1, -1);
    const inUrl = encodeURIComponent(text);
    const lower = inUrl.replaceAll(/%[0-9A-F]{2}/g, (code) => code.toLowerCase());
    // Some writers of JSON escape every slash.
    return [text, quoted, quoted.replaceAll('/', '\\/'), inUrl, lower];
  });
}
