/**
 * enqueue — the ways into a spool: one message, many at once, and a stream that is committed.
 *
 * Promise: everything is checked before anything is written, and what resolved is ours.
 */

import type { Headers } from '../core/entry.ts';
import { asError } from '../core/errors.ts';
import { checkHeaders, checkList } from '../core/limits.ts';
import { carrying, sending } from '../engine/tracing.ts';
import type { SendSpan, Tracer } from '../ports/tracer.ts';
import { accept, acceptOne, type Enqueued, type ReadyMessage } from './accept.ts';
import { keepBody, type OwnBody, ownBody } from './body.ts';
import { EnqueueTx } from './enqueue-tx.ts';
import {
  type CheckedMessage,
  checkMessage,
  type Message,
  type MessageOptions,
  ownMessage,
} from './message.ts';
import { checkOrder } from './order-keys.ts';
import type { Runtime } from './runtime.ts';
import { beginSend, beginSends, isTable } from './tracing.ts';

/** Where messages come in. */
export class Enqueuer {
  readonly #runtime: Runtime;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  enqueue(message: Message): Promise<Enqueued> {
    const { tracer } = this.#runtime.settings;
    return tracer === undefined ? this.#enqueue(message) : this.#enqueueTraced(message, tracer);
  }

  #enqueueTraced(message: Message, tracer: Tracer): Promise<Enqueued> {
    const span = isObject(message) ? beginSend(tracer, message) : undefined;
    if (span === undefined) return this.#enqueue(message);
    const traced = this.#carrying(message, span.headers);
    return sending(span, () => this.#enqueue(traced), asItIs);
  }

  #enqueue(message: Message): Promise<Enqueued> {
    const runtime = this.#runtime;
    try {
      const body = ownBody(message?.body);
      const isSmall = 'bytes' in body && body.bytes.byteLength <= runtime.inlineMaxBytes;
      if (!isSmall || !runtime.isAccepting) return this.#enqueueSlowly(ownMessage(message), body);
      // The common case without a turn of promises more than its one write needs.
      const checked = this.#check(message);
      const ready = this.#keep(checked, body);
      if (ready instanceof Promise) return this.#acceptLater(ready);
      return acceptOne(runtime, ready, checked.envelope.enqueuedAt);
    } catch (error) {
      return Promise.reject(asError(error));
    }
  }

  /** A small body that takes time to encode, or does not stay small enough for its entry. */
  #acceptLater(ready: Promise<ReadyMessage>): Promise<Enqueued> {
    return this.#runtime.intake.during(async () => acceptOne(this.#runtime, await ready));
  }

  async #enqueueSlowly(message: Message, body: OwnBody): Promise<Enqueued> {
    const runtime = this.#runtime;
    await runtime.readyToAccept();
    const checked = this.#check(message);
    return runtime.intake.during(async (guard) =>
      acceptOne(runtime, await this.#keep(checked, guard(body))),
    );
  }

  async enqueueMany(messages: readonly Message[]): Promise<Enqueued[]> {
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

  async #enqueueMany(messages: readonly Message[]): Promise<Enqueued[]> {
    const bodies = messages.map((message) => ownBody(message?.body));
    const own = messages.map(ownMessage);
    await this.#runtime.readyToAccept();
    const checked = own.map((message) => this.#check(message));
    return this.#runtime.intake.during(async (guard) => {
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
    return new EnqueueTx(id, {
      keep: async (stream) => {
        try {
          const keeping = await runtime.intake.during((guard) =>
            this.#keep(message, guard({ stream })),
          );
          return keeping.body;
        } catch (error) {
          span?.end({ error });
          throw error;
        }
      },
      accept: (body, headers) => {
        const put = async (): Promise<Enqueued> => {
          await runtime.readyToAccept();
          const own = withHeaders(headers);
          const envelope = { ...message.envelope, headers: this.#inTrace(own, headers, span) };
          return acceptOne(runtime, { message: { ...message, envelope }, body });
        };
        return span === undefined ? put() : sending(span, put, asItIs);
      },
      discard: async ({ info }) => {
        span?.end({});
        if (info.place === 'store') await runtime.bodies.remove([info.ref]);
      },
      checkHeaders: (headers) => void withHeaders(headers),
    });
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
    return carrying(headers, span.headers, headerMaxBytes);
  }

  #carrying(message: Message, carried: Headers): Message {
    const { headers = {} } = message;
    const { headerMaxBytes } = this.#runtime.settings;
    // What is none is refused like anywhere else.
    if (!isTable(headers)) return message;
    return { ...message, headers: carrying(headers, carried, headerMaxBytes) };
  }

  #check(message: MessageOptions): CheckedMessage {
    const { settings, source, makeId, entries } = this.#runtime;
    const { headerMaxBytes, policies } = settings;
    // In this order: a millisecond may pass in between, and what is due at once is not deferred.
    const earliest = source.earliest();
    const now = Math.max(source.now(), earliest);
    const checked = checkMessage(message, { now, earliest, headerMaxBytes, makeId });
    checkOrder(entries, checked.envelope);
    const { policy } = checked;
    // Kept all the same: the name may be known to the process that delivers, or after the next
    // start.
    if (policy !== null && policy !== 'default' && !policies.has(policy)) {
      this.#runtime.unserved.policyUnknown(checked.envelope, policy);
    }
    return checked;
  }

  #keep(message: CheckedMessage, given: OwnBody): ReadyMessage | Promise<ReadyMessage> {
    const body = keepBody(given, message.envelope.id, this.#runtime.bodySettings);
    return body instanceof Promise
      ? body.then((kept) => ({ message, body: kept }))
      : { message, body };
  }
}

function isObject(message: unknown): message is object {
  return typeof message === 'object' && message !== null;
}

function asItIs(enqueued: Enqueued): Enqueued {
  return enqueued;
}
