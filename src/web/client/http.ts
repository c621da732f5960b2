/**
 * http — one request to a service and its answer. What the service refused is thrown as the
 * RespoolError it had. A request that came too often is sent again, unless its body is a stream; of
 * a service that is silent requests are given up (`SilenceGuard`).
 *
 * Every answer is checked for the header with the version of the API, a successful one for its
 * content type too: a proxy's page, another server or another version is an error that says so.
 */

import { SECOND_MS } from '../../core/duration.ts';
import {
  ERROR_CODES,
  type ErrorCode,
  isRespoolError,
  RespoolError,
  show,
  textOf,
} from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import { sleep } from '../../system/wait.ts';
import { API_HEADER, API_VERSION } from '../http-values.ts';

/** Which service, and in which name. */
export interface ClientOptions {
  /** Such as `http://127.0.0.1:7667`. */
  readonly url: string;
  readonly token?: string;
  /** The name for the audit record where the service has no tokens; default `local`. */
  readonly by?: string;
  readonly clock?: Clock;
  /** What to do where the service does not know the token; default: what the service says. */
  readonly tokenAdvice?: string;
}

/** What to send, and what must come back. */
interface OutgoingRequest {
  readonly method?: 'GET' | 'POST' | 'DELETE';
  readonly query?: URLSearchParams;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as they are. */
  readonly bytes?: Uint8Array<ArrayBuffer>;
  /** The same, and only once. */
  readonly stream?: AsyncIterable<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** The content-type of the answer; default JSON. */
  readonly accept?: string;
}

/** How long a request that came too often is tried again, in all. */
const RETRY_WITHIN_MS = 10_000;
/** How long to wait where the service does not say, and at the least. */
const RETRY_AFTER_MS = 1_000;
const RETRY_MIN_MS = 100;

/** Talks to one service. */
export class ServiceClient {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #tokenAdvice: string | undefined;
  readonly #silence: SilenceGuard;

