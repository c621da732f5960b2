/**
 * agent — the connections of one HTTP handler: pooled, and only to addresses that are allowed.
 *
 * The only file that loads undici; http.ts imports it with the first delivery. A name is resolved
 * once per connection, all its addresses are checked unless its host is allowed, and the socket
 * gets these addresses: no second look-up could return others.
 */

import { subscribe } from 'node:diagnostics_channel';
import { lookup as systemLookup } from 'node:dns/promises';
import { type LookupFunction, isIP } from 'node:net';
import { getCACertificates } from 'node:tls';
import { Agent, buildConnector } from 'undici';
import { AddressRefused, type Resolve } from './destination.ts';

/** Maximum time to establish a connection, in milliseconds. */
const CONNECT_TIMEOUT_MS = 10_000;

/** Limits of the connections of a handler. */
interface AgentOptions {
  /** Maximum number of sockets per origin. */
  readonly connections: number;
  readonly timeoutMs: number;
  /** Certificates of additional authorities, in PEM. */
  readonly ca: string | undefined;
  readonly isAllowed: (hostname: string, port: number) => boolean;
  readonly whyRefused: (address: string) => string | undefined;
  readonly resolve: Resolve | undefined;
}

/** Two pools of connections to the same hosts. */
export interface Agents {
  /** Reuses its connections. */
  readonly pooled: Agent;
  /** Opens a new connection for each request. */
  readonly fresh: Agent;
  /** Whether this error ended a request that a reused connection lost; see `followSocket`. */
  readonly isLostOnReuse: (error: unknown) => boolean;
}

/** Connections are opened on demand. */
export function makeAgents(options: AgentOptions): Agents {
  return { pooled: makeAgent(options, 1), fresh: makeAgent(options, 0), isLostOnReuse };
}

/** n.b. In undici, a pipelining of 0 disables keep-alive. */
function makeAgent(options: AgentOptions, pipelining: 0 | 1): Agent {
  const { connections, ca } = options;
  const connectTimeout = Math.min(options.timeoutMs, CONNECT_TIMEOUT_MS);
  const connectors = new Map<string, buildConnector.connector>();
  return new Agent({
    connections,
    pipelining,
    // The handler has one timeout for the whole request.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: (target, callback) => {
      const port = Number(target.port) || (target.protocol === 'https:' ? 443 : 80);
      const key = `${target.hostname} ${port}`;
      const literal = bare(target.hostname);
      const refusal =
        isIP(literal) === 0 ? undefined : refusalOf(options, literal, port, [literal]);
      if (refusal !== undefined) return callback(refusal, null);
      let connect = connectors.get(key);
      if (connect === undefined) {
        connect = buildConnector({
          // HTTP/1.1 only: aborting a request closes its socket, and affects no other request.
          allowH2: false,
          timeout: connectTimeout,
          lookup: checkedLookup(options, port),
          // Explicit, because an environment variable can change the default.
          rejectUnauthorized: true,
          ...(ca === undefined ? {} : { ca: [...getCACertificates('default'), ca] }),
        });
        connectors.set(key, connect);
      }
      return connect(target, (...result) => {
        if (result[0] === null) followSocket(result[1]);
        callback(...result);
      });
    },
  });
}

function checkedLookup(settings: AgentOptions, port: number): LookupFunction {
  const { resolve = resolveBySystem } = settings;
  return (hostname, options, callback) => {
    resolve(hostname).then(
      (addresses) => {
        const [first] = addresses;
        const all = addresses.map(({ address }) => address);
        const refusal = refusalOf(settings, hostname, port, all);
        if (refusal !== undefined) return callback(refusal, '');
        if (first === undefined) return callback(noAddress(hostname), '');
        if (options.all === true) return callback(null, [...addresses]);
        return callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, ''),
    );
  };
}

function noAddress(hostname: string): Error {
  return Object.assign(new Error(`"${hostname}" has no address`), { code: 'ENOTFOUND' });
}

const resolveBySystem: Resolve = (hostname) => systemLookup(hostname, { all: true });

/** The refusal if any address is not allowed: the system chooses which one it uses. */
function refusalOf(
  { isAllowed, whyRefused }: AgentOptions,
  hostname: string,
  port: number,
  addresses: readonly string[],
): AddressRefused | undefined {
  if (isAllowed(hostname, port)) return undefined;
  for (const address of addresses) {
    const why = whyRefused(address);
    if (why !== undefined) return new AddressRefused(hostname, address, why);
  }
  return undefined;
}

function bare(hostname: string): string {
  return hostname.replace(/^\[(.*)\]$/, '$1');
}

// Requests that were lost because a connection was reused too late.
//
// A receiver may close an idle connection at the very moment a request is sent over it. The request
// then fails although neither it nor the receiver is at fault. The diagnostics channels of undici
// say which request uses which socket. A request counts as lost only if the socket had carried a
// request before, and no byte has been received since.

interface Socket {
  readonly bytesRead: number;
}

interface SentRequest {
  readonly socket: Socket;
  readonly isFirst: boolean;
  /** Bytes the socket had received before. */
  readonly readBefore: number;
}

/** A message of the diagnostics channels of undici. */
interface ChannelMessage {
  readonly request: object;
  readonly socket: Socket;
  readonly error: { readonly code?: unknown };
}

const BROKEN = /^(?:ECONNRESET|ECONNABORTED|EPIPE|UND_ERR_SOCKET)$/;

/** Requests per socket; only of our sockets, as the channels report all of the process. */
const requestCounts = new WeakMap<object, number>();
const sentRequests = new WeakMap<object, SentRequest>();
const reuseErrors = new WeakSet<object>();
let isSubscribed = false;

function followSocket(socket: Socket): void {
  requestCounts.set(socket, 0);
  if (isSubscribed) return;
  isSubscribed = true;
  subscribe('undici:client:sendHeaders', (message) => onSent(message as ChannelMessage));
  subscribe('undici:request:error', (message) => onFailed(message as ChannelMessage));
}

function isLostOnReuse(error: unknown): boolean {
  return typeof error === 'object' && error !== null && reuseErrors.has(error);
}

function onSent({ request, socket }: ChannelMessage): void {
  const count = requestCounts.get(socket);
  if (count === undefined) return;
  requestCounts.set(socket, count + 1);
  sentRequests.set(request, { socket, isFirst: count === 0, readBefore: socket.bytesRead });
}

function onFailed({ request, error }: ChannelMessage): void {
  const sent = sentRequests.get(request);
  if (sent === undefined || sent.isFirst || !BROKEN.test(String(error.code))) return;
  if (sent.socket.bytesRead === sent.readBefore) reuseErrors.add(error);
}
