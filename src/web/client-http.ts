/**
 * client-http — one request to a service and its answer; what went wrong comes back as the
 * RespoolError the service had.
 */

import { ERROR_CODES, type ErrorCode, RespoolError, textOf } from '../core/errors.ts';

/** Which service, and who asks. */
export interface ClientOptions {
  /** Such as `http://127.0.0.1:7667`. */
  readonly url: string;
  readonly token?: string;
  /** The name for the audit record where the service has no tokens; default `local`. */
  readonly by?: string;
}

/** What to send. */
export interface Sending {
  readonly method?: 'GET' | 'POST' | 'DELETE';
  readonly query?: URLSearchParams;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is. */
  readonly stream?: AsyncIterable<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Talks to one service. */
export class ServiceClient {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor({ url, token, by }: ClientOptions) {
    this.#url = baseOf(url);
    this.#headers = {
      ...(token === undefined ? {} : { authorization: `Bearer ${checkToken(token)}` }),
      ...(by === undefined ? {} : { 'respool-by': plainName(by) }),
    };
  }

  /** The answer as JSON. */
  async ask<T>(path: string, sending: Sending = {}): Promise<T> {
    const answer = await this.send(path, sending);
    try {
      return (await answer.json()) as T;
    } catch (error) {
      throw this.#lost(error);
    }
  }

  /** The answer, if it is a good one. */
  async send(path: string, sending: Sending = {}): Promise<Response> {
    const { method = 'GET', query, json, stream, headers, signal } = sending;
    const search = query === undefined || query.size === 0 ? '' : `?${query.toString()}`;
    let answer: Response;
    try {
      answer = await fetch(`${this.#url}${path}${search}`, {
        method,
        redirect: 'error',
        headers: {
          ...this.#headers,
          ...headers,
          ...(json === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(json === undefined ? {} : { body: JSON.stringify(json) }),
        ...(stream === undefined ? {} : { body: stream, duplex: 'half' }),
        ...(signal === undefined ? {} : { signal }),
      });
    } catch (error) {
      throw this.#lost(error);
    }
    if (answer.ok) return answer;
    throw await this.#refused(answer);
  }

  /** The parts of an answer; a connection that ends too early is an error. */
  async *parts(answer: Response): AsyncGenerator<Uint8Array> {
    try {
      if (answer.body !== null) yield* answer.body;
    } catch (error) {
      throw this.#lost(error);
    }
  }

  #lost(error: unknown): RespoolError {
    const cause = error instanceof Error ? error.cause : undefined;
    const code = (cause as NodeJS.ErrnoException | undefined)?.code;
    if (code === 'ECONNREFUSED' || code === 'ENOENT') {
      return new RespoolError(
        'store.unavailable',
        `no service answers at ${this.#url}; is \`respool serve\` running?`,
        { cause: error },
      );
    }
    return new RespoolError(
      'store.unavailable',
      `the service at ${this.#url} did not answer: ${textOf(cause ?? error)}`,
      { cause: error },
    );
  }

  async #refused(answer: Response): Promise<RespoolError> {
    const said: unknown = await answer.json().catch(() => undefined);
    const error = (said as { error?: { code?: unknown; message?: unknown } } | undefined)?.error;
    const code = ERROR_CODES.find((known) => known === error?.code) ?? codeOf(answer.status);
    const text = typeof error?.message === 'string' ? error.message : `status ${answer.status}`;
    return new RespoolError(code, `the service at ${this.#url} refused: ${text}`);
  }
}

/** Checked here: the error of whoever sends it would show it. */
function checkToken(token: string): string {
  if (/^[\x21-\x7e]{1,1024}$/.test(token)) return token;
  throw new RespoolError(
    'config.invalid',
    'cannot use the token of the service: allowed is 1 to 1,024 printable ASCII characters ' +
      'without spaces',
  );
}

/** A name as a header can carry it. */
function plainName(by: string): string {
  return by.replaceAll(/[^\x20-\x7e]/gu, '?').slice(0, NAME_MAX_CHARS);
}

const NAME_MAX_CHARS = 64;

function codeOf(status: number): ErrorCode {
  return status >= 500 ? 'store.unavailable' : 'config.invalid';
}

function baseOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const isPlain = parsed?.username === '' && parsed.password === '';
  if (isPlain && /^https?:$/.test(parsed.protocol)) {
    return `${parsed.origin}${parsed.pathname}`.replace(/\/$/, '');
  }
  throw new RespoolError(
    'config.invalid',
    'cannot use the URL of the service: allowed is http://HOST:PORT or https://HOST:PORT, ' +
      'without a name or password in it; a token is an option of its own',
  );
}
