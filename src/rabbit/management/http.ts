/**
 * http — the options of the management API, checked; and a client that sends one request, limited
 * in time and size.
 *
 * No text of this file ever shows a URL as it was given: it may hold a password.
 */

import { type Duration, formatDuration } from '../../core/duration.ts';
import { RespoolError, asError, show, textOf } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import { CLOCK_OPTION, checkOption, type Option } from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import { BROKER_OPTIONS, TLS_OPTIONS, type TlsOptions } from '../connection/connection.ts';
import type * as undici from 'undici';
import { importPeer } from '../../system/peer.ts';
import { TimeLimit } from '../../system/wait.ts';

const MANAGEMENT = {
  url: {
    kind: 'text',
    type: 'a URL',
    required: true,
    secret: 'password',
    about: '`http://user:password@host:15672`; a path before `/api` may follow',
  },
  tls: { ...BROKER_OPTIONS.tls, about: 'for `https://`' },
  timeout: {
    kind: 'duration',
    min: '1ms',
    max: '10m',
    default: '10s',
    about: 'how long an answer may take, its body included',
  },
  vhost: { kind: 'text', type: 'a name', default: '/', about: 'the virtual host' },
  username: {
    kind: 'text',
    type: 'text',
    defaultText: 'the user of the URL, or `guest`',
    about: 'the user that asks',
  },
  password: {
    kind: 'text',
    type: 'text',
    defaultText: 'that of the URL, or `guest`',
    secret: true,
    about: "the user's password",
  },
  clock: CLOCK_OPTION,
} as const;

/** The options of the management API. */
export const MANAGEMENT_OPTIONS: Readonly<Record<keyof ManagementOptions, Option>> = MANAGEMENT;

/** Where the management API is, and its user. */
export interface ManagementOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** `http://user:password@host:15672`; a path before `/api` may follow. */
  readonly url: string;
  /** For `https://`. Default Node's certificate authorities. */
  readonly tls?: TlsOptions;
  /** How long an answer may take, its body included. 1ms to 10m; default 10s. */
  readonly timeout?: Duration;
  /** The virtual host. Default `/`. */
  readonly vhost?: string;
  /** The user that asks. Default the user of the URL, or `guest`. */
  readonly username?: string;
  /** The user's password. Default that of the URL, or `guest`. */
  readonly password?: string;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
}

/** Options that were checked. */
interface ManagementSettings {
  readonly origin: string;
  /** What comes before `/api`, without a slash at its end. */
  readonly prefix: string;
  /** The address as texts may show it. */
  readonly address: string;
  readonly authorization: string;
  readonly username: string;
  readonly vhost: string;
  readonly timeoutMs: number;
  readonly tls: TlsOptions;
  readonly clock: Clock;
}

const GUEST = 'guest';

export function checkManagementOptions(options: ManagementOptions): ManagementSettings {
  checkNames('the management API', options, Object.keys(MANAGEMENT));
  const { tls = {}, timeout = MANAGEMENT.timeout.default, clock = systemClock } = options;
  checkNames('"tls" of the management API', tls, Object.keys(TLS_OPTIONS));
  const url = parse(options.url, ['http:', 'https:'], 'http://user:password@host:15672');
  const username = options.username ?? (decoded(url.username) || GUEST);
  const password = options.password ?? (decoded(url.password) || GUEST);
  const prefix = url.pathname.replace(/\/+$/, '').replace(/\/api$/, '');
  return {
    origin: url.origin,
    prefix,
    address: url.origin + prefix,
    // RabbitMQ reads names and passwords as UTF-8.
    authorization: `Basic ${Buffer.from(`${username}:${password}`, 'utf8').toString('base64')}`,
    username,
    vhost: options.vhost ?? MANAGEMENT.vhost.default,
    timeoutMs: checkOption('timeout of the management API', timeout, MANAGEMENT.timeout) as number,
    tls,
    clock,
  };
}

/**
 * Where the management API most likely is, by the URL of the broker: the same host and user, port
 * 15672, or 15671 over TLS. n.b. The virtual host is not part of it: see `vhostOf`.
 */
