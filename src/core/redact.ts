/**
 * redact — removes secrets from data and text before they are logged or printed, and limits their
 * size.
 *
 *   redact, createRedactor   fields of a log line: by their names, and by how their texts look
 *   redactText, redactUrls   a text of unknown origin: by how secrets look in it
 *   KnownSecrets, hideKnownSecrets   secrets that are known, wherever they are quoted
 *   hideUrl, hideValues, hideArguments   settings of a handler
 *
 * Pure. Every line that we write to a logger passes through here. Promise: `redact` never throws
 * and never changes its argument; its result has no cycles and holds only data; each pattern scans
 * a text once, however hostile the text is.
 */

import { isPlainObject } from './limits.ts';

/** The text that replaces a secret. */
export const SECRET_MARK = '(secret)';

const KEY = '(?:api|private|signing|access|encryption|master)[-_]?key';
const SECRET_NAME = new RegExp(
  [
    'authorization|cookie|passw|passphrase|secret|token|credential|dsn|sha256|signature',
    KEY,
    '(?:^|[-_])(?:key|pass|pwd|creds|nkey|jwt|sig)$',
  ].join('|'),
  'i',
);
/** Names that end in "key" and are no secrets. */
const HARMLESS_KEY =
  /(?:routing|order|dedupe|partition|primary|foreign|public|sort|message)[-_]?key$/i;
const SUSPECT_NAME =
  /auth|cookie|passw|secret|token|key|credential|signature|session|dsn|(?:^|[-_.])sig(?:$|[-_.])/i;

/** Whether a value of this name is a secret. */
function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name) && !HARMLESS_KEY.test(name);
}

/**
 * Whether a value of this name may be a secret. For settings and headers, which may have any name:
 * rather too much is hidden than too little.
 */
export function mayBeSecretName(name: string): boolean {
  return SUSPECT_NAME.test(name);
}

/** Whether an environment variable is a secret. */
export function isSecretVariable(name: string): boolean {
  // PWD is the working directory, not a password.
  return name !== 'PWD' && isSecretName(name);
}

