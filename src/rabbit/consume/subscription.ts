/**
 * subscription — one consumer on one channel: deliveries come in, acks go out.
 *
 * Acks of one turn go together (acks.ts). An ack belongs to the channel that delivered; when that
 * is gone, the broker has given the message to somebody else already.
 */

import type { Clock } from '../../ports/clock.ts';
import { endsWithin } from '../../system/wait.ts';
import { Acks } from './acks.ts';
import type { AmqpChannel, AmqpMessage, Table } from '../connection/amqp.ts';
import { CLOSE_TIMEOUT_MS } from '../connection/close-channel.ts';

/** How a consumer subscribes. */
export interface SubscriptionOptions {
  readonly prefetch: number;
  readonly consumerTag?: string;
  readonly exclusive?: boolean;
  readonly priority?: number;
  readonly arguments?: Table;
}

/** A subscription that may end at any time. */
export class Subscription {
  readonly #channel: AmqpChannel;
  readonly #clock: Clock;
  readonly #acks: Acks;
  #consumerTag: string | undefined;
  #isOpen = true;

  constructor(channel: AmqpChannel, clock: Clock) {
    this.#channel = channel;
    this.#clock = clock;
    this.#acks = new Acks({ channel, clock, onLost: () => this.lose() });
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

  /** A message came. */
  note(message: AmqpMessage): void {
    this.#acks.note(message);
  }

  /** Done with it. */
  ack(message: AmqpMessage): void {
    if (this.#isOpen) this.#acks.add(message);
  }

  /** Gives it back. n.b. Not `reject`: that counts as a failure from RabbitMQ 4.3 on. */
  giveBack(message: AmqpMessage): void {
    this.#nack(message, true);
  }

  /** Leaves it to the queue's own roads for what is rejected. */
  reject(message: AmqpMessage): void {
    this.#nack(message, false);
  }

  /** Sends the acks that were collected. */
  flush(): void {
    this.#acks.flush();
  }

  /** No more deliveries; what is open stays ours. */
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

  /** Ends the channel; what was not acked goes back to the queue. */
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

  /** The channel is gone. */
  lose(): void {
    this.#isOpen = false;
    this.#acks.drop();
  }

  #nack(message: AmqpMessage, isBack: boolean): void {
    if (!this.#isOpen) return;
    this.#acks.answered(message);
    try {
      this.#channel.nack(message, false, isBack);
    } catch {
      // A channel that was closed a moment ago throws; its own event tells the rest.
      this.lose();
    }
  }
}
