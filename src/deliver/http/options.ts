/**
 * options — the options of `http()`, checked all at once when it is called; and how a handler made
 * of them is shown without secrets (`describeHttp`).
 */

import { X509Certificate } from 'node:crypto';
import type { Duration } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { KEY_MAX_CHARS } from '../../core/limits.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import { SECRET_MARK, hideUrl, hideValues } from '../../core/redact.ts';
import { AllowList, checkUrl } from './destination.ts';
import { checkStatusRules, DEFAULT_RULES, type StatusRule, type StatusRules } from './answer.ts';
import { checkStringRecord, checkTexts, invalidOption } from '../option-checks.ts';

const HTTP = {
  url: {
    kind: 'text',
    type: '`http://…` or `https://…`',
    secret: 'password',
    about: 'where every message goes; without user and password, for which there is `headers`',
  },
  urls: {
    kind: 'data',
    type: 'URLs by destination',
    ts: 'Readonly<Record<string, string>>',
    schema: 'textMap',
    about: 'instead of `url`; a message without a known `destination` is held',
  },
  method: {
    kind: 'choice',
    choices: ['POST', 'PUT', 'PATCH'],
    default: 'POST',
    about: 'the method',
  },
  headers: {
    kind: 'data',
    type: 'texts by name',
    ts: 'Readonly<Record<string, string>>',
    schema: 'textMap',
    about: 'headers of every request',
  },
  forward: {
    kind: 'data',
    type: 'a list of names',
    ts: 'readonly string[]',
    schema: 'textList',
    about: 'headers of the message to send along',
  },
  contentType: {
    kind: 'text',
    type: 'a media type',
    default: 'application/octet-stream',
    about: 'for messages without a `content-type` header',
  },
  secret: {
    kind: 'data',
    type: 'a text, or a list of up to 8',
    ts: 'string | readonly string[] | undefined',
    schema: 'texts',
    secret: true,
    about: 'signs requests by Standard Webhooks; each secret of a list makes one signature',
  },
  transient: {
    kind: 'data',
    type: 'a list of statuses',
    ts: 'readonly StatusRule[]',
    schema: 'statusRules',
    about: "statuses that are tried again, besides 408, 425, 429 and `'5xx'`",
  },
  permanent: {
    kind: 'data',
    type: 'a list of statuses',
    ts: 'readonly StatusRule[]',
    schema: 'statusRules',
    about: 'statuses that give the message up, besides all other 4xx and 3xx',
  },
  retryAfterMax: {
    kind: 'duration',
    default: '1d',
    about: 'the longest wait that a `Retry-After` can ask for',
  },
  timeout: {
    kind: 'duration',
    min: '1ms',
    max: '1d',
    default: '30s',
    about: 'from connecting to the end of the answer, including the body: raise it for large ones',
  },
  responseMaxBytes: {
    kind: 'bytes',
    min: '0 bytes',
    max: '16 MiB',
    default: '64 KiB',
    about: 'at most this much of an answer is read, then the connection is closed',
  },
  connections: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 50,
    about: 'sockets to one origin; they are kept open and reused',
  },
  allow: {
    kind: 'data',
    type: 'a list of hosts, or `host:port`',
    ts: 'readonly string[]',
    schema: 'textList',
    about: 'hosts whose addresses need not be public',
  },
  ca: {
    kind: 'text',
    type: 'certificates in PEM',
    about: 'authorities to trust besides those of the machine',
  },
} as const;

/** Every option of `http()`. */
export const HTTP_OPTIONS: Readonly<Record<keyof HttpOptions, Option>> = HTTP;

/** What `http()` takes; either `url` or `urls`. */
export interface HttpOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Where every message goes; without user and password, for which there is `headers`. */
  readonly url?: string;
  /** Instead of `url`; a message without a known `destination` is held. */
  readonly urls?: Readonly<Record<string, string>>;
  /** The method. Default `POST`. */
  readonly method?: 'POST' | 'PUT' | 'PATCH';
  /** Headers of every request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Headers of the message to send along. */
  readonly forward?: readonly string[];
  /** For messages without a `content-type` header. Default `application/octet-stream`. */
  readonly contentType?: string;
  /** Signs requests by Standard Webhooks; each secret of a list makes one signature. */
  readonly secret?: string | readonly string[] | undefined;
  /** Statuses that are tried again, besides 408, 425, 429 and `'5xx'`. */
  readonly transient?: readonly StatusRule[];
  /** Statuses that give the message up, besides all other 4xx and 3xx. */
  readonly permanent?: readonly StatusRule[];
  /** The longest wait that a `Retry-After` can ask for. Default 1d. */
  readonly retryAfterMax?: Duration;
  /**
   * From connecting to the end of the answer, including the body: raise it for large ones. 1ms to
   * 1d; default 30s.
   */
  readonly timeout?: Duration;
  /**
   * At most this much of an answer is read, then the connection is closed. 0 to 16 MiB; default 64
   * KiB.
   */
  readonly responseMaxBytes?: number;
  /** Sockets to one origin; they are kept open and reused. 1 to 10,000; default 50. */
  readonly connections?: number;
  /** Hosts whose addresses need not be public. */
  readonly allow?: readonly string[];
  /** Authorities to trust besides those of the machine. */
  readonly ca?: string;
}

