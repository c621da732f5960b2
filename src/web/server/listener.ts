/**
 * listener — Node's server with our limits: where it listens, how many connections an address may
 * have, how long it waits for callers, how it answers what is not HTTP, and how it ends.
 *
 * Called by service.ts, and without a spool by `respool dlq sweep --listen`.
 */

import { readFile } from 'node:fs/promises';
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { durationMs } from '../../core/duration.ts';
import { RespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Logger } from '../../ports/logger.ts';
import { HEAD_FIELDS_MAX, networkOf } from './request-gate.ts';
import { Pipeline } from './pipeline.ts';
import { isLoopback, type ServeSettings } from './settings.ts';
import { JSON_TYPE, SAFE_HEADERS } from './writing.ts';

// Open connections by address, so that one caller cannot take them all.
//
// Half of them is what one address may have. Callers on this machine are not told apart by their
// address, and neither are those behind a proxy: there is no such limit for them.

/** Counts the connections of each address. */
export class ConnectionLimit {
  readonly #max: number;
  readonly #taken = new Map<string, number>();

  /** `connections`: how many there may be in all. */
  constructor(connections: number) {
    this.#max = Math.max(1, Math.floor(connections / 2));
  }

  /** Whether this address may have one more; if so, it has it until `leave`. */
  take(address: string): boolean {
    const key = keyOf(address);
    if (key === undefined) return true;
    const taken = this.#taken.get(key) ?? 0;
    if (taken >= this.#max) return false;
    this.#taken.set(key, taken + 1);
    return true;
  }

  leave(address: string): void {
    const key = keyOf(address);
    if (key === undefined) return;
    const left = (this.#taken.get(key) ?? 1) - 1;
    if (left === 0) this.#taken.delete(key);
    else this.#taken.set(key, left);
  }
}

function keyOf(address: string): string | undefined {
  // An IPv4 address on a socket of IPv6 is still that address.
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '');
  return isLoopback(plain) ? undefined : networkOf(plain);
}

/** How long the head of a request may take to come in. Also in docs/reference/http-api.md. */
const HEADERS_WITHIN_MS = 10_000;
/** How long an idle connection is kept. Also in docs/reference/http-api.md. */
const KEEP_ALIVE_MS = 65_000;
const SOCKET_BYTES = 16_384;
/**
 * How long a caller may take nothing of its answer. Also in docs/reference/http-api.md and
 * docs/how-to/secure-the-service.md.
 */
const UNREAD_WITHIN_MS = 30_000;
/** How often callers that are too slow are looked for. */
const LOOK_EVERY_MS = 500;

/** What a listener needs. */
interface ListenerOptions {
  readonly clock: Clock;
  readonly logger?: Logger;
  /** For tests: instead of the documented times, in milliseconds. */
  readonly times?: ListenerTimes;
  /** `goOn` lets a client send its body that asked first. */
  readonly onRequest: (
    request: IncomingMessage,
    response: ServerResponse,
    goOn?: () => void,
  ) => void;
}

/** How long callers are waited for. */
export interface ListenerTimes {
  /** For the head of a request, and for the first byte of a connection. */
  readonly headersWithinMs?: number;
  /** For a client that reads nothing of an answer. */
  readonly unreadWithinMs?: number;
}

/** Listens, and ends. */
export class Listener {
  readonly #settings: ServeSettings;
  readonly #parts: ListenerOptions;
  #server: Server | undefined;
  readonly #sockets = new Set<Socket>();

  constructor(settings: ServeSettings, parts: ListenerOptions) {
    this.#settings = settings;
    this.#parts = parts;
  }