export function managementUrlOf(amqpUrl: string): string {
  const { protocol, username, password, hostname } = parse(amqpUrl, AMQP, AMQP_EXAMPLE);
  const isTls = protocol === 'amqps:';
  const user = username === '' ? '' : `${username}:${password}@`;
  return `${isTls ? 'https' : 'http'}://${user}${hostname}:${isTls ? TLS_PORT : PLAIN_PORT}`;
}

/** The virtual host that the URL of a broker names; default `/`. */
export function vhostOf(amqpUrl: string): string {
  const { pathname } = parse(amqpUrl, AMQP, AMQP_EXAMPLE);
  return decoded(pathname.slice(1)) || '/';
}

const PLAIN_PORT = 15_672;
const TLS_PORT = 15_671;
const AMQP = ['amqp:', 'amqps:'];
const AMQP_EXAMPLE = 'amqp://user:password@host/vhost';

function parse(text: unknown, protocols: readonly string[], example: string): URL {
  const url = typeof text === 'string' ? URL.parse(text) : null;
  if (url !== null && url.hostname !== '' && protocols.includes(url.protocol)) return url;
  throw new RespoolError(
    'config.invalid',
    `cannot use what was given as a URL of RabbitMQ (not shown: it may hold a password): ` +
      `allowed is one like ${example}`,
  );
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new RespoolError(
      'config.invalid',
      'cannot read the user, password or virtual host in a URL of RabbitMQ: a "%" in them has ' +
        'to be written as "%25"',
    );
  }
}

/** The longest answer that is read; a page of 500 queues has about 1 MiB. */
const ANSWER_MAX_BYTES = 67_108_864;

export interface ManagementRequest {
  readonly method?: 'GET' | 'PUT' | 'DELETE';
  /** Below `/api`, its parts encoded. */
  readonly path: string;
  /** What we are doing, after "cannot": `list the queues`. */
  readonly doing: string;
  readonly json?: unknown;
  /** Statuses that are an answer here, besides those from 200 to 299. */
  readonly expected?: readonly number[];
}

interface ManagementAnswer {
  readonly status: number;
  /** undefined: no body. */
  readonly json: unknown;
}

export interface ManagementClient {
  request(request: ManagementRequest): Promise<ManagementAnswer>;
  close(): Promise<void>;
}

export function createManagementClient(settings: ManagementSettings): ManagementClient {
  let agent: Promise<undici.Agent> | undefined;
  const closing = new AbortController();
  return {
    async request(request) {
      if (closing.signal.aborted) throw unavailable(settings, request, 'the client was closed');
      agent ??= openAgent(settings);
      const limit = new TimeLimit(settings.clock, settings.timeoutMs, closing.signal);
      try {
        return await send(await agent, { settings, request, signal: limit.signal });
      } finally {
        limit.stop();
      }
    },
    async close() {
      closing.abort(CLOSED);
      await (await agent)?.destroy();
    },
  };
}

const CLOSED = 'the client was closed';

/** Pages are requested one after the other; a few callers may send requests side by side. */
const CONNECTIONS_MAX = 4;

/** n.b. undici is loaded with the first request. */
async function openAgent({ tls, timeoutMs }: ManagementSettings): Promise<undici.Agent> {
  const { Agent } = (await importPeer('undici', 'the management API')) as typeof undici;
  return new Agent({
    connections: CONNECTIONS_MAX,
    // One limit over the whole of a request is enough; ours is exact, theirs is by the second.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: {
      timeout: timeoutMs,
      ...tls,
      // Node wants a list that it could change.
      ...(Array.isArray(tls.ca) ? { ca: [...(tls.ca as (string | Buffer)[])] } : {}),
    } as undici.Agent.Options['connect'] & object,
  });
}

interface Sending {
  readonly settings: ManagementSettings;
  readonly request: ManagementRequest;
  readonly signal: AbortSignal;
}

async function send(
  agent: undici.Agent,
  { settings, request, signal }: Sending,
): Promise<ManagementAnswer> {
  let status: number;
  let text: string;
  try {
    const answer = await agent.request({
      origin: settings.origin,
      // Not through a URL: the parts are encoded already, and stay as they are.
      path: `${settings.prefix}/api${request.path}`,
      method: request.method ?? 'GET',
      headers: {
        authorization: settings.authorization,
        accept: 'application/json',
        ...(request.json === undefined ? {} : { 'content-type': 'application/json' }),
      },
      body: request.json === undefined ? null : JSON.stringify(request.json),
      signal,
    });
    status = answer.statusCode;
    text = await wholeText(answer, { settings, request });
  } catch (error) {
    if (error instanceof RespoolError) throw error;
    throw unavailable(settings, request, whyNot(settings, error, signal), error);
  }
  return judged({ status, text }, settings, request);
}