  constructor({ url, token, by, clock = systemClock, tokenAdvice }: ClientOptions) {
    this.#url = baseOf(url);
    this.#clock = clock;
    this.#silence = new SilenceGuard(this.#url, clock);
    this.#tokenAdvice = tokenAdvice;
    this.#headers = {
      ...(token === undefined ? {} : { authorization: `Bearer ${checkToken(token)}` }),
      ...(by === undefined ? {} : { 'respool-by': plainName(by) }),
    };
  }

  /** The JSON of the answer; its type is that of the route, which has the same version. */
  async ask<T>(path: string, sending: OutgoingRequest = {}): Promise<T> {
    const answer = await this.send(path, sending);
    try {
      return (await this.#jsonOf(answer)) as T;
    } catch (error) {
      if (error instanceof SyntaxError) throw this.strange('the answer is no JSON');
      throw this.#lost(error, sending);
    }
  }

  /** A successful answer; a request that came too often is repeated when that is possible. */
  async send(path: string, sending: OutgoingRequest = {}): Promise<Response> {
    let leftMs = RETRY_WITHIN_MS;
    for (;;) {
      const answer = await this.#fetch(path, sending);
      const { status, headers } = answer;
      const version = headers.get(API_HEADER);
      if (version !== API_VERSION) {
        await answer.body?.cancel().catch(() => undefined);
        throw version === null
          ? this.strange(`status ${status} without the header "${API_HEADER}"`)
          : this.#otherVersion(version);
      }
      if (answer.ok) return this.#typed(answer, sending);
      // It was refused before anything was done. A stream is used up by then.
      const waitMs = status === 429 && sending.stream === undefined ? waitOf(headers) : leftMs + 1;
      if (waitMs > leftMs) throw await this.#refused(answer);
      leftMs -= waitMs;
      await answer.body?.cancel();
      await this.wait(waitMs, sending.signal);
    }
  }

  async #fetch(path: string, sending: OutgoingRequest): Promise<Response> {
    const { method = 'GET', query, json, bytes, stream, headers, signal: given } = sending;
    const search = query === undefined || query.size === 0 ? '' : `?${query.toString()}`;
    const body = json === undefined ? (bytes ?? stream) : JSON.stringify(json);
    const request = (signal: AbortSignal): Promise<Response> =>
      fetch(`${this.#url}${path}${search}`, {
        method,
        redirect: 'error',
        headers: {
          ...this.#headers,
          ...headers,
          ...(json === undefined ? {} : { 'content-type': JSON_TYPE }),
        },
        ...(body === undefined ? {} : { body }),
        ...(stream === undefined ? {} : { duplex: 'half' }),
        signal,
      });
    try {
      return await this.#silence.guard(request, given === undefined ? {} : { signal: given });
    } catch (error) {
      throw this.#lost(error, sending);
    }
  }

  async #typed(answer: Response, { accept = JSON_TYPE }: OutgoingRequest): Promise<Response> {
    const [type = ''] = (answer.headers.get('content-type') ?? '').split(';');
    if (type.trim().toLowerCase() === accept) return answer;
    await answer.body?.cancel().catch(() => undefined);
    throw this.strange(`the answer is ${type === '' ? 'of no type' : type}, not ${accept}`);
  }

  /** Resolves after the span; rejects when the signal fires before. */
  async wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
    await sleep(this.#clock, ms, signal);
    if (signal?.aborted === true) throw this.gone('was not asked again');
  }

  /** The parts of an answer; a connection that ends too early, or is silent, is an error. */
  async *parts(answer: Response, quietMs?: number): AsyncGenerator<Uint8Array> {
    try {
      yield* this.#read(answer, quietMs);
    } catch (error) {
      throw this.#lost(error, {});
    }
  }

  async *#read(answer: Response, quietMs?: number): AsyncGenerator<Uint8Array> {
    if (answer.body === null) return;
    const reader = answer.body.getReader();
    try {
      for (;;) {
        const part = await this.#silence.guard(
          (signal) => Promise.race([reader.read(), rejectionBy(signal)]),
          quietMs === undefined ? {} : { quietMs },
        );
        if (part.done) return;
        yield part.value;
      }
    } finally {
      // Of what was read to its end nothing is left to cancel.
      await reader.cancel().catch(() => undefined);
    }
  }

  async #jsonOf(answer: Response): Promise<unknown> {
    const parts: Uint8Array[] = [];
    for await (const part of this.#read(answer)) parts.push(part);
    return JSON.parse(new TextDecoder().decode(Buffer.concat(parts)));
  }

  /** The error of an answer that no service of ours gives. */
  strange(what: string): RespoolError {
    return new RespoolError(
      'store.unavailable',
      `what answers at ${this.#url} is no respool service (${what}); check --url`,
    );
  }

  #otherVersion(version: string): RespoolError {
    return new RespoolError(
      'store.unavailable',
      `the service at ${this.#url} has version ${show(version)} of the API, and this program has ` +
        `"${API_VERSION}": install the same version of Respool on both sides`,
    );
  }

  /** The error of a service that is not there any more. */
  gone(what: string): RespoolError {
    return new RespoolError('store.unavailable', `the service at ${this.#url} ${what}`);
  }

  #lost(error: unknown, { method = 'GET' }: OutgoingRequest): RespoolError {
    const isOpen =
      method === 'GET' ? '' : '; whether it was done is not known, look before you repeat it';
    if (isRespoolError(error)) {
      return new RespoolError(error.code, `${error.message}${isOpen}`, { cause: error });
    }
    const cause = error instanceof Error ? error.cause : undefined;
    const code = (cause as NodeJS.ErrnoException | undefined)?.code;
    if (code === 'ECONNREFUSED' || code === 'ENOENT') {
      return new RespoolError(
        'store.unavailable',
        `no service answers at ${this.#url}; is \`respool serve\` running?`,
        { cause: error },
      );
    }
    if (code !== undefined && UNREACHED.has(code)) {
      const text = `cannot reach ${this.#url}: ${textOf(cause)}; check the address of the service`;
      return new RespoolError('store.unavailable', text, { cause: error });
    }
    return new RespoolError(
      'store.unavailable',
      `the service at ${this.#url} did not answer to the end: ${textOf(cause ?? error)}${isOpen}`,
      { cause: error },
    );
  }

  async #refused(answer: Response): Promise<RespoolError> {
    const body: unknown = await this.#jsonOf(answer).catch(() => undefined);
    const error = (body as { error?: { code?: unknown; message?: unknown } } | undefined)?.error;
    const code = ERROR_CODES.find((item) => item === error?.code) ?? codeOf(answer.status);
    const advice = answer.status === 401 ? this.#tokenAdvice : undefined;
    const said = typeof error?.message === 'string' ? error.message : `status ${answer.status}`;
    const text = advice ?? said;
    return new RespoolError(code, `the service at ${this.#url} refused: ${text}`);
  }
}

