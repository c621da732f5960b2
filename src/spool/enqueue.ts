/**
 * enqueue — the ways into a spool: one message, many at once, and a stream that is committed.
 *
 *   check the message ─▶ keep its body ─▶ insert its entry ─▶ hand it over to the engine, if free
 *
 * Promise: all messages of a call are checked before the first entry is written, and once `enqueue`
 * has resolved, the message is stored. Sizes of bodies are checked as each is kept, so bodies of
 * earlier messages may be in the body store by then; the caretaker removes those.
 */

import type { Millis } from '../core/duration.ts';
import type { Entry, Headers } from '../core/entry.ts';
import { asError, RespoolError } from '../core/errors.ts';
import { checkHeaders, checkList } from '../core/limits.ts';
import { handedOffStatus, initialStatus } from '../core/next-status.ts';
import type { Reservation } from '../engine/parts.ts';
import { withTraceHeaders, runInSendSpan } from '../engine/tracing.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { SendSpan, Tracer } from '../ports/tracer.ts';
import { keepBody, notABody, type OwnBody, ownBody, type StoredOrInlineBody } from './body.ts';
import { SpoolClaim } from './source.ts';
import {
  type CheckedMessage,
  checkMessage,
  type Message,
  type MessageOptions,
  ownMessage,
  withBody,
} from './message.ts';
import { orderError } from './order-keys.ts';
import type { Runtime } from './runtime.ts';
import { beginSend, beginSends, isTable } from './tracing.ts';

/** What became of an enqueue. */
export interface EnqueueResult {
  /** The message's id; for a duplicate, the first one's. */
  readonly id: string;
  readonly duplicate: boolean;
}

