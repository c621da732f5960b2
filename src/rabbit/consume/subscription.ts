/**
 * subscription — keeps one consumer subscribed to its queue: a subscription that ends comes back by
 * itself, and with it the topology.
 *
 *   idle ─open()─▶ subscribed ─channel lost, cancelled─▶ retrying ─▶ subscribed
 *     └──────── resume() ◀── ceased ◀─cease()──┘
 *
 * Deliveries come in and acks go out on one `DeliveryChannel`. After `cease` it stays open, so that
 * what still runs can be settled on it.
 */

import { asError, RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { backoff, sleep, endsWithin } from '../../system/wait.ts';
import {
  type AmqpConnection,
  type AmqpMessage,
  type AmqpTable,
  type AmqpChannel,
  CLOSE_TIMEOUT_MS,
} from '../connection/amqp.ts';
import type { ReconnectingConnection } from '../connection/reconnecting-connection.ts';
import { explainRefusal } from '../topology/explain.ts';
import type { QueuePlan } from '../topology/model.ts';

/** How a consumer subscribes. */
export interface SubscribeOptions {
  readonly prefetch: number;
  readonly consumerTag?: string;
  readonly exclusive?: boolean;
  readonly priority?: number;
  readonly arguments?: AmqpTable;
}

/** What a subscription is to, and over which connection. */
export interface SubscriptionSettings {
  readonly connection: ReconnectingConnection;
  readonly clock: Clock;
  readonly plan: QueuePlan;
  readonly subscribe: SubscribeOptions;
  /** Declares or verifies the topology, over this connection. */
  readonly prepare: (connection: AmqpConnection) => Promise<void>;
  /** An error after which the same is tried again. */
  readonly onTrouble: (doing: string, error: Error) => void;
}

/** What a subscription reports. */
export interface SubscriptionListener {
  onMessage(message: AmqpMessage, channel: DeliveryChannel): void;
  /** The channel is closed: the broker delivers again what was not acked on it. */
  onLost(channel: DeliveryChannel): void;
  /** Called every minute while subscribed. */
  onCheck(): void;
}

/** The wait before the next try to subscribe. */
const RETRY = { firstMs: 100, maxMs: 5_000 };
/** The interval between checks of the topology. */
const CHECK_EVERY_MS = 60_000;
/** Tries of the first subscription when the connection is lost meanwhile. */
const OPEN_TRIES_MAX = 5;

/** The subscription of one consumer. */
export class Subscription {
  readonly #settings: SubscriptionSettings;
  readonly #listener: SubscriptionListener;
  #channel: DeliveryChannel | undefined;
  #isWanted = false;
  #subscribing: Promise<void> | undefined;
  #isRestoring = false;
  /** Ends every wait with `cease`. */
  #ceasing = new AbortController();
  #cancelCheck: (() => void) | undefined;

  constructor(settings: SubscriptionSettings, listener: SubscriptionListener) {
    this.#settings = settings;
    this.#listener = listener;
  }

  get isActive(): boolean {
    return this.#channel?.isConsuming === true;
  }

  /** Whether deliveries are to be handled: false before `open` and after `cease`. */
  get isWanted(): boolean {
    return this.#isWanted;
  }

  /** Sleeps, at most until `cease`. */
  sleep(ms: number): Promise<void> {
    return sleep(this.#settings.clock, ms, this.#ceasing.signal);
  }

  /** Subscribes for the first time and throws what fails. Later it comes back by itself. */
  async open(): Promise<void> {
    this.#want();
    const opening = this.#open();
    // A `cease` in the meantime waits for it.
    this.#subscribing = opening
      .catch(() => undefined)
      .finally(() => {
        this.#subscribing = undefined;
      });
    await opening;
  }

  /** Subscribes again after `cease`. */
  resume(): void {
    this.#want();
    this.#comeBack();
  }

  /** Ends the deliveries; the channel stays open. */
  async cease(): Promise<void> {
    this.#isWanted = false;
    this.#cancelCheck?.();
    this.#ceasing.abort();
    await this.#subscribing;
    await this.#channel?.cancel();
  }

  /** Closes the channel. What was not settled goes back to the queue. */
  async close(): Promise<void> {
    const channel = this.#channel;
    this.#channel = undefined;
    await channel?.close();
  }

  /** A route is missing: it was removed from the broker. Declares the topology again. */
  restoreTopology(): void {
    const { connection, prepare, onTrouble } = this.#settings;
    if (this.#isRestoring || connection.current === undefined) return;
    this.#isRestoring = true;
    void prepare(connection.current)
      .catch((error: unknown) => onTrouble('restoring the topology', asError(error)))
      .finally(() => {
        this.#isRestoring = false;
      });
  }

  #want(): void {
    this.#isWanted = true;
    if (this.#ceasing.signal.aborted) this.#ceasing = new AbortController();
  }

  async #open(): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      const { connection } = this.#settings;
      let amqp: AmqpConnection | undefined;
      try {
        amqp = await connection.tryConnect();
        return await this.#subscribe(amqp);
      } catch (error) {
        // n.b. A broker may end the connection while others declare the same quorum queue.
        const isLost = amqp !== undefined && amqp !== connection.current;
        if (!isLost || tries >= OPEN_TRIES_MAX || !this.#isWanted) {
          this.#isWanted = false;
          throw error;
        }
        await this.sleep(RETRY.firstMs);
      }
    }
  }

  #comeBack(): void {
    if (this.#subscribing !== undefined || !this.#isWanted || this.isActive) return;
    this.#subscribing = this.#retrySubscribing().finally(() => {
      this.#subscribing = undefined;
      // It may have been lost once more, or resumed, in the meantime.
      this.#comeBack();
    });
  }

  async #retrySubscribing(): Promise<void> {
    const { connection, plan, onTrouble } = this.#settings;
    const retry = backoff(RETRY);
    while (this.#isWanted && !this.isActive) {
      try {
        await this.#subscribe(await connection.connected(this.#ceasing.signal));
      } catch (error) {
        if (!this.#isWanted) break;
        onTrouble(`subscribing to queue "${plan.queue}"`, asError(error));
        await this.sleep(retry.next());
      }
    }
  }

  async #subscribe(amqp: AmqpConnection): Promise<void> {
    const { prepare, plan, subscribe } = this.#settings;
    await prepare(amqp);
    // After `cease` the channel is still open, with what runs.
    const kept = this.#channel?.isOpen === true ? this.#channel : undefined;
    const channel = kept ?? (await this.#openChannel(amqp));
    const { prefetch: _, ...options } = subscribe;
    const onMessage = (message: AmqpMessage | null): void => {
      if (message === null) this.#cancelled(channel);
      else {
        channel.note(message);
        this.#listener.onMessage(message, channel);
      }
    };
    this.#channel = channel;
    try {
      await channel.consume(plan.queue, onMessage, options);
      this.#scheduleCheck();
    } catch (error) {
      this.#channel = undefined;
      await channel.close();
      throw explainRefusal(error, { act: 'consume', what: 'queue', name: plan.queue });
    }
  }

  async #openChannel(amqp: AmqpConnection): Promise<DeliveryChannel> {
    const { clock, subscribe } = this.#settings;
    const amqpChannel = await amqp.createChannel();
    const channel = new DeliveryChannel(amqpChannel, clock);
    let reason: Error | undefined;
    amqpChannel.on('error', (error: unknown) => {
      reason = asError(error);
    });
    amqpChannel.on('close', () => this.#lost(channel, reason));
    await amqpChannel.prefetch(subscribe.prefetch);
    return channel;
  }

  /**
   * The route back from a wait queue is used by the broker and not by us, so only a check notices
   * that it is missing.
   */
  #scheduleCheck(): void {
    this.#cancelCheck?.();
    this.#cancelCheck = this.#settings.clock.after(CHECK_EVERY_MS, () => {
      if (!this.isActive) return;
      this.restoreTopology();
      this.#listener.onCheck();
      this.#scheduleCheck();
    });
  }

  /** The broker ended the consumer: the queue was deleted, or a delivery took too long. */
  #cancelled(channel: DeliveryChannel): void {
    if (!channel.isOpen) return;
    const error = new RespoolError(
      'broker.unavailable',
      `the broker ended the subscription to queue "${this.#settings.plan.queue}"; it was deleted ` +
        'or moved, or a delivery took longer than its consumer timeout',
    );
    this.#settings.onTrouble('consuming', error);
    void channel.close().then(() => this.#lost(channel, undefined));
  }

  #lost(channel: DeliveryChannel, reason: Error | undefined): void {
    channel.lose();
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    this.#cancelCheck?.();
    this.#listener.onLost(channel);
    if (reason !== undefined) this.#settings.onTrouble('consuming', reason);
    this.#comeBack();
  }
}

