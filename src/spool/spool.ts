/**
 * spool — what users hold in their hands: enqueue, handle, look, steer, start and stop.
 *
 * Every method opens the stores if need be. Thin on purpose: the work is in the files beside it.
 */

import type { Duration, Millis } from '../core/duration.ts';
import type { Entry, Headers } from '../core/entry.ts';
import {
  type EventKind,
  type EventOf,
  LISTENER_KINDS,
  type SpoolEvent,
  type StreamedEvent,
  type StreamOptions,
} from '../core/event.ts';
import { checkHeaders, checkIds, checkOneOf } from '../core/limits.ts';
import type { RetryPolicy } from '../core/policy.ts';
import type { State } from '../core/state.ts';
import { STATES } from '../core/state.ts';
import type { Verdict } from '../core/verdict.ts';
import { eventStream } from '../engine/events.ts';
import type { EngineLoad } from '../engine/load.ts';
import type { KeptCopy } from '../ports/dead-letters.ts';
import type { Handler } from '../ports/handler.ts';
import type { KeyHead, ListPage, TallyBy, TallyRow } from '../ports/entry-store.ts';
import type { StoreOperation } from '../ports/store-operation.ts';
import type { RecordStore } from '../ports/record-store.ts';
import { randomName } from '../system/ids.ts';
import type { Enqueued } from './accept.ts';
import * as actions from './actions.ts';
import type { ActionResult, AuditRecord } from './actions.ts';
import { readBody } from './body.ts';
import type { CleanupResult } from './caretaker.ts';
import type { CheckReport } from './check.ts';
import type { EnqueueTx } from './enqueue-tx.ts';
import { Enqueuer } from './enqueue.ts';
import { recordsOf } from './records.ts';
import { type BounceOptions, type HandleOptions, routeOf } from './handle.ts';
import { keep } from './keep.ts';
import {
  listAll,
  type ListFilter,
  type ListOptions,
  type PageOptions,
  pageQueryOf,
  queryOf,
} from './list.ts';
import type { Message, MessageOptions } from './message.ts';
import type { SpoolOptions } from './options.ts';
import { keyHeads } from './order-keys.ts';
import { EVERYTHING, type Pause } from './pauses.ts';
import { pausing } from './pausing.ts';
import type { CheckOptions, MoveOptions, PauseOptions, RemoveOptions } from './operator-options.ts';
import { processOne } from './process.ts';
import type { RekeyOptions, RekeyProgress } from './rekey.ts';
import { replay, type ReplayOrder } from './replay.ts';
import { Runtime } from './runtime.ts';
import { IN_MEMORY, makeStoreId, storeIdOf } from './store-id.ts';

/** Who acts when nobody says who. */
const BY_DEFAULT = 'program';
const KEY_HEADS_DEFAULT = 100;

/**
 * Makes a spool; without options it keeps SQLite and files in `./respool`. Nothing is opened yet.
 */
export function createSpool(options: SpoolOptions = {}): Spool {
  return new Spool(new Runtime(options));
}

/** A durable place for messages, with handlers that deliver them. */
export class Spool {
  readonly #runtime: Runtime;
  readonly #entrance: Enqueuer;

  /** @internal Use createSpool. */
  constructor(runtime: Runtime) {
    this.#runtime = runtime;
    this.#entrance = new Enqueuer(runtime);
  }

  /**
   * Puts a message down; when it resolves, the message is ours. A duplicate resolves to the first.
   */
  enqueue(message: Message): Promise<Enqueued> {
    return this.#entrance.enqueue(message);
  }

  /**
   * Puts many down, in one write; results in their order. All are checked before any is written.
   */
  enqueueMany(messages: readonly Message[]): Promise<Enqueued[]> {
    return this.#entrance.enqueueMany(messages);
  }

  /** Begins a streamed enqueue; nothing is visible before its commit. */
  begin(options: MessageOptions): Promise<EnqueueTx> {
    return this.#entrance.begin(options);
  }

  /**
   * Registers who delivers these topics; the first registered match wins. Returns the way to undo.
   */
  handle<Body = unknown>(
    pattern: string,
    handler: Handler<Body>,
    options: HandleOptions<Body> = {},
  ): () => void {
    return this.#route('delivery', pattern, handler as Handler, options);
  }

