/**
 * move — takes messages out of a queue and puts them somewhere else, none lost.
 *
 *   queue ─pass─▶ in hand ─publish─▶ confirmed ─done()─▶ gone from here
 *                   └─ does not match: leave(), stays as it lay (rabbit/queues/pass.ts)
 *
 * Promise: a message is acked only when its copy is confirmed and routed. Whoever kills us at any
 * point leaves it in the old queue, the new one, or both; in both at most a window of them, or 50,
 * and past many that stay some windows. Stops after as many as there were at the beginning: what
 * comes back is not taken again.
 *
 * A pass has an end for the sake of what it holds; a further one goes on. It meets what was left
 * once more, and asks about it once more: who skips as many as were left goes by an order that
 * priorities and other consumers break. It is counted once.
 */

import { asError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { AmqpConnection, AmqpMessage, Outgoing } from '../connection/amqp.ts';
import { lostAtTheEnd, openPass, type Pass, type PassEnd, Walk } from './pass.ts';
import type { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import type { DrainEnd, DrainReport, MoveProgress } from '../admin/reports.ts';

/** Progress is told at most once for this many messages. */
const TOLD_EVERY = 100;

export const WINDOW_DEFAULT = 100;
export const WINDOW_MAX = 1_000;

/** What is to happen to one message. */
export type MoveErrand = Outgoing | 'skip' | 'homeless' | 'discard';

export interface MoveOrder {
  readonly queue: string;
  /** Decides about each message; may throw, which stops everything and leaves it where it is. */
  decide(message: AmqpMessage): MoveErrand;
  readonly max: number | undefined;
  readonly window: number;
  readonly onProgress: ((progress: MoveProgress) => void) | undefined;
  readonly signal: AbortSignal | undefined;
}

export interface MoveTools {
  readonly connection: AmqpConnection;
  readonly outlet: Pick<ConfirmPublisher, 'send'>;
  readonly clock: Clock;
}

/** Moves what lies in a queue now. */
export function moveMessages(order: MoveOrder, tools: MoveTools): Promise<DrainReport> {
  return new Mover(order, tools).run();
}

/** How many stay, and why. */
type Left = Record<'skip' | 'homeless', number>;

class Mover {
  readonly #order: MoveOrder;
  readonly #tools: MoveTools;
  /** Published and not yet confirmed. */
  readonly #open = new Set<Promise<void>>();
  /** As counted by the first pass. */
  #total: number | undefined;
  #goal = 0;
  #begun = 0;
  #moved = 0;
  /** In this pass. */
  #left: Left = { skip: 0, homeless: 0 };
  /** In the pass that came furthest. */
  readonly #leftMost: Left = { skip: 0, homeless: 0 };
  #error: Error | undefined;

  constructor(order: MoveOrder, tools: MoveTools) {
    this.#order = order;
    this.#tools = tools;
  }

  async run(): Promise<DrainReport> {
    let end: DrainEnd | undefined;
    while (end === undefined) end = await this.#goThrough();
    const { skip: skipped, homeless } = this.#leftMost;
    const { queue } = this.#order;
    const total = this.#total ?? 0;
    if (total > 0) this.#tell();
    return { queue, total, moved: this.#moved, skipped, homeless, end };
  }

  /** One pass; undefined: its time was over, and there is more. */
  async #goThrough(): Promise<DrainEnd | undefined> {
    const { queue, window, signal } = this.#order;
    const { connection, clock } = this.#tools;
    // What came since the beginning lies behind these.
    const max = this.#total === undefined ? undefined : this.#total - this.#moved;
    const pass = await openPass({ queue, window }, { connection, clock });
    const walk = new Walk(pass, { max, signal });
    let end: PassEnd | undefined;
    if (this.#total === undefined) this.#begin(pass.total);
    const [movedBefore, leftBefore] = [this.#moved, countOf(this.#left)];
    this.#left = { skip: 0, homeless: 0 };
    try {
      end = await this.#takeAll(walk);
    } catch (error) {
      this.#error ??= asError(error);
    } finally {
      // What was published is waited for, so that it is acked when it arrived.
      await Promise.all(this.#open);
      await walk.close();
    }
    if (this.#error !== undefined) throw this.#error;
    const hasMoved = this.#moved > movedBefore;
    if (hasMoved && pass.isLost) throw lostAtTheEnd(queue);
    return this.#endOf(end, hasMoved || countOf(this.#left) > leftBefore);
  }

  /** Why no more came; undefined: no more were wanted. */
  async #takeAll(walk: Walk): Promise<PassEnd | undefined> {
    const { signal } = this.#order;
    while (this.#error === undefined && this.#begun < this.#goal) {
      const message = await walk.next();
      if (message === undefined)
        return signal?.aborted === true ? 'aborted' : (walk.pass.end ?? 'max');
      // n.b. Nothing may stay in hand: the walk goes on for the order's sake, and needs the room.
      if (this.#error === undefined) this.#take(walk.pass, message);
      else walk.pass.leave(message);
    }
    return undefined;
  }

  #begin(total: number): void {
    this.#total = total;
    this.#goal = Math.min(total, this.#order.max ?? total);
  }

  #take(pass: Pass, message: AmqpMessage): void {
    let errand: MoveErrand;
    try {
      errand = this.#order.decide(message);
    } catch (error) {
      pass.leave(message);
      this.#error = asError(error);
      return;
    }
    if (errand === 'skip' || errand === 'homeless') {
      pass.leave(message);
      this.#left[errand] += 1;
      this.#leftMost[errand] = Math.max(this.#leftMost[errand], this.#left[errand]);
      return;
    }
    this.#begun += 1;
    const carried = this.#carry(pass, message, errand).finally(() => this.#open.delete(carried));
    this.#open.add(carried);
  }

  /** Never rejects: what goes wrong is the end of the move. */
  async #carry(pass: Pass, message: AmqpMessage, errand: Outgoing | 'discard'): Promise<void> {
    try {
      if (errand !== 'discard') await this.#tools.outlet.send(errand);
    } catch (error) {
      this.#error ??= asError(error);
      // Makes room, so that the caller that waits for the next message sees the error.
      pass.leave(message);
      return;
    }
    try {
      // n.b. Throws when the channel is gone; then the message is there twice, and not lost.
      pass.done(message);
      this.#moved += 1;
      if (this.#moved % TOLD_EVERY === 0) this.#tell();
    } catch (error) {
      this.#error ??= asError(error);
    }
  }

  #endOf(end: PassEnd | undefined, cameFurther: boolean): DrainEnd | undefined {
    const total = this.#total ?? 0;
    if (total > 0 && this.#moved >= this.#goal) return this.#goal < total ? 'max' : 'done';
    // All that were there at the beginning were seen, and newer ones lie behind them.
    if (end === 'max') return 'done';
    if (end !== 'time') return end ?? 'done';
    // All its time went by with what stays: a further pass would come no further.
    return cameFurther ? undefined : 'held';
  }

  #tell(): void {
    const { queue, onProgress } = this.#order;
    const skipped = countOf(this.#leftMost);
    onProgress?.({ queue, moved: this.#moved, skipped, total: this.#total ?? 0 });
  }
}

function countOf({ skip, homeless }: Left): number {
  return skip + homeless;
}
