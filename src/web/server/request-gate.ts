/**
 * request-gate — checks of a request before any of its body is read: header fields, host, origin,
 * token and rate, in this order; and the check of a path, and of what a role may do.
 *
 * The rate is counted by address and name, so it comes after the token. Posts are not counted: a
 * producer may be as fast as the store. Free paths: header fields, host and rate alone.
 *
 * Without tokens everyone on this machine may do everything, but no web page in its browser may:
 * pages of other origins are recognised by Origin and Sec-Fetch-Site, rebound names by Host.
 *
 * Why: docs/decisions/0012-producers-have-their-own-role.md
 */

import { hash, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import { MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { sleep } from '../../system/wait.ts';
import type { Inlet } from './inlet.ts';
import { HttpRefusal } from './refusal.ts';
import { hasTokens, type ServeSettings, type TokenRole } from './settings.ts';

// Counts per caller within a window of time, for limits. Bounded: the oldest is forgotten.

/** Maximum number of callers that are remembered. */
const CALLERS_MAX = 10_000;

/** Counts what each caller did in the present window. service.ts counts refusals with it. */
export class RecentCounts {
  readonly #clock: Clock;
  readonly #windowMs: number;
  readonly #counts = new Map<string, { from: number; count: number }>();

  constructor(clock: Clock, windowMs: number) {
    this.#clock = clock;
    this.#windowMs = windowMs;
  }

  /** How often in this window. */
  of(key: string): number {
    const found = this.#counts.get(key);
    return found !== undefined && this.#isPresent(found) ? found.count : 0;
  }

  /** One more; returns how often in this window. */
  add(key: string): number {
    const found = this.#counts.get(key);
    if (found !== undefined && this.#isPresent(found)) {
      found.count += 1;
      return found.count;
    }
    // Put at the end again, so that the first key is always one of the oldest.
    this.#counts.delete(key);
    if (this.#counts.size >= CALLERS_MAX) this.#forgetOldest();
    this.#counts.set(key, { from: this.#clock.monotonic(), count: 1 });
    return 1;
  }

  /** Seconds until this caller's window is over, rounded up. */
  secondsLeft(key: string): number {
    const from = this.#counts.get(key)?.from ?? 0;
    const leftMs = from + this.#windowMs - this.#clock.monotonic();
    return Math.max(1, Math.ceil(leftMs / 1_000));
  }

  #isPresent({ from }: { readonly from: number }): boolean {
    return this.#clock.monotonic() - from < this.#windowMs;
  }

  #forgetOldest(): void {
    const [oldest] = this.#counts.keys();
    if (oldest !== undefined) this.#counts.delete(oldest);
  }
}

// Whom an address stands for, where callers are counted by it.

/** A client with one IPv6 address has a whole network of them. */
export function networkOf(address: string): string {
  if (isIP(address) !== 6 || address.includes('.')) return address;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const missing = tail === undefined ? 0 : 8 - groups.length - tail.split(':').length;
  return [...groups, ...Array.from({ length: missing }, () => '0')].slice(0, 4).join(':');
}

/** The caller of a request. */
export interface Caller {
  /** The name for the audit record. */
  readonly by: string;
  readonly role: TokenRole;
}

/**
 * Wrong tokens from one address in a minute; past it unknown ones are answered with 429. Also in
 * docs/reference/http-api.md, docs/how-to/secure-the-service.md and post-from-any-language.md.
 */
const FAILURES_MAX = 10;
/**
 * Past this it counts as guessing, and the address is refused for the rest of the minute. Not
 * sooner: one client with an old token must not keep all others behind the same proxy from posting.
 * Also in docs/reference/http-api.md and docs/how-to/secure-the-service.md.
 */
const GUESSES_MAX = 1_000;
/**
 * How long the 401 to a wrong or missing token is held back. Also in docs/reference/http-api.md
 * and docs/how-to/secure-the-service.md.
 */
const UNKNOWN_TOKEN_WAIT_MS = 250;
/** web/client/http.ts makes a name fit. */
const NAME_PATTERN = /^[\x20-\x7e]{1,64}$/;
const LOCAL: Caller = { by: 'local', role: 'admin' };

/** Lets callers in or refuses them. Called by service.ts. */
export class RequestGate {
  readonly #settings: ServeSettings;
  readonly #clock: Clock;
  readonly #tokens: readonly { readonly caller: Caller; readonly digest: Buffer }[];
  readonly #hosts: ReadonlySet<string>;
  readonly #isAnyAddress: boolean;
  readonly #failures: RecentCounts;
  readonly #requests: RecentCounts;

  constructor(settings: ServeSettings, clock: Clock) {
    const { host, hosts = [], token, tokens = [] } = settings;
    this.#settings = settings;
    this.#clock = clock;
    const plain = token === undefined ? [] : [{ name: 'token', role: 'admin', sha256: sha(token) }];
    this.#tokens = [...plain, ...tokens].map(({ name, role, sha256 }) => ({
      caller: { by: name, role: role as TokenRole },
      digest: Buffer.from(sha256, 'hex'),
    }));
    const known = ['localhost', '127.0.0.1', '::1', host, ...hosts];
    this.#hosts = new Set(known.map((name) => bare(name.toLowerCase())));
    this.#isAnyAddress = host === '0.0.0.0' || bare(host) === '::';
    this.#failures = new RecentCounts(clock, MINUTE_MS);
    this.#requests = new RecentCounts(clock, SECOND_MS);
  }

  /** Lets a caller in or refuses. `isFree`: asks for nothing that needs a name. */
  enter(inlet: Inlet, isPosting: boolean, isFree: boolean): Caller | Promise<Caller> {
    checkFields(inlet);
    this.#checkHost(inlet);
    if (isFree) {
      // Each path apart: many requests for the document must not hide that the service lives.
      this.#checkRate(inlet, `\n${inlet.path}`);
      return LOCAL;
    }
    this.#checkOrigin(inlet);
    if (!hasTokens(this.#settings)) {
      if (!isPosting) this.#checkRate(inlet, '');
      return local(inlet);
    }
    const caller = this.#byToken(inlet);
    if (caller === undefined) return this.#refuseLater(inlet);
    if (!isPosting) this.#checkRate(inlet, caller.by);
    return caller;
  }

  #checkHost(inlet: Inlet): void {
    const host = inlet.header('host');
    if (host === undefined || countOf(HOST, inlet) > 1) throw hostInvalid();
    const name = bare(host.toLowerCase().replace(/:\d{1,5}$/, ''));
    if (this.#hosts.has(name)) return;
    // A page cannot make an address of its own out of ours: only names can be rebound.
    if (this.#isAnyAddress && isIP(name) !== 0) return;
    throw new HttpRefusal(
      421,
      'host.unknown',
      'this host name is not served here; add it to serve.hosts if it should be',
    );
  }

  #checkOrigin(inlet: Inlet): void {
    const isChange = inlet.method !== 'GET' && inlet.method !== 'HEAD';
    // With tokens a page cannot read either: it has no way to send one.
    if (!isChange && hasTokens(this.#settings)) return;
    const site = inlet.header('sec-fetch-site');
    const origin = inlet.header('origin');
    const isOwnSite = site === undefined || site === 'same-origin' || site === 'none';
    if (isOwnSite && (origin === undefined || isOwnOrigin(origin, inlet.header('host')))) return;
    throw new HttpRefusal(403, 'origin.foreign', 'requests of pages of another origin are refused');
  }

  #checkRate(inlet: Inlet, name: string): void {
    const { requestsPerSecond } = this.#settings.limits;
    const key = `${this.#addressOf(inlet)} ${name}`;
    if (this.#requests.add(key) <= requestsPerSecond) return;
    throw new HttpRefusal(
      429,
      'rate.exceeded',
      `more than ${requestsPerSecond} requests in a second (serve.limits.requestsPerSecond)`,
      { code: 'limit.exceeded', headers: { 'retry-after': '1' } },
    );
  }

  #byToken(inlet: Inlet): Caller | undefined {
    const address = this.#addressOf(inlet);
    if (this.#failures.of(address) >= GUESSES_MAX) throw this.#locked(address);
    const given = /^bearer +(\S{1,1024}) *$/i.exec(inlet.header('authorization') ?? '')?.[1];
    const digest = hash('sha256', given ?? '', 'buffer');
    let found: Caller | undefined;
    // All of them, always: how long it takes must not tell which one it was.
    for (const token of this.#tokens) {
      const isSame =
        token.digest.byteLength === digest.byteLength && timingSafeEqual(token.digest, digest);
      if (isSame) found ??= token.caller;
    }
    return given === undefined ? undefined : found;
  }

  #refuseLater(inlet: Inlet): Promise<Caller> {
    const address = this.#addressOf(inlet);
    // A request without a token guesses nothing.
    const isGuess = inlet.header('authorization') !== undefined;
    if (isGuess && this.#failures.add(address) > FAILURES_MAX) throw this.#locked(address);
    const refusal = new HttpRefusal(
      401,
      'token.unknown',
      'send a known token as "authorization: Bearer TOKEN"',
      { headers: { 'www-authenticate': 'Bearer' } },
    );
    return sleep(this.#clock, UNKNOWN_TOKEN_WAIT_MS).then(() => {
      throw refusal;
    });
  }

  #locked(address: string): HttpRefusal {
    const seconds = String(this.#failures.secondsLeft(address));
    return new HttpRefusal(
      429,
      'token.locked',
      `too many unknown tokens from this address; try again in ${seconds} s`,
      { code: 'limit.exceeded', headers: { 'retry-after': seconds } },
    );
  }

  #addressOf(inlet: Inlet): string {
    if (this.#settings.behindProxy !== true) return networkOf(inlet.address);
    // The last one is what our own proxy saw; all before it the client may have made up.
    const last = inlet.header('x-forwarded-for')?.split(',').at(-1)?.trim();
    return networkOf(last === undefined || isIP(last) === 0 ? inlet.address : last);
  }
}

/**
 * What each role includes. Also in docs/reference/http-api.md and
 * docs/how-to/secure-the-service.md.
 */
const GIVES: Readonly<Record<TokenRole, readonly TokenRole[]>> = {
  post: ['post'],
  read: ['read'],
  operate: ['post', 'read', 'operate'],
  admin: ['post', 'read', 'operate', 'admin'],
};

/** Refuses a caller whose role does not include this one. */
export function checkRole({ by, role }: Caller, needed: TokenRole): void {
  if (GIVES[role].includes(needed)) return;
  throw new HttpRefusal(
    403,
    'role.missing',
    `the token "${by}" has the role ${role}; this needs the role ${needed}`,
  );
}

function local(inlet: Inlet): Caller {
  const by = inlet.header('respool-by');
  if (by === undefined) return LOCAL;
  if (NAME_PATTERN.test(by)) return { by, role: 'admin' };
  throw new RespoolError(
    'config.invalid',
    'cannot use the header "respool-by": allowed is 1 to 64 printable ASCII characters',
  );
}

/** Node takes the first of several, and what stands before us may have taken another. */
function countOf(header: string, { rawHeaders }: Inlet): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? '';
    if (name.length === header.length && name.toLowerCase() === header) count += 1;
  }
  return count;
}

