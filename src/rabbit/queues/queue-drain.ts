/**
 * queue-drain — goes through a queue in order; each message is left, or acked, or published
 * elsewhere and acked when that is confirmed.
 *
 *   queue-pass ─next()─▶ in hand ─leave()─▶ stays as it was
 *                           └─carry()─▶ published ─confirmed─▶ acked
 *                                           └─ refused, returned, late, unknown ─▶ stays
 *
 * Promise: a message is acked only when its copy is confirmed and routed, or when it is to be gone.
 * A kill at any point leaves it here, there, or in both places, never in none.
 *
 * Three callers decide: drain.ts and sweep-queue.ts through `run`, queue-letters.ts one by one.
 *
 * Words: a message that is carried is taken out by its removal, whose last step is the ack, `done`
 * of queue-pass.ts.
 */

import { asError, RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { InFlight } from '../../system/wait.ts';
import type { AmqpConnection, AmqpMessage, Outgoing } from '../connection/amqp.ts';
import type { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import {
  lostAtTheEnd,
  openPass,
  type PassOrder,
  type QueuePass,
  QueueWalk,
  type WalkOptions,
} from './queue-pass.ts';

/** What to take out of the queue: gone, or published first. */
export type DrainRemoval =
  | { readonly kind: 'ack' }
  | {
      readonly kind: 'publish';
      readonly outgoing: Outgoing;
      /** Called when the copy is confirmed, before the ack. */
      readonly confirmed?: () => Promise<void>;
    };

/** What becomes of a message. */
export type DrainDecision =
  | { readonly kind: 'leave' }
  | (DrainRemoval & {
      /** Called in the turn of the ack. */
      readonly onResult?: (result: CarryResult) => void;
    });

/** What came of taking a message out of the queue. */
export type CarryResult =
  | { readonly kind: 'done' }
  /** Its copy was not sent, or not confirmed: it stays. */
  | { readonly kind: 'stays'; readonly error: Error }
  /** It could not be acked: it may still be in its queue. */
  | { readonly kind: 'unsure'; readonly error: Error };

/** Which messages, and how many of them. */
interface QueueDrainOrder extends PassOrder {
  /** Maximum number of messages to see. */
  readonly see?: number | undefined;
}

export interface QueueDrainTools {
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly publisher: Pick<ConfirmPublisher, 'send'>;
}

/** Begins to go through a queue; close it in any case. */
export async function openDrain(
  { see, signal, ...order }: QueueDrainOrder,
  { connection, clock, publisher }: QueueDrainTools,
): Promise<QueueDrain> {
  // n.b. A signal that comes later ends the walk, not the pass: see queue-pass.ts.
  const isOff = signal?.aborted === true ? { signal } : {};
  const pass = await openPass({ ...order, ...isOff }, { connection, clock });
  return new QueueDrain(order.queue, pass, { max: see, signal }, publisher);
}

/** One way through a queue. */
export class QueueDrain {
  readonly pass: QueuePass;
  readonly #queue: string;
  readonly #walk: QueueWalk;
  readonly #publisher: QueueDrainTools['publisher'];
  readonly #carrying = new InFlight();
  #hasAcked = false;
  #isStopped = false;
  #error: Error | undefined;

  /** @internal Use openDrain. */
  constructor(
    queue: string,
    pass: QueuePass,
    options: WalkOptions,
    publisher: QueueDrainTools['publisher'],
  ) {
    this.#queue = queue;
    this.pass = pass;
    this.#walk = new QueueWalk(pass, options);
    this.#publisher = publisher;
  }

  /** The first error of `run`, or the first that was reported with `fail`. */
  get error(): Error | undefined {
    return this.#error;
  }

  /** Set when the channel was lost after an ack: which acks arrived is unknown. */
  get lostError(): RespoolError | undefined {
    return this.#hasAcked && this.pass.isLost ? lostAtTheEnd(this.#queue) : undefined;
  }

  /** The next message, in hand until it is left or carried; undefined: that is all. */
  next(): Promise<AmqpMessage | undefined> {
    return this.#walk.next();
  }

  /** It stays as it was. */
  leave(message: AmqpMessage): void {
    try {
      this.pass.leave(message);
    } catch (error) {
      // With the channel, the message is back where it was.
      if (!this.pass.isLost) throw error;
    }
  }

  /** Takes it out of the queue. A failure is a result: `run` does not wait for what it returns. */
  carry(
    message: AmqpMessage,
    removal: DrainRemoval,
    onResult?: (result: CarryResult) => void,
  ): Promise<CarryResult> {
    return this.#carrying.track(this.#carry(message, removal, onResult));
  }

  /** No further message is decided about. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Stops with an error; the first one counts. */
  readonly fail = (error: unknown): void => {
    this.#error ??= asError(error);
    this.#isStopped = true;
  };

  /**
   * Decides about one message after the other; what `decide` throws is an error, and the message
   * stays. True: no more came; false: it was stopped.
   */
  async run(
    decide: (message: AmqpMessage) => DrainDecision | Promise<DrainDecision>,
  ): Promise<boolean> {
    try {
      while (!this.#isStopped) {
        const message = await this.next();
        if (message === undefined) return true;
        // n.b. Nothing may stay in hand: the walk goes on for the order's sake, and needs the room.
        const deciding = this.#isStopped ? LEAVE : this.#decide(message, decide);
        // Waits only where it has to: everything else happens at once.
        const decision = deciding instanceof Promise ? await deciding : deciding;
        if (decision.kind === 'leave') this.leave(message);
        else void this.carry(message, decision, decision.onResult);
      }
    } catch (error) {
      this.fail(error);
    }
    return false;
  }

  /** Waits for what is being carried, and gives back the rest in its old order. */
  async close(): Promise<void> {
    // What was published is waited for, so that it is acked when it arrived.
    await this.#carrying.idle();
    await this.#walk.close();
  }

  #decide(
    message: AmqpMessage,
    decide: (message: AmqpMessage) => DrainDecision | Promise<DrainDecision>,
  ): DrainDecision | Promise<DrainDecision> {
    const failed = (error: unknown): DrainDecision => {
      this.fail(error);
      return LEAVE;
    };
    try {
      const deciding = decide(message);
      return deciding instanceof Promise ? deciding.catch(failed) : deciding;
    } catch (error) {
      return failed(error);
    }
  }

  async #carry(
    message: AmqpMessage,
    removal: DrainRemoval,
    onResult?: (result: CarryResult) => void,
  ): Promise<CarryResult> {
    const result = await this.#remove(message, removal);
    onResult?.(result);
    return result;
  }

  async #remove(message: AmqpMessage, removal: DrainRemoval): Promise<CarryResult> {
    // n.b. With its channel the message went back: anyone who sends it now sends it twice.
    if (this.pass.isLost) return { kind: 'stays', error: wentBack() };
    if (removal.kind === 'publish') {
      try {
        await this.#publisher.send(removal.outgoing);
      } catch (error) {
        // Makes room, so that the caller that waits for the next message sees the error.
        this.leave(message);
        return { kind: 'stays', error: asError(error) };
      }
      // Acked even if this fails: its copy is confirmed, and it would be there twice.
      if (removal.confirmed !== undefined) await removal.confirmed().catch(this.fail);
    }
    try {
      // n.b. Throws when the channel is gone; then the message may be there twice, and is not lost.
      this.pass.done(message);
      this.#hasAcked = true;
      return { kind: 'done' };
    } catch (error) {
      return { kind: 'unsure', error: asError(error) };
    }
  }
}

function wentBack(): RespoolError {
  return new RespoolError(
    'broker.unavailable',
    'the connection to the broker was lost, and the message is back in its queue',
  );
}

/** The message stays as it is. */
export const LEAVE: DrainDecision = { kind: 'leave' };
