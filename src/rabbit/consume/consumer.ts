/**
 * consumer — a handler on a queue: engine, source and topology combined.
 *
 *   idle ─start()─▶ running ─stop()─▶ idle      (ended, if the connection was its own)
 *
 * Created by `createConsumer`; a consumer that has started reconnects by itself.
 */

import { type Duration, durationMs, MINUTE_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import {
  type EventKind,
  type EventOf,
  LISTENER_KINDS,
  type StreamedEvent,
  type StreamOptions,
} from '../../core/event.ts';
import { checkOneOf } from '../../core/limits.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import { Engine } from '../../engine/engine.ts';
import { Events, eventStream, logEvent } from '../../engine/events.ts';
import { type EngineLoad, NOTHING_PAUSED } from '../../engine/parts.ts';
import { type HandlerRoute, Routes } from '../../engine/handler-slots.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Claim } from '../../ports/source.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { createIdMaker, randomName } from '../../system/ids.ts';
import { endsWithin } from '../../system/wait.ts';
import { type AmqpConnection, CLOSE_TIMEOUT_MS } from '../connection/amqp.ts';
import { connectionOf, queuePlace, type RabbitConnection } from '../connection/connection.ts';
import { type ConsumerOptions, type ConsumerSettings, consumerSettings } from './options.ts';
import { consumerHandlerOf, type RabbitHandler } from './delivery.ts';
import type { ConnectionEvent } from '../connection/reconnecting-connection.ts';
import type { StatsOptions, StatsReport } from '../admin/reports.ts';
import { queueStats } from '../admin/stats.ts';
import { RabbitSource } from './source.ts';
import { applyTopology } from '../topology/declare.ts';
import type { QueuePlan } from '../topology/model.ts';
import { verifyTopology } from '../topology/verify.ts';

/** The state of a consumer, in numbers. */
export interface ConsumerLoad extends EngineLoad {
  /** Whether it is subscribed, and the connection that publishes is open. */
  readonly isConnected: boolean;
  /** Whether both its connections are open, subscribed or not. */
  readonly isUp: boolean;
  /** Paused by `pause()`. */
  readonly isPaused: boolean;
  /** The broker accepts no messages at present, so no handler is started. */
  readonly isBlocked: boolean;
  /** Deliveries that wait for a slot. */
  readonly buffered: number;
  /** Messages on their way to a wait, dead or parked queue. */
  readonly publishing: number;
}

/** Default grace period of `stop`. Also in docs/reference/rabbit.md. */
const STOP_WITHIN: Duration = '10s';

/**
 * Longest time of a delivery: brokers close the channel of one that takes thirty minutes. Also in
 * the text of `prefetch` in consume/options.ts.
 */
const DELIVERY_MAX_MS: number = 28 * MINUTE_MS;

/** No jitter: the waits of queues are fixed. */
const NO_JITTER = { random: () => 0 };

/** A handler on a queue. Nothing happens before `start()`. */
export function createConsumer<Body = unknown>(
  options: ConsumerOptions<Body>,
  handler: RabbitHandler<Body>,
): Consumer {
  if (typeof handler !== 'function') {
    throw new RespoolError('config.invalid', 'cannot create a consumer: a handler is a function');
  }
  return new Consumer(options, handler as RabbitHandler);
}

/** One queue, consumed. */
export class Consumer implements AsyncDisposable {
  readonly queue: string;
  /** What it needs at the broker, and the routes through it. */
  readonly plan: QueuePlan;
  readonly #settings: ConsumerSettings;
  readonly #connection: RabbitConnection;
  readonly #isOwned: boolean;
  readonly #clock: Clock;
  readonly #events = new Events();
  readonly #engine: Engine;
  readonly #source: RabbitSource;
  #phase: 'idle' | 'starting' | 'running' | 'stopping' | 'ended' = 'idle';
  #isPaused = false;
  #starting: Promise<void> | undefined;
  #isStopWanted = false;
  #stopping: Promise<void> | undefined;
  #unlisten: (() => void) | undefined;
  /** Changes of pause and alarm, applied one after the other. */
  #changing: Promise<void> = Promise.resolve();

  constructor(options: ConsumerOptions, handler: RabbitHandler) {
    const settings = consumerSettings(options);
    const { connection, isOwned } = connectionOf(options, `a consumer of "${options.queue}"`);
    this.#settings = settings;
    this.#connection = connection;
    this.#isOwned = isOwned;
    this.#clock = options.clock ?? systemClock;
    this.plan = settings.plan;
    this.queue = settings.plan.queue;
    const makeId = createIdMaker(options.dice ?? systemDice);
    this.#source = new RabbitSource({
      connection,
      plan: settings.plan,
      wire: settings.wire,
      clock: this.#clock,
      subscribe: settings.subscription,
      maxLost: settings.maxLost,
      bufferedMaxMs: DELIVERY_MAX_MS - settings.timeoutMs,
      makeId: () => makeId(this.#clock.now()),
      prepare: (amqp) => this.#prepare(amqp),
      onTrouble: (doing, error) => this.#engine.trouble(doing, error),
    });
    const routes = new Routes();
    routes.add(routeOf(handler, settings));
    const isHalted = (): boolean => this.#isHalted;
    this.#engine = new Engine({
      source: this.#source,
      routes,
      events: this.#events,
      clock: this.#clock,
      dice: NO_JITTER,
      slots: {
        concurrency: settings.concurrency,
        destinationConcurrency: undefined,
        takesUnhandled: false,
      },
      name: options.name ?? `${this.queue}/${randomName(systemDice)}`,
      policyFor: (claim) => this.#policyFor(claim),
      backoffs: settings.backoffs,
      pauses: {
        get now() {
          return isHalted() ? 'all' : NOTHING_PAUSED;
        },
      },
      ...(settings.tracer === undefined
        ? {}
        : { tracing: { tracer: settings.tracer, place: queuePlace } }),
    });
    const { logger } = options;
    if (logger !== undefined) this.#events.on('*', (event) => logEvent(logger, event));
  }

  /** Whether it is subscribed, and the connection that publishes is open. */
  get isConnected(): boolean {
    return this.#source.isSubscribed && this.#connection.publishing.isUp;
  }

  get load(): ConsumerLoad {
    const { inFlight = 0, waiting = 0 } = this.#source.publishing ?? {};
    const { consuming, publishing } = this.#connection;
    return {
      ...this.#engine.load,
      isConnected: this.isConnected,
      isUp: consuming.isUp && publishing.isUp,
      isPaused: this.#isPaused,
      isBlocked: publishing.isBlocked,
      buffered: this.#source.waiting,
      publishing: inFlight + waiting,
    };
  }

  /**
   * Depth and consumers of every queue of its plan, read over its open connection, and what the
   * management API adds. Opens no connection.
   */
  async stats({ management }: Pick<StatsOptions, 'management'> = {}): Promise<StatsReport> {
    const { consuming } = this.#connection;
    const connection = consuming.current;
    if (connection === undefined && management === undefined) {
      const text = `cannot look at the queues of "${this.queue}": ${consuming.whyAway}`;
      throw new RespoolError('broker.unavailable', text);
    }
    return queueStats({ connection, management, plans: [this.plan], clock: this.#clock });
  }

  /** Listens to events of a kind, or to all with `'*'`. Returns a function that stops it. */
  on<K extends EventKind>(kind: K | '*', listener: (event: EventOf<K>) => void): () => void {
    return this.#events.on(checkOneOf('kind', kind, LISTENER_KINDS) as K | '*', listener);
  }

  /**
   * Events from now on, for `for await`. Ends with its signal or when the loop is left, not with
   * `stop()`. Events that a slow reader misses are counted in one of kind `missed`.
   */
  events(options: StreamOptions = {}): AsyncIterableIterator<StreamedEvent> {
    return eventStream(this.#events, () => this.#clock.now(), options);
  }

  /**
   * Connects, declares or verifies the topology, and starts. Throws what fails now; later it
   * reconnects by itself.
   */
  async start(): Promise<void> {
    if (this.#phase !== 'idle') {
      throw new RespoolError('config.invalid', `cannot start the consumer: it is ${this.#phase}`);
    }
    this.#phase = 'starting';
    const starting = this.#open();
    this.#starting = starting.catch(() => undefined);
    await starting;
    if (this.#isStopWanted) {
      throw new RespoolError('engine.stopping', 'the consumer was stopped while it started');
    }
    this.#phase = 'running';
    this.#events.emit({ at: this.#clock.now(), kind: 'engine-started' });
    this.#engine.start();
    if (this.#isHalted) this.#change();
  }

  /** Connects and subscribes; a failure leaves nothing open. */
  async #open(): Promise<void> {
    const { publishing, consuming } = this.#connection;
    try {
      await publishing.tryConnect();
      this.#unlisten = publishing.on((event) => this.#onPublishing(event));
      await this.#source.open();
    } catch (error) {
      this.#phase = 'idle';
      this.#unlisten?.();
      await this.#source.close();
      if (this.#isOwned) await Promise.all([publishing.hangUp(), consuming.hangUp()]);
      throw error;
    }
  }

  /**
   * Takes nothing new, gives back what has not begun, and waits for running handlers, at most
   * `within` (default 10s); then aborts them and gives their messages back, too.
   */
  async stop({ within = STOP_WITHIN }: { readonly within?: Duration } = {}): Promise<void> {
    const withinMs = durationMs(within, 'within');
    this.#isStopWanted = true;
    // A start that hangs while connecting ends with its connection.
    if (this.#phase === 'starting' && this.#isOwned) await this.#connection.close();
    await this.#starting;
    this.#isStopWanted = false;
    if (this.#phase === 'idle' || this.#phase === 'ended') {
      if (this.#phase === 'idle' && this.#isOwned) await this.#connection.close();
      if (this.#isOwned) this.#phase = 'ended';
      return;
    }
    this.#stopping ??= this.#stop(withinMs).finally(() => {
      this.#stopping = undefined;
    });
    await this.#stopping;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Gives back what has not begun and takes nothing until `resume()`; running handlers go on. */
  async pause(): Promise<void> {
    this.#isPaused = true;
    this.#change();
    await this.#changing;
  }

  async resume(): Promise<void> {
    this.#isPaused = false;
    this.#change();
    await this.#changing;
  }

  /** No handler is started: paused, or its retry could not be published. */
  get #isHalted(): boolean {
    return this.#isPaused || this.#connection.publishing.isBlocked;
  }

  /** Pauses or resumes the subscription, as is needed now. */
  #change(): void {
    this.#changing = this.#changing.then(async () => {
      if (this.#phase !== 'running') return;
      if (this.#isHalted) await this.#source.pause();
      else this.#source.resume();
      this.#engine.wake();
    });
  }

  #onPublishing(event: ConnectionEvent): void {
    if (event.kind === 'down') this.#engine.trouble('publishing', event.error);
    if (event.kind === 'blocked') {
      const text = `the broker accepts no messages: ${event.reason}; consuming waits`;
      this.#engine.trouble('publishing', new RespoolError('broker.unavailable', text));
    }
    this.#change();
  }

  async #stop(withinMs: number): Promise<void> {
    this.#phase = 'stopping';
    const ceased = this.#changing.then(() => this.#source.cease());
    await endsWithin(this.#clock, withinMs + CLOSE_TIMEOUT_MS, ceased);
    await this.#engine.stop(withinMs);
    await this.#source.close();
    this.#unlisten?.();
    if (this.#isOwned) await this.#connection.close();
    this.#events.emit({ at: this.#clock.now(), kind: 'engine-stopped' });
    this.#phase = this.#isOwned ? 'ended' : 'idle';
  }

  async #prepare(amqp: AmqpConnection): Promise<void> {
    const { declare, plan } = this.#settings;
    if (declare === 'apply') {
      await applyTopology(amqp, plan.topology);
      this.#emitTopology('applied');
    }
    if (declare !== 'verify') return;
    const problems = await verifyTopology(amqp, plan.topology);
    if (problems.length === 0) return this.#emitTopology('verified');
    const texts = problems.map(({ text }) => text).join('; ');
    throw new RespoolError(
      'topology.mismatch',
      `cannot consume "${this.queue}": ${texts}; run: respool rabbit topology plan`,
    );
  }

  #emitTopology(act: 'applied' | 'verified'): void {
    const { exchanges, queues, bindings } = this.plan.topology;
    this.#events.emit({
      at: this.#clock.now(),
      kind: 'topology',
      queue: this.queue,
      act,
      exchanges: exchanges.length,
      queues: queues.length,
      bindings: bindings.length,
    });
  }

  #policyFor(claim: Claim): RetryPolicy {
    const { policy, policies } = this.#settings;
    if (claim.policy === null || claim.policy === 'default') return policy;
    const named = policies.get(claim.policy);
    if (named !== undefined) return named;
    if (this.#events.hears('policy-unknown')) {
      const { id, topic } = claim.envelope;
      const at = this.#clock.now();
      this.#events.emit({ at, kind: 'policy-unknown', id, topic, policy: claim.policy });
    }
    return policy;
  }
}

function routeOf(handler: RabbitHandler, settings: ConsumerSettings): HandlerRoute {
  const { middleware, timeoutMs, schema, decode } = settings;
  return {
    lane: 'delivery',
    pattern: '#',
    handler: consumerHandlerOf(handler, schema, decode),
    middleware,
    policy: undefined,
    concurrency: Number.POSITIVE_INFINITY,
    timeoutMs,
    schema: undefined,
    picks: undefined,
    running: 0,
  };
}
