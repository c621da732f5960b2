/**
 * drain — puts what is in a wait, dead, parked or unrouted queue back to work, or elsewhere.
 *
 * Promise: confirmed there before it is acked here (queue-drain.ts); killed at any point, a message
 * is in the old queue, the new one, or both: at most `window` are in both, or 50 if that is more,
 * and several windows where many stay. Stops after as many as there were at the beginning: what
 * comes back is not taken again. Takes no lock of the queue (lock.ts): a look or a sweep may go on
 * meanwhile, and what they hold is not seen here.
 *
 * A pass ends after 10 minutes (queue-pass.ts), and a further one goes on. That one meets what was
 * left again, and decides about it again: it cannot skip as many, since priorities and other
 * consumers change the order. What was left is counted once.
 *
 * Called by `respool rabbit drain` and migrate/migrate.ts.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { CLOCK_OPTION, type Option, type OwnOption, readOptions } from '../../core/option-table.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { createIdMaker } from '../../system/ids.ts';
import type { AmqpMessage, Outgoing } from '../connection/amqp.ts';
import { BROKER_OPTIONS, connectionOf } from '../connection/connection.ts';
import { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import type { Route } from '../topology/model.ts';
import {
  changedCopy,
  outOfWait,
  ownerQueueOf,
  type QueuePlace,
  queuePlaceOf,
} from '../message-history.ts';
import type { DrainEnd, DrainOptions, DrainReport, MoveProgress } from '../admin/reports.ts';
import { LETTERS_OPTIONS } from './options.ts';
import type { PassEnd } from './queue-pass.ts';
import {
  type CarryResult,
  type DrainDecision,
  LEAVE,
  openDrain,
  type QueueDrain,
  type QueueDrainTools,
} from './queue-drain.ts';

/** The options that a drain and a migration share. */
export const MOVE = {
  window: { kind: 'number', min: 1, max: 1_000, default: 100, about: 'messages in flight at once' },
  onProgress: {
    kind: 'code',
    type: 'a function',
    ts: '(progress: MoveProgress) => void',
    about: 'called after every 100 messages and at the end of each queue',
  },
  signal: { kind: 'code', type: 'an `AbortSignal`', ts: 'AbortSignal', about: 'ends it' },
} as const;

/** The broker where messages are moved. */
export const MOVE_CONNECTION: OwnOption = {
  ...BROKER_OPTIONS.connection,
  ts: 'AnyConnection',
  required: true,
  about: 'the broker; the connection is left open',
};

/** The options of `drainQueue`, in the order of error texts. */
const DRAIN = {
  connection: MOVE_CONNECTION,
  queue: {
    kind: 'text',
    type: 'a name',
    required: true,
    about: 'what to empty: a wait, dead, parked or unrouted queue',
  },
  plans: {
    kind: 'code',
    type: 'a list of `consumer.plan`',
    ts: 'readonly QueuePlan[]',
    about: 'tell whose queue it is, and with that where its messages belong',
  },
  to: {
    kind: 'code',
    type: '`{ exchange, key }`, a function of the message, or `discard`',
    ts: "Route | ((message: AmqpMessage) => Route) | 'discard'",
    defaultText: 'the main queue of each message',
    about: 'where the messages go',
  },
  confirm: {
    kind: 'text',
    type: 'a name',
    about: 'required to discard: the name of the queue once more',
  },
  max: {
    kind: 'number',
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
    type: '1 or more',
    defaultText: 'as many as there were at the beginning',
    about: 'at most this many messages',
  },
  match: {
    kind: 'code',
    type: 'a function of the message',
    ts: '(message: AmqpMessage) => boolean',
    defaultText: 'all',
    about: 'only these; the others stay where they are',
  },
  window: MOVE.window,
  attempts: {
    kind: 'choice',
    choices: ['fresh', 'keep'],
    defaultText: '`fresh` from dead and parked queues, else `keep`',
    about: 'whether attempts count from 0 again',
  },
  wire: LETTERS_OPTIONS.wire,
  onProgress: MOVE.onProgress,
  signal: MOVE.signal,
  clock: CLOCK_OPTION,
} as const;

/** The options of `drainQueue`. */
export const DRAIN_OPTIONS: Readonly<Record<keyof DrainOptions, Option>> = DRAIN;

