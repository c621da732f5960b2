/**
 * connection — many requests on their way over one connection, and what becomes of them when it
 * breaks.
 *
 * A request whose answer did not come is of unknown outcome: `BrokenConnection`. One that could not
 * be sent is `Unsent`. `persist` waits until the connection is back and lets its caller repeat
 * either, up to the time it may take: a short outage is no reason to refuse a message. Requests to
 * the API stand in line behind a bound, because newer servers drop what is more than they can
 * queue.
 *
 * Also the part of the package that we use, and how a connection is made.
 */

import { RespoolError, show, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { importPeer } from '../../system/peer.ts';

/** Requests on their way at once; more wait. */
const IN_FLIGHT_MAX = 1_024;
const API_IN_FLIGHT_MAX = 128;
/**
 * Unanswered requests that fit into the time of one call, as each waits for a part of it: a cluster
 * whose leader was killed answers nothing until it has another, and what was asked before is lost.
 */
const ASKS_PER_CALL = 4;
/** How often answers that are too late are looked for. */
const SWEEP_MS = 100;
/** A server that has just started refuses for a moment; asked again after this. */
const AGAIN_MS = 50;

/** No answer: it may have happened or not. */
export class BrokenConnection extends Error {
  override readonly name: string = 'Broken';
}

/** Not even sent: it did not happen. */
class Unsent extends BrokenConnection {
  override readonly name = 'Unsent';
}

interface Waiting {
  readonly resolve: (message: NatsMessage) => void;
  readonly reject: (error: Error) => void;
  readonly lateAt: number;
  readonly gate: Gate;
}

/** What a connection needs. */
interface ServerConnectionOptions {
  readonly connection: NatsConnection;
  readonly makeHeaders: () => NatsHeaders;
  readonly clock: Clock;
  readonly timeoutMs: number;
}

/** Requests and their answers over a connection. */
export class ServerConnection {
  readonly connection: NatsConnection;
  readonly makeHeaders: () => NatsHeaders;
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly #inbox = `_INBOX.${randomName(systemDice)}${randomName(systemDice)}`;
  readonly #waiting = new Map<string, Waiting>();
  readonly #gate = new Gate(IN_FLIGHT_MAX);
  readonly #apiGate = new Gate(API_IN_FLIGHT_MAX);
  readonly #subscription: NatsSubscription;
  readonly #onChange = new Set<() => void>();
  readonly #news: ReturnType<NatsConnection['status']>;
  #serverId: string;
  #count = 0;
  #restarts = 0;
  #isConnected = true;
  #isClosed = false;
  #stopSweep: (() => void) | undefined;

  constructor({ connection, makeHeaders, clock, timeoutMs }: ServerConnectionOptions) {
    this.connection = connection;
    this.makeHeaders = makeHeaders;
    this.clock = clock;
    this.timeoutMs = timeoutMs;
    this.#serverId = connection.info?.server_id ?? '';
    this.#subscription = connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.#answered(message);
      },
    });
    this.#news = connection.status();
    void this.#follow();
  }

  get isConnected(): boolean {
    return this.#isConnected && !this.#isClosed;
  }

  /** Raised when the connection came back to another server process than before. */
  get restarts(): number {
    return this.#restarts;
  }

  /** A server that we are not connected to may be another process than before. */
  noteRestart(): void {
    this.#restarts += 1;
  }

  /** A new subject to receive on. */
  makeInbox(): string {
    this.#count += 1;
    return `${this.#inbox}-${this.#count}`;
  }

  /** Calls back when the connection broke, came back or was closed; returns the way to stop. */
  onChange(call: () => void): () => void {
    this.#onChange.add(call);
    return () => void this.#onChange.delete(call);
  }

  /** Sends at once if the bound allows it, so that calls in a row arrive in their order. */
  ask(
    subject: string,
    data: Uint8Array | string,
    headers?: NatsHeaders,
    waitMs: number = this.timeoutMs / ASKS_PER_CALL,
  ): Promise<NatsMessage> {
    return new Promise((resolve, reject) => {
      const gate = subject.startsWith('$JS.API.') ? this.#apiGate : this.#gate;
      gate.enter(() => {
        if (!this.isConnected) {
          gate.leave();
          reject(new Unsent('there is no connection'));
          return;
        }
        this.#count += 1;
        const token = this.#count.toString(36);
        const lateAt = this.clock.monotonic() + waitMs;
        this.#waiting.set(token, { resolve, reject, lateAt, gate });
        this.#startSweep();
        const reply = `${this.#inbox}.${token}`;
        try {
          // n.b. The package wants its own class of headers, and gets it from `makeHeaders`.
          const options = headers === undefined ? { reply } : { reply, headers: headers as never };
          this.connection.publish(subject, data, options);
        } catch (error) {
          this.#settle(token)?.reject(error instanceof Error ? error : new Error(textOf(error)));
        }
      });
    });
  }

  /** Repeats what was broken until it is known, or until its time is over. */
  async persist<T>(what: string, attempt: (isRepeat: boolean) => Promise<T>): Promise<T> {
    const untilMs = this.clock.monotonic() + this.timeoutMs;
    let wasSent = false;
    for (;;) {
      try {
        return await attempt(wasSent);
      } catch (error) {
        if (!(error instanceof BrokenConnection)) throw error;
        wasSent ||= !(error instanceof Unsent);
        if (!(await this.#waitUntil(untilMs))) throw this.#lost(what, error, wasSent);
      }
    }
  }

  /** Ends everything that waits. The connection is not closed. */
  close(): void {
    this.#isClosed = true;
    // A connection of the caller's lives on, and must not keep us.
    this.#news.stop?.();
    this.#subscription.unsubscribe();
    this.#breakAll('the store was closed');
    this.#tell();
  }

  #lost(what: string, cause: unknown, wasSent: boolean): RespoolError {
    const outcome = wasSent ? 'it may have happened or not, and' : 'it did not happen, and';
    return new RespoolError(
      'store.unavailable',
      `cannot ${what}: ${textOf(cause)}; ${outcome} can be tried again`,
      { cause },
    );
  }

  /** Whether there is a connection before the time is over. */
  #waitUntil(untilMs: number): Promise<boolean> {
    const restMs = untilMs - this.clock.monotonic();
    if (this.#isOver() || restMs <= 0) return Promise.resolve(false);
    return new Promise((resolve) => {
      const isBack = this.isConnected;
      const done = (): void => {
        stop?.();
        cancel();
        resolve(this.isConnected);
      };
      const look = (): void => {
        if (this.isConnected || this.#isOver()) done();
      };
      const stop = isBack ? undefined : this.onChange(look);
      // n.b. A timer may come a little early: when it comes, the time is over.
      const cancel = this.clock.after(Math.min(restMs, isBack ? AGAIN_MS : restMs), done);
    });
  }

  /** No connection will come back. */
  #isOver(): boolean {
    return this.#isClosed || this.connection.isClosed();
  }

  async #follow(): Promise<void> {
    for await (const { type } of this.#news) {
      if (this.#isClosed) return;
      if (type === 'disconnect' || type === 'staleConnection') this.#disconnected();
      else if (type === 'reconnect') this.#reconnected();
      else if (type === 'close') break;
    }
    this.#disconnected();
  }

  #disconnected(): void {
    if (!this.#isConnected) return;
    this.#isConnected = false;
    this.#breakAll('the connection broke');
    this.#tell();
  }

  #reconnected(): void {
    const serverId = this.connection.info?.server_id ?? '';
    if (serverId !== this.#serverId) this.#restarts += 1;
    this.#serverId = serverId;
    this.#isConnected = true;
    this.#tell();
  }

  #tell(): void {
    for (const call of this.#onChange) call();
  }

  #answered(message: NatsMessage): void {
    const waiting = this.#settle(message.subject.slice(this.#inbox.length + 1));
    if (waiting === undefined) return;
    // 503 without a body: no server answers this subject yet, as right after a start.
    if (message.headers?.code === 503 && message.data.length === 0) {
      waiting.reject(new BrokenConnection('the server does not serve JetStream at the moment'));
    } else waiting.resolve(message);
  }

  #settle(token: string): Waiting | undefined {
    const waiting = this.#waiting.get(token);
    if (waiting === undefined) return undefined;
    this.#waiting.delete(token);
    waiting.gate.leave();
    return waiting;
  }

  #breakAll(reason: string): void {
    for (const token of this.#waiting.keys())
      this.#settle(token)?.reject(new BrokenConnection(reason));
    this.#stopSweep?.();
    this.#stopSweep = undefined;
  }

  #startSweep(): void {
    this.#stopSweep ??= this.clock.after(SWEEP_MS, () => {
      this.#stopSweep = undefined;
      const now = this.clock.monotonic();
      for (const [token, { lateAt }] of this.#waiting) {
        if (lateAt <= now)
          this.#settle(token)?.reject(new BrokenConnection('the server did not answer'));
      }
      if (this.#waiting.size > 0) this.#startSweep();
    });
  }
}

