/**
 * service — the spool over HTTP.
 *
 *   request ─▶ gate ─▶ raw post ─────────────▶ 201 after the message is durable
 *                 └──▶ app (app.ts) ─▶ endpoint ─▶ answer
 *   listen() ─▶ serving ─beginStop()▶ reads only ─stop()▶ closed
 *
 * Raw posts go directly from the socket to the spool; everything else goes through the app. Posts
 * of one turn of the event loop are stored together (`PostBatcher`).
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { durationMs, MINUTE_MS } from '../../core/duration.ts';
import { asError, isRespoolError, textOf } from '../../core/errors.ts';
import { redactText } from '../../core/redact.ts';
import type { ConsumerHealth, RelayHealth } from '../../observe/health.ts';
import type { MetricsText } from '../../observe/metrics/types.ts';
import type { ServiceOperator } from '../../spool/operator/operator.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Logger } from '../../ports/logger.ts';
import type { EnqueueResult } from '../../spool/enqueue.ts';
import type { Message } from '../../spool/message.ts';
import { systemClock } from '../../system/clock.ts';
import { WhenIdle } from '../../system/wait.ts';
import { isOnePiece, postRaw, rawTopic } from '../routes/post.ts';
import { oneLine } from '../http-values.ts';
import { AnswerMemory } from './answer-memory.ts';
import type { App } from './endpoint.ts';
import {
  type Caller,
  checkRole,
  checkTarget,
  networkOf,
  RecentCounts,
  RequestGate,
} from './request-gate.ts';
import { ByteBudget, type ByteLimit, FetchInlet, type Inlet, NodeInlet } from './inlet.ts';
import type { Listener, ListenerTimes } from './listener.ts';
import { HttpRefusal, refusedOf, stopping } from './refusal.ts';
import { checkListen, type ServeSettings } from './settings.ts';
import { sharedBytesOf } from './shared-reads.ts';
import {
  enqueuedText,
  JSON_TYPE,
  Lingering,
  SAFE_HEADERS,
  writeAnswer,
  writeEnqueued,
  writeRefusal,
} from './writing.ts';

// Posts that came in within one turn of the event loop are stored together.
//
// Each request is read in a microtask of its own, so a store would see one message at a time
// and sync the disk for each. Waiting for the end of the turn costs no timer and lets its group
// commit see them all. 50 connections, 1 KiB, SQLite: 25 messages in a batch instead of 1, and
// 6,900 to 17,600 posts/s instead of 1,600 to 5,000. Up to 8 turns made batches of 38, and no
// difference that stood out of the noise. (November 2026, 2 busy cores)

interface Waiting {
  readonly operator: ServiceOperator;
  readonly message: Message;
  readonly resolve: (enqueued: Promise<EnqueueResult>) => void;
  readonly reject: (error: Error) => void;
}

/** Makes operators whose enqueues of one turn of the event loop are stored together. */
export class PostBatcher {
  readonly #clock: Clock;
  #waiting: Waiting[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The same operator, but for its enqueue. */
  over(operator: ServiceOperator): ServiceOperator {
    return { ...operator, enqueue: (message) => this.#enqueue(operator, message) };
  }

  #enqueue(operator: ServiceOperator, message: Message): Promise<EnqueueResult> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ operator, message, resolve, reject });
      if (this.#waiting.length === 1) this.#clock.soon(() => this.#putDown());
    });
  }

  #putDown(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { operator, message, resolve, reject } of waiting) {
      try {
        resolve(operator.enqueue(message));
      } catch (error) {
        reject(asError(error));
      }
    }
  }
}

/** What the service is made of. */
export interface ServiceOptions {
  /** The operator of this name. */
  operator(by: string): ServiceOperator;
  readonly settings: ServeSettings;
  /** The largest body the spool takes. */
  readonly bodyMaxBytes: number;
  readonly clock?: Clock;
  readonly logger?: Logger;
  /** The spool is started. */
  isReady(): boolean;
  /** The id of the store that is open; undefined while it is not known. */
  storeId?(): string | undefined;
  /** How many consumers of a broker are connected, of how many; undefined: there are none. */
  consumers?(): ConsumerHealth | undefined;
  /** What the relay of an outbox is doing; undefined: there is none. */
  relay?(): RelayHealth | undefined;
  /** What `/metrics` answers; without, metrics are off. */
  readonly metrics?: (() => Promise<MetricsText>) | undefined;
  readonly version: string;
  /** For tests: how long callers are waited for, instead of the documented times. */
  readonly times?: ListenerTimes;
}