/** n.b. Looks back from `://`: a lookahead would try 30 characters at each position. */
const USERS = /(?<=[a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#@"']*(?:@[^\s/?#@"']*)*@/gi;

/** A text with user, password and secret parameters of its URLs hidden. */
export function redactUrls(text: string): string {
  return text
    .replaceAll(USERS, `${SECRET_MARK}@`)
    .replaceAll(/([?&])([^\s=&?#"']+)=([^\s&#"']*)/g, (whole, mark: string, name: string, value) =>
      isSecretName(name) || hasUser(String(value)) ? `${mark}${name}=${SECRET_MARK}` : whole,
    );
}

/** Whether a parameter is a percent-encoded URL with a user. */
function hasUser(value: string): boolean {
  return /%/.test(value) && /:\/\/[^\s/]*@/.test(decodeUrlPart(value));
}

/** A part of a URL, decoded; unchanged if it cannot be decoded. */
function decodeUrlPart(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A text without any of these cannot match the patterns below. */
const MAY_HOLD_SECRET = /[:=]|bearer|basic|digest|rsp_|eyJ|private key/i;
/** An example may name where a secret is kept. */
const NO_VARIABLE = String.raw`(?!\s{0,8}(?:\w+ )?\$[A-Z{])`;
/** Between a name and its value; quotes may be escaped, where JSON stands in JSON. */
const SEPARATOR = String.raw`\\{0,4}["']?\s{0,8}[:=]\s{0,8}\\{0,4}`;
const CLEAR_SEPARATOR = String.raw`=|\\{0,4}["']\s{0,8}:\s{0,8}\\{0,4}`;
const QUOTED = String.raw`"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*'`;
const LINE = String.raw`${NO_VARIABLE}(?:${QUOTED}|[^\r\n]+)`;
const WORD = String.raw`${NO_VARIABLE}(?:${QUOTED}|["']?[^\s,;&"']+)`;
const PASSWORD = String.raw`password|passwd|passphrase|\bpass|\bpwd|${KEY}`;
const SECRET = 'secret|token|credentials?|dsn';

/** How secrets look in a text of unknown origin; a replacement keeps what names them. */
const SECRET_PATTERNS: readonly (readonly [pattern: RegExp, shown: string])[] = [
  [/-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}-----)?/g, SECRET_MARK],
  // Headers go to the end of their line: a scheme and what follows, or many cookies.
  [new RegExp(`(authorization|cookie)(${SEPARATOR})${LINE}`, 'gi'), `$1$2${SECRET_MARK}`],
  [new RegExp(String.raw`\b(Bearer)\s{1,64}${WORD}`, 'gi'), `$1 ${SECRET_MARK}`],
  // Words may follow these two; what has no digit, capital or `=` is one.
  [/\b(Basic|Digest)\s{1,64}(?=[^\s"',;]*[A-Z0-9=])[^\s"',;]{6,}/g, `$1 ${SECRET_MARK}`],
  // Tokens of our service, and JSON web tokens.
  [/\brsp_[A-Za-z0-9_-]{16,}/g, SECRET_MARK],
  [/\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?/g, SECRET_MARK],
  // A sentence may say `token: it …`: such words count only with `=`, or in quotes.
  [new RegExp(`(${PASSWORD})(${SEPARATOR})${WORD}`, 'gi'), `$1$2${SECRET_MARK}`],
  [new RegExp(`(${SECRET})(${CLEAR_SEPARATOR})${WORD}`, 'gi'), `$1$2${SECRET_MARK}`],
];

/** A text with everything hidden that looks like a secret, in URLs or elsewhere. */
export function redactText(text: string): string {
  if (!MAY_HOLD_SECRET.test(text)) return text;
  return SECRET_PATTERNS.reduce(
    (rest, [pattern, shown]) => rest.replaceAll(pattern, shown),
    redactUrls(text),
  );
}

/** Which names are hidden besides those that always are. */
export interface RedactOptions {
  /** Names of fields, at any depth; capitals do not matter. */
  readonly names?: readonly string[];
}

/** Removes secrets from log lines. */
interface Redactor {
  fields(fields: object): Record<string, unknown>;
  text(text: string): string;
}

/** Also in docs/reference/logs.md, as ITEMS_MAX, TEXT_MAX_CHARS and LINE_MAX_CHARS. */
const DEPTH_MAX = 8;
/** Values of one list or object. */
const ITEMS_MAX = 100;
/** Values of one line. */
const VALUES_MAX = 2_000;
/** One text, and all texts of a line. */
const TEXT_MAX_CHARS = 8_192;
const LINE_MAX_CHARS = 65_536;
/** Scanned beyond the cut, so that a secret that crosses it is still recognised. */
const BEYOND_CHARS = 4_096;
const NAME_MAX_CHARS = 200;

/** The fields without secrets; the argument is not changed. */
export function redact(fields: object, options: RedactOptions = {}): Record<string, unknown> {
  return createRedactor(options).fields(fields);
}

/** `redact` for many lines, with its options read once. */
export function createRedactor({ names = [] }: RedactOptions = {}): Redactor {
  const hidden = new Set(names.map((name) => name.toLowerCase()));
  const isHidden = (name: string): boolean => isSecretName(name) || hidden.has(name.toLowerCase());
  return {
    fields: (fields) => new FieldRedactor(isHidden).fields(fields),
    text: (text) => cutText(text, TEXT_MAX_CHARS),
  };
}

/** Redacts the fields of one line, within the limits of a line. */
class FieldRedactor {
  readonly #isHidden: (name: string) => boolean;
  /** The objects around the current one: one that is met again is a cycle. */
  readonly #ancestors = new Set<object>();
  #valuesLeft = VALUES_MAX;
  #charsLeft = LINE_MAX_CHARS;

  constructor(isHidden: (name: string) => boolean) {
    this.#isHidden = isHidden;
  }

  fields(fields: object): Record<string, unknown> {
    const shown = this.#redactValue(fields, 0);
    // An error alone is the field `err`, as pino has it; any other non-object is unexpected.
    if (isError(fields)) return { err: shown };
    return typeof shown === 'object' && shown !== null && !Array.isArray(shown)
      ? (shown as Record<string, unknown>)
      : { value: shown };
  }

  #redactValue(value: unknown, depth: number): unknown {
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
    if (this.#ancestors.has(value)) return '(circle)';
    if (depth >= DEPTH_MAX) return '(deep)';
    this.#ancestors.add(value);
    try {
      return this.#redactContent(value, depth);
    } catch {
      // A proxy, or a getter of a built-in object: its content is unknown.
      return '(unreadable)';
    } finally {
      this.#ancestors.delete(value);
    }
  }

  #redactContent(value: object, depth: number): unknown {
    if (Array.isArray(value)) {
      const items = value.slice(0, ITEMS_MAX).map((item) => this.#redactValue(item, depth + 1));
      return value.length > ITEMS_MAX ? [...items, `… ${value.length - ITEMS_MAX} more`] : items;
    }
    // Bodies are never shown, even if one is passed in.
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
      // A name made from an address counts as an address.
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
      return this.#isHidden(name) ? SECRET_MARK : this.#redactValue(value, depth + 1);
    } catch {
      return '(unreadable)';
    }
  }

  /** As pino writes an error, but without its cause, which may be a whole connection object. */
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

/** Hides secrets before it cuts: half a secret would not be recognised. */
function cutText(text: string, maxChars: number): string {
  const masked = redactText(text.length > maxChars ? text.slice(0, maxChars + BEYOND_CHARS) : text);
  if (text.length <= maxChars && masked.length <= maxChars) return masked;
  const cut = masked.slice(0, maxChars).toWellFormed();
  return `${cut}… ${Math.max(0, text.length - maxChars)} more characters`;
}

/**
 * Shorter secrets are not hidden: they are part of too many ordinary words. Also in
 * docs/how-to/deliver-over-http.md.
 */
const KNOWN_MIN_CHARS = 6;
/** Data that is nested deeper is taken to have a cycle. */
const DATA_DEPTH_MAX = 32;

/**
 * A text without these secrets, however they are encoded. The text may have been cut within a
 * secret: at its end, at its beginning too, or before each ellipsis.
 */
export function hideKnownSecrets(
  text: string,
  secrets: Iterable<string>,
  isCutAt: 'end' | 'both ends' | 'ellipsis',
): string {
  if (text.length < KNOWN_MIN_CHARS) return text;
  const forms = new Set<string>();
  for (const secret of secrets) {
    for (const form of formsOf(secret)) if (form.length >= KNOWN_MIN_CHARS) forms.add(form);
  }
  // The longest first: one secret may be a part of another.
  const sorted = [...forms].toSorted((a, b) => b.length - a.length);
  let hidden = text;
  for (const form of sorted) hidden = hidden.replaceAll(form, SECRET_MARK);
  if (isCutAt === 'both ends') hidden = hideSecretCutBefore(hidden, sorted);
  if (isCutAt !== 'ellipsis') return hideCutSecret(hidden, sorted);
  const parts = hidden.split('…');
  const clean = parts.slice(0, -1).map((part) => hideCutSecret(part, sorted));
  return [...clean, parts.at(-1) ?? ''].join('…');
}

/** A text without the beginning of a secret at its end. */
function hideCutSecret(text: string, forms: readonly string[]): string {
  let hidden = text;
  for (const form of forms) {
    for (
      let length = Math.min(form.length, hidden.length);
      length >= KNOWN_MIN_CHARS;
      length -= 1
    ) {
      if (hidden.endsWith(form.slice(0, length))) hidden = hidden.slice(0, -length) + SECRET_MARK;
    }
  }
  return hidden;
}

/** A text without the end of a secret at its beginning. */
function hideSecretCutBefore(text: string, forms: readonly string[]): string {
  for (const form of forms) {
    for (let length = Math.min(form.length, text.length); length >= KNOWN_MIN_CHARS; length -= 1) {
      if (text.startsWith(form.slice(-length))) return SECRET_MARK + text.slice(length);
    }
  }
  return text;
}

/**
 * The forms in which a secret may be written: as it is, read from the Latin-1 of headers as UTF-8,
 * quoted in JSON, encoded in a URL, in lower case as a host name.
 */
function formsOf(secret: string): readonly string[] {
  const read = Buffer.from(secret, 'latin1').toString();
  return [secret, read]
    .filter((text) => text.isWellFormed())
    .flatMap((text) => {
      const quoted = JSON.stringify(text).slice(1, -1);
      const inUrl = encodeURIComponent(text);
      const lower = inUrl.replaceAll(/%[0-9A-F]{2}/g, (code) => code.toLowerCase());
      // Some writers of JSON escape every slash.
      const slashed = quoted.replaceAll('/', '\\/');
      return [text, quoted, slashed, encodeURI(text), inUrl, lower, text.toLowerCase()];
    });
}

/** Users and passwords before a host: of URLs, and of addresses without a scheme too. */
const URL_USERS = /\/\/([^\s/?#,]+)@/g;
const BARE_USERS = /(?:\/\/|^)([^\s/?#,]+)@/g;
/** What follows is a person at a host, and no user with a password. */
const MAIL_SCHEME = /^(?:mailto|sips?|xmpp|acct):(?!\/)/i;
/** Keys of a configuration whose values are names, such as the queue `shop:orders@eu`. */
const NO_ADDRESS_NAME = /^(?:topic|queue|exchange)$/;
/** Keys of a configuration below which the user chooses the names. */
const USER_NAMED = /^(?:urls|headers|env)$/;

/** The secrets of one configuration, for every text that goes out. */
export class KnownSecrets {
  readonly #values = new Set<string>();

  /** Adds a secret. */
  add(value: unknown): void {
    if (typeof value === 'string' && value.length >= KNOWN_MIN_CHARS) this.#values.add(value);
  }

  /** Adds every value that a configuration has under the name of a secret, at any depth. */
  collect(value: unknown, name = '', depth = 0): void {
    if (depth > DATA_DEPTH_MAX) return;
    if (typeof value === 'string') {
      if (isSecretName(name)) this.add(value);
      const hasAddress = !NO_ADDRESS_NAME.test(name);
      for (const text of new Set([value, decodeUrlPart(value)])) {
        this.#collectUsers(text, hasAddress);
      }
      return;
    }
    if (Array.isArray(value)) for (const item of value) this.collect(item, name, depth + 1);
    else if (isPlainObject(value)) {
      for (const [inner, item] of Object.entries(value)) {
        // A value inside a secret is a secret; but a list of tokens also has their names.
        const isInside = isSecretName(name) && name !== 'tokens' && !isSecretName(inner);
        const isOfUser = USER_NAMED.test(name) && NO_ADDRESS_NAME.test(inner);
        this.collect(item, isInside ? name : isOfUser ? '' : inner, depth + 1);
      }
    }
  }

  /** Adds the passwords of URLs in a text; in a URL of NATS a user without password is a token. */
  #collectUsers(text: string, hasAddress: boolean): void {
    // n.b. Also where a scheme is missing or misspelled: that is what errors are about.
    const pattern = hasAddress && !MAIL_SCHEME.test(text) ? BARE_USERS : URL_USERS;
    for (const [, userinfo = ''] of text.matchAll(pattern)) {
      const [user, ...parts] = userinfo.split(':');
      for (const part of parts.length === 0 && /^nats:/i.test(text) ? [user] : parts) {
        this.add(part);
        this.add(decodeUrlPart(part ?? ''));
      }
    }
  }

  /** A text without the known secrets, and without users and passwords of URLs. */
  hide(text: string): string {
    return redactUrls(hideKnownSecrets(text, this.#values, 'ellipsis'));
  }

  /** Data with secrets hidden, by name and by value; functions and objects become their type. */
  redact(value: unknown, name = '', depth = 0): unknown {
    if (depth > DATA_DEPTH_MAX) return '(deep)';
    if (value === undefined || value === null || typeof value === 'boolean') return value;
    if (isSecretName(name) && typeof value !== 'object') return SECRET_MARK;
    if (typeof value === 'string') return this.hide(value);
    if (typeof value === 'number') return value;
    if (Array.isArray(value)) return value.map((item) => this.redact(item, name, depth + 1));
    if (isPlainObject(value)) {
      const pairs = Object.entries(value).map(([inner, item]) => [
        inner,
        this.redact(item, inner, depth + 1),
      ]);
      return Object.fromEntries(pairs);
    }
    return typeof value === 'function' ? '(function)' : '(object)';
  }
}

// What ready-made handlers show of their settings: URLs, headers, arguments.

/** Names of secrets that are common only in the query of a URL. */
const SECRET_PARAMETER = /^(?:code|pwd)$/i;
/**
 * Minimum length of a part of a path that looks like a random secret. Also in
 * docs/how-to/deliver-over-http.md.
 */
const RANDOM_MIN_CHARS = 16;
const USERINFO = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#@]*@/gi;

/** Names and values, with those hidden that look secret. */
export function hideValues(values: Readonly<Record<string, string>>): Record<string, string> {
  const shown = Object.entries(values).map(([name, value]) => [
    name,
    mayBeSecretName(name) ? SECRET_MARK : hideUserinfo(value),
  ]);
  return Object.fromEntries(shown) as Record<string, string>;
}

/** A URL without user and password, and with the parts hidden that look secret. */
export function hideUrl(url: URL): string {
  const shown = new URL(url);
  shown.username = '';
  shown.password = '';
  if (shown.hash !== '') shown.hash = SECRET_MARK;
  // Knowing the path of a webhook is often enough to call it.
  const segments = shown.pathname.split('/');
  shown.pathname = segments.map((text) => (looksRandom(text) ? SECRET_MARK : text)).join('/');
  for (const [name] of secretParameters(url)) shown.searchParams.set(name, 'secret');
  return shown.href;
}

/** The parts of path and query that `hideUrl` hides; those of the query decoded. */
export function urlSecrets(url: URL): readonly string[] {
  const segments = url.pathname.split('/').filter(looksRandom);
  return [...segments, ...secretParameters(url).map(([, value]) => value)];
}

function secretParameters(url: URL): readonly (readonly [name: string, value: string])[] {
  return [...url.searchParams].filter(
    ([name, value]) => mayBeSecretName(name) || SECRET_PARAMETER.test(name) || looksRandom(value),
  );
}

/** Long, and letters mixed with digits or capitals: generated rather than named. */
function looksRandom(text: string): boolean {
  if (text.length < RANDOM_MIN_CHARS || !/[a-z]/i.test(text)) return false;
  return /\d/.test(text) || /[a-z][A-Z]+[a-z]*[A-Z]/.test(text);
}

/** Scheme and host of a text that is not a valid URL. */
export function hideBrokenUrl(text: string): string {
  const [, scheme = '', rest = ''] = /^([a-z][a-z0-9+.-]*:\/\/)?(.*)$/is.exec(text) ?? [];
  const place = rest.slice(rest.lastIndexOf('@') + 1);
  const host = place.split(/[/?#]/, 1)[0] ?? '';
  return `${scheme}${host}${host.length < place.length ? '/…' : ''}`;
}

/** The arguments of a command, with the values of options hidden that look secret. */
export function hideArguments(list: readonly string[]): string[] {
  return list.map((text, at) => {
    const secret = argumentSecret(text, list[at - 1]);
    return secret === undefined
      ? hideUserinfo(text)
      : `${text.slice(0, text.length - secret.length)}${SECRET_MARK}`;
  });
}

/** What `hideArguments` hides. */
export function argumentSecrets(list: readonly string[]): readonly string[] {
  return list.flatMap((text, at) => {
    const secret = argumentSecret(text, list[at - 1]);
    if (secret !== undefined) return [secret];
    return [...text.matchAll(USERINFO)].flatMap(([url, scheme = '']) => {
      const passwords = url.slice(scheme.length, -1).split(':').slice(1);
      return passwords.flatMap((password) => [password, decodeUrlPart(password)]);
    });
  });
}

/** The end of an argument that looks secret, by its name or by the option before it. */
function argumentSecret(text: string, before = ''): string | undefined {
  const [, name = '', value] = /^(-*[\w.-]+)[=:](.*)$/s.exec(text) ?? [];
  if (value !== undefined && mayBeSecretName(name)) return value;
  const isValue = before.startsWith('-') && !/[=:]/.test(before) && mayBeSecretName(before);
  return isValue ? text : undefined;
}

/** A text without users and passwords in its URLs. */
function hideUserinfo(text: string): string {
  return text.replaceAll(USERINFO, '$1');
}