/** Checked here: the error of its sender would show it. */
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

/** Rejects when the signal fires, with its reason. */
function rejectionBy(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
}

/** Codes of a host or a network that was not reached: nothing was sent. */
const UNREACHED: ReadonlySet<string> = new Set([
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** What the service takes as a name: NAME_PATTERN of server/request-gate.ts. */
const NAME_MAX_CHARS = 64;
const JSON_TYPE = 'application/json';

/** How long the service asks to wait. */
function waitOf(headers: Headers): number {
  const seconds = headers.get('retry-after') ?? '';
  const ms = /^\d{1,9}$/.test(seconds) ? Number(seconds) * SECOND_MS : RETRY_AFTER_MS;
  return Math.max(ms, RETRY_MIN_MS);
}

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

// How long a service may take to answer.
//
// A request may take minutes, as a check does. While one waits for its answer, `/healthz` is asked
// on another connection from time to time; what answers neither is given up.

/**
 * Delay until `/healthz` is asked for the first time and again, and the limit of its answer. Also
 * in docs/reference/http-api.md.
 */
const PROBE_MS: number = 5 * SECOND_MS;
/**
 * Unanswered probes in a row: of a service that never answered, and of one that did. In time (10 s,
 * a minute) also in docs/reference/http-api.md.
 */
const PROBES_MAX_AT_FIRST = 1;
const PROBES_MAX = 6;

/** Gives up requests to one service that is silent. */
class SilenceGuard {
  readonly #url: string;
  readonly #clock: Clock;
  #hasAnswered = false;

  constructor(url: string, clock: Clock) {
    this.#url = url;
    this.#clock = clock;
  }

  /** Does the work, with a signal that fires when the service is silent; `quietMs` may pass. */
  async guard<T>(
    work: (signal: AbortSignal) => Promise<T>,
    { signal, quietMs = PROBE_MS }: { readonly signal?: AbortSignal; readonly quietMs?: number },
  ): Promise<T> {
    const silence = new AbortController();
    const startedAt = this.#clock.monotonic();
    let missed = 0;
    let isOver = false;
    const probe = async (): Promise<void> => {
      missed = (await this.#answersProbe()) ? 0 : missed + 1;
      if (isOver) return;
      if (missed < (this.#hasAnswered ? PROBES_MAX : PROBES_MAX_AT_FIRST)) {
        callOff = this.#clock.after(PROBE_MS, () => void probe());
      } else silence.abort(this.#silent(this.#clock.monotonic() - startedAt));
    };
    let callOff = this.#clock.after(quietMs, () => void probe());
    const both = signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]);
    try {
      const done = await work(both);
      this.#hasAnswered = true;
      return done;
    } catch (error) {
      // What an aborted request throws differs with how far it came.
      throw silence.signal.aborted ? silence.signal.reason : error;
    } finally {
      isOver = true;
      callOff();
    }
  }

  /** Whether anything answers, of whatever status: a proxy may not let `/healthz` through. */
  async #answersProbe(): Promise<boolean> {
    const late = new AbortController();
    const callOff = this.#clock.after(PROBE_MS, () => late.abort());
    try {
      const answer = await fetch(`${this.#url}/healthz`, {
        signal: late.signal,
        redirect: 'manual',
      });
      await answer.body?.cancel();
      return true;
    } catch {
      return false;
    } finally {
      callOff();
    }
  }

  #silent(ms: number): RespoolError {
    const seconds = Math.round(ms / SECOND_MS);
    return new RespoolError(
      'store.unavailable',
      `what listens at ${this.#url} did not answer within ${seconds} s, not even to /healthz; ` +
        'check that it is the address of respool serve, and that the service is well',
    );
  }
}
