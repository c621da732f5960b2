/**
 * delivery-channel — a channel that delivers and may be closed at any time, and its acks, collected
 * per turn of the loop.
 *
 * All acks up to a tag go in one frame as far as no earlier delivery is still open, the rest one by
 * one. A quorum queue writes every command to its log, so one ack for a hundred messages costs it a
 * hundredth. An ack belongs to the channel that delivered; once that is closed, the broker delivers
 * the message again.
 *
 * `DeliveryChannel` is used by the subscription of a consumer, `Acks` also by passes through any
 * queue (queues/queue-pass.ts).
 */

import type { Clock } from '../../ports/clock.ts';
import { endsWithin } from '../../system/wait.ts';
import { type AmqpChannel, type AmqpMessage, CLOSE_TIMEOUT_MS } from './amqp.ts';

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

/** The acks of one channel, from its first delivery on. */
export class Acks {
  readonly #channel: AmqpChannel;
  readonly #clock: Clock;
  readonly #onClosed: (error: unknown) => void;
  /** By tag, from `#firstTag` on. */
  #states: number[] = [];
  #firstTag = 1;
  /** The first tag that is still open. */
  #openTag = 1;
  /** The first one that stays unacked: of those behind it nothing is recorded. */
  #unackedTag = Number.POSITIVE_INFINITY;
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
    // n.b. Not past acks that still have to be sent: a flush leaves out what comes after.
    if (this.#toAck.length === 0) this.#advance();
  }

  /** It stays open until the channel is closed. */
  keepUnacked({ fields }: AmqpMessage): void {
    this.#unackedTag = Math.min(this.#unackedTag, fields.deliveryTag);
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
    if (tag < this.#unackedTag) this.#states[tag - this.#firstTag] = state;
  }

  /**
   * Moves on to the first open tag. Returns the last tag on the way that the broker has no answer
   * for yet, or 0. n.b. For an answered tag the broker would close the channel.
   */
  #advance(): number {
    let upTo = 0;
    while (this.#openTag < this.#unackedTag) {
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