  async listen(): Promise<{ url: string; host: string; port: number }> {
    const settings = this.#settings;
    if (this.#server !== undefined) {
      throw new RespoolError('config.invalid', 'cannot listen twice: the service listens already');
    }
    const server = await makeServer(settings, this.#parts.times);
    const { logger } = this.#parts;
    this.#hear(server);
    server.maxConnections = settings.limits.connections;
    const { host, port: asked } = settings;
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => reject(cannotListen(error, host, asked)));
      server.listen(asked, host, resolve);
    });
    this.#server = server;
    const { port } = server.address() as AddressInfo;
    const near = nearest(host);
    const name = near.includes(':') && !near.startsWith('[') ? `[${near}]` : near;
    const url = `${settings.tls === undefined ? 'http' : 'https'}://${name}:${port}`;
    logger?.info({ url }, 'listening');
    return { url, host, port };
  }

  #hear(server: Server): void {
    const { onRequest, clock } = this.#parts;
    const { limits, tls, behindProxy = false } = this.#settings;
    const unreadable = new Unreadable(clock);
    const blankWithinMs = this.#parts.times?.headersWithinMs ?? HEADERS_WITHIN_MS;
    const pipeline = new Pipeline(clock, blankWithinMs);
    const hear = (request: IncomingMessage, response: ServerResponse, goOn?: () => void): void => {
      const { socket } = request;
      const before = unreadable.unanswered(socket);
      unreadable.expect(socket, response);
      pipeline.handle(request, response, before, () => onRequest(request, response, goOn));
    };
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      hear(request, response);
    });
    server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
      hear(request, response, () => response.writeContinue());
    });
    // n.b. Without a listener Node answers by itself, past all limits here.
    server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
      hear(request, response);
    });
    server.on('timeout', (socket: Socket) => {
      // Nothing came or went for long, though a request is being worked on: that may take its time.
      const isWorking = unreadable.unanswered(socket) !== undefined && socket.writableLength === 0;
      if (!isWorking) socket.destroy();
    });
    server.on('clientError', (error: Error, socket: Socket) => unreadable.refuse(error, socket));
    const seats = behindProxy ? undefined : new ConnectionLimit(limits.connections);
    server.on('connection', (socket: Socket) => {
      // Asked once: a connection that is gone has no address any more.
      const address = socket.remoteAddress ?? '';
      if (seats?.take(address) === false) {
        socket.destroy();
        return;
      }
      this.#follow(socket);
      socket.once('close', () => seats?.leave(address));
      if (tls === undefined) pipeline.follow(socket);
    });
    // With TLS requests come over a socket of their own, wrapped around that of the connection;
    // the handshake is no request, and only the wrapping has not read a byte after it.
    server.on('secureConnection', (socket: Socket) => {
      this.#follow(socket);
      pipeline.follow(socket);
    });
  }

  #follow(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
  }

  /** Waits for requests on their way, then cuts what is left. */
  async close(withinMs: number): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    await new Promise<void>((resolve) => {
      const callOff = this.#parts.clock.after(withinMs, () => server.closeAllConnections());
      server.close(() => {
        callOff();
        resolve();
      });
      server.closeIdleConnections();
      // n.b. Node takes a connection that never asked for anything for a busy one, and clients open
      // such connections ahead of need.
      for (const socket of this.#sockets) if (socket.bytesRead === 0) socket.destroy();
    });
    this.#server = undefined;
  }
}

async function makeServer(
  { tls, limits }: ServeSettings,
  { headersWithinMs = HEADERS_WITHIN_MS, unreadWithinMs = UNREAD_WITHIN_MS }: ListenerTimes = {},
): Promise<Server> {
  const requestTimeout = durationMs(limits.requestTimeout, 'serve.limits.requestTimeout');
  const options: ServerOptions = {
    maxHeaderSize: HEADERS_MAX_BYTES,
    // n.b. Node throws when the headers may take longer than the whole.
    headersTimeout: Math.min(headersWithinMs, requestTimeout),
    requestTimeout,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(LOOK_EVERY_MS, headersWithinMs / 4),
    // Checked by the gate, so that its answer waits for its turn as any other.
    requireHostHeader: false,
    noDelay: true,
    // n.b. A paused socket is read until it holds as much.
    highWaterMark: SOCKET_BYTES,
  };
  const server =
    tls === undefined
      ? createServer(options)
      : createTlsServer({
          ...options,
          handshakeTimeout: headersWithinMs,
          key: await readPem('key', tls.key),
          cert: await readPem('cert', tls.cert),
        });
  server.timeout = unreadWithinMs;
  // n.b. Past this count Node drops headers without a word. One more than are allowed, so that
  // request-gate.ts sees that there are too many, and refuses the request.
  server.maxHeadersCount = HEAD_FIELDS_MAX + 1;
  return server;
}

async function readPem(what: 'key' | 'cert', file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (cause) {
    const text = `cannot read serve.tls.${what}: ${textOf(cause)}`;
    throw new RespoolError('config.invalid', text, { cause });
  }
}