/** A channel that may be closed at any time. */
export class DeliveryChannel {
  readonly #channel: AmqpChannel;
  readonly #clock: Clock;
  readonly #acks: Acks;
  #consumerTag: string | undefined;
  #isOpen = true;

  constructor(channel: AmqpChannel, clock: Clock) {
    this.#channel = channel;
    this.#clock = clock;
    this.#acks = new Acks(channel, clock, () => this.lose());
  }

  /** Whether the broker still counts its deliveries as ours. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether deliveries come. */
  get isConsuming(): boolean {
    return this.#isOpen && this.#consumerTag !== undefined;
  }

  /** Subscribes; also again after `cancel`, on the channel that open deliveries belong to. */
  async consume(
    queue: string,
    onMessage: (message: AmqpMessage | null) => void,
    options: Parameters<AmqpChannel['consume']>[2],
  ): Promise<void> {
    const { consumerTag } = await this.#channel.consume(queue, onMessage, options);
    this.#consumerTag = consumerTag;
  }

  /** Registers a delivery. */
  note(message: AmqpMessage): void {
    this.#acks.note(message);
  }

  /** Acks at the end of this turn of the loop. */
  ack(message: AmqpMessage): void {
    if (this.#isOpen) this.#acks.add(message);
  }

  /** Requeues it. n.b. Not with `reject`: RabbitMQ 4.3 and later count that as a failure. */
  giveBack(message: AmqpMessage): void {
    this.#nack(message, true);
  }

  /** Rejects it: the broker drops it, or dead-letters it by the arguments of the queue. */
  reject(message: AmqpMessage): void {
    this.#nack(message, false);
  }

  /** Sends the acks that were collected. */
  flush(): void {
    this.#acks.flush();
  }

  /** Ends the deliveries; open ones stay ours. */
  async cancel(): Promise<void> {
    const tag = this.#consumerTag;
    this.#consumerTag = undefined;
    if (!this.#isOpen || tag === undefined) return;
    await endsWithin(
      this.#clock,
      CLOSE_TIMEOUT_MS,
      this.#ask(() => this.#channel.cancel(tag)),
    );
  }

  /** Closes the channel; what was not acked goes back to the queue. */
  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.flush();
    this.lose();
    await endsWithin(
      this.#clock,
      CLOSE_TIMEOUT_MS,
      this.#ask(() => this.#channel.close()),
    );
  }

  /** n.b. A channel that is closing already throws instead of rejecting. */
  async #ask(call: () => Promise<unknown>): Promise<void> {
    await call();
  }