async function wholeText(
  { body }: undici.Dispatcher.ResponseData,
  { settings, request }: Pick<Sending, 'settings' | 'request'>,
): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of body as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > ANSWER_MAX_BYTES) {
      throw new RespoolError(
        'limit.exceeded',
        `cannot ${request.doing}: the answer of ${settings.address} is longer than ` +
          `${ANSWER_MAX_BYTES} bytes; ask for fewer columns or a smaller page`,
      );
    }
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

function whyNot(settings: ManagementSettings, error: unknown, signal: AbortSignal): string {
  if (signal.reason === CLOSED) return CLOSED;
  if (signal.aborted || codeOf(error) === 'UND_ERR_CONNECT_TIMEOUT') {
    return (
      `no answer within ${formatDuration(settings.timeoutMs)}; see that the broker is well, ` +
      'or raise "timeout"'
    );
  }
  const text = textOf(asError(error));
  if (isCertificateTrouble(codeOf(error))) {
    return `its certificate is not trusted (${text}); give the authority's as "tls.ca"`;
  }
  return (
    `${text}; see that the host and port are right and that the plugin is on: ` +
    'rabbitmq-plugins enable rabbitmq_management'
  );
}

function isCertificateTrouble(code: string): boolean {
  return /CERT|SELF_SIGNED|UNABLE_TO_VERIFY|ALTNAME/.test(code);
}

function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' ? code : '';
}

function judged(
  { status, text }: { readonly status: number; readonly text: string },
  settings: ManagementSettings,
  request: ManagementRequest,
): ManagementAnswer {
  const json = parsed(text);
  const isFine = (status >= 200 && status < 300) || request.expected?.includes(status) === true;
  if (isFine && json !== NOT_JSON) return { status, json };
  const reason = reasonOf(json);
  const said = reason === '' ? '' : ` (${reason})`;
  if (status >= 500 || status === 429 || status === 408) {
    throw unavailable(settings, request, `it answered ${status}${said}; try again later`);
  }
  const why = isFine
    ? `what answers at ${settings.address} is not the management API`
    : refusal(settings, status, said);
  throw new RespoolError('config.invalid', `cannot ${request.doing}: ${why}`);
}

function refusal(settings: ManagementSettings, status: number, text: string): string {
  const { address, username, vhost } = settings;
  if (status === 401) {
    return (
      `${address} refused the user ${show(username)}${text}; see that user and password are ` +
      'right and that the user has the tag it needs ("management" to look, "policymaker" for ' +
      'policies, "administrator" for permissions): rabbitmqctl set_user_tags'
    );
  }
  if (status === 403) {
    return (
      `${address} does not let the user ${show(username)} do that in the virtual host ` +
      `${show(vhost)}${text}; give access: rabbitmqctl set_permissions -p ${show(vhost)}`
    );
  }
  if (status === 404) {
    return (
      `${address} does not have it${text}; see that there is a virtual host ${show(vhost)} ` +
      '(rabbitmqctl list_vhosts) and that the URL is that of the management API'
    );
  }
  return `${address} answered ${status}${text}`;
}

const NOT_JSON: unique symbol = Symbol('not JSON');

function parsed(text: string): unknown {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return NOT_JSON;
  }
}

/** Only the two fields of RabbitMQ's own answers: a page of something else may echo anything. */
function reasonOf(json: unknown): string {
  if (typeof json !== 'object' || json === null) return '';
  const reason: unknown = Reflect.get(json, 'reason') ?? Reflect.get(json, 'error');
  return typeof reason === 'string' ? reason.slice(0, REASON_MAX_CHARS) : '';
}

const REASON_MAX_CHARS = 500;

function unavailable(
  { address }: ManagementSettings,
  { doing }: ManagementRequest,
  why: string,
  cause?: unknown,
): RespoolError {
  return new RespoolError(
    'broker.unavailable',
    `cannot ${doing}: the management API at ${address}: ${why}`,
    { cause },
  );
}
