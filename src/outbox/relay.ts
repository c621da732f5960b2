/**
 * relay — sends the committed messages of an outbox to its target: an engine over the store of the
 * outbox, whose handler is the target. Also the check of its options, and the kinds of targets.
 *
 *   ready ─start()─▶ running ─stop()─▶ ended
 *
 * Claims are short transactions of their own; a message is settled after the target has confirmed
 * it. Promise: no network call is made inside a transaction. Many relays may run at once, in any
 * number of processes.
 */

import {
  type Duration,
  DURATION_MAX_MS,
  durationMs,
  type Millis,
  MINUTE_MS,
  SECOND_MS,
} from '../core/duration.ts';
import type { Entry } from '../core/entry.ts';
import { isRespoolError, RespoolError, show } from '../core/errors.ts';
import type { EventKind, EventOf, StreamedEvent, StreamOptions } from '../core/event.ts';
import { checkNames, checkTopicPattern } from '../core/limits.ts';
import { checkOption, defaultOf } from '../core/option-table.ts';
import type { ForwardOptions } from '../engine/forward.ts';
import type { EngineLoad } from '../engine/parts.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Handler } from '../ports/handler.ts';
import type { Sink } from '../ports/sink.ts';
import type { Tracer } from '../ports/tracer.ts';
import { rabbitSink } from '../rabbit/publish/sink.ts';
import type { SpoolOptions } from '../spool/options.ts';
import { EVERYTHING } from '../spool/pauses.ts';
import { Runtime } from '../spool/runtime.ts';
import { Spool } from '../spool/spool.ts';
import type { OutboxParts, RelayStoreOptions } from './parts.ts';
import type { BreakerState } from '../system/breaker.ts';
import type { BackoffRange } from '../system/wait.ts';
import { RelayBreaker } from './relay-breaker.ts';
import {
  type CleanUp,
  RELAY_OPTIONS,
  RELAY_TOPICS_MAX,
  type RelayOptions,
  type RelayTarget,
  describeType,
} from './types.ts';

// What a relay takes, checked, with its defaults.

/** The options, checked. */
interface RelaySettings {
  readonly batch: number;
  readonly concurrency: number;
  /** Messages of each pattern that are claimed for a probe; one of them is sent. */
  readonly probers: number;
  readonly topics: readonly string[];
  readonly expiresMs: number | undefined;
  readonly pause: BackoffRange;
  readonly kept: NonNullable<NonNullable<SpoolOptions['retention']>['delivered']>;
  readonly store: RelayStoreOptions;
}

/** Messages that are claimed for a probe, over all patterns. */
const PROBERS_MAX = 8;
/**
 * The longest pause of the breaker, unless `pauseAfter` is longer. Also in the text of that and
 * docs/how-to/transactional-outbox.md.
 */
const PAUSE_MAX_MS: number = 30 * SECOND_MS;

/** Checks the options, except those that the spool of the relay checks itself. */
function relaySettings(options: RelayOptions): RelaySettings {
  checkNames('relay', options, Object.keys(RELAY_OPTIONS));
  const { cleanUp = 'at once' } = options;
  const valueOf = <T>(name: keyof RelayOptions): T => {
    const option = RELAY_OPTIONS[name];
    const value = options[name] ?? defaultOf(option);
    return (value === undefined ? undefined : checkOption(name, value, option)) as T;
  };
  const pauseMs = valueOf<number>('pauseAfter');
  const concurrency = valueOf<number>('concurrency');
  const topics = topicsOf(options.topics);
  const share = Math.max(1, Math.floor(PROBERS_MAX / topics.length));
  return {
    batch: valueOf<number>('batch'),
    concurrency,
    probers: Math.min(share, concurrency),
    topics,
    expiresMs: valueOf<number | undefined>('expires'),
    pause: { firstMs: pauseMs, maxMs: Math.max(pauseMs, PAUSE_MAX_MS) },
    ...retentionOf(cleanUp),
  };
}

function topicsOf(value: RelayOptions['topics'] = '#'): readonly string[] {
  const topics: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (topics.length >= 1 && topics.length <= RELAY_TOPICS_MAX) return topics.map(checkTopicPattern);
  throw invalid('topics', value, `a pattern, or a list of 1 to ${RELAY_TOPICS_MAX}`);
}

function retentionOf(cleanUp: CleanUp): Pick<RelaySettings, 'kept' | 'store'> {
  if (cleanUp === 'at once') return { kept: 'remove', store: {} };
  if (cleanUp === 'never') return { kept: { archive: DURATION_MAX_MS }, store: {} };
  if (typeof cleanUp !== 'object') return { kept: { archive: ageOf(cleanUp) }, store: {} };
  if (cleanUp === null) throw invalid('cleanUp', cleanUp, CLEAN_UPS);
  checkNames('cleanUp', cleanUp, ['partition', 'keep']);
  const { partition, keep } = cleanUp;
  const keepMs = durationMs(keep, 'cleanUp.keep');
  return { kept: { archive: keepMs }, store: { partition: { partition, keep } } };
}