/** Where messages come in. */
export class Enqueuer {
  readonly #runtime: Runtime;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  enqueue(message: Message): Promise<EnqueueResult> {
    const { tracer } = this.#runtime.settings;
    return tracer === undefined ? this.#enqueue(message) : this.#enqueueTraced(message, tracer);
  }

  #enqueueTraced(message: Message, tracer: Tracer): Promise<EnqueueResult> {
    const span = isObject(message) ? beginSend(tracer, message) : undefined;
    if (span === undefined) return this.#enqueue(message);
    const traced = this.#carrying(message, span.headers);
    return runInSendSpan(span, () => this.#enqueue(traced), asItIs);
  }

  #enqueue(message: Message): Promise<EnqueueResult> {
    const runtime = this.#runtime;
    try {
      const body = ownBody(message?.body);
      const isSmall = 'bytes' in body && body.bytes.byteLength <= runtime.inlineMaxBytes;
      if (!isSmall || !runtime.isAccepting) return this.#enqueueSlowly(ownMessage(message), body);
      // The common case, without an extra microtask.
      const checked = this.#check(message);
      const ready = this.#keep(checked, body);
      if (ready instanceof Promise) return this.#acceptLater(ready);
      return acceptOne(runtime, ready, checked.envelope.enqueuedAt);
    } catch (error) {
      return Promise.reject(asError(error));
    }
  }

  /** A small body that takes time to encode, or does not stay small enough for its entry. */
  #acceptLater(ready: Promise<ReadyMessage>): Promise<EnqueueResult> {
    return this.#runtime.uploads.during(async () => acceptOne(this.#runtime, await ready));
  }

  async #enqueueSlowly(message: Message, body: OwnBody): Promise<EnqueueResult> {
    const runtime = this.#runtime;
    await runtime.readyToAccept();
    const checked = this.#check(message);
    return runtime.uploads.during(async (guard) =>
      acceptOne(runtime, await this.#keep(checked, guard(body))),
    );
  }

  async enqueueMany(messages: readonly Message[]): Promise<EnqueueResult[]> {
    checkList('messages', messages, 'a list of messages; for one alone use enqueue()');
    const { tracer } = this.#runtime.settings;
    const isTraced = tracer !== undefined && messages.every(isObject);
    const sends = isTraced ? beginSends(tracer, messages) : undefined;
    if (sends === undefined) return this.#enqueueMany(messages);
    const traced = messages.map((message, at) => this.#carrying(message, sends.headers(at)));
    try {
      const enqueued = await this.#enqueueMany(traced);
      sends.end(enqueued);
      return enqueued;
    } catch (error) {
      sends.fail(error);
      throw error;
    }
  }

  async #enqueueMany(messages: readonly Message[]): Promise<EnqueueResult[]> {
    const bodies = messages.map((message) => ownBody(message?.body));
    const own = messages.map(ownMessage);
    await this.#runtime.readyToAccept();
    const checked = own.map((message) => this.#check(message));
    return this.#runtime.uploads.during(async (guard) => {
      const ready: ReadyMessage[] = [];
      for (const [at, message] of checked.entries()) {
        ready.push(await this.#keep(message, guard(bodies[at] ?? ownBody(undefined))));
      }
      return accept(this.#runtime, ready);
    });
  }

  async begin(options: MessageOptions): Promise<EnqueueTx> {
    const runtime = this.#runtime;
    const own = ownMessage(options);
    await runtime.readyToAccept();
    const message = this.#check(own);
    const { id } = message.envelope;
    const span = this.#beginSpan(message);
    const withHeaders = (headers: Headers): Headers =>
      checkHeaders({ ...message.envelope.headers, ...headers }, runtime.settings.headerMaxBytes);
    const parts = new Parts();
    const body = this.#keepWritten(message, parts, span);
    return new EnqueueTx(id, {
      parts,
      body,
      accept: (body, headers) => {
        const put = async (): Promise<EnqueueResult> => {
          await runtime.readyToAccept();
          const own = withHeaders(headers);
          const envelope = { ...message.envelope, headers: this.#inTrace(own, headers, span) };
          return acceptOne(runtime, { message: { ...message, envelope }, body });
        };
        return span === undefined ? put() : runInSendSpan(span, put, asItIs);
      },
      discard: async ({ info }) => {
        span?.end({});
        if (info.place === 'store') await runtime.bodies.remove([info.ref]);
      },
      checkHeaders: (headers) => void withHeaders(headers),
    });
  }

  /** Keeps what is written as the body of the message. */
  #keepWritten(
    message: CheckedMessage,
    parts: Parts,
    span: SendSpan | undefined,
  ): Promise<StoredOrInlineBody> {
    const work = this.#runtime.uploads.during(async (guard) => {
      const keeping = await this.#keep(message, guard({ stream: parts.read() }));
      return keeping.body;
    });
    // write() and commit() report it; here it only must not be unhandled.
    work.catch((error: unknown) => {
      span?.end({ error });
      parts.fail(error);
    });
    return work;
  }

  /** Lasts from here until the commit, with the whole writing of the body. */
  #beginSpan({ envelope }: CheckedMessage): SendSpan | undefined {
    const { tracer } = this.#runtime.settings;
    return tracer === undefined ? undefined : beginSend(tracer, envelope);
  }

  /** A trace that came with headers of a later moment stays as it is. */
  #inTrace(headers: Headers, later: Headers, span: SendSpan | undefined): Headers {
    const { tracer, headerMaxBytes } = this.#runtime.settings;
    if (span === undefined || tracer?.carries(later) === true) return headers;
    return withTraceHeaders(headers, span.headers, headerMaxBytes);
  }

  #carrying(message: Message, carried: Headers): Message {
    const { headers = {} } = message;
    const { headerMaxBytes } = this.#runtime.settings;
    // Headers that are not a table are refused later, as without a trace.
    if (!isTable(headers)) return message;
    return { ...message, headers: withTraceHeaders(headers, carried, headerMaxBytes) };
  }

  #check(message: MessageOptions): CheckedMessage {
    const { settings, source, makeId, entries } = this.#runtime;
    const { headerMaxBytes, policies } = settings;
    // In this order: a millisecond may pass in between, and what is due at once is not deferred.
    const earliest = source.earliest();
    const now = Math.max(source.now(), earliest);
    const checked = checkMessage(message, { now, earliest, headerMaxBytes, makeId });
    const { envelope, policy } = checked;
    if (envelope.orderKey !== undefined && !entries.traits.ordered) {
      throw orderError('enqueue with an orderKey', entries.name);
    }
    // Accepted anyway: the name may be known to the process that delivers, or after the next
    // start.
    if (policy !== null && policy !== 'default' && !policies.has(policy)) {
      this.#runtime.unserved.policyUnknown(envelope, policy);
    }
    return checked;
  }

  #keep(message: CheckedMessage, ownBody: OwnBody): ReadyMessage | Promise<ReadyMessage> {
    const body = keepBody(ownBody, message.envelope.id, this.#runtime.bodySettings);
    return body instanceof Promise
      ? body.then((item) => ({ message, body: item }))
      : { message, body };
  }
}

