/**
 * spool — the data plane: enqueue, handle, look, start and stop; `operator()` leads to the
 * control plane.
 *
 * Every method that needs the stores opens them. Thin on purpose: the work is in the files beside
 * it.
 */

import type { Duration } from '../core/duration.ts';
import type { Entry } from '../core/entry.ts';
import type { EventKind, EventOf, StreamedEvent, StreamOptions } from '../core/event.ts';
import type { State } from '../core/state.ts';
import type { Verdict } from '../core/verdict.ts';
import type { EngineLoad } from '../engine/parts.ts';
import type { Handler } from '../ports/handler.ts';
import type { ListPage } from '../ports/entry-store.ts';
import type { EnqueueResult, EnqueueTx } from './enqueue.ts';
import { type BounceOptions, type HandleOptions, routeOf } from './handle.ts';
import { setInternals, SpoolInternals } from './internals.ts';
import type { ListOptions, PageOptions } from './list.ts';
import type { Message, MessageOptions } from './message.ts';
import type { SpoolOperator } from './operator/operator.ts';
import { createOperator } from './operator/spool-operator.ts';
import type { SpoolOptions } from './options.ts';
import { Runtime } from './runtime.ts';
import { RespoolError } from '../core/errors.ts';
import { isSealed, SEAL_MISSING } from '../core/reserved-headers.ts';
import { act, audit, needEntry, throwUnlessDone } from './actions.ts';
import { SpoolClaim } from './source.ts';
import { whyNotGiven } from './order-keys.ts';

/** The name in the audit record of `process` where none was given. */
const BY_DEFAULT = 'program';

/**
 * Creates a spool; without options it keeps SQLite and files in `./respool`. Nothing is opened yet.
 */
export function createSpool(options: SpoolOptions = {}): Spool {
  return new Spool(new Runtime(options));
}

/** A durable place for messages, with handlers that deliver them. */
export class Spool {
  readonly #runtime: Runtime;
  readonly #internals: SpoolInternals;

  /** @internal Use createSpool. */
  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    this.#internals = new SpoolInternals(runtime);
    setInternals(this, this.#internals);
  }