  /** Registers who is told when a message of these topics bounces. Returns the way to undo. */
  onBounce(pattern: string, handler: Handler, options: BounceOptions = {}): () => void {
    return this.#route('notice', pattern, handler, options);
  }

  /**
   * Whether this process has a handler for the topic; undefined when it has no handler at all and
   * does not deliver, or leaves other topics to other processes: then nothing is known of it.
   */
  hasHandler(topic: string): boolean | undefined {
    const { routes, engine, settings } = this.#runtime;
    if (routes.serves('delivery', topic)) return true;
    const isKnown = engine.load.isRunning || routes.of('delivery').length > 0;
    return isKnown && settings.unhandled === 'hold' ? false : undefined;
  }

  /** Hears of events of a kind, or of all with `'*'`. Returns the way to stop. */
  on<K extends EventKind>(kind: K | '*', listener: (event: EventOf<K>) => void): () => void {
    return this.#runtime.events.on(checkOneOf('kind', kind, LISTENER_KINDS) as K | '*', listener);
  }

  /**
   * What happens from now on, for `for await`; ends by its signal or when the loop is left. Events
   * that a slow reader misses are counted in one of kind `missed`.
   */
  events(options: StreamOptions = {}): AsyncIterableIterator<StreamedEvent> {
    return eventStream(this.#runtime.events, () => this.now(), options);
  }

  /** Tells listeners of what somebody beside this spool did: a sweep, a replay, an alert. */
  tell(event: SpoolEvent): void {
    checkOneOf('kind', (event as SpoolEvent | undefined)?.kind, LISTENER_KINDS);
    this.#runtime.events.emit(event);
  }

  /** Hears of each operation of the stores that goes to disk or server. Returns the way to stop. */
  onStoreOperation(hear: (operation: StoreOperation) => void): () => void {
    return this.#runtime.onStoreOperation(hear);
  }

  /** Whether its stores are open: from the first call that needs them until it is stopped. */
  get isOpen(): boolean {
    return this.#runtime.isOpen;
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
   * Takes nothing new, drains for at most `within` (default 10s), then aborts and releases.
   * Enqueues are refused from here until the next `start()`. Not to be awaited in a
   * handler: it waits for that handler, until its time is over.
   */
  async stop({ within = '10s' }: { readonly within?: Duration } = {}): Promise<void> {
    await this.#runtime.stop(within);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** The message's envelope and status, or undefined. */
  async get(id: string): Promise<Pick<Entry, 'envelope' | 'status'> | undefined> {
    await this.#runtime.ready();
    const entry = await this.#runtime.entries.get(id);
    return entry === undefined ? undefined : { envelope: entry.envelope, status: entry.status };
  }

  /**
   * The message's body as a stream; `message.unknown`, `body.missing`, `body.corrupt`,
   * `key.unavailable` or `transform.missing` otherwise.
   */
  async body(id: string): Promise<AsyncIterable<Uint8Array>> {
    await this.#runtime.ready();
    return readBody(await actions.isKnown(this.#runtime, id), this.#runtime);
  }

  /** Goes through messages, page by page, stable while things move. */
  list(options: ListOptions = {}): AsyncGenerator<Pick<Entry, 'envelope' | 'status'>> {
    return listAll((page) => this.page(page), options);
  }

  /** One page of a list, with what could not be read on the first. */
  async page(options: PageOptions = {}): Promise<ListPage> {
    await this.#runtime.ready();
    return this.#runtime.entries.list(pageQueryOf(options, this.#runtime.source.now()));
  }

  /** How many messages are in each state. */
  async count(): Promise<Record<State, number>> {
    const rows = await this.tally('state');
    const counts = Object.fromEntries(STATES.map((state) => [state, 0])) as Record<State, number>;
    for (const { key, count } of rows) counts[key as State] = count;
    return counts;
  }

  /** Counts by state, topic, destination or failure fingerprint. */
  async tally(by: TallyBy, filter: ListFilter = {}): Promise<readonly TallyRow[]> {
    await this.#runtime.ready();
    return this.#runtime.entries.tally(by, queryOf(filter, this.#runtime.source.now()));
  }

  /**
   * The first ones of order keys behind which others wait, held and deferred ones first; at most
   * `max`, 1 to 500, default 100. Refused where the store keeps no order.
   */
  async keyHeads(max: number = KEY_HEADS_DEFAULT): Promise<readonly KeyHead[]> {
    await this.#runtime.ready();
    return keyHeads(this.#runtime.entries, max);
  }

  /** Nobody tries these until they are released. */
  hold(
    ids: readonly string[],
    reason = 'held by an operator',
    by?: string,
  ): Promise<ActionResult[]> {
    return this.#act(ids, { kind: 'hold', reason }, by);
  }

  /** Lets held messages go on: as incoming, or as a notice. */
  release(ids: readonly string[], by?: string): Promise<ActionResult[]> {
    return this.#act(ids, { kind: 'release' }, by);
  }

  /** Due at once; bounced and archived ones start a new round, without an expiry that is over. */
  retryNow(ids: readonly string[], by?: string): Promise<ActionResult[]> {
    return this.#act(ids, { kind: 'retryNow' }, by);
  }

  /** Sends what had ended or is held once more, as part of an operation; perhaps repaired. */
  async replay(ids: readonly string[], order: ReplayOrder, by?: string): Promise<ActionResult[]> {
    checkIds(ids);
    return replay(this.#runtime, ids, order, by ?? BY_DEFAULT);
  }

  /** Puts copies down as archived, of messages that are removed or changed elsewhere. */
  keep(copies: readonly KeptCopy[], by: string = BY_DEFAULT): Promise<void> {
    return keep(this.#runtime, copies, by);
  }

  /** Small durable facts beside the messages; only kinds that begin with `dlq.` or `alert.`. */
  get facts(): RecordStore {
    return recordsOf(this.#runtime);
  }

  /** Gives these up: they bounce, and their bounce is announced. */
  bounce(
    ids: readonly string[],
    reason = 'bounced by an operator',
    by?: string,
  ): Promise<ActionResult[]> {
    return this.#act(ids, { kind: 'bounce', reason }, by);
  }

  /** Removes softly (archived, can be retried for a while), or with `hard` for good. */
  remove(
    ids: readonly string[],
    { hard = false, reason = 'removed by an operator', by }: RemoveOptions = {},
  ): Promise<ActionResult[]> {
    return this.#act(ids, { kind: 'remove', hard, reason }, by);
  }

  /** Moves one message between states as an operator; `move.refused` says why not. */
  async move(id: string, move: MoveOptions): Promise<void> {
    await this.#runtime.ready();
    const { from, to, reason = 'moved by an operator', by = BY_DEFAULT } = move;
    await actions.move(this.#runtime, id, { from, to, reason }, by);
  }

  /** Gives a message another policy, by a name that is registered. */
  async setPolicy(id: string, policy: string, by?: string): Promise<void> {
    actions.throwUnlessDone((await this.setPolicies([id], policy, by))[0]);
  }

  /** Gives messages another policy, by a name that is registered. */
  async setPolicies(ids: readonly string[], policy: string, by?: string): Promise<ActionResult[]> {
    actions.checkPolicyName(policy, this.policies, ids);
    return this.#act(ids, { kind: 'setPolicy', policy }, by);
  }

  /** The policies that messages can name; `default` is always among them. */
  get policies(): ReadonlyMap<string, RetryPolicy> {
    const { defaultPolicy, policies } = this.#runtime.settings;
    return new Map([['default', defaultPolicy], ...policies]);
  }

  /** Changes headers (null takes one away). With a revision, 'stale' if the message moved on. */
  async updateHeaders(
    id: string,
    headers: Readonly<Record<string, string | null>>,
    { revision, by = BY_DEFAULT }: { readonly revision?: number; readonly by?: string } = {},
  ): Promise<'done' | 'stale'> {
    await this.#runtime.ready();
    const { headerMaxBytes } = this.#runtime.settings;
    const check = (merged: Headers): Headers => checkHeaders(merged, headerMaxBytes);
    return actions.changeHeaders(this.#runtime, id, { headers, check, revision }, by);
  }

  /** Tries one message now, with this handler; resolves to what became of it. */
  async process(id: string, handler: Handler, by: string = BY_DEFAULT): Promise<Verdict> {
    await this.#runtime.ready();
    return processOne(this.#runtime, id, handler, by);
  }

  /** Stops delivering these topics (default: all), durably and in every process. */
  async pause(options: PauseOptions = {}): Promise<void> {
    const { by = BY_DEFAULT } = options;
    await pausing(this.#runtime, 'pause', { topic: EVERYTHING, ...options, by });
  }

  /** Ends a pause: the same pattern it was made with. */
  async resume(options: PauseOptions = {}): Promise<void> {
    const { by = BY_DEFAULT } = options;
    await pausing(this.#runtime, 'resume', { topic: EVERYTHING, ...options, by });
  }

  /** What is paused, by whom and since when. */
  async pauses(): Promise<readonly Pause[]> {
    await this.#runtime.ready();
    return this.#runtime.pauses.list();
  }

  /** When the next waiting message is due, past or future; null when none waits. */
  async nextDueAt(): Promise<Millis | null> {
    await this.#runtime.ready();
    const states = ['incoming', 'deferred'] as const;
    return this.#runtime.entries.nextDueAt({ lane: 'delivery', states });
  }

  /** The store's clock, in milliseconds since the epoch. */
  now(): Millis {
    return this.#runtime.source.now();
  }

  /** Writes a line into the audit record, for what is done to many messages by a filter. */
  async appendAudit(record: Omit<AuditRecord, 'at'>): Promise<void> {
    await this.#runtime.ready();
    await actions.audit(this.#runtime, record);
  }

  /** Leaves the address of a service for other processes on this store; resolves to its id. */
  async announce(address: string): Promise<string> {
    await this.#runtime.ready();
    const { entries, dice } = this.#runtime;
    await entries.announce?.(address);
    const isInMemory = entries.traits.durability === 'none';
    return makeStoreId(entries.records, `${isInMemory ? IN_MEMORY : ''}${randomName(dice)}`);
  }

  /** The id of the store; undefined before a service has announced itself there. */
  async storeId(): Promise<string | undefined> {
    await this.#runtime.ready();
    return storeIdOf(this.#runtime.entries.records);
  }

  /** What operators did, oldest first, above this sequence. */
  async audit(after = 0, max = 100): Promise<readonly (AuditRecord & { sequence: number })[]> {
    await this.#runtime.ready();
    const lines = await this.#runtime.entries.records.read(actions.AUDIT_KIND, after, max);
    return lines.map(({ sequence, record }) => ({ ...(record as AuditRecord), sequence }));
  }

  /** Looks through every entry and body for what is not as it should be; repairs when asked. */
  async check(options: CheckOptions = {}): Promise<CheckReport> {
    // Loaded when it is needed, as all that few programs do: an import has to be quick.
    return (await import('./check-all.ts')).checkAll(this.#runtime, { by: BY_DEFAULT, ...options });
  }

  /** Brings every body, and every sealed entry, to the current encryption; delivery goes on. */
  async rekey(options: RekeyOptions = {}): Promise<RekeyProgress> {
    await this.#runtime.ready();
    return (await import('./rekey.ts')).rekey(this.#runtime, { by: BY_DEFAULT, ...options });
  }

  /** One round of the caretaker now, instead of waiting for its hour. */
  async sweep(): Promise<CleanupResult> {
    await this.#runtime.ready();
    return this.#runtime.sweep();
  }

  async #act(
    ids: readonly string[],
    action: Parameters<typeof actions.act>[2],
    by = BY_DEFAULT,
  ): Promise<ActionResult[]> {
    checkIds(ids);
    await this.#runtime.ready();
    return actions.act(this.#runtime, ids, action, by);
  }

  #route(
    lane: 'delivery' | 'notice',
    pattern: string,
    handler: Handler,
    options: HandleOptions,
  ): () => void {
    const { routes, engine, source, settings, unserved } = this.#runtime;
    const route = routeOf(lane, pattern, handler, options, settings);
    unserved.registering(route);
    const undo = routes.add(route);
    const changed = (): void => {
      source.restart();
      engine.poke();
    };
    changed();
    return () => {
      undo();
      changed();
    };
  }
}
