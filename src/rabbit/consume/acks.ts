/**
 * acks — the acks of one channel, as many with one command as can be.
 *
 * Those of one turn go together: all up to a tag in one frame as far as no earlier delivery is
 * still open, the rest one by one. A quorum queue writes every command to its log, so one ack for
 * a hundred messages costs it a hundredth.
 */

import type { Clock } from '../../ports/clock.ts';
import type { AmqpChannel, AmqpMessage } from '../connection/amqp.ts';

/** What became of a delivery tag. */
const OPEN = 0;
const SETTLED = 1;
const ANSWERED = 2;

/** Past this many answered tags at its head the list is cut. */
const CUT_AT = 1_024;

interface AcksParts {
  readonly channel: AmqpChannel;
  readonly clock: Clock;
  /** A channel that was closed a moment ago throws; its own event tells the rest. */
  readonly onLost: (error: unknown) => void;
}

/** From the first delivery of a channel on. */
export class Acks {
  readonly #parts: AcksParts;
  /** By tag, from `#firstTag` on. */
  #states: number[] = [];
  #firstTag = 1;
  /** The first tag that is still open. */
  #openTag = 1;
  /** The first one that is held: of those behind it nothing is noted. */
  #heldTag = Number.POSITIVE_INFINITY;
  /** Settled since the last flush. */
  #toAck: number[] = [];
  #isFlushing = false;

  constructor(parts: AcksParts) {
    this.#parts = parts;
  }

  /** A message came. n.b. Tags of a channel count from one, without gaps. */
  note({ fields }: AmqpMessage): void {
    this.#set(fields.deliveryTag, OPEN);
  }

  /** Done with it: it is acked at the end of this turn of the loop. */
  add({ fields }: AmqpMessage): void {
    this.#set(fields.deliveryTag, SETTLED);
    this.#toAck.push(fields.deliveryTag);
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    this.#parts.clock.soon(() => this.flush());
  }

  /** The broker has another answer for it. */
  answered({ fields }: AmqpMessage): void {
    this.#set(fields.deliveryTag, ANSWERED);
    // n.b. Not past acks that still have to be sent: a flush leaves out what lies behind.
    if (this.#toAck.length === 0) this.#advance();
  }

  /** It stays open until the channel ends. */
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
      this.#parts.onLost(error);
    }
  }

  /** The channel is gone: nothing is sent any more. */
  drop(): void {
    this.#toAck = [];
    this.#states = [];
  }

  #set(tag: number, state: number): void {
    if (tag < this.#heldTag) this.#states[tag - this.#firstTag] = state;
  }

  /**
   * Moves on to the first open tag; the last tag on the way that the broker has no answer for yet,
   * or 0. n.b. It must be one that is not answered: the broker closes the channel otherwise.
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
    // Only the tag counts.
    this.#parts.channel.ack({ fields: { deliveryTag } } as AmqpMessage, allUpTo);
  }
}
