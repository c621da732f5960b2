/**
 * spool — what users hold in their hands: enqueue, handle, look, steer, start and stop.
 *
 * Every method opens the stores if need be. Thin on purpose: the work is in the files beside it.
 */

import type { Duration } from '../core/duration.ts';
import type { Entry, Headers } from '../core/entry.ts';
import { asError, RespoolError } from '../core/errors.ts';
import { type EventKind, type EventOf, LISTENED } from '../core/event.ts';
import {
  checkHeaders,
  checkIds,
  checkList,
  checkOneOf,
  checkTopicPattern,
} from '../core/limits.ts';
import type { State } from '../core/state.ts';
import { STATES } from '../core/state.ts';
import type { Verdict } from '../core/verdict.ts';
import type { EngineLoad } from '../engine/engine.ts';
import type { Handler } from '../ports/handler.ts';
import type { ListPage, TallyBy, TallyRow } from '../ports/entry-store.ts';
import { accept, acceptOne, type Enqueued, type ReadyMessage } from './accept.ts';
import * as actions from './actions.ts';
import type { ActionResult, AuditRecord } from './actions.ts';
import { keepBody, type OwnBody, ownBody, readBody } from './body.ts';
import type { Swept } from './caretaker.ts';
import { check, type CheckReport } from './check.ts';
import { EnqueueTx } from './enqueue-tx.ts';
import { type BounceOptions, type HandleOptions, routeOf } from './handle.ts';
import {
  type ListFilter,
  type ListOptions,
  type PageOptions,
  pageQueryOf,
  queryOf,
} from './list.ts';
import {
  type CheckedMessage,
  checkMessage,
  type Message,
  type MessageOptions,
  ownMessage,
} from './message.ts';
import type { SpoolOptions } from './options.ts';
import { EVERYTHING } from './pauses.ts';
import type { MoveOptions, PauseOptions, RemoveOptions } from './operator-options.ts';
import { processOne } from './process.ts';
import { Runtime } from './runtime.ts';

/** Who acts when nobody says who. */
const BY_DEFAULT = 'program';

/**
 * Makes a spool; without options it keeps SQLite and files in `./respool`. Nothing is opened yet.
 */
export function createSpool(options: SpoolOptions = {}): Spool {
  return new Spool(new Runtime(options));
}

/** A durable place for messages, with handlers that deliver them. */
export class Spool {
  readonly #runtime: Runtime;

  /** @internal Use createSpool. */
  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /**
   * Puts a message down; when it resolves, the message is ours. A duplicate resolves to the first.
   */
  enqueue(message: Message): Promise<Enqueued> {
    const runtime = this.#runtime;
    try {
      const body = ownBody(message?.body);
      const isSmall = 'bytes' in body && body.bytes.byteLength <= runtime.inlineMaxBytes;
      if (!isSmall || !runtime.isOpen) return this.#enqueueSlowly(ownMessage(message), body);
      // The common case without a turn of promises more than its one write needs.
      const checked = this.#check(message);
      const ready = this.#keep(checked, body) as ReadyMessage;
      return acceptOne(runtime, ready, checked.envelope.enqueuedAt);
    } catch (error) {
      return Promise.reject(asError(error));
    }
  }

  async #enqueueSlowly(message: Message, body: OwnBody): Promise<Enqueued> {
    const runtime = this.#runtime;
    await runtime.ready();
    const checked = this.#check(message);
    return runtime.intake.during(async (guard) =>
      acceptOne(runtime, await this.#keep(checked, guard(body))),
    );
  }

