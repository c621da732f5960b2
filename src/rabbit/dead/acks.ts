/**
 * acks — acks what a pass has done, as many with one command as it can.
 *
 * A quorum queue writes every command to its log, so one ack for a hundred messages costs it a
 * hundredth. An ack of all up to a tag covers whatever the channel was given before it: so that is
 * sent only where everything before was done, and each of the others is acked by itself.
 */

import { assert } from '../../core/errors.ts';
import type { AmqpChannel, AmqpMessage } from '../amqp.ts';

/** Acks of one channel, from its first delivery on. */
export class Acks {
  readonly #channel: AmqpChannel;
  readonly #onError: (error: unknown) => void;
  /** Done in this turn and not acked yet. */
  readonly #fresh = new Map<number, AmqpMessage>();
  /** Acked by themselves, beyond `#wholeTo`. */
  readonly #alone = new Set<number>();
  /** All up to this one are acked. */
  #wholeTo = 0;
  #isWhole = true;

  constructor(channel: AmqpChannel, onError: (error: unknown) => void) {
    this.#channel = channel;
    this.#onError = onError;
  }

  /** It is acked at the end of this turn of the loop. */
  add(message: AmqpMessage): void {
    const { deliveryTag } = message.fields;
    assert(deliveryTag > this.#wholeTo, `message ${deliveryTag} is acked twice`);
    if (this.#fresh.size === 0) process.nextTick(() => this.#flushOrTell());
    this.#fresh.set(deliveryTag, message);
  }

  /** One is left: there will be none of which everything before is done. */
  leave(): void {
    this.#flushOrTell();
    this.#isWhole = false;
    this.#alone.clear();
  }

  /** Sends what was not sent yet. */
  flush(): void {
    if (this.#isWhole) this.#ackWhole();
    for (const [tag, message] of this.#fresh) {
      this.#fresh.delete(tag);
      this.#channel.ack(message);
      if (this.#isWhole) this.#alone.add(tag);
    }
  }

  /** All up to the first one that is not done. */
  #ackWhole(): void {
    let last: AmqpMessage | undefined;
    for (let tag = this.#wholeTo + 1; ; tag += 1) {
      const message = this.#fresh.get(tag);
      if (message === undefined && !this.#alone.delete(tag)) break;
      this.#fresh.delete(tag);
      this.#wholeTo = tag;
      // n.b. The broker refuses the tag of one that is acked already.
      last = message ?? last;
    }
    if (last !== undefined) this.#channel.ack(last, true);
  }

  #flushOrTell(): void {
    try {
      this.flush();
    } catch (error) {
      this.#onError(error);
    }
  }
}