/** The spool over HTTP. */
export interface Service {
  /** Answers one request, without a socket. */
  fetch(request: Request): Promise<Response>;
  /** Begins to listen; `config.invalid` where it must not or cannot. */
  listen(): Promise<{ url: string; host: string; port: number }>;
  /** From now on only reads are answered; everything else is refused, to be sent again later. */
  beginStop(): void;
  /**
   * Resolves when no post is being read any more that began before `beginStop`, or after
   * `withinMs` milliseconds. Long bodies do not count: the spool waits for those itself.
   */
  drain(withinMs: number): Promise<void>;
  /** Lets requests finish, for as long as the settings or `withinMs` say, and closes. */
  stop(withinMs?: number): Promise<void>;
}

/**
 * For this long after a full disk the service reports not ready, unless a post came through. Also
 * in docs/reference/health.md and docs/reference/http-api.md.
 */
const FULL_FOR_MS = 30_000;
/** The same after a post that the store could not take. Also in docs/reference/health.md. */
const REFUSING_FOR_MS = 5_000;
/** Maximum number of cached operators. */
const OPERATORS_MAX = 100;
const FREE_PATHS = new Set(['/healthz', '/readyz', '/openapi.json']);

/** Makes the service; nothing listens yet. */
export function createService(parts: ServiceOptions): Service {
  return new WebService(parts);
}

class WebService implements Service {
  readonly #parts: ServiceOptions;
  readonly #clock: Clock;
  readonly #gate: RequestGate;
  readonly #bodyLimit: ByteLimit;
  readonly #stopping = new AbortController();
  readonly #batcher: PostBatcher;
  readonly #operators = new Map<string, ServiceOperator>();
  readonly #budget = new ByteBudget();
  /**
   * Posts whose bodies are being read here, for which a stop waits before the spool takes nothing
   * more. Streams are not among them: the spool has those from their first byte.
   */
  readonly #posts = new Set<Inlet>();
  readonly #whenNoPosts = new WhenIdle(() => this.#posts.size === 0);
  /** Refusals of each address in a minute, by reason: a log line for each would fill the disk. */
  readonly #refusals: RecentCounts;
  readonly #memory: AnswerMemory;
  readonly #lingering: Lingering;
  /** When the store was full last, on the clock that only grows. */
  #fullAt: number | undefined;
  /** When it did not take a message last. */
  #refusedAt: number | undefined;
  #app: Promise<App> | undefined;
  #listener: Listener | undefined;

  constructor(parts: ServiceOptions) {
    const { settings, bodyMaxBytes, clock = systemClock } = parts;
    this.#parts = parts;
    this.#clock = clock;
    this.#gate = new RequestGate(settings, clock);
    this.#batcher = new PostBatcher(clock);
    this.#memory = new AnswerMemory(clock);
    this.#lingering = new Lingering(clock);
    this.#refusals = new RecentCounts(clock, MINUTE_MS);
    this.#bodyLimit = { what: 'the body', maxBytes: bodyMaxBytes, hint: 'limits.bodyBytes' };
  }

  async fetch(request: Request): Promise<Response> {
    const inlet = new FetchInlet(request);
    try {
      const topic = rawTopic(inlet);
      const caller = await this.#enter(inlet, topic);
      if (topic !== undefined) {
        const enqueued = await this.#post(inlet, topic, caller);
        this.#postStored(inlet);
        const { status, text } = enqueuedText(enqueued);
        return new Response(text, {
          status,
          headers: { ...SAFE_HEADERS, 'content-type': JSON_TYPE },
        });
      }
      const { url, headers, signal } = request;
      const answer = await this.#ask(inlet, caller, { url, headers, signal });
      const shared = sharedBytesOf(answer);
      return shared === undefined ? answer : new Response(Buffer.from(shared), answer);
    } catch (error) {
      this.#endPost(inlet);
      this.#note(error, inlet.path, inlet.address);
      const { status, headers, text } = refusedOf(error);
      return new Response(text, {
        status,
        headers: { ...SAFE_HEADERS, 'content-type': JSON_TYPE, ...headers },
      });
    }
  }

