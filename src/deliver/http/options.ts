/** options — the options of `http()`, checked all at once when it is called. */

import { X509Certificate } from 'node:crypto';
import { DAY_MS, type Duration, durationMs } from '../../core/duration.ts';
import { checkNames, checkNumber, checkOneOf, KEY_MAX_CHARS } from '../../core/limits.ts';
import { HIDDEN } from '../../core/redact.ts';
import { AllowList, checkUrl } from './destination.ts';
import { hideUrl, hideValues } from '../redact.ts';
import { checkStatusRules, DEFAULT_RULES, type StatusRule, type StatusRules } from './answer.ts';
import { checkRecord, checkTexts, refused } from '../option-checks.ts';
import { checkSecrets } from './signature.ts';

/** What `http()` takes; either `url` or `urls`. */
export interface HttpOptions {
  /** Where every message goes; `http:` or `https:`, without user and password. */
  readonly url?: string;
  /** Destinations to URLs; a message without a known `destination` is held. */
  readonly urls?: Readonly<Record<string, string>>;
  /** `POST` unless said otherwise. */
  readonly method?: 'POST' | 'PUT' | 'PATCH';
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Names of message headers to send along, none unless said otherwise. */
  readonly forward?: readonly string[];
  /** For messages without a `content-type` header; `application/octet-stream` by default. */
  readonly contentType?: string;
  /** Signs requests as Standard Webhooks; each text of a list makes one signature. */
  readonly secret?: string | readonly string[] | undefined;
  /** Statuses that are tried again, besides 408, 425, 429 and `'5xx'`. */
  readonly transient?: readonly StatusRule[];
  /** Statuses that are final, besides all other 4xx and 3xx. */
  readonly permanent?: readonly StatusRule[];
  /** The longest wait that a `Retry-After` can ask for, `'1d'` unless said otherwise. */
  readonly retryAfterMax?: Duration;
  /** For one request from connecting to the end of the response, `'30s'` by default. */
  readonly timeout?: Duration;
  /** So much of a response is read before its connection is dropped, 64 KiB by default. */
  readonly responseMaxBytes?: number;
  /** Sockets to one origin at most, 50 unless said otherwise. */
  readonly connections?: number;
  /** Hosts, or `host:port`, that may have addresses that are not public; none by default. */
  readonly allow?: readonly string[];
  /** Certificates of own authorities in PEM, trusted besides those of the machine. */
  readonly ca?: string;
}

/** The options in the form the handler works with. */
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
  /** The option was there, without a value. */
  readonly isSecretMissing: boolean;
  readonly rules: StatusRules;
  readonly retryAfterMaxMs: number;
  readonly timeoutMs: number;
  readonly responseMaxBytes: number;
  readonly connections: number;
  readonly allow: AllowList;
  readonly ca: string | undefined;
}

const KNOWN = [
  'url',
  'urls',
  'method',
  'headers',
  'forward',
  'contentType',
  'secret',
  'transient',
  'permanent',
  'retryAfterMax',
  'timeout',
  'responseMaxBytes',
  'connections',
  'allow',
  'ca',
] as const;

const RESPONSE_MAX_BYTES = { default: 64 * 2 ** 10, max: 16 * 2 ** 20 };
const CONNECTIONS = { default: 50, max: 10_000 };
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
// oxlint-disable-next-line no-control-regex -- CR, LF, NUL and the like would end the header.
const HEADER_VALUE = /^[\t\u0020-\u007e\u0080-\u00ff]{0,8192}$/;
/** These say how a request is framed and where it goes, or are written by the handler itself. */
const RESERVED_HEADER = new RegExp(
  '^(?:connection|content-length|content-type|expect|host|http2-settings|idempotency-key' +
    '|keep-alive|te|trailer|transfer-encoding|upgrade|(?:proxy|respool|webhook)-.*)$',
);