  /** The channel was closed. */
  lose(): void {
    this.#isOpen = false;
    this.#acks.drop();
  }

  #nack(message: AmqpMessage, isRequeued: boolean): void {
    if (!this.#isOpen) return;
    this.#acks.answered(message);
    try {
      this.#channel.nack(message, false, isRequeued);
    } catch {
      // A channel that has just been closed throws; its `close` event does the rest.
      this.lose();
    }
  }
}

/** States of a delivery tag. */
const OPEN = 0;
const SETTLED = 1;
const ANSWERED = 2;

/** Answered tags at the head of the list before it is cut. */
const CUT_AT = 1_024;

/**
 * The acks of one channel, from its first delivery on; used by passes through dead queues, too.
 *
 * Acks of one turn of the loop go together: all up to a tag in one frame as far as no earlier
 * delivery is still open, the rest one by one. A quorum queue writes every command to its log, so
 * one ack for a hundred messages costs it a hundredth. An ack belongs to the channel that
 * delivered; once that is closed, the broker delivers the message again.
 */
export class Acks {
  readonly #channel: AmqpChannel;
  readonly #clock: Clock;
  readonly #onClosed: (error: unknown) => void;
  /** By tag, from `#firstTag` on. */
  #states: number[] = [];
  #firstTag = 1;
  /** The first tag that is still open. */
  #openTag = 1;
  /** The first one that is kept open: of those behind it nothing is recorded. */
  #heldTag = Number.POSITIVE_INFINITY;
  /** Settled since the last flush. */
  #toAck: number[] = [];
  #isFlushing = false;

