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
import { backoff, sleep } from '../../system/wait.ts';
import { type AmqpConnection, type AmqpMessage, type AmqpTable } from '../connection/amqp.ts';
import { DeliveryChannel } from '../connection/delivery-channel.ts';
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
interface SubscriptionSettings {
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
interface SubscriptionListener {
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
