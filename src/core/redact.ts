/**
 * redact — what may be shown of data and text: no secrets, and limited size.
 *
 *   redact, createRedactor   fields of a log line: by their names, and by how their texts look
 *   redactText, redactUrls   a text of unknown origin: by how secrets look in it
 *   KnownSecrets, hideKnown  secrets that are known, wherever they are quoted
 *   hideUrl, hideValues, hideArguments   settings of a handler
 *
 * Pure. Every line that leaves through a logger passes through here. Promise: `redact` never
 * throws, whatever it is given, changes nothing of it, and what comes out holds no cycle and only
 * data; each pattern looks at a text once, however hostile it is.
 */

import { isPlainObject } from './limits.ts';

/** What stands in a secret's place. */
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
/** Keys that open nothing. */
const OPEN_KEY = /(?:routing|order|dedupe|partition|primary|foreign|public|sort|message)[-_]?key$/i;
const SUSPECT_NAME =
  /auth|cookie|passw|secret|token|key|credential|signature|session|dsn|(?:^|[-_.])sig(?:$|[-_.])/i;

/** Whether what goes by this name is not to be seen. */
function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name) && !OPEN_KEY.test(name);
}

/**
 * Whether what goes by this name should rather not be shown: of settings and of headers, which may
 * have any name, so that too much is hidden and not too little.
 */
export function mayBeSecretName(name: string): boolean {
  return SUSPECT_NAME.test(name);
}

/** Whether a variable of the environment is not to be seen. */
export function isSecretVariable(name: string): boolean {
  // The folder that a shell stands in is no password.
  return name !== 'PWD' && isSecretName(name);
}