function isObject(message: unknown): message is object {
  return typeof message === 'object' && message !== null;
}

function asItIs(enqueued: EnqueueResult): EnqueueResult {
  return enqueued;
}

// From a checked message to a durable entry: body first, entry second (invariant 4,
// ARCHITECTURE.md).
//
// When this process's engine has a free slot and nothing older is due, the entry goes in already
// claimed (hand-off): one write less. Never with an order key: only the store knows whose turn it
// is.

/** A message whose body is kept. */
interface ReadyMessage {
  readonly message: CheckedMessage;
  readonly body: StoredOrInlineBody;
}

/** Inserts one message whose body is kept; a single enqueue is what most callers do. */
function acceptOne(
  runtime: Runtime,
  ready: ReadyMessage,
  now: Millis = runtime.source.now(),
): Promise<EnqueueResult> {
  const prepared = prepare(runtime, ready, now);
  return insertOne(runtime, prepared).then(
    ([answer = 'stored']) => {
      if (answer === 'stored') return begin(runtime, prepared);
      const enqueued = skip(runtime, prepared, answer.duplicateOf);
      const { ref, place } = prepared.entry.envelope.body;
      if (place !== 'store') return enqueued;
      return runtime.bodies.remove([ref]).then(() => enqueued);
    },
    (error: unknown) => {
      release(runtime, [prepared]);
      throw error;
    },
  );
}

/** A store that throws where it should reject must not keep the slot. */
function insertOne(runtime: Runtime, prepared: Prepared): ReturnType<EntryStore['insert']> {
  try {
    return runtime.entries.insert([prepared.entry]);
  } catch (error) {
    release(runtime, [prepared]);
    throw error;
  }
}

/** Inserts messages whose bodies are kept; resolves when they are durable. */
async function accept(runtime: Runtime, ready: readonly ReadyMessage[]): Promise<EnqueueResult[]> {
  const now = runtime.source.now();
  const prepared = ready.map((one) => prepare(runtime, one, now));
  let answers: Awaited<ReturnType<EntryStore['insert']>>;
  try {
    answers = await runtime.entries.insert(prepared.map((one) => one.entry));
  } catch (error) {
    release(runtime, prepared);
    throw error;
  }
  const superfluous: string[] = [];
  const enqueued = prepared.map((one, at) => {
    const answer = answers[at] ?? 'stored';
    if (answer === 'stored') return begin(runtime, one);
    const { ref, place } = one.entry.envelope.body;
    // This body was written under a ref of its own; the first message keeps its own body.
    if (place === 'store') superfluous.push(ref);
    return skip(runtime, one, answer.duplicateOf);
  });
  if (superfluous.length > 0) await runtime.bodies.remove(superfluous);
  return enqueued;
}