const HOST = 'host';
/** Others of which Node takes the first; they say who the caller is and what the body is. */
const SINGLE_HEADERS = ['authorization', 'content-type'];

/**
 * Header fields of a request: those of a message (64), options of a post, and what clients and
 * proxies add. listener.ts has Node keep one more. Also in docs/reference/http-api.md.
 */
export const HEAD_FIELDS_MAX = 256;

function checkFields(inlet: Inlet): void {
  if (inlet.rawHeaders.length > 2 * HEAD_FIELDS_MAX) {
    throw new HttpRefusal(
      431,
      'too-large',
      `cannot accept the request: it has more than the allowed ${HEAD_FIELDS_MAX} header fields`,
      { code: 'limit.exceeded', headers: { connection: 'close' } },
    );
  }
  const header = SINGLE_HEADERS.find((name) => countOf(name, inlet) > 1);
  if (header === undefined) return;
  throw new RespoolError('config.invalid', `cannot use the header "${header}" twice: give one`);
}

function hostInvalid(): HttpRefusal {
  return new HttpRefusal(400, 'host.invalid', 'send one header "host", not none and not several', {
    headers: { connection: 'close' },
  });
}

/** A path segment that means the folder itself or the one above it, however it is written. */
const DOT_SEGMENT = /(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i;

/** Refuses a path that would be read as another one. */
export function checkTarget({ path, query }: Inlet): void {
  const isOther = DOT_SEGMENT.test(path) || path.includes('\\');
  if (!isOther && !path.includes('#') && !query.includes('#')) return;
  throw new HttpRefusal(
    400,
    'route.unknown',
    'cannot use this path: it must not have segments "." and "..", a backslash or a "#"; ' +
      'write a "#" in a value as %23',
  );
}

function isOwnOrigin(origin: string, host: string | undefined): boolean {
  const [, name] = /^https?:\/\/([^/]+)$/.exec(origin) ?? [];
  return name !== undefined && name.toLowerCase() === host?.toLowerCase();
}

function bare(host: string): string {
  return host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host;
}

/** Only the hash is kept; if only a hash is configured, the token itself is unknown here. */
function sha(token: string): string {
  return /^sha256:([0-9a-f]{64})$/i.exec(token)?.[1] ?? hash('sha256', token, 'hex');
}