const CLEAN_UPS = "'at once', 'never', an age such as '7d', or { partition: '1d', keep: '30d' }";

function ageOf(cleanUp: Duration): Duration {
  try {
    durationMs(cleanUp, 'cleanUp');
    return cleanUp;
  } catch (error) {
    throw invalid('cleanUp', cleanUp, CLEAN_UPS, error);
  }
}

function invalid(what: string, value: unknown, allowed: string, cause?: unknown): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${show(value)} as "${what}" of a relay: allowed is ${allowed}`,
    { cause },
  );
}

// The store of an outbox as its relay sees it.
/**
 * The store, with a default expiry: a message without its own expires this long after its emit, or
 * after its eta, before which it could not have been sent.
 */
export function withExpiry(store: EntryStore, expiresMs: number): EntryStore {
  const claim: EntryStore['claim'] = async (request) =>
    (await store.claim(request)).map((entry) => withDefaultExpiry(entry, expiresMs));
  return new Proxy(store, {
    get(target, name) {
      if (name === 'claim') return claim;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** Not for a message that an operator sent again: it would expire at once. */
function withDefaultExpiry(entry: Entry, expiresMs: number): Entry {
  const { envelope, status } = entry;
  if (envelope.expiresAt !== undefined || status.replays > 0) return entry;
  const { enqueuedAt, eta = enqueuedAt } = envelope;
  return { ...entry, envelope: { ...envelope, expiresAt: Math.max(enqueuedAt, eta) + expiresMs } };
}

/** What a relay is doing. */
export interface RelayLoad extends EngineLoad {
  /** Its breaker: `open` while the target does not answer, `half-open` while one message asks. */
  readonly target: BreakerState;
  /** Since when the target does not answer, in milliseconds since the epoch; none: it does. */
  readonly downSince?: Millis;
  /** Routing keys that an operator has paused; `#` stands for all. */
  readonly paused: readonly string[];
}

/** Reported once a result is recorded; an event without a listener is never built. */
const SETTLE_EVENTS: readonly EventKind[] = [
  'delivered',
  'deferred',
  'bounced',
  'held',
  'released',
  'stale',
  'lease-lost',
];

/** How often expired keys of the inbox are deleted, and the interval after some were found. */
const KEY_CLEAN_UP_EVERY_MS: number = MINUTE_MS;
const KEY_CLEAN_UP_AGAIN_MS: number = SECOND_MS;

/** Makes a relay of an outbox; nothing happens before `start()`. */
export function createRelay(parts: OutboxParts, options: RelayOptions): Relay {
  return new Relay(parts, options);
}

/** Sends committed messages of an outbox to one target. */
export class Relay implements AsyncDisposable {
  readonly #parts: OutboxParts;
  readonly #settings: RelaySettings;
  readonly #target: RelaySink;
  readonly #handler: Handler;
  readonly #breaker: RelayBreaker;
  readonly #runtime: Runtime;
  readonly #spool: Spool;
  #phase: 'ready' | 'running' | 'ended' = 'ready';
  #stopping: Promise<void> | undefined;
  #downSince: Millis | undefined;
  #isUnreachableReported = false;
  /** Takes the handler away again. */
  #removeHandlers: () => void = () => undefined;
  #cancelKeyCleanUp: () => void = () => undefined;