  /**
   * The control plane, in a name that the audit record keeps: hold, retry, pause, stats and more.
   *
   * @example
   * await spool.operator({ by: 'ops' }).hold([id], { reason: 'wrong address' });
   */
  operator({ by }: { readonly by: string }): SpoolOperator {
    return createOperator(this.#internals, { by });
  }

  /**
   * Stores a message; once it resolves, the message is durable. A duplicate resolves to the first.
   */
  enqueue(message: Message): Promise<EnqueueResult> {
    return this.#internals.enqueuer.enqueue(message);
  }

  /**
   * Stores many in one write; results in their order. All are checked before any is written.
   */
  enqueueMany(messages: readonly Message[]): Promise<EnqueueResult[]> {
    return this.#internals.enqueuer.enqueueMany(messages);
  }

  /** Begins a streamed enqueue; nothing is visible before its commit. */
  begin(options: MessageOptions): Promise<EnqueueTx> {
    return this.#internals.enqueuer.begin(options);
  }

  /**
   * Registers the handler of these topics; the first registered match wins. Call what it returns to
   * undo it.
   */
  handle<Body = unknown>(
    pattern: string,
    handler: Handler<Body>,
    options: HandleOptions<Body> = {},
  ): () => void {
    return this.#route('delivery', pattern, handler as Handler, options);
  }

  /**
   * Registers a handler that is called when a message of these topics bounces. Call what it returns
   * to undo it.
   */
  onBounce(pattern: string, handler: Handler, options: BounceOptions = {}): () => void {
    return this.#route('notice', pattern, handler, options);
  }

  /** Listens to events of a kind, or to all with `'*'`. Returns a function that stops. */
  on<K extends EventKind>(kind: K | '*', listener: (event: EventOf<K>) => void): () => void {
    return this.#internals.on(kind, listener);
  }

  /**
   * Events from now on, for `for await`; ends by its signal or when the loop is left. Events that
   * a slow reader misses are counted in one of kind `missed`.
   */
  events(options: StreamOptions = {}): AsyncIterableIterator<StreamedEvent> {
    return this.#internals.events(options);
  }

  /** What this process's engine is doing now, in numbers. */
  get load(): EngineLoad {
    return this.#runtime.engine.load;
  }

  /** Starts to deliver. Starting twice is refused. */
  start(): Promise<void> {
    return this.#runtime.start();
  }

  /**
   * Starts nothing new, waits for running handlers up to `within` (default 10s), then aborts them
   * and releases their messages. Enqueues are refused until the next `start()`. Do not await it in
   * a handler: it waits for that handler.
   */
  async stop({ within = '10s' }: { readonly within?: Duration } = {}): Promise<void> {
    await this.#runtime.stop(within);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** The message's envelope and status, or undefined. */
  get(id: string): Promise<Pick<Entry, 'envelope' | 'status'> | undefined> {
    return this.#internals.get(id);
  }

  /**
   * The message's body as a stream; `message.unknown`, `body.missing`, `body.corrupt`,
   * `key.unavailable` or `transform.missing` otherwise.
   */
  body(id: string): Promise<AsyncIterable<Uint8Array>> {
    return this.#internals.body(id);
  }

  /** Iterates over messages, page by page, stable while they change. */
  list(options: ListOptions = {}): AsyncGenerator<Pick<Entry, 'envelope' | 'status'>> {
    return this.#internals.list(options);
  }

  /** One page of a list, with what could not be read on the first. */
  page(options: PageOptions = {}): Promise<ListPage> {
    return this.#internals.page(options);
  }

  /** How many messages are in each state. */
  count(): Promise<Record<State, number>> {
    return this.#internals.count();
  }

  /** Attempts one message now, with this handler; resolves to the verdict. */
  async process(
    id: string,
    handler: Handler,
    { by = BY_DEFAULT }: { readonly by?: string } = {},
  ): Promise<Verdict> {
    await this.#runtime.ready();
    return processOne(this.#runtime, id, handler, by);
  }

  #route(
    lane: 'delivery' | 'notice',
    pattern: string,
    handler: Handler,
    options: HandleOptions,
  ): () => void {
    const { routes, engine, source, settings, unserved, handlerRecords } = this.#runtime;
    const route = routeOf(lane, pattern, handler, options, settings);
    unserved.registering(route);
    const undo = routes.add(route);
    const changed = (): void => {
      source.restartTurns();
      engine.wake();
      if (lane === 'delivery') handlerRecords.changed();
    };
    changed();
    return () => {
      undo();
      changed();
    };
  }
}

/**
 * Claims one message by its id, outside the engine's own rounds, runs the handler once and settles
 * the verdict.
 */
async function processOne(
  runtime: Runtime,
  id: string,
  handler: Handler,
  by: string,
): Promise<Verdict> {
  const { entries, source, engine, settings } = runtime;
  const entry = await needEntry(runtime, id);
  if (isSealed(entry)) {
    const text = `cannot process message "${id}": ${SEAL_MISSING.text}`;
    throw new RespoolError('transform.missing', text);
  }
  await audit(runtime, { by, action: 'process', ids: [id] });
  const { state, dueAt } = entry.status;
  // n.b. What is incoming is not due where the clock was set back since.
  const time = state === 'incoming' ? source.now() : source.earliest();
  const isReady = (state === 'incoming' || state === 'deferred') && dueAt !== null && dueAt <= time;
  if (!isReady) {
    // The engine does not learn that it is due: it would be there first.
    const quiet = { noteDue: () => undefined, alarm: () => undefined };
    const { bodyRemover, events, retention, now } = runtime;
    const announces = (topic: string): boolean => runtime.announces(topic);
    const parts = { entries, bodyRemover, events, retention, announces, now, source: quiet };
    throwUnlessDone((await act(parts, [id], { kind: 'retry' }, by))[0]);
  }
  const route = routeOf('delivery', entry.envelope.topic, handler, {}, settings);
  const verdict = await engine.runOne(async () => {
    const claimedAt = source.now();
    const [claimed] = await entries.claim({
      lane: 'delivery',
      states: ['incoming', 'deferred'],
      ids: [id],
      max: 1,
      now: claimedAt,
      leaseMs: source.leaseFrom(claimedAt),
      holder: source.holder(),
    });
    return claimed === undefined ? undefined : new SpoolClaim(claimed);
  }, route);
  if (verdict !== undefined) return verdict;
  const why = await whyNotGiven(entries, id);
  throw new RespoolError('move.refused', `cannot process message "${id}": ${why}`);
}
