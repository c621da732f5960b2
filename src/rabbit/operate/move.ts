/**
 * move — takes messages out of a queue and puts them somewhere else, none lost.
 *
 *   queue ─deliver─▶ in hand ─publish─▶ confirmed ─ack─▶ gone from here
 *                      └─ does not match: held unacked, given back at the end
 *
 * Promise: a message is acked only when its copy is confirmed and routed. Whoever kills us at any
 * point leaves it in the old queue, the new one, or both; at most a window of them in both.
 * Stops after as many as there were at the beginning: what comes back is not taken again.
 */

import { asError, RespoolError, show } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { AmqpChannel, AmqpConnection, AmqpMessage, Outgoing } from '../amqp.ts';
import type { Outlet } from '../outlet.ts';
import { closeChannel } from '../patience.ts';
import { explainRefusal } from '../topology/explain.ts';
import { openChannel } from './look.ts';
import type { DrainEnd, DrainReport, MoveProgress } from './reports.ts';

/** Held at once because they do not match; the broker keeps each in memory. */
const HELD_MAX = 10_000;
/** So long without a message, and we ask how many are left. */
const QUIET_MS = 1_000;
/** So many quiet spans with messages left: somebody else has the queue for himself. */
const QUIET_MAX = 3;
/** Progress is told at most once for so many messages. */
const TOLD_EVERY = 100;

export const WINDOW_DEFAULT = 100;
export const WINDOW_MAX = 1_000;

/** What is to happen to one message. */
export type Errand = Outgoing | 'skip' | 'homeless' | 'discard';

export interface MoveOrder {
  readonly queue: string;
  /** Decides about each message; may throw, which stops everything and leaves it where it is. */
  decide(message: AmqpMessage): Errand;
  readonly max: number | undefined;
  readonly window: number;
  readonly onProgress: ((progress: MoveProgress) => void) | undefined;
  readonly signal: AbortSignal | undefined;
}

export interface MoveTools {
  readonly connection: AmqpConnection;
  readonly outlet: Outlet;
  readonly clock: Clock;
}

/** Moves what lies in a queue now. */
export async function moveMessages(order: MoveOrder, tools: MoveTools): Promise<DrainReport> {
  const channel = await openChannel(tools.connection);
  const { messageCount } = await channel.checkQueue(order.queue).catch((error: unknown) => {
    throw explainRefusal(error, { act: 'check', what: 'queue', name: order.queue });
  });
  const mover = new Mover(order, tools, { channel, total: messageCount });
  try {
    return await mover.run();
  } finally {
    await closeChannel(channel);
  }
}

class Mover {
  readonly #order: MoveOrder;
  readonly #tools: MoveTools;
  readonly #channel: AmqpChannel;
  readonly #total: number;
  readonly #goal: number;
  readonly #tags: string[] = [];
  readonly #held: AmqpMessage[] = [];
  /** Begun: published and not yet confirmed. */
  #open = 0;
  #moved = 0;
  #skipped = 0;
  #homeless = 0;
  #seen = 0;
  #seenAtLastLook = 0;
  #quietSpans = 0;
  #end: DrainEnd | undefined;
  #error: Error | undefined;
  #isAdding = false;
  #stopTimer: () => void = () => undefined;
  #over: () => void = () => undefined;
  readonly #isOver: Promise<void>;