  /** @internal Use relay() of an outbox. */
  constructor(parts: OutboxParts, options: RelayOptions) {
    const settings = relaySettings(options);
    const { clock, dice, tracer } = parts;
    this.#parts = parts;
    this.#settings = settings;
    this.#target = targetOf(options.to, { ...settings, clock, dice, tracer });
    this.#runtime = new Runtime(spoolOptions(parts, settings, options));
    this.#spool = new Spool(this.#runtime);
    this.#breaker = new RelayBreaker({
      clock,
      isProbed: this.#target.isProbed,
      probers: settings.probers,
      max: settings.concurrency,
      engine: this.#runtime.engine,
      pause: settings.pause,
      onChange: (state) => {
        // Half-open changes nothing: the probe has no answer yet.
        if (state === 'closed') {
          this.#downSince = undefined;
          this.#isUnreachableReported = false;
        } else if (state === 'open') this.#downSince ??= clock.now();
        this.#registerHandlers(state);
        const target = this.#target.name;
        this.#runtime.events.emit({ at: clock.now(), kind: 'relay', target, state });
      },
      onUnreachable: ({ reason }) => this.#reportUnreachable(reason),
    });
    for (const kind of SETTLE_EVENTS) this.#spool.on(kind, this.#breaker.onSettled);
    this.#handler = this.#target.handlerWith(this.#breaker);
  }

  /** What it is doing now, in numbers. */
  get load(): RelayLoad {
    const downSince = this.#downSince;
    const since = downSince === undefined ? {} : { downSince };
    const { now } = this.#runtime.pauses;
    const paused = now === 'all' ? [EVERYTHING] : now;
    return { ...this.#spool.load, target: this.#breaker.state, ...since, paused };
  }

  /** Hears of events of a kind, or of all with `'*'`. Returns the way to stop. */
  on<K extends EventKind>(kind: K | '*', listener: (event: EventOf<K>) => void): () => void {
    return this.#spool.on(kind, listener);
  }

  /**
   * What happens from now on, for `for await`; ends by its signal or when the loop is left, and not
   * with `stop()`. Events that a slow reader misses are counted in one of kind `missed`.
   */
  events(options: StreamOptions = {}): AsyncIterableIterator<StreamedEvent> {
    return this.#spool.events(options);
  }

  /**
   * Opens the store and begins. A target that cannot be reached is no error: it is tried again,
   * and a `trouble` event tells.
   */
  async start(): Promise<void> {
    if (this.#phase !== 'ready') {
      const how = this.#phase === 'running' ? 'it is started already' : 'it was stopped';
      throw new RespoolError('config.invalid', `cannot start the relay: ${how}; make another`);
    }
    this.#phase = 'running';
    this.#registerHandlers(this.#breaker.state);
    try {
      await this.#spool.start();
    } catch (error) {
      this.#removeHandlers();
      if (this.#isRunning) this.#phase = 'ready';
      throw error;
    }
    if (!this.#isRunning) return;
    this.#scheduleKeyCleanUp(0);
    void this.#reach();
  }

  /**
   * Checks the target at the start: otherwise a wrong address shows only with the first message.
   */
  async #reach(): Promise<void> {
    try {
      await this.#target.reach?.();
    } catch (error) {
      if (!this.#isRunning) return;
      if (isRespoolError(error, 'broker.unavailable')) this.#reportUnreachable(error.message);
      else this.#runtime.engine.trouble(`sending to ${this.#target.name}`, error);
    }
  }

  /**
   * Takes nothing new, and waits until what is on its way is confirmed and settled, at most
   * `within` (default 10s); what is left then is released. It cannot be started again.
   */
  stop({ within = '10s' }: { readonly within?: Duration } = {}): Promise<void> {
    this.#stopping ??= this.#stop(within);
    return this.#stopping;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stop(within: Duration): Promise<void> {
    this.#phase = 'ended';
    this.#cancelKeyCleanUp();
    this.#breaker.close();
    try {
      await this.#spool.stop({ within });
    } finally {
      await this.#target.close();
    }
  }

  get #isRunning(): boolean {
    return this.#phase === 'running';
  }

  /** Registers handlers as the breaker allows: all, a few for a probe, or none. */
  #registerHandlers(state: BreakerState): void {
    this.#removeHandlers();
    this.#removeHandlers = () => undefined;
    if (state === 'open' || !this.#isRunning) return;
    const limit = state === 'half-open' ? { concurrency: this.#settings.probers } : {};
    const undos = this.#settings.topics.map((topic) =>
      this.#spool.handle(topic, this.#handler, limit),
    );
    this.#removeHandlers = () => {
      for (const undo of undos) undo();
    };
  }

  /** Reports that the target does not answer; once until it answers again. */
  #reportUnreachable(reason: string): void {
    if (this.#isUnreachableReported) return;
    this.#isUnreachableReported = true;
    const text = `${reason}; nothing more is claimed until it answers`;
    const error = new RespoolError('broker.unavailable', text);
    this.#runtime.engine.trouble(`sending to ${this.#target.name}`, error);
  }

  #scheduleKeyCleanUp(ms: number): void {
    this.#cancelKeyCleanUp = this.#parts.clock.after(ms, () => void this.#cleanUpKeys());
  }

  async #cleanUpKeys(): Promise<void> {
    let forgotten = 0;
    try {
      forgotten = await this.#parts.deleteExpiredKeys();
    } catch (error) {
      this.#runtime.engine.trouble('forgetting old keys of the inbox', error);
    }
    if (this.#isRunning)
      this.#scheduleKeyCleanUp(forgotten > 0 ? KEY_CLEAN_UP_AGAIN_MS : KEY_CLEAN_UP_EVERY_MS);
  }
}

