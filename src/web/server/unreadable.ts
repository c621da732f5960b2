/**
 * unreadable — what cannot be read as a request at all: too slow, too long, or no HTTP.
 *
 * Promise: an answer that is on its way to the same caller goes out first, and whatever the caller
 * does, the connection is gone a moment after ours.
 */

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../../ports/clock.ts';
import { JSON_TYPE, SAFE_HEADERS } from './writing.ts';

/** Message headers (32 KiB by default), their prefixes, and what clients and proxies add. */
export const HEADERS_MAX_BYTES = 65_536;
/** How long a caller has to close its side. */
const LINGER_MS = 1_000;

/** Refuses them, after what was asked before them is answered. */
export class Unreadable {
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
      this.#end(socket, textOf(error));
      return;
    }
    if (latest.req.complete) {
      latest.once('close', () => this.#end(socket, textOf(error)));
      return;
    }
    // The body of that request is what cannot be read: this is its answer, in its turn.
    if (!latest.headersSent) answer(latest, error);
    latest.once('close', () => {
      // n.b. Node forgets a request that is answered: who reads its body would wait for ever.
      latest.req.destroy();
      this.#end(socket, '');
    });
  }

  #end(socket: Socket, text: string): void {
    if (socket.destroyed) return;
    const callOff = this.#clock.after(LINGER_MS, () => socket.destroy());
    socket.once('close', callOff);
    if (socket.writable) socket.end(text);
  }
}

function answer(response: ServerResponse, error: NodeJS.ErrnoException): void {
  const { status, headers, text } = refusalOf(error);
  response.writeHead(status, headers);
  response.end(text);
}

function textOf(error: NodeJS.ErrnoException): string {
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
