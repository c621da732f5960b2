/**
 * inlet — a request before its body is read, the same from Node's server and from `fetch`;
 * and how many bytes of JSON all requests may have in memory (`ByteBudget`).
 *
 * Promise: no more bytes are taken than the limit allows, and a body that was cut off fails.
 */

import type { IncomingMessage } from 'node:http';
import { asError, isRespoolError, RespoolError } from '../../core/errors.ts';
import { countUnreleasedBytes } from '../../system/memory.ts';
import { HttpRefusal, refuseTooLarge } from './refusal.ts';

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
  /** Nothing says where the body ends, so that bytes behind the head would be none of it. */
  readonly isUnframed: boolean;
  header(name: string): string | undefined;
  /** The body in one piece. */
  read(limit: ByteLimit): Promise<Uint8Array>;
  /** The body in parts. */
  stream(limit: ByteLimit): AsyncIterable<Uint8Array>;
}

/** How many bytes of a body are taken. */
export interface ByteLimit {
  readonly maxBytes: number;
  /** For the error: what it is, and where the limit comes from. */
  readonly what: string;
  readonly hint: string;
  /** Its part of the memory for all requests; none for raw posts. */
  readonly share?: Share;
}

/** A request of Node's server. */
export class NodeInlet implements Inlet {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly length: number | undefined;
  readonly #request: IncomingMessage;
  readonly #goOn: (() => void) | undefined;

  /** `goOn` asks a client that waits for leave to send the body. */
  constructor(request: IncomingMessage, goOn?: () => void) {
    this.method = request.method ?? 'GET';
    const url = request.url ?? '/';
    const mark = url.indexOf('?');
    this.path = mark < 0 ? url : url.slice(0, mark);
    this.query = mark < 0 ? '' : url.slice(mark + 1);
    const { headers } = request;
    const length = headers['content-length'];
    if (length !== undefined) this.length = Number(length);
    else this.length = headers['transfer-encoding'] === undefined ? 0 : undefined;
    this.#request = request;
    this.#goOn = goOn;
  }

  get rawHeaders(): readonly string[] {
    return this.#request.rawHeaders;
  }

  get address(): string {
    return this.#request.socket.remoteAddress ?? '';
  }

  get isUnframed(): boolean {
    const { headers } = this.#request;
    return headers['content-length'] === undefined && headers['transfer-encoding'] === undefined;
  }

  header(name: string): string | undefined {
    const value = this.#request.headers[name];
    return Array.isArray(value) ? value.join(', ') : value;
  }

  read(limit: ByteLimit): Promise<Uint8Array> {
    try {
      this.#check(limit);
    } catch (error) {
      return Promise.reject(asError(error));
    }
    this.#goOn?.();
    return readAll(this.#request, limit);
  }

  stream(limit: ByteLimit): AsyncIterable<Uint8Array> {
    this.#check(limit);
    this.#goOn?.();
    // Not destroyed at its end or failure: the answer still has to go out over the same socket.
    const parts = this.#request.iterator({ destroyOnReturn: false });
    return counted(parts as AsyncIterable<Uint8Array>, limit);
  }

  #check(limit: ByteLimit): void {
    const { length } = this;
    if (length !== undefined && length > limit.maxBytes) throw over(limit);
    if (length !== undefined) return;
    const coding = this.header('transfer-encoding')?.trim().toLowerCase();
    if (coding !== 'chunked') throw packed();
  }
}

/** A request of the fetch API. */
export class FetchInlet implements Inlet {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly rawHeaders: readonly string[];
  readonly address = 'fetch';
  readonly isUnframed = false;
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
      try {
        if (size > limit.maxBytes) throw over(limit);
        limit.share?.take(part.byteLength);
      } catch (error) {
        request.off('data', onData);
        // They are no longer needed, and a refused connection lingers for a while.
        first = undefined;
        more = undefined;
        reject(asError(error));
        return;
      }
      if (first === undefined) {
        first = part;
        return;
      }
      // The parts are garbage as soon as they are one.
      countUnreleasedBytes(part.byteLength);
      if (more === undefined) more = [first, part];
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
  try {
    for await (const part of parts) {
      size += part.byteLength;
      if (size > limit.maxBytes) throw over(limit);
      limit.share?.take(part.byteLength);
      yield part;
    }
  } catch (error) {
    throw isRespoolError(error) ? error : cutOff();
  }
}

async function* nothing(): AsyncGenerator<Uint8Array> {
  // No body, no parts.
}

function over({ what, maxBytes, hint }: ByteLimit): RespoolError {
  return refuseTooLarge(what, maxBytes, hint);
}

function packed(): HttpRefusal {
  const text = 'cannot use this transfer-encoding: send the body as it is, or in chunks';
  return new HttpRefusal(501, 'transfer-encoding', text);
}

function cutOff(): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot read the request: the connection ended before its body did',
  );
}

// How many bytes of JSON requests may be in memory at once, over all callers.
//
// Each has a limit of its own, but a thousand slow callers have a thousand of them. What has come
// in counts, not what was announced: no caller can take the place of others without sending.

/**
 * Maximum number of bytes of JSON requests in memory at once. Also in docs/reference/http-api.md.
 */
const BUDGET_BYTES = 33_554_432;
const RETRY_AFTER_SECONDS = '1';

/** What is left for all. */
export class ByteBudget {
  readonly #maxBytes: number;
  #taken = 0;

  constructor(maxBytes: number = BUDGET_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** A share for one request. */
  open(): Share {
    let own = 0;
    return {
      take: (bytes) => {
        if (this.#taken + bytes > this.#maxBytes) throw busy();
        this.#taken += bytes;
        own += bytes;
      },
      giveBack: () => {
        this.#taken -= own;
        own = 0;
      },
    };
  }
}

/** What one request has taken. */
export interface Share {
  /** Refuses when all together would have too much. */
  take(bytes: number): void;
  giveBack(): void;
}

function busy(): HttpRefusal {
  return new HttpRefusal(
    503,
    'busy',
    'too many large requests are coming in at once; send it again in a moment',
    { code: 'store.unavailable', headers: { 'retry-after': RETRY_AFTER_SECONDS } },
  );
}