  constructor(
    order: MoveOrder,
    tools: MoveTools,
    { channel, total }: { readonly channel: AmqpChannel; readonly total: number },
  ) {
    this.#order = order;
    this.#tools = tools;
    this.#channel = channel;
    this.#total = total;
    this.#goal = Math.min(total, order.max ?? total);
    this.#isOver = new Promise((resolve) => {
      this.#over = resolve;
    });
  }

  get #isEnding(): boolean {
    return this.#end !== undefined || this.#error !== undefined;
  }

  async run(): Promise<DrainReport> {
    const { signal } = this.#order;
    if (this.#goal === 0) return this.#report(this.#total === 0 ? 'done' : 'max');
    const onAbort = (): void => this.#finish('aborted');
    signal?.addEventListener('abort', onAbort);
    this.#channel.on('close', () => this.#fail(lostChannel(this.#order.queue)));
    try {
      if (signal?.aborted === true) return this.#report('aborted');
      await this.#addConsumer();
      this.#watch();
      await this.#isOver;
    } finally {
      this.#stopTimer();
      signal?.removeEventListener('abort', onAbort);
      await this.#giveBack();
    }
    if (this.#error !== undefined) throw this.#error;
    this.#tell();
    return this.#report(this.#end ?? 'done');
  }

  /** Each brings a window of its own: held messages use theirs up. */
  async #addConsumer(): Promise<void> {
    this.#isAdding = true;
    const { queue, window } = this.#order;
    try {
      await this.#channel.prefetch(window);
      const { consumerTag } = await this.#channel.consume(queue, (message) => this.#take(message));
      this.#tags.push(consumerTag);
    } catch (error) {
      throw explainRefusal(error, { act: 'consume', what: 'queue', name: queue });
    } finally {
      this.#isAdding = false;
    }
    this.#widen();
  }

  /** Goes on past what is held. */
  #widen(): void {
    if (this.#isEnding || this.#isAdding) return;
    if (this.#held.length >= HELD_MAX) this.#finish('held');
    else if (this.#held.length >= this.#order.window * this.#tags.length) {
      this.#addConsumer().catch((error: unknown) => this.#fail(asError(error)));
    }
  }

  #take(message: AmqpMessage | null): void {
    if (message === null) {
      this.#fail(lostChannel(this.#order.queue));
      return;
    }
    if (this.#isEnding || this.#seen >= this.#total || this.#moved + this.#open >= this.#goal) {
      this.#held.push(message);
      return;
    }
    this.#seen += 1;
    this.#quietSpans = 0;
    let errand: Errand;
    try {
      errand = this.#order.decide(message);
    } catch (error) {
      this.#held.push(message);
      this.#fail(asError(error));
      return;
    }
    if (errand === 'skip' || errand === 'homeless') this.#hold(message, errand);
    else void this.#carry(message, errand);
  }

  #hold(message: AmqpMessage, errand: 'skip' | 'homeless'): void {
    // Only its tag is needed to give it back; the body need not stay in memory.
    this.#held.push({ ...message, content: Buffer.alloc(0), properties: {} });
    if (errand === 'skip') this.#skipped += 1;
    else this.#homeless += 1;
    this.#check();
    this.#widen();
  }

  async #carry(message: AmqpMessage, errand: Outgoing | 'discard'): Promise<void> {
    this.#open += 1;
    try {
      if (errand !== 'discard') await this.#tools.outlet.send(errand);
      // n.b. Throws when the channel is gone; then the message is there twice, and not lost.
      this.#channel.ack(message);
      this.#moved += 1;
      if (this.#moved % TOLD_EVERY === 0) this.#tell();
    } catch (error) {
      this.#held.push(message);
      this.#fail(asError(error));
    } finally {
      this.#open -= 1;
      this.#check();
    }
  }

  /** Whether there is nothing left to wait for. */
  #check(): void {
    if (!this.#isEnding) {
      if (this.#moved + this.#open >= this.#goal) {
        this.#end = this.#goal < this.#total ? 'max' : 'done';
      } else if (this.#seen >= this.#total) this.#end = 'done';
    }
    if (this.#isEnding && this.#open === 0) this.#over();
  }

  #finish(end: DrainEnd): void {
    this.#end ??= end;
    this.#check();
  }

  #fail(error: Error): void {
    if (this.#end !== undefined && this.#open === 0) return;
    this.#error ??= error;
    this.#check();
  }

  /** Others may take messages too, or their time runs out: then fewer come than were counted. */
  #watch(): void {
    this.#stopTimer = this.#tools.clock.after(QUIET_MS, () => {
      void this.#lookAround().finally(() => {
        if (!this.#isEnding) this.#watch();
      });
    });
  }

  async #lookAround(): Promise<void> {
    const isQuiet = this.#seen === this.#seenAtLastLook && this.#open === 0;
    this.#seenAtLastLook = this.#seen;
    if (!isQuiet) return;
    try {
      const { messageCount } = await this.#channel.checkQueue(this.#order.queue);
      if (messageCount === 0) this.#finish('done');
      else {
        this.#quietSpans += 1;
        if (this.#quietSpans >= QUIET_MAX) this.#finish('quiet');
      }
    } catch {
      this.#fail(lostChannel(this.#order.queue));
    }
  }

  /** n.b. By nack, not by closing: from 4.3 on only the latter counts towards a delivery limit. */
  async #giveBack(): Promise<void> {
    try {
      for (const tag of this.#tags) await this.#channel.cancel(tag);
      for (const message of this.#held.splice(0)) this.#channel.nack(message, false, true);
    } catch {
      // The channel is gone, and with it everything that was in hand: it is back in the queue.
    }
  }

  #tell(): void {
    this.#order.onProgress?.({
      queue: this.#order.queue,
      moved: this.#moved,
      skipped: this.#skipped + this.#homeless,
      total: this.#total,
    });
  }

  #report(end: DrainEnd): DrainReport {
    return {
      queue: this.#order.queue,
      total: this.#total,
      moved: this.#moved,
      skipped: this.#skipped,
      homeless: this.#homeless,
      end,
    };
  }
}

function lostChannel(queue: string): RespoolError {
  return new RespoolError(
    'broker.unavailable',
    `cannot go on moving messages out of the queue ${show(queue)}: the channel was lost or the ` +
      'queue deleted; what was not confirmed is still in the queue: start again',
  );
}
