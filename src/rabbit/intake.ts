/**
 * intake — one consumer on one channel: deliveries come in, acks go out.
 *
 * Acks of one turn go together: all up to a tag in one frame as far as no earlier delivery is still
 * open, the rest one by one. An ack belongs to the channel that delivered; when that is gone, the
 * broker has given the message to somebody else already.
 */

import type { Clock } from '../ports/clock.ts';
import type { AmqpChannel, AmqpMessage, Table } from './amqp.ts';
import { atMost, GOODBYE_MS } from './patience.ts';

/** What became of a delivery tag. */
const OPEN = 0;
const SETTLED = 1;
const ANSWERED = 2;

/** Past so many answered tags at its head the list is cut. */
const CUT_AT = 1_024;

/** How a consumer subscribes. */
export interface Subscription {
  readonly prefetch: number;
  readonly consumerTag?: string;
  readonly exclusive?: boolean;
  readonly priority?: number;
  readonly arguments?: Table;
}

/** A subscription that may end at any time. */
export class Intake {
  readonly #channel: AmqpChannel;
  readonly #clock: Clock;
  #consumerTag: string | undefined;
  #isOpen = true;
  /** By tag, from `#firstTag` on. */
  #states: number[] = [];
  #firstTag = 1;
  /** The first tag that is still open. */
  #openTag = 1;
  /** Settled since the last flush. */
  #toAck: number[] = [];
  #isFlushing = false;

  constructor(channel: AmqpChannel, clock: Clock) {
    this.#channel = channel;
    this.#clock = clock;
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

  /** A message came. n.b. Tags of a channel count from one, without gaps. */
  note(message: AmqpMessage): void {
    this.#states[message.fields.deliveryTag - this.#firstTag] = OPEN;
  }

  /** Done with it. */
  ack({ fields }: AmqpMessage): void {
    if (!this.#isOpen) return;
    this.#states[fields.deliveryTag - this.#firstTag] = SETTLED;
    this.#toAck.push(fields.deliveryTag);
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    this.#clock.soon(() => this.flush());
  }

  /** Gives it back. n.b. Not `reject`: that counts as a failure from RabbitMQ 4.3 on. */
  giveBack(message: AmqpMessage): void {
    if (!this.#isOpen) return;
    this.#states[message.fields.deliveryTag - this.#firstTag] = ANSWERED;
    this.#try(() => this.#channel.nack(message, false, true));
    // n.b. Not past acks that still have to be sent: a flush leaves out what lies behind.
    if (this.#toAck.length === 0) this.#advance();
  }

  /** Leaves it to the queue's own roads for what is rejected. */
  reject(message: AmqpMessage): void {
    if (!this.#isOpen) return;
    this.#states[message.fields.deliveryTag - this.#firstTag] = ANSWERED;
    this.#try(() => this.#channel.nack(message, false, false));
  }

  /** Sends the acks that were collected. */
  flush(): void {
    this.#isFlushing = false;
    if (!this.#isOpen || this.#toAck.length === 0) return;
    const upTo = this.#advance();
    const tags = this.#toAck;
    this.#toAck = [];
    this.#try(() => {
      if (upTo > 0) this.#ackTag(upTo, true);
      for (const tag of tags) {
        if (tag < this.#openTag) continue;
        this.#states[tag - this.#firstTag] = ANSWERED;
        this.#ackTag(tag, false);
      }
    });
  }

  /** No more deliveries; what is open stays ours. */
  async cancel(): Promise<void> {
    const tag = this.#consumerTag;
    this.#consumerTag = undefined;
    if (!this.#isOpen || tag === undefined) return;
    await atMost(
      this.#clock,
      GOODBYE_MS,
      this.#ask(() => this.#channel.cancel(tag)),
    );
  }

  /** Ends the channel; what was not acked goes back to the queue. */
  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.flush();
    this.lose();
    await atMost(
      this.#clock,
      GOODBYE_MS,
      this.#ask(() => this.#channel.close()),
    );
  }

  /** n.b. A channel that is closing already throws instead of rejecting. */
  async #ask(call: () => Promise<unknown>): Promise<void> {
    await call();
  }

  /** The channel is gone. */
  lose(): void {
    this.#isOpen = false;
    this.#toAck = [];
    this.#states = [];
  }

  /**
   * Moves on to the first open tag; the last tag on the way that the broker has no answer for yet,
   * or 0. n.b. It must be one that is not answered: the broker closes the channel otherwise.
   */
  #advance(): number {
    let upTo = 0;
    for (;;) {
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

  #ackTag(deliveryTag: number, allUpTo: boolean): void {
    // Only the tag counts.
    this.#channel.ack({ fields: { deliveryTag } } as AmqpMessage, allUpTo);
  }

  /** A channel that was closed a moment ago throws; its own event tells the rest. */
  #try(send: () => void): void {
    try {
      send();
    } catch {
      this.lose();
    }
  }
}