/**
 * Empties a queue by as many messages as it had at the beginning.
 *
 * @example
 * import { drainQueue } from 'respool/rabbit';
 * const { moved } = await drainQueue({
 *   connection,
 *   queue: 'orders.dead',
 *   plans: [consumer.plan],
 *   max: 100,
 * });
 */
export async function drainQueue(options: DrainOptions): Promise<DrainReport> {
  const { max, window } = checkDrain(options);
  const { queue, plans = [], onProgress, signal } = options;
  const { clock = systemClock } = options;
  const place = queuePlaceOf(queue, plans);
  const given = { connection: options.connection, clock };
  const { connection, isOwned } = connectionOf(given, 'a drain');
  const publisher = new ConfirmPublisher(connection.publishing, clock, { windowMax: window });
  const makeId = createIdMaker(systemDice);
  const decide = (message: AmqpMessage): MoveErrand =>
    errandOf(message, { ...options, place, id: makeId(clock.now()) });
  try {
    return await moveMessages(
      { queue, decide, max, window, onProgress, signal },
      { connection: await connection.consuming.tryConnect(), publisher, clock },
    );
  } finally {
    await publisher.close();
    // n.b. Our channels on a connection that was passed in: that one stays open.
    if (isOwned) await connection.close();
  }
}

function errandOf(
  message: AmqpMessage,
  options: DrainOptions & { readonly place: QueuePlace; readonly id: string },
): MoveErrand {
  const { match, to, wire, place, id } = options;
  if (match !== undefined && !match(message)) return 'skip';
  if (to === 'discard') return 'discard';
  const owner = ownerQueueOf(message, place);
  const route = routeOf(to, message, owner);
  if (route === undefined) return 'unroutable';
  const past = isFresh(place, options) ? { attempts: 0, lost: 0, restMs: 0 } : { restMs: 0 };
  const taken = place.role === 'wait' ? outOfWait(message) : message;
  return changedCopy(taken, { to: route, owner: owner ?? place.queue, id, past, wire });
}

function routeOf(
  to: DrainOptions['to'],
  message: AmqpMessage,
  owner: string | undefined,
): Route | undefined {
  if (typeof to === 'function') return to(message);
  if (to !== undefined && to !== 'discard') return to;
  return owner === undefined ? undefined : { exchange: '', key: owner };
}

function isFresh({ role }: QueuePlace, { attempts }: DrainOptions): boolean {
  return attempts === undefined ? role === 'dead' || role === 'parked' : attempts === 'fresh';
}

/** The checked options of a drain. */
interface DrainValues {
  readonly max: number | undefined;
  readonly window: number;
}

/** Refuses what cannot be drained, before a prompt is shown or a message is taken. */
export function checkDrain(options: DrainOptions): DrainValues {
  const values = readOptions({ what: 'drainQueue' }, options, DRAIN);
  const { queue, plans = [], to, confirm } = options;
  if (to === 'discard' && confirm !== queue) {
    throw new RespoolError(
      'config.invalid',
      `cannot discard the messages of the queue ${show(queue)}: "confirm" is ${show(confirm)}; ` +
        'give the name of the queue there to say that they may be permanently removed',
    );
  }
  if (to === undefined) checkHome(queuePlaceOf(queue, plans), plans.length > 0);
  const isLoop = typeof to === 'object' && to.exchange === '' && to.key === queue;
  if (isLoop) {
    throw new RespoolError(
      'config.invalid',
      `cannot drain the queue ${show(queue)} into itself; give another "to"`,
    );
  }
  return values;
}

function checkHome({ queue, role }: QueuePlace, hasPlans: boolean): void {
  if (role === 'main') {
    throw new RespoolError(
      'config.invalid',
      `cannot drain the main queue ${show(queue)} into itself; say where to with "to"`,
    );
  }
  if (role !== undefined || !hasPlans) return;
  throw new RespoolError(
    'config.invalid',
    `cannot drain the queue ${show(queue)}: it belongs to none of the topologies that were ` +
      'given; check its name, or say where to with "to"',
  );
}

/**
 * Progress is reported for this many moved messages, and at the end. Also in
 * docs/reference/rabbit.md.
 */
const PROGRESS_EVERY = 100;

/** What is to happen to one message. */
export type MoveErrand = Outgoing | 'skip' | 'unroutable' | 'discard';

