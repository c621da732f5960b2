/**
 * publisher — resolves only when the broker has the message in a queue, or the fallback has it.
 *
 *   publish() ─▶ check ─▶ middleware ─▶ encode ─▶ gate ─▶ confirm publisher ─confirmed─▶ broker
 *                                                   └─ away, blocked, unknown ─▶ fallback ─▶ spool
 */

import type { Headers } from '../../core/entry.ts';
import { asError, RespoolError, show, textOf } from '../../core/errors.ts';
import { runInSendSpan } from '../../engine/tracing.ts';
import type { SendSpan } from '../../ports/tracer.ts';
import { createIdMaker } from '../../system/ids.ts';
import { InFlight } from '../../system/wait.ts';
import type { Outgoing } from '../connection/amqp.ts';
import {
  connectionOf,
  exchangePlace,
  type RabbitConnection,
  shownUrl,
} from '../connection/connection.ts';
import { goqueueEnvelope } from '../compat/goqueue.ts';
import { type Fallback, fallsBack, openFallback } from './fallback.ts';
import type { ReconnectingConnection } from '../connection/reconnecting-connection.ts';
import { ConfirmPublisher } from './confirm-publisher.ts';
import { ConnectionGate } from './connection-gate.ts';
import {
  type Defaults,
  outgoingOf,
  type Publication,
  type PublishedMessage,
  type PublishMessage,
  publicationOf,
} from './message.ts';
import { contentTypeOf } from './codecs.ts';
import { type PublisherOptions, type PublisherSettings, publisherSettingsOf } from './options.ts';

/** What became of one message of many. */
export type PublishResult =
  | PublishedMessage
  | { readonly id: string | undefined; readonly via: 'nothing'; readonly error: Error };

/** What a publisher is doing now. */
export interface PublisherLoad {
  readonly isConnected: boolean;
  /** The broker takes nothing at present: an alarm of memory or disk. */
  readonly isBlocked: boolean;
  /** Published and not yet confirmed. */
  readonly inFlight: number;
  /** In memory, waiting for the broker or for room in the window. */
  readonly waiting: number;
  readonly waitingBytes: number;
  /** Messages that went to the fallback since the publisher was made. */
  readonly fellBack: number;
}

/** Makes a publisher; it connects with the first message. */
export function createPublisher(options: PublisherOptions): Publisher {
  return new Publisher(options);
}

/** Publishes with confirms. */
export class Publisher {
  readonly #settings: PublisherSettings;
  readonly #connection: RabbitConnection;
  readonly #isOwned: boolean;
  readonly #channel: PublishChannel;
  /** For what may end its channel; opened when it is first needed. */
  #separateChannel: PublishChannel | undefined;
  readonly #fallback: Fallback | undefined;
  readonly #defaults: Defaults;
  #fellBack = 0;
  readonly #inFlight = new InFlight();
  #closing: Promise<void> | undefined;

