/**
 * redact — settings as they may be shown, without what looks like a secret; and what a receiver
 * says, without the secrets of the request that it may quote.
 */

import { HIDDEN, hideKnown, mayBeSecretName } from '../core/redact.ts';

/** Only the query of a URL calls a secret so. */
const SECRET_PARAMETER = /^(?:code|pwd)$/i;
/** So long are the parts of a path that nobody is meant to guess. */
const RANDOM_MIN_CHARS = 16;
const USERINFO = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#@]*@/gi;

/** Names to values, without the values that look secret. */
export function hideValues(values: Readonly<Record<string, string>>): Record<string, string> {
  const shown = Object.entries(values).map(([name, value]) => [
    name,
    mayBeSecretName(name) ? HIDDEN : hideUserinfo(value),
  ]);
  return Object.fromEntries(shown) as Record<string, string>;
}

/** A URL without user, password, and the parts of its path and query that look secret. */
export function hideUrl(url: URL): string {
  const shown = new URL(url);
  shown.username = '';
  shown.password = '';
  if (shown.hash !== '') shown.hash = HIDDEN;
  // The path of a webhook is often its password.
  const segments = shown.pathname.split('/');
  shown.pathname = segments.map((text) => (looksRandom(text) ? HIDDEN : text)).join('/');
  for (const [name] of secretParameters(url)) shown.searchParams.set(name, 'secret');
  return shown.href;
}

/** What `hideUrl` leaves out of path and query, as it is written there and as it is meant. */
function urlSecrets(url: URL): readonly string[] {
  const segments = url.pathname.split('/').filter(looksRandom);
  return [...segments, ...secretParameters(url).map(([, value]) => value)];
}

function secretParameters(url: URL): readonly (readonly [name: string, value: string])[] {
  return [...url.searchParams].filter(
    ([name, value]) => mayBeSecretName(name) || SECRET_PARAMETER.test(name) || looksRandom(value),
  );
}

/** Long, and letters with digits or with capitals among them: rather made than named. */
function looksRandom(text: string): boolean {
  if (text.length < RANDOM_MIN_CHARS || !/[a-z]/i.test(text)) return false;
  return /\d/.test(text) || /[a-z][A-Z]+[a-z]*[A-Z]/.test(text);
}

/** A text that was meant as a URL: scheme and host at most. */
export function hideBrokenUrl(text: string): string {
  const [, scheme = '', rest = ''] = /^([a-z][a-z0-9+.-]*:\/\/)?(.*)$/is.exec(text) ?? [];
  const place = rest.slice(rest.lastIndexOf('@') + 1);
  const host = place.split(/[/?#]/, 1)[0] ?? '';
  return `${scheme}${host}${host.length < place.length ? '/…' : ''}`;
}

/** The arguments of a command, without what follows or belongs to a name that looks secret. */
export function hideArguments(list: readonly string[]): string[] {
  return list.map((text, at) => {
    const [, name = '', value] = /^(-*[\w.-]+)[=:](.*)$/s.exec(text) ?? [];
    if (value !== undefined && mayBeSecretName(name)) {
      return `${text.slice(0, name.length + 1)}${HIDDEN}`;
    }
    const before = list[at - 1] ?? '';
    return before.startsWith('-') && !/[=:]/.test(before) && mayBeSecretName(before)
      ? HIDDEN
      : hideUserinfo(text);
  });
}

/** A text without users and passwords in its URLs. */
function hideUserinfo(text: string): string {
  return text.replaceAll(USERINFO, '$1');
}

/** Written by us, known to everyone, and named like a secret. */
const OPEN_HEADERS: ReadonlySet<string> = new Set(['idempotency-key']);

/** What a request carries. */
export interface Carried {
  readonly url: URL;
  /** Names in lower case, values as they are sent. */
  readonly headers: Readonly<Record<string, string>>;
  readonly keys: readonly Buffer[];
}

/**
 * A text without the secrets of the request. Receivers quote what they got, and what they say is
 * kept with the message and shown; only the start of it is read, and that may end within a secret.
 */
export function hideEchoes(text: string, carried: Carried): string {
  return hideKnown(text, secretsOf(carried), 'end');
}

function secretsOf({ url, headers, keys }: Carried): readonly string[] {
  const named = Object.entries(headers).filter(
    ([name]) => mayBeSecretName(name) && !OPEN_HEADERS.has(name),
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
