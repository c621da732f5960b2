/**
 * queue-pass — goes once through what is in a queue, oldest first, and leaves the rest as it was
 * (`QueuePass`); the same where the end may come early (`QueueWalk`).
 *
 *   queue ─deliver─▶ arrived ─next()─▶ in hand ─done()─▶ acked
 *                                        └─leave()─▶ held ─close()─▶ back, in the old order
 *
 * Promise: never more than were there at the beginning, each once. What is left is held unacked
 * until the end, so that it is not seen twice; here it costs a tag, not its body. A kill gives back
 * everything that was not done. How the order is kept: requeue-order.ts.
 */

import { MINUTE_MS } from '../../core/duration.ts';
import { asError, assert, RespoolError, show } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import {
  type AmqpChannel,
  type AmqpConnection,
  type AmqpMessage,
  closeChannel,
  openChannel,
} from '../connection/amqp.ts';
import { Acks } from '../connection/delivery-channel.ts';
import { explainRefusal } from '../topology/explain.ts';
import { type RequeueBlock, RequeueBlocks } from './requeue-order.ts';

/** As the comment of `heldMax` says. */
const HELD_MAX_DEFAULT = 100_000;
/**
 * A pass ends after this: the broker closes the channel of a consumer that holds a message for 30
 * minutes. Also in docs/reference/dead-letters.md.
 */
const PASS_MAX_MS = 10 * MINUTE_MS;
/** After this long without a message, we ask how many are left. */
const QUIET_MS = 1_000;
/** Quiet spans in a row, with messages left, after which it ends: others get them (`quiet`). */
const QUIET_MAX = 3;
/** Given messages are dropped from the list of arrivals when there are this many, or no others. */
const GIVEN_MAX = 256;

/** Which messages to go through. */
export interface PassOrder {
  readonly queue: string;
  /** In hand at once: given and neither left nor done. */
  readonly window: number;
  /**
   * How large a message is, about. With it as many as fit into some memory are taken at once, so
   * that even a killed process leaves the order as it was; for passes that go through everything.
   */
  readonly averageBytes?: number | undefined;
  /** Left ones held at once; default 100,000. Beyond it the pass ends with `held`. */
  readonly heldMax?: number | undefined;
  /** Maximum number that is examined. */
  readonly max?: number | undefined;
  /** A pass ends after this; default 10 minutes. */
  readonly maxMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Hears of each message as it comes, long before it may be given. */
  readonly onArrival?: ((message: AmqpMessage) => void) | undefined;
}

/**
 * Why no more came: all were seen, `max` were, the signal fired, nothing came though there are
 * messages, too many are held, or the time is over.
 */
export type PassEnd = 'done' | 'max' | 'aborted' | 'quiet' | 'held' | 'time';

/** One pass through a queue. Iterate once, settle every message, close. */
export interface QueuePass extends AsyncIterable<AmqpMessage> {
  /** How many there were at the beginning; never more are given. */
  readonly total: number;
  /** undefined while there may be more. */
  readonly end: PassEnd | undefined;
  /** Whether the channel was lost: the broker may not know what was done last. */
  readonly isLost: boolean;
  /** Maximum number of messages done last that the broker may still hold for us. */
  readonly unsure: number;
  /** It stays where it is. */
  leave(message: AmqpMessage): void;
  /** Acks it at the end of this turn; throws `broker.unavailable` when the channel is lost. */
  done(message: AmqpMessage): void;
  /** Gives back everything left or in hand, in the old order. */
  close(): Promise<void>;
}

interface PassTools {
  readonly connection: AmqpConnection;
  readonly clock: Clock;
}

/** Begins a pass. */
export async function openPass(order: PassOrder, tools: PassTools): Promise<QueuePass> {
  const channel = await openChannel(tools.connection);
  const { messageCount, consumerCount } = await channel
    .checkQueue(order.queue)
    .catch((error: unknown) => {
      throw explainRefusal(error, { act: 'check', what: 'queue', name: order.queue });
    });
  const pass = new OpenQueuePass(order, tools.clock, {
    connection: tools.connection,
    channel,
    total: messageCount,
    others: consumerCount,
  });
  try {
    await pass.begin();
  } catch (error) {
    await pass.close();
    throw error;
  }
  return pass;
}