  /** @internal Use createPublisher. */
  constructor(options: PublisherOptions) {
    const settings = publisherSettingsOf(options);
    this.#settings = settings;
    const { url, connection, tls } = options;
    const { clock, dice, id, exchange, fallback } = settings;
    const name = id === undefined ? 'respool publisher' : `respool publisher ${id}`;
    const chosen = connectionOf({ url, connection, tls, name, clock, dice }, 'a publisher');
    this.#connection = chosen.connection;
    this.#isOwned = chosen.isOwned;
    this.#channel = openPublishChannel(chosen.connection.publishing, settings);
    this.#defaults = {
      exchange,
      headers: id === undefined ? settings.headers : { 'publisher-id': id, ...settings.headers },
      priority: settings.priority,
      makeId: createIdMaker(dice),
      contentType: (body, own) => contentTypeOf(body, own, settings.contentType),
    };
    if (fallback === undefined) return;
    this.#fallback = openFallback({
      spool: fallback,
      topic: settings.fallbackTopic,
      policy: settings.fallbackPolicy,
      send: (outgoing) => this.#during(() => this.#channel.gate.send(outgoing)),
      sendAlone: (outgoing) => this.#during(() => this.#openSeparateChannel().gate.send(outgoing)),
      broker: url === undefined ? connection : [url].flat().map(shownUrl).sort().join(' '),
      now: () => clock.now(),
    });
  }

  /**
   * Resolves when a queue of the broker has the message, or the fallback. Rejects with
   * `broker.unroutable`, `broker.unconfirmed` (it may be there: publish it again with the same id),
   * `broker.unavailable`, `limit.exceeded` or `message.invalid`.
   */
  publish(message: PublishMessage): Promise<PublishedMessage> {
    const now = this.#settings.clock.now();
    return this.#during(() => this.#begin(publicationOf(message, this.#defaults, now)));
  }

  /**
   * Publishes many, in their order and without waiting for each; one result each, in their order.
   * Never rejects for a single message.
   */
  async publishMany(messages: readonly PublishMessage[]): Promise<readonly PublishResult[]> {
    if (!Array.isArray(messages)) {
      throw new RespoolError('message.invalid', 'cannot publish: publishMany takes a list');
    }
    const results: PublishResult[] = [];
    const next = messages.entries();
    const work = async (): Promise<void> => {
      for (const [at, message] of next) results[at] = await this.#result(message);
    };
    // No more at once than the window takes: a long list must not fill the memory.
    const count = Math.min(messages.length, this.#settings.limits.windowMax);
    await Promise.all(Array.from({ length: count }, work));
    return results;
  }

  /** What it is doing now, in numbers. */
  get load(): PublisherLoad {
    const { isUp, isBlocked } = this.#connection.publishing;
    const load = { isConnected: isUp, isBlocked, inFlight: 0, waiting: 0, waitingBytes: 0 };
    for (const { confirmPublisher, gate } of this.#channels()) {
      load.inFlight += confirmPublisher.load.inFlight;
      load.waiting += confirmPublisher.load.waiting + gate.waiting;
      load.waitingBytes += confirmPublisher.load.waitingBytes;
    }
    return { ...load, fellBack: this.#fellBack };
  }

  /** Takes nothing new, waits for what is on its way, and ends the connection if it is its own. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#fallback?.close();
    await this.#inFlight.idle();
    await Promise.all(this.#channels().map(closePublishChannel));
    if (this.#isOwned) await this.#connection.close();
  }

  /** Plain promises, not async functions: each of those costs every message a turn. */
  #during<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined) {
      const text = 'cannot publish: the publisher is closed';
      return Promise.reject(new RespoolError('engine.stopping', text));
    }
    let done: Promise<T>;
    try {
      done = work();
    } catch (error) {
      done = Promise.reject(asError(error));
    }
    return this.#inFlight.track(done);
  }

  async #result(message: PublishMessage): Promise<PublishResult> {
    try {
      return await this.publish(message);
    } catch (error) {
      const id = (message as PublishMessage | null | undefined)?.id;
      return { id, via: 'nothing', error: asError(error) };
    }
  }

  #begin(publication: Publication): Promise<PublishedMessage> {
    const span = this.#beginSpan(publication);
    if (span === undefined) return this.#through(publication, 0);
    const headers = { ...publication.headers, ...span.headers };
    // Async: what is refused at once ends the span, too.
    return runInSendSpan(span, async () => this.#through({ ...publication, headers }, 0), sentOf);
  }

  #beginSpan({ exchange, key, id, headers, correlationId }: Publication): SendSpan | undefined {
    // Headers of AMQP may be more than texts; a tracer reads the texts.
    return this.#settings.tracer?.send({
      ...exchangePlace(exchange, key, correlationId),
      id,
      headers: headers as Headers,
    });
  }

  #through(publication: Publication, at: number): Promise<PublishedMessage> {
    const wrap = this.#settings.middleware[at];
    if (wrap === undefined) return this.#deliver(publication);
    // Async: what is refused further in is a rejection for them, never thrown.
    const next = async (changed = publication): Promise<PublishedMessage> =>
      this.#through(changed, at + 1);
    return this.#answerOf(wrap(publication, next));
  }

  /** A middleware that forgets to return what `next` gave would hide whether it was published. */
  async #answerOf(answering: Promise<PublishedMessage>): Promise<PublishedMessage> {
    const answer: unknown = await answering;
    if (typeof (answer as Partial<PublishedMessage> | undefined)?.via === 'string') {
      return answer as PublishedMessage;
    }
    throw new RespoolError(
      'config.invalid',
      `the outcome of a message is unknown: a middleware answered ${show(answer)}; ` +
        'return what next() gives, or { id, via }',
    );
  }

  #deliver(publication: Publication): Promise<PublishedMessage> {
    const { id } = publication;
    const outgoing = this.#encode(publication);
    const { length } = outgoing.content;
    const { maxBytes } = this.#settings;
    if (length > maxBytes) {
      throw new RespoolError(
        'limit.exceeded',
        `cannot publish message "${id}": its body has ${length} bytes, allowed are ${maxBytes} ` +
          '("maxBytes"); keep large bodies elsewhere and publish where they are',
      );
    }
    const sent = this.#channel.gate.send(outgoing).then(() => ({ id, via: 'broker' as const }));
    const fallback = this.#fallback;
    if (fallback === undefined) return sent;
    return sent.catch(async (error: unknown) => {
      if (!fallsBack(error)) throw error;
      await this.#keep(fallback, outgoing, error);
      return { id, via: 'spool' };
    });
  }

  #openSeparateChannel(): PublishChannel {
    this.#separateChannel ??= openPublishChannel(this.#connection.publishing, this.#settings);
    return this.#separateChannel;
  }

  #channels(): readonly PublishChannel[] {
    return this.#separateChannel === undefined
      ? [this.#channel]
      : [this.#channel, this.#separateChannel];
  }

  async #keep(fallback: Fallback, outgoing: Outgoing, why: RespoolError): Promise<void> {
    try {
      await fallback.keep(outgoing, why);
      this.#fellBack += 1;
    } catch (error) {
      throw new RespoolError(
        why.code,
        `${why.message}; and the fallback could not keep the message: ${textOf(error)}`,
        { cause: new AggregateError([why, error], 'broker and fallback failed') },
      );
    }
  }

  #encode(publication: Publication): Outgoing {
    const { envelope, encode, deliveryMode, appId } = this.#settings;
    if (envelope === undefined) {
      const content = encode(publication.contentType, publication.body);
      return outgoingOf(publication, content, { deliveryMode, appId });
    }
    const { id, exchange: topic, key: action, body: data, timestamp } = publication;
    if (data instanceof Uint8Array) {
      throw new RespoolError(
        'message.invalid',
        `cannot put message "${id}" into an envelope of GoQueue: its body is bytes, and the ` +
          'envelope is JSON; give a value',
      );
    }
    const { content, properties } = goqueueEnvelope({
      id,
      topic,
      action,
      data,
      timestamp,
      ...(appId === undefined ? {} : { appId }),
    });
    const plain = outgoingOf(publication, content, { deliveryMode, appId });
    const headers = { ...properties.headers, ...publication.headers };
    return { ...plain, properties: { ...plain.properties, ...properties, headers } };
  }
}

function sentOf({ id }: PublishedMessage): { readonly id: string } {
  return { id };
}

/** A confirm publisher, which has a channel of its own, and the gate before it. */
interface PublishChannel {
  readonly confirmPublisher: ConfirmPublisher;
  readonly gate: ConnectionGate;
}

function openPublishChannel(
  connection: ReconnectingConnection,
  settings: PublisherSettings,
): PublishChannel {
  const { clock, limits, exchange, declareAs, fallback, fallbackAfterMs } = settings;
  const confirmPublisher = new ConfirmPublisher(connection, clock, limits);
  const gate = new ConnectionGate({
    connection,
    publisher: confirmPublisher,
    clock,
    limits,
    declare: declareAs === undefined ? undefined : { exchange, type: declareAs },
    stuckAfterMs: fallback === undefined ? undefined : fallbackAfterMs,
  });
  return { confirmPublisher, gate };
}

async function closePublishChannel({ confirmPublisher, gate }: PublishChannel): Promise<void> {
  gate.close();
  const { inFlight, waiting } = confirmPublisher.load;
  const closed = confirmPublisher.close();
  // The rest is in the fallback already and is not awaited.
  if (inFlight + waiting === 0) await closed;
}