/** Lets this many in at once; others wait in their order. */
class Gate {
  readonly #max: number;
  #queue: (() => void)[] = [];
  #next = 0;
  #inside = 0;
  #isLetting = false;

  constructor(max: number) {
    this.#max = max;
  }

  enter(go: () => void): void {
    this.#queue.push(go);
    this.#letIn();
  }

  leave(): void {
    this.#inside -= 1;
    this.#letIn();
  }

  /** n.b. In a loop: anyone who leaves at once, as without a connection, must not nest the next. */
  #letIn(): void {
    if (this.#isLetting) return;
    this.#isLetting = true;
    for (let go = this.#queue[this.#next]; go !== undefined && this.#inside < this.#max; ) {
      this.#next += 1;
      this.#inside += 1;
      go();
      go = this.#queue[this.#next];
    }
    if (this.#next === this.#queue.length) {
      this.#queue = [];
      this.#next = 0;
    }
    this.#isLetting = false;
  }
}

// The package for NATS, loaded when a store is opened, and the little of it that is used.
//
// Only the connection is the package's. Requests to JetStream are made in stream.ts: with many of
// them on their way, the package's own ways cost twice as much.

/** The headers of a message. */
export interface NatsHeaders {
  readonly code: number;
  readonly description: string;
  get(name: string): string;
  set(name: string, value: string): void;
}