/** The options, checked and with defaults. */
export interface HttpSettings {
  readonly url: URL | undefined;
  readonly urls: ReadonlyMap<string, URL>;
  readonly method: 'POST' | 'PUT' | 'PATCH';
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Names in lower case. */
  readonly forward: readonly string[];
  readonly contentType: string;
  readonly keys: readonly Buffer[];
  /** The option `secret` is present without a value. */
  readonly isSecretMissing: boolean;
  readonly rules: StatusRules;
  readonly retryAfterMaxMs: number;
  readonly timeoutMs: number;
  readonly responseMaxBytes: number;
  readonly connections: number;
  readonly allow: AllowList;
  readonly ca: string | undefined;
}

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
// oxlint-disable-next-line no-control-regex -- CR, LF, NUL and the like would end the header.
const HEADER_VALUE = /^[\t\u0020-\u007e\u0080-\u00ff]{0,8192}$/;
/** Headers that frame or route a request, or that the handler writes itself. */
const RESERVED_HEADER = new RegExp(
  '^(?:connection|content-length|content-type|expect|host|http2-settings|idempotency-key' +
    '|keep-alive|te|trailer|transfer-encoding|upgrade|(?:proxy|respool|webhook)-.*)$',
);

/** Checks all options, so that mistakes show at the start and not with the first message. */
export function checkHttpOptions(options: HttpOptions): HttpSettings {
  if (typeof options !== 'object' || options === null) {
    throw invalidOption('options of http()', options, "an object such as { url: 'https://…' }");
  }
  const values = readOptions({ what: 'http()' }, options, HTTP);
  const allow = new AllowList(options.allow ?? []);
  const headers = checkFixedHeaders(options.headers ?? {});
  const { contentType = HTTP.contentType.default, ca } = options;
  if (typeof contentType !== 'string' || !/^[\w.+-]+\/[\u0020-\u007e]{1,250}$/.test(contentType)) {
    throw invalidOption('contentType', contentType, "a media type such as 'application/json'");
  }
  if (ca !== undefined) checkCertificates(ca);
  return {
    ...values,
    ...checkUrls(options, allow),
    headers,
    forward: checkForward(options.forward ?? [], headers),
    contentType,
    keys: options.secret === undefined ? [] : checkSecrets(options.secret),
    // Usually a variable that was not set: requests must not become unsigned by mistake.
    isSecretMissing: 'secret' in options && options.secret === undefined,
    rules: checkStatusRules(options.transient, options.permanent),
    allow,
    ca,
  };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Checked now: otherwise every connection would fail, later and less clearly. */
function checkCertificates(ca: unknown): void {
  const certificates = typeof ca === 'string' ? (ca.match(CERTIFICATE) ?? []) : [];
  if (certificates.length > 0 && certificates.every(isCertificate)) return;
  // The value is not shown: it may be a key by mistake.
  throw invalidOption('ca', SECRET_MARK, 'one or more certificates as PEM text');
}

function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).serialNumber !== '';
  } catch {
    return false;
  }
}

function checkUrls(
  { url, urls }: HttpOptions,
  allow: AllowList,
): Pick<HttpSettings, 'url' | 'urls'> {
  if ((url === undefined) === (urls === undefined)) {
    throw invalidOption(
      'url',
      url,
      'one of the two: "url" for all messages, or "urls" by their destination',
    );
  }
  if (urls === undefined) return { url: checkUrl('url', url, allow), urls: new Map() };
  const pairs = checkStringRecord('urls', urls, 'an object of destinations to URLs');
  if (pairs.length === 0) throw invalidOption('urls', urls, 'at least one destination');
  const checked = pairs.map(([name, value]) => {
    if (name === '' || name.length > KEY_MAX_CHARS) {
      throw invalidOption('urls', name, `destinations of 1 to ${KEY_MAX_CHARS} characters`);
    }
    return [name, checkUrl(`urls.${name}`, value, allow)] as const;
  });
  return { url: undefined, urls: new Map(checked) };
}