/** n.b. Looks back from `://`: who looks ahead for it tries 30 characters at each place. */
const USERS = /(?<=[a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#@"']*(?:@[^\s/?#@"']*)*@/gi;

/** A text with user, password and secret parameters of its URLs hidden. */
export function redactUrls(text: string): string {
  return text
    .replaceAll(USERS, `${SECRET_MARK}@`)
    .replaceAll(/([?&])([^\s=&?#"']+)=([^\s&#"']*)/g, (whole, mark: string, name: string, value) =>
      isSecretName(name) || hasUser(String(value)) ? `${mark}${name}=${SECRET_MARK}` : whole,
    );
}

/** Whether a parameter is an address with a user, written so that it fits into another. */
function hasUser(value: string): boolean {
  return /%/.test(value) && /:\/\/[^\s/]*@/.test(decoded(value));
}

/** A part of an address as it is meant; as it stands where it cannot be read. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Texts without any of these signs hold nothing that the patterns below look for. */
const SUSPECT = /[:=]|bearer|basic|digest|rsp_|eyJ|private key/i;
/** An example may name where a secret is kept. */
const NO_VARIABLE = String.raw`(?!\s{0,8}(?:\w+ )?\$[A-Z{])`;
/** Between a name and its value; quotes may be escaped, where JSON stands in JSON. */
const IS = String.raw`\\{0,4}["']?\s{0,8}[:=]\s{0,8}\\{0,4}`;
const IS_SURELY = String.raw`=|\\{0,4}["']\s{0,8}:\s{0,8}\\{0,4}`;
const QUOTED = String.raw`"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*'`;
const LINE = String.raw`${NO_VARIABLE}(?:${QUOTED}|[^\r\n]+)`;
const WORD = String.raw`${NO_VARIABLE}(?:${QUOTED}|["']?[^\s,;&"']+)`;
const PASSWORD = String.raw`password|passwd|passphrase|\bpass|\bpwd|${KEY}`;
const SECRET = 'secret|token|credentials?|dsn';

/** How secrets look in a text of unknown origin; a replacement keeps what names them. */
const LOOKS: readonly (readonly [pattern: RegExp, shown: string])[] = [
  [/-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}-----)?/g, SECRET_MARK],
  // Headers go to the end of their line: a scheme and what follows, or many cookies.
  [new RegExp(`(authorization|cookie)(${IS})${LINE}`, 'gi'), `$1$2${SECRET_MARK}`],
  [new RegExp(String.raw`\b(Bearer)\s{1,64}${WORD}`, 'gi'), `$1 ${SECRET_MARK}`],
  // Words may follow these two; what has no digit, capital or `=` is one.
  [/\b(Basic|Digest)\s{1,64}(?=[^\s"',;]*[A-Z0-9=])[^\s"',;]{6,}/g, `$1 ${SECRET_MARK}`],
  // Tokens of our service, and JSON web tokens.
  [/\brsp_[A-Za-z0-9_-]{16,}/g, SECRET_MARK],
  [/\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?/g, SECRET_MARK],
  // A sentence may say `token: it …`: such words count only with `=`, or in quotes.
  [new RegExp(`(${PASSWORD})(${IS})${WORD}`, 'gi'), `$1$2${SECRET_MARK}`],
  [new RegExp(`(${SECRET})(${IS_SURELY})${WORD}`, 'gi'), `$1$2${SECRET_MARK}`],
];

/** A text with everything hidden that looks like a secret, in URLs or elsewhere. */
export function redactText(text: string): string {
  if (!SUSPECT.test(text)) return text;
  return LOOKS.reduce(
    (rest, [pattern, shown]) => rest.replaceAll(pattern, shown),
    redactUrls(text),
  );
}

/** What is hidden beside what is always hidden. */
export interface RedactOptions {
  /** Names of fields, at any depth; capitals do not matter. */
  readonly names?: readonly string[];
}

/** Makes lines fit to be seen. */
interface Redactor {
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
    // An error alone is the field `err`, as pino has it; any other non-object is unexpected.
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
      // A proxy, or a getter of a built-in object: its content is unknown.
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
      return this.#isHidden(name) ? SECRET_MARK : this.#shown(value, depth + 1);
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
  const masked = redactText(text.length > maxChars ? text.slice(0, maxChars + BEYOND_CHARS) : text);
  if (text.length <= maxChars && masked.length <= maxChars) return masked;
  const cut = masked.slice(0, maxChars).toWellFormed();
  return `${cut}… ${Math.max(0, text.length - maxChars)} more characters`;
}

/** Shorter ones are part of too many ordinary words to be cut out of a text. */
const KNOWN_MIN_CHARS = 6;
/** Data that goes deeper goes round in circles. */
const DATA_DEPTH_MAX = 32;

/**
 * A text without these secrets, in whatever form they are written. It may have been cut within one:
 * at its end, or before each ellipsis.
 */
export function hideKnown(
  text: string,
  secrets: Iterable<string>,
  isCutAt: 'end' | 'ellipsis',
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
  if (isCutAt === 'end') return hideCut(hidden, sorted);
  const parts = hidden.split('…');
  const clean = parts.slice(0, -1).map((part) => hideCut(part, sorted));
  return [...clean, parts.at(-1) ?? ''].join('…');
}

/** A text without the beginning of a secret at its end. */
function hideCut(text: string, forms: readonly string[]): string {
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

/**
 * A secret as it is, as the UTF-8 that headers carry, in quotes, in a URL and in the name of a
 * host; each as others write it, too.
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

/** The secrets of one configuration, for every text that goes out. */
export class KnownSecrets {
  readonly #values = new Set<string>();

  /** Remembers a text that is not to be seen. */
  add(value: unknown): void {
    if (typeof value === 'string' && value.length >= KNOWN_MIN_CHARS) this.#values.add(value);
  }

  /** Remembers whatever a configuration holds under the name of a secret, at any depth. */
  collect(value: unknown, name = '', depth = 0): void {
    if (depth > DATA_DEPTH_MAX) return;
    if (typeof value === 'string') {
      if (isSecretName(name)) this.add(value);
      for (const text of new Set([value, decoded(value)])) this.#collectUsers(text);
      return;
    }
    if (Array.isArray(value)) for (const item of value) this.collect(item, name, depth + 1);
    else if (isPlainObject(value)) {
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
    return redactUrls(hideKnown(text, this.#values, 'ellipsis'));
  }

  /** Data with secrets hidden, by name and by value; what is no data becomes its kind. */
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
/** Minimum length of a part of a path that looks like a random secret. */
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
    const [, name = '', value] = /^(-*[\w.-]+)[=:](.*)$/s.exec(text) ?? [];
    if (value !== undefined && mayBeSecretName(name)) {
      return `${text.slice(0, name.length + 1)}${SECRET_MARK}`;
    }
    const before = list[at - 1] ?? '';
    return before.startsWith('-') && !/[=:]/.test(before) && mayBeSecretName(before)
      ? SECRET_MARK
      : hideUserinfo(text);
  });
}

/** A text without users and passwords in its URLs. */
function hideUserinfo(text: string): string {
  return text.replaceAll(USERINFO, '$1');
}