/** A message that came in. */
export interface NatsMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly reply?: string;
  readonly headers?: NatsHeaders;
}

/** A subscription with a callback. */
interface NatsSubscription {
  unsubscribe(): void;
}

/** The part of a connection of `@nats-io/transport-node` or `@nats-io/nats-core` we use. */
export interface NatsConnection {
  readonly info?: {
    readonly version: string;
    readonly server_id: string;
    readonly max_payload: number;
    readonly cluster?: string;
  };
  publish(
    subject: string,
    payload?: Uint8Array | string,
    options?: { readonly reply?: string; readonly headers?: never },
  ): void;
  subscribe(
    subject: string,
    options: { readonly callback: (error: Error | null, message: NatsMessage) => void },
  ): NatsSubscription;
  flush(): Promise<void>;
  close(): Promise<void>;
  isClosed(): boolean;
  status(): AsyncIterable<{ readonly type: string }> & { stop?(): void };
}

/** The package, as far as we use it. */
interface NatsPackage {
  connect(options: object): Promise<NatsConnection>;
  headers(): NatsHeaders;
}

/** Loads `@nats-io/transport-node`. */
export async function loadNats(): Promise<NatsPackage> {
  const loaded = await importPeer('@nats-io/transport-node', 'the NATS store');
  return loaded as unknown as NatsPackage;
}

/**
 * How long the package waits for a server to greet it; its own 20 s is what a connection that broke
 * in the greeting would cost, as it does not notice that.
 */
const GREETING_MS = 4_000;
/** A connection that died without a word is noticed after three of these, not after minutes. */
const PING_EVERY_MS = 2_000;
const PINGS_UNANSWERED_MAX = 2;

/** Connects, or rejects; a connection that breaks later is made again, whatever it takes. */
export async function connectTo(
  nats: NatsPackage,
  url: string,
  options: object,
): Promise<NatsConnection> {
  try {
    return await nats.connect({
      timeout: GREETING_MS,
      pingInterval: PING_EVERY_MS,
      maxPingOut: PINGS_UNANSWERED_MAX,
      ...credentialsOf(url),
      ...options,
      servers: url.split(',').map((one) => one.replace(/^([a-z]+:\/\/)?[^/]*@/i, '$1')),
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      reconnectJitter: 100,
    });
  } catch (error) {
    throw new RespoolError(
      'store.unavailable',
      `cannot connect to NATS at ${show(withoutSecrets(url))}: ${textOf(error)}; ` +
        'check that the server runs and that the credentials are right',
      { cause: error },
    );
  }
}

/** The package takes a user from its options only; alone in an address, a user is a token. */
function credentialsOf(url: string): object {
  const [, user, pass] = /^(?:[a-z]+:\/\/)?([^@/:,]*)(?::([^/,]*))?@/i.exec(url) ?? [];
  if (user === undefined) return {};
  if (pass === undefined) return { token: decodeURIComponent(user) };
  return { user: decodeURIComponent(user), pass: decodeURIComponent(pass) };
}

/** Addresses as they may be shown; what looks like a part of a password goes with it. */
function withoutSecrets(url: string): string {
  const parts = url.split(/,(?=[a-z]+:\/\/)/i);
  return parts.map((part) => part.replace(/^([a-z]+:\/\/)?.*@/is, '$1***@')).join(',');
}