  /** `onClosed` is called when the channel throws because it has just been closed. */
  constructor(channel: AmqpChannel, clock: Clock, onClosed: (error: unknown) => void) {
    this.#channel = channel;
    this.#clock = clock;
    this.#onClosed = onClosed;
  }

  /** Registers a delivery. n.b. Tags of a channel count from one, without gaps. */
  note({ fields }: AmqpMessage): void {
    this.#set(fields.deliveryTag, OPEN);
  }

  /** Acks at the end of this turn of the loop. */
  add({ fields }: AmqpMessage): void {
    this.#set(fields.deliveryTag, SETTLED);
    this.#toAck.push(fields.deliveryTag);
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    this.#clock.soon(() => this.flush());
  }

  /** The broker got another answer for it. */
  answered({ fields }: AmqpMessage): void {
    this.#set(fields.deliveryTag, ANSWERED);
    // n.b. Not past acks that still have to be sent: a flush leaves out what lies behind.
    if (this.#toAck.length === 0) this.#advance();
  }

  /** It stays open until the channel is closed. */
  hold({ fields }: AmqpMessage): void {
    this.#heldTag = Math.min(this.#heldTag, fields.deliveryTag);
  }

  /** Sends the acks that were collected. */
  flush(): void {
    this.#isFlushing = false;
    if (this.#toAck.length === 0) return;
    const upTo = this.#advance();
    const tags = this.#toAck;
    this.#toAck = [];
    try {
      if (upTo > 0) this.#ack(upTo, true);
      for (const tag of tags) {
        if (tag < this.#openTag) continue;
        this.#set(tag, ANSWERED);
        this.#ack(tag, false);
      }
    } catch (error) {
      this.#onClosed(error);
    }
  }

  /** The channel was closed: nothing is sent any more. */
  drop(): void {
    this.#toAck = [];
    this.#states = [];
  }

  #set(tag: number, state: number): void {
    if (tag < this.#heldTag) this.#states[tag - this.#firstTag] = state;
  }

  /**
   * Moves on to the first open tag. Returns the last tag on the way that the broker has no answer
   * for yet, or 0. n.b. For an answered tag the broker would close the channel.
   */
  #advance(): number {
    let upTo = 0;
    while (this.#openTag < this.#heldTag) {
      const state = this.#states[this.#openTag - this.#firstTag];
      if (state === undefined || state === OPEN) break;
      if (state === SETTLED) upTo = this.#openTag;
      this.#openTag += 1;
    }
    const answered = this.#openTag - this.#firstTag;
    if (answered >= CUT_AT) {
      this.#states = this.#states.slice(answered);
      this.#firstTag = this.#openTag;
    }
    return upTo;
  }

  #ack(deliveryTag: number, allUpTo: boolean): void {
    // amqplib reads only the tag.
    this.#channel.ack({ fields: { deliveryTag } } as AmqpMessage, allUpTo);
  }
}