interface Prepared {
  readonly entry: Entry;
  readonly plain: Uint8Array | undefined;
  readonly reservation: Reservation | undefined;
}

/**
 * The write failed. Bodies stay, since the outcome is unknown: they may have entries. The caretaker
 * removes orphans.
 */
function release({ engine }: Runtime, prepared: readonly Prepared[]): void {
  for (const { reservation } of prepared) {
    if (reservation !== undefined) engine.unreserve(reservation);
  }
}

function prepare(runtime: Runtime, ready: ReadyMessage, now: number): Prepared {
  const { engine, source, isImmediate } = runtime;
  const { message, body } = ready;
  const envelope = withBody(message.envelope, body.info);
  const status = initialStatus({ now, dueAt: message.dueAt, policy: message.policy });
  const inline = body.inline === undefined ? undefined : { inlineBody: body.inline };
  const reservation =
    isImmediate &&
    status.state === 'incoming' &&
    message.dueAt <= source.earliest() &&
    envelope.orderKey === undefined &&
    source.mayHandOff(now)
      ? engine.reserve(envelope)
      : undefined;
  const { plain } = body;
  if (reservation === undefined) {
    return { entry: { envelope, status, ...inline }, plain, reservation };
  }
  const claim = { now, leaseMs: source.leaseFrom(now), holder: source.holder() };
  return {
    entry: { envelope, status: handedOffStatus(status, claim), ...inline },
    plain,
    reservation,
  };
}

/** The message is a duplicate: nothing of it stays. */
function skip(
  { engine, events }: Runtime,
  { entry, reservation }: Prepared,
  duplicateOf: string,
): EnqueueResult {
  if (reservation !== undefined) engine.unreserve(reservation);
  if (events.hears('duplicate')) {
    const { topic, id, enqueuedAt } = entry.envelope;
    events.emit({ at: enqueuedAt, kind: 'duplicate', id, topic, duplicateOf });
  }
  return { id: duplicateOf, duplicate: true };
}

/** The message is stored: emit the event, and start it or note when it is due. */
function begin(runtime: Runtime, { entry, plain, reservation }: Prepared): EnqueueResult {
  const { envelope, status } = entry;
  runtime.engine.sourceAnswered();
  const isServed = reservation !== undefined || runtime.routes.serves('delivery', envelope.topic);
  if (!isServed) runtime.unserved.accepted(envelope);
  if (runtime.events.hears('accepted')) {
    const { id, topic, enqueuedAt } = envelope;
    const { dueAt } = status;
    // What was handed over is due now; its status has the end of its lease there.
    const about =
      status.state === 'active' || dueAt === null
        ? { state: 'incoming' as const, dueAt: enqueuedAt }
        : { state: status.state, dueAt };
    runtime.events.emit({ at: enqueuedAt, kind: 'accepted', id, topic, ...about });
  }
  if (reservation !== undefined)
    runtime.engine.beginReserved(reservation, new SpoolClaim(entry, plain));
  else if (runtime.isImmediate) runtime.source.noteDue(status.dueAt ?? status.updatedAt);
  return { id: envelope.id, duplicate: false };
}

// A streamed enqueue: write parts as they come, then commit or abort.
//
//   open ─write()─▶ open ─commit()─▶ committed        open ─abort(), dispose─▶ aborted
//
// Nothing is visible before commit. Writing waits while the store is behind.

/** What a transaction asks of its spool. */
interface EnqueueTxHost {
  /** What is written goes in here, and is read from here to be kept as the body. */
  readonly parts: Parts;
  readonly body: Promise<StoredOrInlineBody>;
  /** Inserts the entry with these headers over those given at begin. */
  accept(body: StoredOrInlineBody, headers: Headers): Promise<EnqueueResult>;
  /** Removes the body of a transaction that does not commit. */
  discard(body: StoredOrInlineBody): Promise<void>;
  checkHeaders(headers: Headers): void;
}