  async listen(): Promise<{ url: string; host: string; port: number }> {
    // Loaded before the first request, not with it. Node's server comes late too: importing it
    // loads its whole HTTP client along.
    const [{ Listener }] = await Promise.all([import('./listener.ts'), this.#loadApp()]);
    const { settings, logger, times } = this.#parts;
    checkListen(settings);
    this.#listener ??= new Listener(settings, {
      clock: this.#clock,
      ...(times === undefined ? {} : { times }),
      ...(logger === undefined ? {} : { logger }),
      onRequest: (request, response, goOn) => this.#onRequest(request, response, goOn),
    });
    return this.#listener.listen();
  }

  beginStop(): void {
    this.#stopping.abort();
  }

  async drain(withinMs: number): Promise<void> {
    // What is on its way to the spool in this turn is there in the next.
    await new Promise<void>((resolve) => this.#clock.soon(resolve));
    await this.#whenNoPosts.within(this.#clock, withinMs);
  }

  async stop(withinMs?: number): Promise<void> {
    this.beginStop();
    const { stopWithin } = this.#parts.settings;
    await this.#listener?.close(withinMs ?? durationMs(stopWithin, 'serve.stopWithin'));
  }

  /** The way of every request of the listener. A post of a known caller takes no microtask here. */
  #onRequest(request: IncomingMessage, response: ServerResponse, goOn?: () => void): void {
    const inlet = new NodeInlet(request, goOn);
    const refuse = (error: unknown): void => {
      this.#endPost(inlet);
      this.#note(error, inlet.path, inlet.address);
      writeRefusal(request, response, error, this.#lingering);
    };
    try {
      const topic = rawTopic(inlet);
      const caller = this.#enter(inlet, topic);
      if (topic === undefined || caller instanceof Promise) {
        this.#answer(inlet, topic, caller, { request, response }).catch(refuse);
        return;
      }
      this.#post(inlet, topic, caller).then((enqueued) => {
        this.#postStored(inlet);
        writeEnqueued(response, enqueued, this.#isStopping);
      }, refuse);
    } catch (error) {
      refuse(error);
    }
  }

