/**
 * entrance — the ways into a spool: one message, many at once, and a stream that is committed.
 *
 * Promise: everything is checked before anything is written, and what resolved is ours.
 */

import type { Headers } from '../core/entry.ts';
import { asError } from '../core/errors.ts';
import { checkHeaders, checkList } from '../core/limits.ts';
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
import { checkOrder } from './order.ts';
import type { Runtime } from './runtime.ts';

/** Where messages come in. */
export class Entrance {
  readonly #runtime: Runtime;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  enqueue(message: Message): Promise<Enqueued> {
    const runtime = this.#runtime;
    try {
      const body = ownBody(message?.body);
      const isSmall = 'bytes' in body && body.bytes.byteLength <= runtime.inlineMaxBytes;
      if (!isSmall || !runtime.isOpen) return this.#enqueueSlowly(ownMessage(message), body);
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
    await runtime.ready();
    const checked = this.#check(message);
    return runtime.intake.during(async (guard) =>
      acceptOne(runtime, await this.#keep(checked, guard(body))),
    );
  }

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

  #check(message: MessageOptions): CheckedMessage {
    const { settings, source, makeId, entries } = this.#runtime;
    const { headerMaxBytes, policies } = settings;
    const checked = checkMessage(message, { now: source.now(), headerMaxBytes, makeId });
    checkOrder(entries, checked.envelope);
    const { policy } = checked;
    // Kept all the same: the name may be known to the process that delivers, or after the next
    // start.
    if (policy !== null && policy !== 'default' && !policies.has(policy)) {
      this.#runtime.tellUnknownPolicy(checked.envelope, policy);
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