/** A message that is being written. */
export class EnqueueTx {
  /** The id the message will have. */
  readonly id: string;
  readonly #host: EnqueueTxHost;
  readonly #parts: Parts;
  readonly #body: Promise<StoredOrInlineBody>;
  #headers: Record<string, string> = {};
  /** The last write: writes run in order, even if the caller does not await each. */
  #writing: Promise<void> = Promise.resolve();
  #committed: Promise<EnqueueResult> | undefined;
  #isAborted = false;

  constructor(id: string, host: EnqueueTxHost) {
    this.id = id;
    this.#host = host;
    this.#parts = host.parts;
    this.#body = host.body;
  }

  /** Adds bytes to the body; resolves when more may come. */
  async write(part: Uint8Array | string): Promise<void> {
    this.#refuseUnlessOpen('write to');
    const isText = typeof part === 'string';
    if (!isText && !(part instanceof Uint8Array)) throw notABody(undefined);
    // Copied at once: the caller may use its buffer again before it is this part's turn.
    const own = isText ? part : new Uint8Array(part);
    const work = this.#writing.then(() => this.#parts.write(own));
    // A failed write fails the body, and so the commit; here it only must not stop the next.
    this.#writing = work.catch(() => undefined);
    await work;
  }

  setHeader(name: string, value: string): void {
    this.setHeaders({ [name]: value });
  }

  setHeaders(headers: Headers): void {
    this.#refuseUnlessOpen('change headers of');
    this.#host.checkHeaders({ ...this.#headers, ...headers });
    this.#headers = { ...this.#headers, ...headers };
  }

  /** Makes the message visible; a second call answers the same. */
  async commit(): Promise<EnqueueResult> {
    if (this.#isAborted) this.#refuseUnlessOpen('commit');
    this.#committed ??= this.#commit();
    return this.#committed;
  }

  /** Forgets what was written; after a commit it does nothing. */
  async abort(): Promise<void> {
    if (this.#committed !== undefined || this.#isAborted) return;
    this.#isAborted = true;
    this.#parts.fail(new RespoolError('message.invalid', 'the enqueue was aborted'));
    const body = await this.#body.catch(() => undefined);
    if (body !== undefined) await this.#host.discard(body);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.abort();
  }

  async #commit(): Promise<EnqueueResult> {
    await this.#writing;
    this.#parts.end();
    return this.#host.accept(await this.#body, this.#headers);
  }

  #refuseUnlessOpen(verb: string): void {
    if (this.#committed === undefined && !this.#isAborted) return;
    const state = this.#isAborted ? 'aborted' : 'committed';
    throw new RespoolError(
      'message.invalid',
      `cannot ${verb} the message "${this.id}": its enqueue is ${state}; begin another`,
    );
  }
}

/** One part at a time from a writer to a reader. */
class Parts {
  /** n.b. Text stays text: a character may be divided between two parts. */
  #part: Uint8Array | string | undefined;
  #isEnded = false;
  #failure: { readonly error: unknown } | undefined;
  #onPart: (() => void) | undefined;
  #onTaken: (() => void) | undefined;

  async write(part: Uint8Array | string): Promise<void> {
    while (this.#part !== undefined && this.#failure === undefined) {
      await new Promise<void>((resolve) => {
        this.#onTaken = resolve;
      });
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    this.#part = part;
    this.#onPart?.();
  }

  end(): void {
    this.#isEnded = true;
    this.#onPart?.();
  }

  fail(error: unknown): void {
    this.#failure ??= { error };
    this.#onPart?.();
    this.#onTaken?.();
  }

  async *read(): AsyncGenerator<Uint8Array | string> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure.error;
      if (this.#part !== undefined) {
        const part = this.#part;
        this.#part = undefined;
        this.#onTaken?.();
        yield part;
      } else if (this.#isEnded) return;
      else {
        await new Promise<void>((resolve) => {
          this.#onPart = resolve;
        });
      }
    }
  }
}