interface Beginning {
  readonly connection: AmqpConnection;
  readonly channel: AmqpChannel;
  readonly total: number;
  /** Consumers of others. */
  readonly others: number;
}

interface Waiter {
  readonly resolve: (next: IteratorResult<AmqpMessage, undefined>) => void;
  readonly reject: (error: Error) => void;
}

class OpenQueuePass implements QueuePass {
  readonly total: number;
  readonly #order: PassOrder;
  readonly #clock: Clock;
  readonly #channel: AmqpChannel;
  readonly #goal: number;
  readonly #heldMax: number;
  readonly #blocks: RequeueBlocks;
  readonly #acks: Acks;
  readonly #inHand = new Map<number, RequeueBlock>();
  /** Arrived and not given yet; those before `#next` are given. */
  readonly #arrivals: AmqpMessage[] = [];
  #next = 0;
  #arrived = 0;
  #given = 0;
  #done = 0;
  #largestBytes = 1;
  #end: PassEnd | undefined;
  #error: Error | undefined;
  #waiter: Waiter | undefined;
  #arrivedAtLastLook = 0;
  #quietSpans = 0;
  #closed: Promise<void> | undefined;
  #isGivingBack = false;
  #isLost = false;
  #stopWatch: () => void = () => undefined;
  #stopLimit: () => void = () => undefined;
  readonly #onAbort = (): void => this.#finish('aborted');

  constructor(order: PassOrder, clock: Clock, from: Beginning) {
    this.#order = order;
    this.#clock = clock;
    this.#channel = from.channel;
    const onLost = (error: unknown): void => this.#fail(this.#lost(error));
    this.#acks = new Acks(from.channel, clock, onLost);
    this.total = from.total;
    const { queue, window, averageBytes } = order;
    const onMessage = (message: AmqpMessage | null): void => this.#take(message);
    this.#blocks = new RequeueBlocks({ queue, window, averageBytes, clock, ...from, onMessage });
    this.#goal = Math.min(from.total, order.max ?? from.total);
    this.#heldMax = order.heldMax ?? HELD_MAX_DEFAULT;
  }

  get end(): PassEnd | undefined {
    return this.#end;
  }

  get isLost(): boolean {
    return this.#isLost;
  }