  async #answer(
    inlet: Inlet,
    topic: string | undefined,
    entering: Caller | Promise<Caller>,
    { request: incoming, response }: Exchange,
  ): Promise<void> {
    const caller = await entering;
    if (topic !== undefined) {
      const enqueued = await this.#post(inlet, topic, caller);
      this.#postStored(inlet);
      writeEnqueued(response, enqueued, this.#isStopping);
      return;
    }
    const gone = new AbortController();
    response.on('close', () => {
      if (!response.writableFinished) gone.abort();
    });
    const { path, query } = inlet;
    const headers = new Headers();
    for (let at = 0; at < inlet.rawHeaders.length; at += 2) {
      headers.append(inlet.rawHeaders[at] ?? '', inlet.rawHeaders[at + 1] ?? '');
    }
    const url = `http://respool${path}${query === '' ? '' : `?${query}`}`;
    const answer = await this.#ask(inlet, caller, { url, headers, signal: gone.signal });
    const how = { isLast: this.#isStopping, lingering: this.#lingering, memory: this.#memory };
    await writeAnswer(incoming, response, answer, how);
  }

  #enter(inlet: Inlet, topic: string | undefined): Caller | Promise<Caller> {
    const { method, path } = inlet;
    if (!path.startsWith('/') || !METHODS.has(method)) {
      throw new HttpRefusal(400, 'route.unknown', 'cannot read the path or method of the request');
    }
    checkTarget(inlet);
    const isPosting = topic !== undefined || isJsonPost(inlet);
    if (this.#isStopping && method !== 'GET' && method !== 'HEAD') throw stopping();
    return this.#gate.enter(inlet, isPosting, FREE_PATHS.has(path));
  }

  #post(inlet: Inlet, topic: string, caller: Caller): ReturnType<typeof postRaw> {
    checkRole(caller, 'post');
    if (isOnePiece(inlet)) this.#posts.add(inlet);
    return postRaw(inlet, topic, { operator: this.#operator(caller.by), limit: this.#bodyLimit });
  }

  #endPost(inlet: Inlet): void {
    this.#posts.delete(inlet);
    this.#whenNoPosts.check();
  }

  /** A message is stored: a `drain` that waits for it may go on, and the disk has room. */
  #postStored(inlet: Inlet): void {
    this.#endPost(inlet);
    this.#fullAt = undefined;
    this.#refusedAt = undefined;
  }

  async #ask(inlet: Inlet, caller: Caller, request: Asked): Promise<Response> {
    if (!isJsonPost(inlet)) return this.#askApp(inlet, caller, request);
    this.#posts.add(inlet);
    try {
      const answer = await this.#askApp(inlet, caller, request);
      if (answer.ok) this.#postStored(inlet);
      return answer;
    } finally {
      this.#endPost(inlet);
    }
  }

  async #askApp(inlet: Inlet, caller: Caller, { url, headers, signal }: Asked): Promise<Response> {
    const { method } = inlet;
    const app = await this.#loadApp();
    const isHead = method === 'HEAD';
    // n.b. Without the signal: a request that has one is known to a registry of finalizers, and all
    // that hangs on it stays until V8 looks through the whole heap.
    const request = new Request(url, { method: isHead ? 'GET' : method, headers });
    const answer = await app.fetch(request, {
      caller,
      signal,
      operator: this.#operator(caller.by),
      budget: this.#budget,
      memory: this.#memory,
      read: (limit: ByteLimit) => inlet.read(limit),
    });
    for (const [name, value] of Object.entries(SAFE_HEADERS)) answer.headers.set(name, value);
    if (!isHead) return answer;
    // A reader of its body that has begun must hear that nothing more comes.
    await answer.body?.cancel();
    return new Response(null, answer);
  }

  #operator(by: string): ServiceOperator {
    const found = this.#operators.get(by);
    if (found !== undefined) return found;
    const operator = this.#batcher.over(this.#parts.operator(by));
    if (this.#operators.size >= OPERATORS_MAX) this.#operators.clear();
    this.#operators.set(by, operator);
    return operator;
  }

  #loadApp(): Promise<App> {
    const { settings, bodyMaxBytes, version, metrics } = this.#parts;
    this.#app ??= import('./app.ts').then(({ createApp }) =>
      createApp({
        operator: this.#operator('service'),
        clock: this.#clock,
        bodyMaxBytes,
        eventsMax: settings.limits.events,
        version,
        signal: this.#stopping.signal,
        isReady: () => this.#parts.isReady(),
        storeId: () => this.#parts.storeId?.(),
        consumers: () => this.#parts.consumers?.(),
        relay: () => this.#parts.relay?.(),
        metrics,
        isFull: () => this.#isWithin(this.#fullAt, FULL_FOR_MS),
        isRefusing: () => this.#isWithin(this.#refusedAt, REFUSING_FOR_MS),
        onError: (error, path) => this.#note(error, path),
      }),
    );
    return this.#app;
  }

  get #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  #isWithin(since: number | undefined, ms: number): boolean {
    return since !== undefined && this.#clock.monotonic() - since < ms;
  }

  /**
   * Refusals go to the caller, 401 and 429 now and then to the log as well; errors of our own go to
   * the log, on one line.
   */
  #note(error: unknown, path: string, address = ''): void {
    const { logger } = this.#parts;
    const fields = { path: oneLine(path) };
    if (error instanceof HttpRefusal) {
      const { status, reason } = error;
      if (status !== 401 && status !== 429) return;
      const count = this.#refusals.add(`${networkOf(address)} ${reason}`);
      if (isPowerOfTen(count)) logger?.warn({ ...fields, status, reason, count }, 'refused');
      return;
    }
    if (isRespoolError(error, 'store.full')) this.#fullAt = this.#clock.monotonic();
    const isOfPost = path.endsWith('/messages');
    if (isOfPost && isRespoolError(error, 'store.unavailable')) {
      this.#refusedAt = this.#clock.monotonic();
    }
    const { status } = refusedOf(error);
    // The stop is logged once, and not again for each request that it refuses.
    if (status < 500 || isRespoolError(error, 'engine.stopping')) return;
    const code = isRespoolError(error) ? error.code : 'internal';
    logger?.error({ ...fields, status, code }, redactText(oneLine(textOf(error))));
  }
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'DELETE', 'PUT', 'PATCH', 'OPTIONS']);

/** What of a request the app sees. */
interface Asked {
  readonly url: string;
  readonly headers: Headers;
  /** Fires when the caller is gone before it has its answer. */
  readonly signal: AbortSignal;
}

/** A request of Node's server, with where its answer goes. */
interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

function isPowerOfTen(count: number): boolean {
  return Number.isInteger(Math.log10(count));
}

function isJsonPost({ method, path }: Inlet): boolean {
  return method === 'POST' && path === '/v1/messages';
}