function cannotListen(error: NodeJS.ErrnoException, host: string, port: number): RespoolError {
  const where = `cannot listen on ${host}, port ${port}`;
  if (error.code === 'EADDRINUSE') {
    const text = `${where}: the port is in use; choose another with --port or serve.port`;
    return new RespoolError('config.invalid', text, { cause: error });
  }
  const text = `${where}: ${textOf(error)}; check serve.host and serve.port`;
  return new RespoolError('config.invalid', text, { cause: error });
}

/** A server that listens everywhere is reached here too; "everywhere" is not an address to call. */
function nearest(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  return host === '::' || host === '[::]' ? '::1' : host;
}

// What cannot be read as a request at all: too slow, too long, or no HTTP.
//
// Promise: an answer that is on its way to the same caller goes out first, and whatever the caller
// does, the connection is gone a moment after ours.

/**
 * Largest head of a request: message headers (32 KiB by default), their prefixes, and what clients
 * and proxies add. Also in docs/reference/http-api.md.
 */
const HEADERS_MAX_BYTES = 65_536;
/** How long a caller has to close its side. */
const UNREADABLE_LINGER_MS = 1_000;

/** Refuses what cannot be read, once all requests before it are answered. */
class Unreadable {
  readonly #clock: Clock;
  /** The last answer of each connection: when it is out, all before it are. */
  readonly #latest = new Map<Socket, ServerResponse>();
  /** n.b. Every further piece of what cannot be read is reported again. */
  readonly #refused = new WeakSet<Socket>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A request that could be read, and will be answered. */
  expect(socket: Socket, response: ServerResponse): void {
    if (!this.#latest.has(socket)) socket.once('close', () => this.#latest.delete(socket));
    this.#latest.set(socket, response);
  }

  /** The last answer of a connection, while it is not out. */
  unanswered(socket: Socket): ServerResponse | undefined {
    const latest = this.#latest.get(socket);
    return latest === undefined || latest.writableFinished || latest.destroyed ? undefined : latest;
  }

  refuse(error: NodeJS.ErrnoException, socket: Socket): void {
    if (!socket.writable || error.code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    if (this.#refused.has(socket)) return;
    this.#refused.add(socket);
    const latest = this.unanswered(socket);
    if (latest === undefined) {
      this.#end(socket, responseOf(error));
      return;
    }
    if (latest.req.complete) {
      latest.once('close', () => this.#end(socket, responseOf(error)));
      return;
    }
    // The body of that request is what cannot be read: this is its answer, in its turn.
    if (!latest.headersSent) answerUnreadable(latest, error);
    latest.once('close', () => {
      // n.b. Node forgets a request that is answered: a reader of its body would wait for ever.
      latest.req.destroy();
      this.#end(socket, '');
    });
  }

  #end(socket: Socket, text: string): void {
    if (socket.destroyed) return;
    const callOff = this.#clock.after(UNREADABLE_LINGER_MS, () => socket.destroy());
    socket.once('close', callOff);
    if (socket.writable) socket.end(text);
  }
}

function answerUnreadable(response: ServerResponse, error: NodeJS.ErrnoException): void {
  const { status, headers, text } = refusalOf(error);
  response.writeHead(status, headers);
  response.end(text);
}

function responseOf(error: NodeJS.ErrnoException): string {
  const { status, words, headers, text } = refusalOf(error);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${words}\r\n${lines.join('')}\r\n${text}`;
}

interface Unread {
  readonly status: number;
  readonly words: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

function refusalOf(error: NodeJS.ErrnoException): Unread {
  const [status, words, why] = UNREADABLE[error.code ?? ''] ?? [400, 'Bad Request', 'no HTTP'];
  const text = JSON.stringify({
    error: { code: 'config.invalid', message: `cannot read the request: ${why}` },
  });
  const headers = {
    ...SAFE_HEADERS,
    'content-type': JSON_TYPE,
    'content-length': String(Buffer.byteLength(text)),
    connection: 'close',
  };
  return { status, words, headers, text };
}

const UNREADABLE: Readonly<Record<string, readonly [number, string, string]>> = {
  HPE_HEADER_OVERFLOW: [
    431,
    'Request Header Fields Too Large',
    `its headers have more than ${HEADERS_MAX_BYTES} bytes`,
  ],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'Request Timeout', 'it took too long to come in'],
};
