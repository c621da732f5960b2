/**
 * queue-letters — a dead or parked queue of RabbitMQ behind the door to dead letters.
 *
 *   look ─▶ a pass that leaves everything            take ─▶ the queue's lock, then a pass
 *
 * Promise: confirmed where it goes before it is acked here; whoever kills us at any point leaves a
 * message here, there, or in both places, never in none. What is left keeps its order.
 */

import { MINUTE_MS } from '../../core/duration.ts';
import { isRespoolError, RespoolError, show, unreachable } from '../../core/errors.ts';
import { fitsLetter } from '../../core/letter-query.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import type * as door from '../../ports/dead-letters.ts';
import type { Caution } from '../../ports/dead-letters.ts';
import { systemClock } from '../../system/clock.ts';
import { openChannel, passiveQueues, versionOf } from '../admin/inspect-broker.ts';
import type { Management } from '../admin/management/index.ts';
import { queuePlaceOf } from '../admin/owner-queue.ts';
import type { AnyConnection } from '../admin/reports.ts';
import { type AmqpConnection, type AmqpMessage, closeChannel } from '../connection/amqp.ts';
import { connectionOf, type RabbitConnection } from '../connection/connection.ts';
import type { HistoryWire } from '../consume/message-history.ts';
import { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import { explainRefusal, refusalCode } from '../topology/explain.ts';
import type { QueuePlan } from '../topology/model.ts';
import { checkName } from '../topology/names.ts';
import { cautionOf, hasNoOtherConsumer } from './delivery-limit.ts';
import { type LetterPlace, type ReadLetter, readLetter } from './letter.ts';
import { lockQueue, type QueueLock } from './lock.ts';
import { ensureTarget } from './target.ts';
import type { WalkOptions } from './queue-pass.ts';
import { openDrain, type QueueDrain } from './queue-drain.ts';
import { parkedCopy, sentCopy } from './letter-copy.ts';
import { type Action, OpenMessage, openMessageOf, notInHand, LetterBatch } from './take-letters.ts';

type QueueRoute = Extract<door.LetterRoute, { readonly kind: 'queue' }>;

const LOOK_MAX = 100_000;
/** Held by one walk, unacked; the broker keeps a note of each. */
const HELD_MAX = 1_000_000;
/** Maximum number of letters in memory with their content while none is in hand. */
const LOOK_WINDOW = 200;
const IN_HAND_DEFAULT = 100;
const IN_HAND_MAX = 1_000;
/** How long an answer about what looking costs is believed. */
const CAUTION_MS = MINUTE_MS;
const PARKED = '.parked';
const TAKE = 'take messages out of';
const FORBIDDEN = 403;

/** The dead letters of one queue; nothing is opened before the first question. */
export function createQueueLetters(options: QueueLettersOptions): door.DeadLetters {
  checkLettersOptions(options);
  return new QueueLetters(options);
}

class QueueLetters implements door.DeadLetters {
  readonly name: string;
  readonly #options: QueueLettersOptions;
  readonly #queue: string;
  readonly #place: LetterPlace;
  readonly #clock: Clock;
  readonly #connection: RabbitConnection;
  readonly #isOwned: boolean;
  readonly #outlet: ConfirmPublisher;
  readonly #takings = new Set<LetterBatch>();
  /** What is open; it ends with the door. */
  readonly #drains = new Set<QueueDrain>();
  readonly #locks = new Set<QueueLock>();
  readonly #parkedQueues = new Map<string, Promise<void>>();
  #caution: door.Caution | undefined;
  /** When it was asked for (monotonic). */
  #cautionAt = 0;
  #isTold = false;

  constructor(options: QueueLettersOptions) {
    const { queue, plans = [], wire, clock = systemClock, connection, url } = options;
    this.#options = options;
    this.#queue = queue;
    this.name = `queue "${queue}"`;
    const place = queuePlaceOf(queue, plans);
    const isParked =
      place.role === 'parked' || (place.role === undefined && queue.endsWith(PARKED));
    this.#place = { ...place, kind: options.kind ?? (isParked ? 'parked' : 'dead'), wire };
    this.#clock = clock;
    const chosen = connectionOf({ connection, url, clock }, 'a door to dead letters');
    this.#connection = chosen.connection;
    this.#isOwned = chosen.isOwned;
    this.#outlet = new ConfirmPublisher(chosen.connection.publishing, clock);
  }

  async caution(): Promise<door.Caution> {
    const now = this.#clock.monotonic();
    // Policies change; a door may be open for days.
    if (this.#caution === undefined || now - this.#cautionAt > CAUTION_MS) {
      this.#caution = await this.#askCaution();
      this.#cautionAt = now;
    }
    return this.#caution;
  }

  async count(): Promise<number> {
    const channel = await openChannel(await this.#amqp());
    try {
      return (await channel.checkQueue(this.#queue)).messageCount;
    } catch (error) {
      throw explainRefusal(error, { act: 'check', what: 'queue', name: this.#queue });
    } finally {
      await closeChannel(channel);
    }
  }

  look(options: door.LetterLookOptions = {}): AsyncIterable<door.OpenLetter> {
    return this.#looking(options);
  }

  take(options: door.LetterTakeOptions): AsyncIterable<door.TakenLetter> {
    const inHand = checkNumber('inHand', options.inHand ?? IN_HAND_DEFAULT, {
      min: 1,
      max: IN_HAND_MAX,
    });
    return this.#taking(options, inHand);
  }

  async isAlone(): Promise<boolean> {
    const { management } = this.#options;
    const connection = await this.#amqp();
    return hasNoOtherConsumer({ queue: this.#queue, connection, management, clock: this.#clock });
  }

  async settle(taken: door.TakenLetter, fate: door.Fate): Promise<door.SettleResult> {
    const held = openMessageOf(taken);
    const taking = held && [...this.#takings].find((one) => one.has(held));
    if (held === undefined || taking === undefined) return notInHand(held);
    return taking.settle(held, fate);
  }

  async since(replay: string, ids: readonly string[]): Promise<door.Since> {
    const asked = new Set(ids);
    const failed = new Map<string, door.Since['failed'][number]>();
    // Cheap, and mostly the answer: nothing came back.
    if (asked.size === 0 || (await this.count()) === 0) return { failed: [], delivered: [] };
    for await (const { letter } of this.look()) {
      const { id, code, reason } = letter;
      if (letter.replayedBy === replay && asked.has(id)) failed.set(id, { id, code, reason });
    }
    return { failed: [...failed.values()], delivered: [] };
  }

  async waitingAt(routes: readonly door.LetterRoute[]): Promise<number | undefined> {
    const queues = new Set<string>();
    for (const route of routes) {
      // Where an exchange leads is not known here.
      if (route.kind !== 'queue' || route.exchange !== '') return undefined;
      queues.add(route.key);
    }
    let waiting = 0;
    for (const answer of (await passiveQueues(await this.#amqp(), [...queues])).values()) {
      if (!('found' in answer) || answer.found === undefined) return undefined;
      const { messageCount, consumerCount } = answer.found;
      // Purged, expired, or taken by a consumer that has left since: unknown.
      if (messageCount === 0 && consumerCount === 0) return undefined;
      waiting += messageCount;
    }
    return waiting;
  }

  async close(): Promise<void> {
    // What is on its way first: its messages are acked when it is confirmed.
    await this.#outlet.close();
    await Promise.all([...this.#drains].map((drain) => drain.close()));
    await Promise.all([...this.#locks].map((lock) => lock.release()));
    if (this.#isOwned) await this.#connection.close();
  }

  async *#looking(options: door.LetterLookOptions): AsyncGenerator<door.OpenLetter> {
    await this.#careful('look at');
    const { query = {}, max = this.#options.lookMax ?? LOOK_MAX, signal } = options;
    checkNumber('max', max, { min: 1, max: Number.MAX_SAFE_INTEGER });
    const amqp = await this.#amqp();
    const lock = await this.#lockForLook(amqp);
    let drain: QueueDrain | undefined;
    try {
      drain = await this.#drain(amqp, LOOK_WINDOW, { max, signal });
      for (;;) {
        const message = await drain.next();
        if (message === undefined) return;
        const held = new OpenMessage(readLetter(message, this.#place), message);
        try {
          if (fitsLetter(held.read.letter, query)) yield held.letter();
        } finally {
          held.end();
          drain.leave(message);
        }
      }
    } finally {
      if (drain !== undefined) {
        this.#drains.delete(drain);
        await drain.close();
      }
      await this.#unlock(lock);
    }
  }

  /** A look has the lock too: what it holds others would not see, and take for gone. */
  async #lockForLook(amqp: AmqpConnection): Promise<QueueLock | undefined> {
    // A look in the middle of a take of our own.
    if (this.#locks.size > 0) return undefined;
    try {
      return await this.#lock(amqp, 'look at');
    } catch (error) {
      // Anyone who may read and not declare can look all the same.
      if (isRespoolError(error) && refusalCode(error.cause) === FORBIDDEN) return undefined;
      throw error;
    }
  }

  async #lock(amqp: AmqpConnection, act: string): Promise<QueueLock> {
    const lock = await lockQueue(amqp, this.#queue);
    if (lock === 'taken') throw this.#isTaken(act);
    this.#locks.add(lock);
    return lock;
  }

  async #unlock(lock: QueueLock | undefined): Promise<void> {
    if (lock === undefined) return;
    this.#locks.delete(lock);
    await lock.release();
  }

  async *#taking(
    options: door.LetterTakeOptions,
    inHand: number,
  ): AsyncGenerator<door.TakenLetter> {
    await this.#careful(TAKE);
    // One connection for both: the lock goes with the one that has the messages.
    const amqp = await this.#amqp();
    const lock = await this.#lock(amqp, TAKE);
    let taking: LetterBatch | undefined;
    try {
      // Twice as many, so that the next ones are here while those in hand are settled.
      const drain = await this.#drain(amqp, 2 * inHand, { signal: options.signal });
      taking = this.#takingOf(drain, inHand);
      this.#takings.add(taking);
      yield* taking.letters(options);
    } finally {
      if (taking !== undefined) {
        this.#takings.delete(taking);
        this.#drains.delete(taking.drain);
      }
      await this.#unlock(lock);
    }
  }

  #takingOf(drain: QueueDrain, inHand: number): LetterBatch {
    return new LetterBatch({
      drain,
      inHand,
      read: (message) => readLetter(message, this.#place),
      actionOf: (message, read, fate) => this.#actionOf(message, read, fate),
    });
  }

  async #actionOf(message: AmqpMessage, read: ReadLetter, fate: door.Fate): Promise<Action> {
    const parts = { message, read, wire: this.#options.wire, now: this.#clock.now() };
    switch (fate.kind) {
      case 'leave':
        return { kind: 'leave' };
      case 'remove':
        return { kind: 'ack' };
      case 'send': {
        const to = this.#routeOf(read, fate.to);
        return 'code' in to ? to : { kind: 'publish', outgoing: sentCopy(parts, to, fate) };
      }
      case 'park': {
        const queue = this.#parkedQueueOf(read);
        // It lies among the parked already.
        if (queue === this.#queue) return { kind: 'leave' };
        await this.#ensureParked(queue);
        return { kind: 'publish', outgoing: parkedCopy(parts, queue, fate) };
      }
      default:
        return unreachable(fate);
    }
  }

  #routeOf(
    { letter }: ReadLetter,
    given: door.LetterRoute | undefined,
  ): QueueRoute | Extract<Action, { kind: 'refuse' }> {
    const to = given ?? letter.home;
    const name = show(letter.id);
    if (to === undefined) {
      const reason = `the queue of message ${name} is unknown; name where to send it`;
      return { kind: 'refuse', code: 'route.unknown', reason };
    }
    if (to.kind === 'topic') {
      const reason =
        `cannot send message ${name} of a queue to the topic ${show(to.topic)} of a spool; ` +
        'name a queue, or an exchange with a key';
      return { kind: 'refuse', code: 'route.invalid', reason };
    }
    if (to.exchange === '' && to.key === this.#queue) {
      const reason = `cannot send message ${name} to the queue it is in; name another`;
      return { kind: 'refuse', code: 'route.invalid', reason };
    }
    return to;
  }

  #parkedQueueOf({ owner }: ReadLetter): string {
    const { parkedQueue, plans = [] } = this.#options;
    if (parkedQueue !== undefined) return parkedQueue;
    if (this.#place.kind === 'parked') return this.#queue;
    const ours = plans.filter((plan) => this.#place.of.includes(plan.queue));
    const plan = ours.find((one) => one.queue === owner) ?? ours[0];
    if (plan !== undefined && plan.parked.exchange === '') return plan.parked.key;
    return `${this.#queue.replace(/\.dlq$/, '')}${PARKED}`;
  }

  #ensureParked(queue: string): Promise<void> {
    const known = this.#parkedQueues.get(queue);
    if (known !== undefined) return known;
    const ensured = this.#declareParked(queue).catch((error: unknown) => {
      // The next one tries again.
      this.#parkedQueues.delete(queue);
      throw error;
    });
    this.#parkedQueues.set(queue, ensured);
    return ensured;
  }

  async #declareParked(queue: string): Promise<void> {
    await ensureTarget(await this.#amqp(), queue);
  }

  async #drain(
    connection: AmqpConnection,
    window: number,
    { max, signal }: WalkOptions,
  ): Promise<QueueDrain> {
    const order = { queue: this.#queue, window, heldMax: HELD_MAX, see: max, signal };
    const drain = await openDrain(order, { connection, clock: this.#clock, outlet: this.#outlet });
    this.#drains.add(drain);
    return drain;
  }

  #amqp(): Promise<AmqpConnection> {
    return this.#connection.consuming.tryConnect();
  }

  async #askCaution(): Promise<door.Caution> {
    const { management, isTrusted = false } = this.#options;
    const version = versionOf(await this.#amqp());
    return cautionOf({ queue: this.#queue, management, version, isTrusted });
  }

  /** Tells what looking costs, and refuses where the broker may drop what is looked at. */
  async #careful(act: string): Promise<void> {
    const caution = await this.caution();
    if (caution.kind !== 'free' && !this.#isTold) {
      this.#isTold = true;
      this.#options.onCaution?.(caution);
    }
    if (caution.kind !== 'refused') return;
    const { text, remedy } = caution;
    const what = `cannot ${act} the queue ${show(this.#queue)}`;
    throw new RespoolError('move.refused', `${what}: ${text}; ${remedy}`);
  }

  #isTaken(act: string): RespoolError {
    return new RespoolError(
      'move.refused',
      `cannot ${act} the queue ${show(this.#queue)}: another look, sweep or replay works on it; ` +
        'wait until that one is done, or stop it',
    );
  }
}

// What the dead letters of a queue are told at the beginning.

/** Which queue, and what is known of it. */
export interface QueueLettersOptions {
  /** Either this or `url`. One that was passed in is not closed. */
  readonly connection?: AnyConnection;
  readonly url?: string | readonly string[];
  /** Tells what looking costs; without it quorum queues are refused unless `isTrusted`. */
  readonly management?: Management | undefined;
  readonly queue: string;
  /** Default: by its role in `plans`, else `parked` where the name ends so, else `dead`. */
  readonly kind?: 'dead' | 'parked';
  /** Tell which queues its messages belong to, and where they are parked. */
  readonly plans?: readonly QueuePlan[];
  /** How the past of messages is written; default: our own headers. */
  readonly wire?: HistoryWire;
  /**
   * Where messages are parked; default: the parked queue of the plan, else the name with `.dlq`
   * turned into `.parked`. Declared as a durable quorum queue where it is not there.
   */
  readonly parkedQueue?: string;
  /** Looks even if the queue's delivery limit is unknown; default: false. */
  readonly isTrusted?: boolean;
  /** A look goes through this many at the most, unless it says so itself; default 100,000. */
  readonly lookMax?: number;
  readonly clock?: Clock;
  /** Told once, before the first look, where looking is not free. */
  readonly onCaution?: (caution: Exclude<Caution, { kind: 'free' }>) => void;
}

const NAMES = [
  'connection',
  'url',
  'management',
  'queue',
  'kind',
  'plans',
  'wire',
  'parkedQueue',
  'isTrusted',
  'lookMax',
  'clock',
  'onCaution',
];

/** Refuses what could not be. */
function checkLettersOptions(options: QueueLettersOptions): void {
  checkNames('createQueueLetters', options, NAMES);
  const { queue, kind, parkedQueue, lookMax } = options;
  checkName('queue', queue);
  if (kind !== undefined) checkOneOf('kind', kind, ['dead', 'parked']);
  if (parkedQueue !== undefined) checkName('parkedQueue', parkedQueue);
  if (lookMax !== undefined) checkNumber('lookMax', lookMax, { min: 1, max: 1_000_000 });
}