function spoolOptions(
  parts: OutboxParts,
  { kept, store, expiresMs, concurrency }: RelaySettings,
  { lease, poll, middleware }: RelayOptions,
): SpoolOptions {
  const { policies, backoffs, clock, dice, logger, tracer } = parts;
  const entries = parts.makeStore(store);
  return {
    entries: expiresMs === undefined ? entries : withExpiry(entries, expiresMs),
    bodies: parts.makeBodies(),
    policies,
    backoffs,
    concurrency,
    retention: { delivered: kept },
    unhandled: 'leave',
    clock,
    dice,
    ...(logger === undefined ? {} : { logger }),
    ...(tracer === undefined ? {} : { tracing: tracer }),
    ...(lease === undefined ? {} : { lease }),
    ...(poll === undefined ? {} : { poll }),
    ...(middleware === undefined ? {} : { middleware }),
  };
}

/** The target of a relay: its handler, and how it is checked and closed. */
interface RelaySink {
  readonly name: string;
  /** Whether it can be down as a whole: then one message is sent as a probe before others. */
  readonly isProbed: boolean;
  /** A handler that sends to it, behind the breaker. */
  handlerWith(breaker: RelayBreaker): Handler;
  /** Checks it without a message; throws if nothing can be sent. */
  reach?(): Promise<void>;
  /** Closes what was opened here. */
  close(): Promise<void>;
}

/** What the sends of a target depend on. */
interface TargetSettings {
  readonly batch: number;
  readonly concurrency: number;
  readonly clock: Clock;
  readonly dice: Dice;
  readonly tracer?: Tracer | undefined;
}

/** If the broker cannot be reached for this long, waiting messages go back to the table. */
const UNREACHABLE_AFTER: Duration = '1s';
const SENDS_MAX = 100;

/** Checks a target and makes it ready; connects to nothing yet. */
function targetOf(to: RelayTarget, settings: TargetSettings): RelaySink {
  if (typeof to === 'object' && to !== null) {
    if ('amqp' in to) return exchangeTarget(to, settings);
    if ('deliver' in to) return routeTarget(to);
    if (typeof (to as Partial<Sink>).send === 'function') {
      return sinkTarget(to, { batchMax: settings.batch });
    }
  }
  // n.b. Its value is never shown: it may be the URL of a broker, with its password.
  const given = isSpool(to) ? 'a spool' : describeType(to);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${given} as "to" of a relay: allowed is { amqp: 'amqp://…', exchange: '…' }, ` +
      'spoolSink(spool) or another sink, or { deliver: handler }',
  );
}

function isSpool(to: unknown): boolean {
  return to instanceof Object && typeof Reflect.get(to, 'enqueue') === 'function';
}

function exchangeTarget(
  to: Extract<RelayTarget, { readonly amqp: string }>,
  { clock, dice, batch, concurrency, tracer }: TargetSettings,
): RelaySink {
  checkNames('to', to, ['amqp', 'exchange', 'tls']);
  const { amqp: url, exchange, tls } = to;
  const secure = tls === undefined ? {} : { tls };
  const tracing = tracer === undefined ? {} : { tracing: tracer };
  const more = { ...secure, ...tracing };
  const sink = rabbitSink({ url, exchange, clock, dice, awayAfter: UNREACHABLE_AFTER, ...more });
  // Several sends keep their order: they go over one channel, one after the other.
  const sendsMax = Math.min(SENDS_MAX, Math.ceil(concurrency / batch));
  const target = sinkTarget(sink, { batchMax: batch, sendsMax });
  const close = async (): Promise<void> => {
    await target.close();
    // Anything unanswered by now was given back and is no longer awaited.
    await sink.close({ waits: false });
  };
  return { ...target, name: `exchange "${exchange}"`, reach: () => sink.reach(), close };
}

/** The caller that made the sink closes it. */
function sinkTarget(sink: Sink, options: ForwardOptions): RelaySink {
  let unlisten = (): void => undefined;
  return {
    name: `sink "${sink.name}"`,
    isProbed: true,
    handlerWith(breaker) {
      unlisten = sink.onBack?.(() => breaker.targetIsBack()) ?? unlisten;
      return breaker.sendTo(sink, options);
    },
    close: () => {
      unlisten();
      return Promise.resolve();
    },
  };
}

/**
 * It does not begin with a probe: a handler may take long, and each message is judged by itself.
 */
function routeTarget(to: { readonly deliver: Handler }): RelaySink {
  checkNames('to', to, ['deliver']);
  const { deliver } = to;
  if (typeof deliver !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${describeType(deliver)} as "to.deliver" of a relay: a handler is a function`,
    );
  }
  return {
    name: 'a route',
    isProbed: false,
    handlerWith: (breaker) => breaker.routeTo(deliver),
    close: () => Promise.resolve(),
  };
}