  /**
   * n.b. The broker gives the last consumer at most its size unacked. Of these, what is neither
   * held, nor in hand, nor waiting was acked by us, and the broker may not have applied that.
   */
  get unsure(): number {
    const waiting = this.#arrivals.length - this.#next;
    return Math.max(0, this.#blocks.room - this.#inHand.size - waiting);
  }

  async begin(): Promise<void> {
    const { signal, maxMs = PASS_MAX_MS } = this.#order;
    this.#channel.on('close', () => {
      this.#isLost ||= !this.#isGivingBack;
      this.#fail(this.#lost());
    });
    if (signal?.aborted === true) this.#finish('aborted');
    else if (this.#goal === 0) this.#finish(this.total === 0 ? 'done' : 'max');
    if (this.#isOver) return;
    signal?.addEventListener('abort', this.#onAbort);
    this.#stopLimit = this.#clock.after(maxMs, () => this.#finish('time'));
    await this.#addConsumer();
    this.#watch();
  }

  [Symbol.asyncIterator](): AsyncIterator<AmqpMessage, undefined> {
    return { next: () => this.#ask() };
  }

  leave(message: AmqpMessage): void {
    const block = this.#settle(message);
    this.#acks.keepUnacked(message);
    this.#blocks.hold(block, message.fields.deliveryTag);
    if (this.#blocks.held >= this.#heldMax) this.#finish('held');
    else this.#widen();
    this.#wake();
  }

  done(message: AmqpMessage): void {
    this.#settle(message);
    if (this.#error !== undefined) throw this.#error;
    this.#done += 1;
    this.#acks.add(message);
    this.#wake();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  get #isOver(): boolean {
    return this.#end !== undefined || this.#error !== undefined;
  }

  #settle({ fields: { deliveryTag } }: AmqpMessage): RequeueBlock {
    const block = this.#inHand.get(deliveryTag);
    assert(block !== undefined, `message ${deliveryTag} of a pass is settled twice`);
    this.#inHand.delete(deliveryTag);
    return block;
  }

  #ask(): Promise<IteratorResult<AmqpMessage, undefined>> {
    assert(this.#waiter === undefined, 'two ask for the next message of a pass');
    return new Promise((resolve, reject) => {
      this.#waiter = { resolve, reject };
      this.#wake();
    });
  }

  /** Gives the next message to the caller that waits for it, or says that there is none. */
  #wake(): void {
    const waiter = this.#waiter;
    if (waiter === undefined) return;
    if (this.#end !== undefined) this.#answer({ done: true, value: undefined });
    else if (this.#error !== undefined) {
      this.#waiter = undefined;
      waiter.reject(this.#error);
    } else if (this.#inHand.size < this.#order.window) {
      const message = this.#arrivals[this.#next];
      if (message !== undefined) this.#give(message);
    }
  }

  #give(message: AmqpMessage): void {
    this.#next += 1;
    if (this.#next >= GIVEN_MAX || this.#next === this.#arrivals.length) {
      this.#arrivals.splice(0, this.#next);
      this.#next = 0;
    }
    this.#given += 1;
    this.#inHand.set(message.fields.deliveryTag, this.#blocks.of(message));
    this.#answer({ done: false, value: message });
    if (this.#given >= this.#goal) this.#finish(this.#goal < this.total ? 'max' : 'done');
  }

  #answer(result: IteratorResult<AmqpMessage, undefined>): void {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter?.resolve(result);
  }

  /** Opens the next consumer when the last one holds as much as it can. */
  #widen(): void {
    if (this.#isOver || this.#arrived >= this.#goal || !this.#blocks.isFull) return;
    this.#addConsumer().catch((error: unknown) => this.#fail(asError(error)));
  }

  #addConsumer(): Promise<void> {
    const atMost = this.#goal - this.#arrived;
    const mayHold = Math.min(atMost, this.#heldMax - this.#blocks.held);
    return this.#blocks.add({ atMost, largestBytes: this.#largestBytes, mayHold });
  }

  #take(message: AmqpMessage | null): void {
    if (message === null) {
      this.#fail(this.#lost());
      return;
    }
    this.#acks.note(message);
    this.#arrivals.push(message);
    this.#arrived += 1;
    this.#order.onArrival?.(message);
    this.#largestBytes = Math.max(this.#largestBytes, message.content.length);
    this.#quietSpans = 0;
    this.#wake();
  }

  #finish(end: PassEnd): void {
    if (this.#isOver) return;
    this.#end = end;
    this.#rest();
    this.#wake();
  }

  #fail(error: Error): void {
    this.#error ??= error;
    this.#rest();
    this.#wake();
  }

  #rest(): void {
    this.#stopWatch();
    this.#stopLimit();
    this.#order.signal?.removeEventListener('abort', this.#onAbort);
  }

  /** Others may take messages too, or their time runs out: then fewer come than were counted. */
  #watch(): void {
    this.#stopWatch = this.#clock.after(QUIET_MS, () => {
      void this.#lookAround().finally(() => {
        if (!this.#isOver) this.#watch();
      });
    });
  }

  async #lookAround(): Promise<void> {
    const { length } = this.#arrivals;
    const isQuiet = this.#arrived === this.#arrivedAtLastLook && this.#inHand.size + length === 0;
    this.#arrivedAtLastLook = this.#arrived;
    if (!isQuiet || this.#blocks.isAdding) return;
    try {
      const { messageCount } = await this.#channel.checkQueue(this.#order.queue);
      if (this.#arrived !== this.#arrivedAtLastLook) return;
      this.#quietSpans += 1;
      if (messageCount === 0) this.#finish('done');
      else if (this.#quietSpans >= QUIET_MAX) this.#finish('quiet');
    } catch (error) {
      this.#fail(this.#lost(error));
    }
  }

  async #close(): Promise<void> {
    this.#finish('aborted');
    try {
      this.#acks.flush();
      if (this.#blocks.isUsed) await this.#blocks.settled(() => Math.min(this.#done, this.unsure));
      for (const [tag, block] of this.#inHand) this.#blocks.hold(block, tag);
      for (const message of this.#arrivals.slice(this.#next)) {
        this.#blocks.hold(this.#blocks.of(message), message.fields.deliveryTag);
      }
      this.#isGivingBack = true;
      if (this.#blocks.isUsed) await this.#blocks.giveBack();
      else await closeChannel(this.#channel);
    } catch {
      // The channel or the queue was lost on the way: then everything is given back.
      await closeChannel(this.#channel);
    }
    this.#error ??= this.#lost();
  }

  #lost(cause?: unknown): RespoolError {
    return new RespoolError(
      'broker.unavailable',
      `cannot continue with the messages of the queue ${show(this.#order.queue)}: the channel ` +
        `was ` +
        'lost or the queue deleted; what was not done is still in the queue: start again',
      { cause },
    );
  }
}

/** The error of a pass whose channel was lost after an ack: which acks arrived is unknown. */
export function lostAtTheEnd(queue: string): RespoolError {
  return new RespoolError(
    'broker.unavailable',
    `cannot tell whether all that was done is gone from the queue ${show(queue)}: the channel ` +
      'was lost or the queue deleted at the end; the last ones may be there twice: start again',
  );
}

// A pass that may be left early, and still leaves the order of the queue as it was.
//
// n.b. A quorum queue keeps what was given back in a list of its own, before all others, and puts
// what comes back at its end. A look at the first ten of a hundred that were all given back
// before would find them behind the other ninety. So a walk goes on, without a look, until it comes
// to a message that was never given back. (3.10.8 and 4.0.5, 2026-11-16; classic queues have no
// such list.) Beyond what a pass may hold it cannot: then those that were looked at come after the
// others.

/** How far to go. */
export interface WalkOptions {
  /** Maximum number of messages to see. */
  readonly max?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

type Step = IteratorResult<AmqpMessage, unknown>;

/** One walk through a queue; settle what it returns with its pass, then close it. */
export class QueueWalk {
  readonly pass: QueuePass;
  readonly #options: WalkOptions;
  readonly #steps: AsyncIterator<AmqpMessage, unknown>;
  /** The next one was asked for, and did not come before the signal. */
  #asked: Promise<Step> | undefined;
  #onAbort: () => void = () => undefined;
  // n.b. One listener for all messages: one per message costs as much as sending it.
  readonly #listen = (): void => this.#onAbort();
  #seen = 0;
  /** The last one had been given back before: others may have been so, too. */
  #isAmongReturned = false;
  #closed: Promise<void> | undefined;

  constructor(pass: QueuePass, options: WalkOptions = {}) {
    this.pass = pass;
    this.#options = options;
    this.#steps = pass[Symbol.asyncIterator]();
    options.signal?.addEventListener('abort', this.#listen);
  }

  /** The next message; undefined: that is all, or all that was asked for. */
  async next(): Promise<AmqpMessage | undefined> {
    const { max = Number.POSITIVE_INFINITY, signal } = this.#options;
    if (signal?.aborted === true || this.#seen >= max) return undefined;
    const asked = this.#steps.next();
    this.#asked = asked;
    const step = await new Promise<Step | undefined>((resolve, reject) => {
      this.#onAbort = () => resolve(undefined);
      // A close of the walk meanwhile does not wait for it.
      asked.then(resolve, reject);
    });
    if (step === undefined) return undefined;
    this.#asked = undefined;
    return this.#take(step);
  }

  /** Gives back what was left or is in hand, in the old order. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  #take({ done, value }: Step): AmqpMessage | undefined {
    if (done === true) {
      this.#isAmongReturned = false;
      return undefined;
    }
    this.#seen += 1;
    this.#isAmongReturned = wasReturned(value);
    return value;
  }

  async #close(): Promise<void> {
    try {
      while (this.#isAmongReturned) {
        const asked = this.#asked ?? this.#steps.next();
        this.#asked = undefined;
        const message = this.#take(await asked);
        if (message !== undefined) this.pass.leave(message);
      }
    } catch {
      // The channel is lost: the broker gave back everything, as it does.
    } finally {
      this.#options.signal?.removeEventListener('abort', this.#listen);
      await this.pass.close();
    }
  }
}

/** Whether a quorum queue has it in the list of those that were given back. */
function wasReturned({ fields, properties }: AmqpMessage): boolean {
  const { 'x-delivery-count': delivered, 'x-acquired-count': acquired } = properties.headers ?? {};
  return fields.redelivered && (delivered !== undefined || acquired !== undefined);
}