/** Minimum length of a signing key. Also in docs/how-to/deliver-over-http.md. */
const KEY_MIN_BYTES = 16;
/** Maximum number of signing keys; two are enough to rotate them. */
const KEYS_MAX = 8;
const ENCODED = /^whsec_([A-Za-z0-9+/]+={0,2})$/;

/** The keys of the option `secret`; a text that begins with `whsec_` is base64. */
function checkSecrets(secret: unknown): readonly Buffer[] {
  const list: readonly unknown[] = Array.isArray(secret) ? secret : [secret];
  if (list.length === 0 || list.length > KEYS_MAX) throw secretRefused(`a list of ${list.length}`);
  return list.map((one) => {
    if (typeof one !== 'string')
      throw secretRefused(one === null ? 'null' : `a value of ${typeof one}`);
    if (one.startsWith('whsec_') && !ENCODED.test(one))
      throw secretRefused('whsec_ without base64');
    const encoded = ENCODED.exec(one)?.[1];
    const key = encoded === undefined ? Buffer.from(one) : Buffer.from(encoded, 'base64');
    if (key.length < KEY_MIN_BYTES) throw secretRefused(`a secret of ${key.length} bytes`);
    return key;
  });
}

function secretRefused(what: string): RespoolError {
  // The value is not shown: it is a secret, or meant to be one.
  return new RespoolError(
    'config.invalid',
    `cannot use ${what} as "secret": allowed is a text of ${KEY_MIN_BYTES} bytes or more, ` +
      `'whsec_' and base64 of as many, or a list of 1 to ${KEYS_MAX} such texts; ` +
      'leave the option out to send unsigned requests',
  );
}

function checkFixedHeaders(headers: unknown): Readonly<Record<string, string>> {
  const checked: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const [name, value] of checkStringRecord(
    'headers',
    headers,
    'an object of names to texts',
  )) {
    const lower = checkHeaderName('headers', name);
    if (Object.hasOwn(checked, lower)) throw invalidOption('headers', name, 'each name once');
    // The value is not shown: headers carry passwords and tokens.
    if (!HEADER_VALUE.test(value)) {
      throw invalidOption(
        `headers.${name}`,
        SECRET_MARK,
        'one line of up to 8,192 Latin-1 characters',
      );
    }
    checked[lower] = value;
  }
  return checked;
}

function checkForward(
  forward: unknown,
  headers: Readonly<Record<string, string>>,
): readonly string[] {
  const names = checkTexts('forward', forward, 'names of message headers', () => true);
  return names.map((name) => {
    const lower = checkHeaderName('forward', name);
    if (!Object.hasOwn(headers, lower)) return lower;
    throw invalidOption('forward', name, 'a name that is not in "headers" as well');
  });
}

function checkHeaderName(what: string, name: string): string {
  const lower = name.toLowerCase();
  if (HEADER_NAME.test(name) && !RESERVED_HEADER.test(lower)) return lower;
  throw invalidOption(
    what,
    name,
    'a header name, and none that says how the request is framed or that the handler writes ' +
      '(content-type: use "contentType" or a message header)',
  );
}

/** The settings for display, without secrets. */
export function describeHttp(settings: HttpSettings): Readonly<Record<string, unknown>> {
  const { url, urls, keys, rules, allow, ca } = settings;
  const withRule = (text: string) =>
    [...new Map([...DEFAULT_RULES, ...rules])]
      .filter(([, permanence]) => permanence === text)
      .map(([rule]) => rule);
  return {
    kind: 'http',
    ...(url === undefined
      ? { urls: Object.fromEntries([...urls].map(([name, one]) => [name, hideUrl(one)])) }
      : { url: hideUrl(url) }),
    method: settings.method,
    headers: hideValues(settings.headers),
    forward: settings.forward,
    contentType: settings.contentType,
    ...(keys.length === 0 ? {} : { secret: SECRET_MARK }),
    ...(settings.isSecretMissing ? { secret: '(missing)' } : {}),
    transient: withRule('transient'),
    permanent: withRule('permanent'),
    retryAfterMaxMs: settings.retryAfterMaxMs,
    timeoutMs: settings.timeoutMs,
    responseMaxBytes: settings.responseMaxBytes,
    connections: settings.connections,
    allow: allow.entries,
    ...(ca === undefined ? {} : { ca: '(certificates)' }),
  };
}
