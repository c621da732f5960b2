/** client — amqplib, loaded when a connection is opened; and a connection made with it. */

import { unescape } from 'node:querystring';
import { RespoolError, show, textOf } from '../../core/errors.ts';
import { importPeer } from '../../system/peer.ts';
import type { AmqpConnection } from './amqp.ts';

/** How to reach a broker beyond its URL. */
export interface ConnectOptions {
  /** What TLS needs beyond the machine's own authorities; for `amqps:` URLs. */
  readonly tls?: TlsOptions | undefined;
  /** How long a connection may take to open; default 10s. */
  readonly timeoutMs?: number;
  /** The silence after which a side takes the other for gone; default 10s. */
  readonly heartbeatMs?: number;
  /** The name that the broker shows for the connection. */
  readonly name?: string;
}

/** Keys and certificates, as `tls.connect` of Node takes them. */
export interface TlsOptions {
  readonly ca?: string | Buffer | readonly (string | Buffer)[];
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly passphrase?: string;
  readonly servername?: string;
  /** `false` trusts anybody; never in production. */
  readonly rejectUnauthorized?: boolean;
}

export const CONNECT_TIMEOUT_MS = 10_000;
export const HEARTBEAT_MS = 10_000;

interface AmqpPackage {
  connect(url: string, socket: object): Promise<AmqpConnection>;
  readonly credentials: { plain(username: string, password: string): object };
}

/** Opens a connection; `broker.unavailable` says why not, `peer.missing` what to install. */
export async function connectAmqp(
  url: string,
  { tls, timeoutMs = CONNECT_TIMEOUT_MS, heartbeatMs = HEARTBEAT_MS, name }: ConnectOptions = {},
): Promise<AmqpConnection> {
  const address = parsed(url);
  const amqplib = await loadAmqplib();
  if (!address.searchParams.has('heartbeat')) {
    address.searchParams.set('heartbeat', String(Math.max(1, Math.round(heartbeatMs / 1_000))));
  }
  const clientProperties = name === undefined ? {} : { connection_name: name };
  try {
    // n.b. amqplib itself would read a user and password in a URL as Latin-1.
    const credentials = amqplib.credentials.plain(userOf(url), passwordOf(address));
    const socket = { ...tls, timeout: timeoutMs, noDelay: true, clientProperties, credentials };
    return await amqplib.connect(address.href, socket);
  } catch (error) {
    throw new RespoolError(
      'broker.unavailable',
      `cannot connect to RabbitMQ at "${shownUrl(url)}": ${reasonOf(error, address)}`,
      { cause: error },
    );
  }
}

/** A URL without user and password, for people to read. */
export function shownUrl(url: string): string {
  try {
    const { protocol, host, pathname } = new URL(url);
    return `${protocol}//${host}${pathname === '/' ? '' : pathname}`;
  } catch {
    return '(not a URL)';
  }
}

/** The user that a URL names; default: guest. */
export function userOf(url: string): string {
  const { username } = parsed(url);
  return username === '' ? 'guest' : decodeURIComponent(username);
}

function passwordOf({ username, password }: URL): string {
  return username === '' && password === '' ? 'guest' : decodeURIComponent(password);
}

/** Says what to install, where it is missing, before anything needs it. */
export async function needAmqplib(): Promise<void> {
  await loadAmqplib();
}

async function loadAmqplib(): Promise<AmqpPackage> {
  const loaded = await importPeer('amqplib', 'RabbitMQ');
  // n.b. CommonJS: the functions may be on `default` only.
  const amqplib = (loaded['connect'] === undefined ? loaded['default'] : loaded) as AmqpPackage;
  return amqplib;
}

function parsed(url: string): URL {
  const address = URL.canParse(url) ? new URL(url) : undefined;
  if (address !== undefined && /^amqps?:$/.test(address.protocol)) return address;
  throw new RespoolError(
    'config.invalid',
    `cannot use "${shownUrl(url)}" as the URL of RabbitMQ: allowed is amqp:// or amqps://, ` +
      'such as amqp://user:password@host:5672/vhost',
  );
}

/** An attempt at several addresses fails with an error that has its reasons inside. */
function reasonOf(error: unknown, { pathname }: URL): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(textOf).join('; ');
  }
  const text = textOf(error);
  // n.b. amqplib drops the reason where the broker closes instead of opening the vhost.
  if (/Expected ConnectionOpenOk; got <ConnectionClose\b/.test(text)) {
    const vhost = unescape(pathname.slice(1)) || '/';
    return (
      `the broker refuses the vhost ${show(vhost)}: it is not there, the user may not use it, or ` +
      `it has as many connections as it may; to make it: rabbitmqctl add_vhost ${vhost}`
    );
  }
  if (/\bETIMEDOUT\b/.test(text)) {
    return (
      `${text}; check that the broker is well, and that this is its port of AMQP: 5672, or 5671 ` +
      'with TLS'
    );
  }
  if (/ACCESS.REFUSED/i.test(text)) return `${text}; check user, password and vhost`;
  return text;
}