  /**
   * Puts many down, in one write; results in their order. All are checked before any is written.
   */
  async enqueueMany(messages: readonly Message[]): Promise<Enqueued[]> {
    checkList('messages', messages, 'a list of messages; for one alone use enqueue()');
    const bodies = messages.map((message) => ownBody(message?.body));
    const own = messages.map(ownMessage);
    await this.#runtime.ready();
    const checked = own.map((message) => this.#check(message));
    return this.#runtime.intake.during(async (guard) => {
      const ready: ReadyMessage[] = [];
      for (const [at, message] of checked.entries()) {
        ready.push(await this.#keep(message, guard(bodies[at] ?? ownBody(undefined))));
      }
      return accept(this.#runtime, ready);
    });
  }

  /** Begins a streamed enqueue; nothing is visible before its commit. */
  async begin(options: MessageOptions): Promise<EnqueueTx> {
    const runtime = this.#runtime;
    const own = ownMessage(options);
    await runtime.ready();
    const message = this.#check(own);
    const { id } = message.envelope;
    const withHeaders = (headers: Headers): Headers =>
      checkHeaders({ ...message.envelope.headers, ...headers }, runtime.settings.headerMaxBytes);
    return new EnqueueTx(id, {
      keep: async (stream) => {
        const { body } = await runtime.intake.during((guard) =>
          this.#keep(message, guard({ stream })),
        );
        return body;
      },
      accept: async (body, headers) => {
        await runtime.ready();
        const envelope = { ...message.envelope, headers: withHeaders(headers) };
        return acceptOne(runtime, { message: { ...message, envelope }, body });
      },
      discard: async ({ info }) => {
        if (info.place === 'store') await runtime.bodies.remove([info.ref]);
      },
      checkHeaders: (headers) => void withHeaders(headers),
    });
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

  /** Hears of events of a kind, or of all with `'*'`. Returns the way to stop. */
  on<K extends EventKind>(kind: K | '*', listener: (event: EventOf<K>) => void): () => void {
    return this.#runtime.events.on(checkOneOf('kind', kind, LISTENED) as K | '*', listener);
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
   * Takes nothing new, drains for at most `within` (default 10s), then aborts and releases. Not to
   * be awaited in a handler: it waits for that handler, until its time is over.
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
   * The message's body as a stream; `message.unknown`, `body.missing` or `body.corrupt` otherwise.
   */
  async body(id: string): Promise<AsyncIterable<Uint8Array>> {
    await this.#runtime.ready();
    return readBody(await actions.known(this.#runtime, id), this.#runtime.bodies);
  }

  /** Goes through messages, page by page, stable while things move. */
  async *list(options: ListOptions = {}): AsyncGenerator<Pick<Entry, 'envelope' | 'status'>> {
    let after: string | undefined;
    do {
      const page = await this.page({
        ...options,
        limit: 500,
        ...(after === undefined ? {} : { after }),
      });
      yield* page.entries;
      after = page.next;
    } while (after !== undefined);
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
    if (policy !== 'default' && !this.#runtime.settings.policies.has(policy)) {
      const known = [...this.#runtime.settings.policies.keys()].join(', ');
      throw new RespoolError(
        'policy.unknown',
        `cannot set policy "${policy}" of message "${id}": known are ${known || 'default'}`,
      );
    }
    actions.throwUnlessDone((await this.#act([id], { kind: 'setPolicy', policy }, by))[0]);
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
  async pause({ topic = EVERYTHING, by = BY_DEFAULT }: PauseOptions = {}): Promise<void> {
    await this.#pausing('pause', topic, by);
  }

  /** Ends a pause: the same pattern it was made with. */
  async resume({ topic = EVERYTHING, by = BY_DEFAULT }: PauseOptions = {}): Promise<void> {
    await this.#pausing('resume', topic, by);
  }

  /** What operators did, oldest first, above this sequence. */
  async audit(after = 0, max = 100): Promise<readonly (AuditRecord & { sequence: number })[]> {
    await this.#runtime.ready();
    const lines = await this.#runtime.entries.records.read(actions.AUDIT_KIND, after, max);
    return lines.map(({ sequence, record }) => ({ ...(record as AuditRecord), sequence }));
  }

  /** Looks through every entry and body for what is not as it should be; repairs when asked. */
  async check({ repair = false }: { readonly repair?: boolean } = {}): Promise<CheckReport> {
    await this.#runtime.ready();
    const { entries, bodies, source, settings } = this.#runtime;
    return check({ ...settings, entries, bodies, repair, now: () => source.now() });
  }

  /** One round of the caretaker now, instead of waiting for its hour. */
  async sweep(): Promise<Swept> {
    await this.#runtime.ready();
    return this.#runtime.sweep();
  }

  #check(message: MessageOptions): CheckedMessage {
    const { settings, source, makeId } = this.#runtime;
    const { headerMaxBytes, policies } = settings;
    const checked = checkMessage(message, { now: source.now(), headerMaxBytes, makeId });
    const { policy } = checked;
    // Kept all the same: the name may be known to the process that delivers, or after the next
    // start.
    if (policy !== null && policy !== 'default' && !policies.has(policy)) {
      this.#runtime.tellUnknownPolicy(checked.envelope, policy);
    }
    return checked;
  }

  #keep(message: CheckedMessage, given: OwnBody): ReadyMessage | Promise<ReadyMessage> {
    const { bodies, inlineMaxBytes, settings } = this.#runtime;
    const limits = { bodies, inlineMaxBytes, bodyMaxBytes: settings.bodyMaxBytes };
    const newRef = (): string => this.#runtime.newRef(message.envelope.id);
    const body = keepBody(given, newRef, limits);
    return body instanceof Promise
      ? body.then((kept) => ({ message, body: kept }))
      : { message, body };
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
    const { routes, engine, settings } = this.#runtime;
    const undo = routes.add(routeOf(lane, pattern, handler, options, settings));
    engine.poke();
    return () => {
      undo();
      engine.poke();
    };
  }

  async #pausing(action: 'pause' | 'resume', topic: string, by: string): Promise<void> {
    const runtime = this.#runtime;
    await runtime.ready();
    const pattern = checkTopicPattern(topic);
    await actions.audit(runtime, { by, action, ids: [], details: { topic: pattern } });
    const at = runtime.source.now();
    if (action === 'pause') await runtime.pauses.pause(pattern, by, at);
    else await runtime.pauses.resume(pattern);
    runtime.events.emit({ at, kind: action === 'pause' ? 'paused' : 'resumed', topic: pattern });
    runtime.engine.poke();
    runtime.source.alarm();
  }
}
