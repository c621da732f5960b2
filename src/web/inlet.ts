/**
 * inlet — a request before its body is read, the same from Node's server and from `fetch`.
 *
 * Promise: no more bytes are taken than the limit allows, and a body that was cut off fails.
 */

import type { IncomingMessage } from 'node:http';
import { RespoolError } from '../core/errors.ts';
import { tooLarge } from './refusal.ts';

/** A request whose body is still outside. */
export interface Inlet {
  readonly method: string;
  /** As it came, not decoded. */
  readonly path: string;
  /** What follows the question mark. */
  readonly query: string;
  /** Name, value, name, value …, as they came. */
  readonly rawHeaders: readonly string[];
  /** Where it came from. */
  readonly address: string;
  /** The length the caller announced; 0 without a body, undefined for one of unknown length. */
  readonly length: number | undefined;
  header(name: string): string | undefined;
  /** The body in one piece. */
  read(limit: ByteLimit): Promise<Uint8Array>;
  /** The body in parts. */
  stream(limit: ByteLimit): AsyncIterable<Uint8Array>;
}

/** What may be no longer than this. */
export interface ByteLimit {
  readonly maxBytes: number;
  /** For the error: what it is, and where the limit comes from. */
  readonly what: string;
  readonly hint: string;
}

/** A request of Node's server. */
export class NodeInlet implements Inlet {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly #request: IncomingMessage;
  readonly #goOn: (() => void) | undefined;

  /** `goOn` asks a client that waits for leave to send the body. */
  constructor(request: IncomingMessage, goOn?: () => void) {
    this.method = request.method ?? 'GET';
    const url = request.url ?? '/';
    const mark = url.indexOf('?');
    this.path = mark < 0 ? url : url.slice(0, mark);
    this.query = mark < 0 ? '' : url.slice(mark + 1);
    this.#request = request;
    this.#goOn = goOn;
  }

  get rawHeaders(): readonly string[] {
    return this.#request.rawHeaders;
  }

  get address(): string {
    return this.#request.socket.remoteAddress ?? '';
  }

  get length(): number | undefined {
    const { headers } = this.#request;
    const length = headers['content-length'];
    if (length !== undefined) return Number(length);
    return headers['transfer-encoding'] === undefined ? 0 : undefined;
  }

  header(name: string): string | undefined {
    const value = this.#request.headers[name];
    return Array.isArray(value) ? value.join(', ') : value;
  }

  read(limit: ByteLimit): Promise<Uint8Array> {
    const { length } = this;
    if (length !== undefined && length > limit.maxBytes) return Promise.reject(over(limit));
    this.#goOn?.();
    return readAll(this.#request, limit);
  }

  stream(limit: ByteLimit): AsyncIterable<Uint8Array> {
    const { length } = this;
    if (length !== undefined && length > limit.maxBytes) throw over(limit);
    this.#goOn?.();
    // Not destroyed at its end or failure: the answer still has to go out over the same socket.
    const parts = this.#request.iterator({ destroyOnReturn: false });
    return counted(parts as AsyncIterable<Uint8Array>, limit);
  }
}

/** A request of the fetch API. */
export class FetchInlet implements Inlet {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly rawHeaders: readonly string[];
  readonly address = 'fetch';
  readonly length: number | undefined;
  readonly #request: Request;
  readonly #host: string;

  constructor(request: Request) {
    const url = new URL(request.url);
    this.method = request.method;
    this.path = url.pathname;
    this.query = url.search.slice(1);
    this.rawHeaders = [...request.headers].flat();
    const length = request.headers.get('content-length');
    if (length !== null) this.length = Number(length);
    else this.length = request.body === null ? 0 : undefined;
    this.#request = request;
    this.#host = url.host;
  }

  header(name: string): string | undefined {
    return this.#request.headers.get(name) ?? (name === 'host' ? this.#host : undefined);
  }

  async read(limit: ByteLimit): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    for await (const part of this.stream(limit)) parts.push(part);
    return Buffer.concat(parts);
  }

  stream(limit: ByteLimit): AsyncIterable<Uint8Array> {
    const { length } = this;
    if (length !== undefined && length > limit.maxBytes) throw over(limit);
    return counted(this.#request.body ?? nothing(), limit);
  }
}

function readAll(request: IncomingMessage, limit: ByteLimit): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    let first: Buffer | undefined;
    let more: Buffer[] | undefined;
    let size = 0;
    const onData = (part: Buffer): void => {
      size += part.byteLength;
      if (size > limit.maxBytes) {
        request.off('data', onData);
        reject(over(limit));
      } else if (first === undefined) first = part;
      else if (more === undefined) more = [first, part];
      else more.push(part);
    };
    request.on('data', onData);
    request.on('end', () => {
      // Most bodies come in one part, which needs no second copy.
      resolve(more === undefined ? (first ?? NO_BYTES) : Buffer.concat(more, size));
    });
    request.on('error', () => reject(cutOff()));
    request.on('close', () => {
      if (!request.complete) reject(cutOff());
    });
  });
}

const NO_BYTES = new Uint8Array(0);

async function* counted(
  parts: AsyncIterable<Uint8Array>,
  limit: ByteLimit,
): AsyncGenerator<Uint8Array> {
  let size = 0;
  for await (const part of parts) {
    size += part.byteLength;
    if (size > limit.maxBytes) throw over(limit);
    yield part;
  }
}

async function* nothing(): AsyncGenerator<Uint8Array> {
  // No body, no parts.
}

function over({ what, maxBytes, hint }: ByteLimit): RespoolError {
  return tooLarge(what, maxBytes, hint);
}

function cutOff(): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot read the request: the connection ended before its body did',
  );
}