/** Checks everything, so that a mistake is found at the start and not with the first message. */
export function checkHttpOptions(options: HttpOptions): HttpSettings {
  if (typeof options !== 'object' || options === null) {
    throw refused('options of http()', options, "an object such as { url: 'https://…' }");
  }
  checkNames('http()', options, KNOWN);
  const allow = new AllowList(options.allow ?? []);
  const headers = checkFixedHeaders(options.headers ?? {});
  const { contentType = 'application/octet-stream', ca } = options;
  if (typeof contentType !== 'string' || !/^[\w.+-]+\/[\u0020-\u007e]{1,250}$/.test(contentType)) {
    throw refused('contentType', contentType, "a media type such as 'application/json'");
  }
  if (ca !== undefined) checkCertificates(ca);
  return {
    ...checkUrls(options, allow),
    method: checkOneOf('method', options.method ?? 'POST', ['POST', 'PUT', 'PATCH']),
    headers,
    forward: checkForward(options.forward ?? [], headers),
    contentType,
    keys: options.secret === undefined ? [] : checkSecrets(options.secret),
    // Most often a variable that was forgotten: never unsigned by mistake.
    isSecretMissing: 'secret' in options && options.secret === undefined,
    rules: checkStatusRules(options.transient, options.permanent),
    retryAfterMaxMs: durationMs(options.retryAfterMax ?? DAY_MS, 'retryAfterMax'),
    timeoutMs: durationMs(options.timeout ?? '30s', 'timeout', { minMs: 1, maxMs: DAY_MS }),
    responseMaxBytes: checkNumber(
      'responseMaxBytes',
      options.responseMaxBytes ?? RESPONSE_MAX_BYTES.default,
      { min: 0, max: RESPONSE_MAX_BYTES.max },
    ),
    connections: checkNumber('connections', options.connections ?? CONNECTIONS.default, {
      min: 1,
      max: CONNECTIONS.max,
    }),
    allow,
    ca,
  };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Read now: otherwise every connection would fail over it, later and less clearly. */
function checkCertificates(ca: unknown): void {
  const found = typeof ca === 'string' ? (ca.match(CERTIFICATE) ?? []) : [];
  if (found.length > 0 && found.every(isCertificate)) return;
  // The value is not named: a key may have been given by mistake.
  throw refused('ca', HIDDEN, 'one or more certificates as PEM text');
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
    throw refused(
      'url',
      url,
      'one of the two: "url" for all messages, or "urls" by their destination',
    );
  }
  if (urls === undefined) return { url: checkUrl('url', url, allow), urls: new Map() };
  const pairs = checkRecord('urls', urls, 'an object of destinations to URLs');
  if (pairs.length === 0) throw refused('urls', urls, 'at least one destination');
  const checked = pairs.map(([name, value]) => {
    if (name === '' || name.length > KEY_MAX_CHARS) {
      throw refused('urls', name, `destinations of 1 to ${KEY_MAX_CHARS} characters`);
    }
    return [name, checkUrl(`urls.${name}`, value, allow)] as const;
  });
  return { url: undefined, urls: new Map(checked) };
}

function checkFixedHeaders(headers: unknown): Readonly<Record<string, string>> {
  const checked: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const [name, value] of checkRecord('headers', headers, 'an object of names to texts')) {
    const lower = checkHeaderName('headers', name);
    if (Object.hasOwn(checked, lower)) throw refused('headers', name, 'each name once');
    // The value is not named: headers carry passwords and tokens.
    if (!HEADER_VALUE.test(value)) {
      throw refused(`headers.${name}`, HIDDEN, 'one line of up to 8,192 Latin-1 characters');
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
    throw refused('forward', name, 'a name that is not in "headers" as well');
  });
}

function checkHeaderName(what: string, name: string): string {
  const lower = name.toLowerCase();
  if (HEADER_NAME.test(name) && !RESERVED_HEADER.test(lower)) return lower;
  throw refused(
    what,
    name,
    'a header name, and none that says how the request is framed or that the handler writes ' +
      '(content-type: use "contentType" or a message header)',
  );
}

/** The settings as they may be shown. */
export function describeHttp(settings: HttpSettings): Readonly<Record<string, unknown>> {
  const { url, urls, keys, rules, allow, ca } = settings;
  const withRule = (wanted: string) =>
    [...new Map([...DEFAULT_RULES, ...rules])]
      .filter(([, permanence]) => permanence === wanted)
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
    ...(keys.length === 0 ? {} : { secret: HIDDEN }),
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
