/**
 * options — where the management API is and who asks, checked at the door. No text of this file
 * ever shows a URL as it was given: it may hold a password.
 */

import { type Duration, durationMs, MINUTE_MS, SECOND_MS } from '../../../core/duration.ts';
import { RespoolError } from '../../../core/errors.ts';
import { checkNames } from '../../../core/limits.ts';
import type { Clock } from '../../../ports/clock.ts';
import { systemClock } from '../../../system/clock.ts';
import type { TlsOptions } from '../../connection/connection.ts';

/** Where the management API is, and who asks. */
export interface ManagementOptions {
  /** `http://user:password@host:15672`; a path before `/api` may follow. */
  readonly url: string;
  readonly tls?: TlsOptions;
  /** How long an answer may take, its body included; default 10s. */
  readonly timeout?: Duration;
  /** The virtual host; default `/`. */
  readonly vhost?: string;
  /** Who asks; default: the user of the URL, or `guest`. */
  readonly username?: string;
  readonly password?: string;
  readonly clock?: Clock;
}

/** Options that were checked. */
export interface ManagementSettings {
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

const TIMEOUT_DEFAULT_MS = 10 * SECOND_MS;
const TIMEOUT_MAX_MS = 10 * MINUTE_MS;
const GUEST = 'guest';

const OPTIONS = ['url', 'tls', 'timeout', 'vhost', 'username', 'password', 'clock'] as const;
const TLS_OPTIONS = [
  'ca',
  'cert',
  'key',
  'passphrase',
  'servername',
  'rejectUnauthorized',
] as const;

export function checkManagementOptions(options: ManagementOptions): ManagementSettings {
  checkNames('the management API', options, OPTIONS);
  const { tls = {}, timeout = TIMEOUT_DEFAULT_MS, clock = systemClock } = options;
  checkNames('"tls" of the management API', tls, TLS_OPTIONS);
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
    vhost: options.vhost ?? '/',
    timeoutMs: durationMs(timeout, 'timeout of the management API', {
      minMs: 1,
      maxMs: TIMEOUT_MAX_MS,
    }),
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