/** What to move, and how. */
interface MoveOrder {
  readonly queue: string;
  /** Decides about each message; may throw, which stops everything and leaves it where it is. */
  decide(message: AmqpMessage): MoveErrand;
  readonly max?: number | undefined;
  readonly window: number;
  readonly onProgress?: ((progress: MoveProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Moves what is in a queue now. */
export function moveMessages(order: MoveOrder, tools: QueueDrainTools): Promise<DrainReport> {
  return new Mover(order, tools).run();
}

/** How many stay, and why. */
type Left = Record<'skip' | 'unroutable', number>;

class Mover {
  readonly #order: MoveOrder;
  readonly #tools: QueueDrainTools;
  /** As counted by the first pass. */
  #total: number | undefined;
  #goal = 0;
  #begun = 0;
  #moved = 0;
  /** In this pass. */
  #left: Left = { skip: 0, unroutable: 0 };
  /** The most of any pass. */
  readonly #leftMost: Left = { skip: 0, unroutable: 0 };

  constructor(order: MoveOrder, tools: QueueDrainTools) {
    this.#order = order;
    this.#tools = tools;
  }

  async run(): Promise<DrainReport> {
    let end: DrainEnd | undefined;
    while (end === undefined) end = await this.#goThrough();
    const { skip: skipped, unroutable } = this.#leftMost;
    const { queue } = this.#order;
    const total = this.#total ?? 0;
    if (total > 0) this.#tell();
    return { queue, total, moved: this.#moved, skipped, unroutable, end };
  }

  /** One pass; undefined: its time was over, and there is more. */
  async #goThrough(): Promise<DrainEnd | undefined> {
    const { queue, window, signal, max } = this.#order;
    // What came since the beginning is behind these.
    const see = this.#total === undefined ? undefined : this.#total - this.#moved;
    const drain = await openDrain({ queue, window, see, signal }, this.#tools);
    const { total } = drain.pass;
    if (this.#total === undefined) {
      this.#total = total;
      this.#goal = Math.min(total, max ?? total);
    }
    const [movedBefore, leftBefore] = [this.#moved, countOf(this.#left)];
    this.#left = { skip: 0, unroutable: 0 };
    if (this.#begun >= this.#goal) drain.stop();
    let end: PassEnd | 'seen' | undefined;
    try {
      const hasEnded = await drain.run((message) => this.#decide(drain, message));
      if (hasEnded) end = drain.pass.end ?? 'seen';
    } finally {
      await drain.close();
    }
    const error = drain.error ?? drain.lostError;
    if (error !== undefined) throw error;
    const isFurther = this.#moved > movedBefore || countOf(this.#left) > leftBefore;
    return this.#endOf(end, isFurther);
  }

  #decide(drain: QueueDrain, message: AmqpMessage): DrainDecision {
    const errand = this.#order.decide(message);
    if (errand === 'skip' || errand === 'unroutable') {
      this.#left[errand] += 1;
      this.#leftMost[errand] = Math.max(this.#leftMost[errand], this.#left[errand]);
      return LEAVE;
    }
    this.#begun += 1;
    if (this.#begun >= this.#goal) drain.stop();
    const onResult = (result: CarryResult): void => this.#count(drain, result);
    if (errand === 'discard') return { kind: 'ack', onResult };
    return { kind: 'publish', outgoing: errand, onResult };
  }

  #count(drain: QueueDrain, result: CarryResult): void {
    if (result.kind !== 'done') return drain.fail(result.error);
    this.#moved += 1;
    if (this.#moved % PROGRESS_EVERY === 0) this.#tell();
  }

  /** `end`: why no more came; undefined: no more were wanted. */
  #endOf(end: PassEnd | 'seen' | undefined, isFurther: boolean): DrainEnd | undefined {
    const total = this.#total ?? 0;
    if (total > 0 && this.#moved >= this.#goal) return this.#goal < total ? 'max' : 'done';
    if (end === undefined) return 'done';
    if (this.#order.signal?.aborted === true) return 'aborted';
    // All that were there at the beginning were seen, and newer ones are behind them.
    if (end === 'seen' || end === 'max') return 'done';
    if (end !== 'time') return end;
    // All its time went by with what stays: a further pass would come no further.
    return isFurther ? undefined : 'held';
  }

  #tell(): void {
    const { queue, onProgress } = this.#order;
    const skipped = countOf(this.#leftMost);
    onProgress?.({ queue, moved: this.#moved, skipped, total: this.#total ?? 0 });
  }
}

function countOf({ skip, unroutable }: Left): number {
  return skip + unroutable;
}
