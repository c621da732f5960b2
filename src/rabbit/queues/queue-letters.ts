/**
 * queue-letters — a dead or parked queue of RabbitMQ as `DeadLetters`.
 *
 *   look ─▶ the queue's lock (without it where the user may not declare it, or this port has it
 *           already), then a pass that leaves everything
 *   take ─▶ the queue's lock, then a pass:
 *
 *   unwanted ─▶ left     in hand ─settle─▶ published, confirmed, acked · acked · left
 *                           └─ the loop ends: given back, in the old order
 *
 * Promise: what is sent or parked is confirmed there before it is acked here; a kill at any point
 * leaves it here, there, or in both places, never in none. What is left keeps its order.
 * Look and take are refused where the broker may drop what is looked at (delivery-limit.ts).
 *
 * `remove` only acks, with `hard` or without: a queue archives nothing. To be able to undo it,
 * archive `letter.copy()` first, as `dlq remove` does.
 *
 * Layers: `LetterBatch` (what one `take` has in hand) ─▶ `QueueDrain`, which acks ─▶ `QueueWalk`
 * and `QueuePass`, which receive and hold back.
 *
 * The other `DeadLetters`: dead-letters/spool-letters.ts. One suite holds for both
 * (testkit/letter-cases.ts).
 */

import { MINUTE_MS } from '../../core/duration.ts';
import { isRespoolError, RespoolError, show, textOf, unreachable } from '../../core/errors.ts';
import { letterMatches } from '../../core/letter-query.ts';
import { checkNumber } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import type * as port from '../../ports/dead-letters.ts';
import type {
  LetterVerdict,
  LetterTakeOptions,
  OpenLetter,
  SettleResult,
  TakenLetter,
} from '../../ports/dead-letters.ts';
import { systemClock } from '../../system/clock.ts';
import { InFlight } from '../../system/wait.ts';
import {
  type AmqpConnection,
  type AmqpMessage,
  closeChannel,
  openChannel,
  passiveQueues,
  refusalCode,
  versionOf,
} from '../connection/amqp.ts';
import { queuePlaceOf } from '../message-history.ts';
import { connectionOf, type RabbitConnection } from '../connection/connection.ts';
import { ConfirmPublisher, isNack } from '../publish/confirm-publisher.ts';
import { explainRefusal } from '../topology/explain.ts';
import { cautionOf, hasNoOtherConsumer } from './delivery-limit.ts';
import { archiveCopyOf, parkedCopy, sentCopy } from './letter-copy.ts';
import { type LetterPlace, readLetter, type ReadLetter } from './letter.ts';
import { lockQueue, type QueueLock } from './lock.ts';
import { type CarryResult, type DrainRemoval, openDrain, type QueueDrain } from './queue-drain.ts';
import { ensureTarget } from './discover.ts';
import {
  checkLettersOptions,
  type QueueLettersOptions,
  type QueueLettersValues,
} from './options.ts';
import type { WalkOptions } from './queue-pass.ts';

type QueueRoute = Extract<port.LetterRoute, { readonly kind: 'queue' }>;

/**
 * The most messages that one walk holds unacked; the broker tracks each. Also in sweep-queue.ts,
 * docs/reference/dead-letters.md and docs/guarantees.md.
 */
const HELD_MAX = 1_000_000;
/** Messages that the first consumer of a look holds; further ones hold more: requeue-order.ts. */
const LOOK_WINDOW = 200;
/**
 * As ports/dead-letters.ts promises; also in dead-letters/spool-letters.ts, replay/send-letters.ts
 * and docs/reference/dead-letters.md.
 */
const IN_HAND_DEFAULT = 100;
const IN_HAND_MAX = 1_000;
/** How long an answer of `cautionOf` (delivery-limit.ts) is believed. */
const CAUTION_MS = MINUTE_MS;
/** As topology/parts.ts names the parked and the dead queue (`.dlq`), and options.ts says. */
const PARKED = '.parked';
const TAKE = 'take messages out of';
const FORBIDDEN = 403;

/** The dead letters of one queue; nothing is opened before the first question. */
export function createQueueLetters(options: QueueLettersOptions): port.DeadLetters {
  return new QueueLetters(options, checkLettersOptions(options));
}

class QueueLetters implements port.DeadLetters {
  readonly name: string;
  readonly #options: QueueLettersOptions;
  readonly #lookMax: number;
  readonly #queue: string;
  readonly #place: LetterPlace;
  readonly #clock: Clock;
  readonly #connection: RabbitConnection;
  readonly #isOwned: boolean;
  readonly #publisher: ConfirmPublisher;
  readonly #batches = new Set<LetterBatch>();
  /** What is open; it ends with the port. */
  readonly #drains = new Set<QueueDrain>();
  readonly #locks = new Set<QueueLock>();
  readonly #parkedQueues = new Map<string, Promise<void>>();
  #caution: port.Caution | undefined;
  /** When it was asked for (monotonic). */
  #cautionAt = 0;
  #isReported = false;

  constructor(options: QueueLettersOptions, { lookMax }: QueueLettersValues) {
    const { queue, plans = [], wire, clock = systemClock, connection, url } = options;
    this.#options = options;
    this.#lookMax = lookMax;
    this.#queue = queue;
    this.name = `queue "${queue}"`;
    const place = queuePlaceOf(queue, plans);
    const isParked =
      place.role === 'parked' || (place.role === undefined && queue.endsWith(PARKED));
    this.#place = { ...place, kind: options.kind ?? (isParked ? 'parked' : 'dead'), wire };
    this.#clock = clock;
    const chosen = connectionOf({ connection, url, clock }, 'dead letters of a queue');
    this.#connection = chosen.connection;
    this.#isOwned = chosen.isOwned;
    this.#publisher = new ConfirmPublisher(chosen.connection.publishing, clock);
  }

  async caution(): Promise<port.Caution> {
    const now = this.#clock.monotonic();
    // Policies change; this may be open for days.
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

  look(options: port.LetterLookOptions = {}): AsyncIterable<port.OpenLetter> {
    return this.#looking(options);
  }

  take(options: port.LetterTakeOptions): AsyncIterable<port.TakenLetter> {
    const inHand = checkNumber('inHand', options.inHand ?? IN_HAND_DEFAULT, {
      min: 1,
      max: IN_HAND_MAX,
    });
    return this.#takeBatch(options, inHand);
  }

  async isAlone(): Promise<boolean> {
    const { management } = this.#options;
    const connection = await this.#amqp();
    return hasNoOtherConsumer({ queue: this.#queue, connection, management, clock: this.#clock });
  }

  async settle(letter: port.TakenLetter, verdict: port.LetterVerdict): Promise<port.SettleResult> {
    const openMessage = openMessageOf(letter);
    const batch = openMessage && [...this.#batches].find((one) => one.has(openMessage));
    if (openMessage === undefined || batch === undefined) return notInHand(openMessage);
    return batch.settle(openMessage, verdict);
  }

  async since(replay: string, ids: readonly string[]): Promise<port.Since> {
    if (ids.length === 0) return { failed: [], delivered: [] };
    // Before the count: what another look has in hand is not counted.
    const lock = await this.#lockForLook(await this.#amqp());
    try {
      // Cheap, and mostly the answer: nothing came back.
      const count = await this.count();
      return count === 0 ? { failed: [], delivered: [] } : await this.#since(replay, ids, count);
    } finally {
      await this.#unlock(lock);
    }
  }

  async #since(replay: string, ids: readonly string[], count: number): Promise<port.Since> {
    const asked = new Map<string, number>();
    for (const id of ids) asked.set(id, (asked.get(id) ?? 0) + 1);
    const failed: port.Since['failed'][number][] = [];
    let looked = 0;
    for await (const { letter } of this.look()) {
      const { id, code, reason } = letter;
      looked += 1;
      const more = asked.get(id) ?? 0;
      if (letter.replayedBy !== replay || more === 0) continue;
      asked.set(id, more - 1);
      failed.push({ id, code, reason });
      if (failed.length === ids.length) return { failed, delivered: [] };
    }
    return { failed, delivered: [], ...(count > looked ? { unseen: count - looked } : {}) };
  }

  async waitingAt(
    routes: readonly port.LetterRoute[],
    { isFull = false }: { readonly isFull?: boolean } = {},
  ): Promise<readonly port.DestinationState[] | undefined> {
    const queues = new Set<string>();
    for (const route of routes) {
      // Where an exchange leads is not known here.
      if (route.kind !== 'queue' || route.exchange !== '') return undefined;
      queues.add(route.key);
    }
    const { management } = this.#options;
    if (isFull) management?.forget();
    const states: port.DestinationState[] = [];
    for (const [queue, answer] of await passiveQueues(await this.#amqp(), [...queues])) {
      if (!('found' in answer) || answer.found === undefined) return undefined;
      const { messageCount: ready, consumerCount: consumers } = answer.found;
      // Only the management API tells, and it need not answer.
      const told = isFull ? await management?.queue(queue).catch(() => undefined) : undefined;
      const held = told?.unacked === undefined ? {} : { unacked: told.unacked };
      states.push({ name: `queue ${show(queue)}`, ready, consumers, ...held });
    }
    return states;
  }

  async close(): Promise<void> {
    // What is on its way first: its messages are acked when it is confirmed.
    await this.#publisher.close();
    await Promise.all([...this.#drains].map((drain) => drain.close()));
    await Promise.all([...this.#locks].map((lock) => lock.release()));
    if (this.#isOwned) await this.#connection.close();
  }

  async *#looking(options: port.LetterLookOptions): AsyncGenerator<port.OpenLetter> {
    await this.#refuseIfDropping('look at');
    const { query = {}, max = this.#lookMax, signal } = options;
    checkNumber('max', max, { min: 1, max: Number.MAX_SAFE_INTEGER });
    const amqp = await this.#amqp();
    const lock = await this.#lockForLook(amqp);
    let drain: QueueDrain | undefined;
    try {
      drain = await this.#drain(amqp, LOOK_WINDOW, { max, signal });
      for (;;) {
        const message = await drain.next();
        if (message === undefined) return;
        const openMessage = new OpenMessage(readLetter(message, this.#place), message);
        try {
          if (letterMatches(openMessage.read.letter, query)) yield openMessage.letter();
        } finally {
          openMessage.end();
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

  /**
   * A look takes the lock too: others would not see the messages it holds, and would take them for
   * gone.
   */
  async #lockForLook(amqp: AmqpConnection): Promise<QueueLock | undefined> {
    // A look in the middle of a take of our own.
    if (this.#locks.size > 0) return undefined;
    try {
      return await this.#lock(amqp, 'look at');
    } catch (error) {
      // Users who may read but not declare can still look.
      if (isRespoolError(error) && refusalCode(error.cause) === FORBIDDEN) return undefined;
      throw error;
    }
  }

  async #lock(amqp: AmqpConnection, act: string): Promise<QueueLock> {
    const lock = await lockQueue(amqp, this.#queue);
    if (lock === 'elsewhere') throw this.#takenError(act);
    this.#locks.add(lock);
    return lock;
  }

  async #unlock(lock: QueueLock | undefined): Promise<void> {
    if (lock === undefined) return;
    this.#locks.delete(lock);
    await lock.release();
  }

  async *#takeBatch(
    options: port.LetterTakeOptions,
    inHand: number,
  ): AsyncGenerator<port.TakenLetter> {
    await this.#refuseIfDropping(TAKE);
    // One connection for both: the lock goes with the one that has the messages.
    const amqp = await this.#amqp();
    const lock = await this.#lock(amqp, TAKE);
    let batch: LetterBatch | undefined;
    try {
      // Twice as many, so that the next ones are here while those in hand are settled.
      const drain = await this.#drain(amqp, 2 * inHand, { signal: options.signal });
      batch = this.#batchOf(drain, inHand);
      this.#batches.add(batch);
      yield* batch.letters(options);
    } finally {
      if (batch !== undefined) {
        this.#batches.delete(batch);
        this.#drains.delete(batch.drain);
      }
      await this.#unlock(lock);
    }
  }

  #batchOf(drain: QueueDrain, inHand: number): LetterBatch {
    return new LetterBatch({
      drain,
      inHand,
      read: (message) => readLetter(message, this.#place),
      actionOf: (message, read, verdict) => this.#actionOf(message, read, verdict),
    });
  }

  async #actionOf(
    message: AmqpMessage,
    read: ReadLetter,
    verdict: port.LetterVerdict,
  ): Promise<SettleAction> {
    const parts = { message, read, wire: this.#options.wire, now: this.#clock.now() };
    switch (verdict.kind) {
      case 'leave':
        return { kind: 'leave' };
      case 'remove':
        return { kind: 'ack' };
      case 'send': {
        const to = this.#routeOf(read, verdict.to);
        return 'code' in to ? to : { kind: 'publish', outgoing: sentCopy(parts, to, verdict) };
      }
      case 'park': {
        const queue = this.#parkedQueueOf(read);
        // It is among the parked already.
        if (queue === this.#queue) return { kind: 'leave' };
        await this.#ensureParked(queue);
        return { kind: 'publish', outgoing: parkedCopy(parts, queue, verdict) };
      }
      default:
        return unreachable(verdict);
    }
  }

  #routeOf(
    { letter }: ReadLetter,
    route: port.LetterRoute | undefined,
  ): QueueRoute | Extract<SettleAction, { kind: 'refuse' }> {
    const to = route ?? letter.home;
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
    const drain = await openDrain(order, {
      connection,
      clock: this.#clock,
      publisher: this.#publisher,
    });
    this.#drains.add(drain);
    return drain;
  }

  #amqp(): Promise<AmqpConnection> {
    return this.#connection.consuming.tryConnect();
  }

  async #askCaution(): Promise<port.Caution> {
    const { management, isTrusted = false } = this.#options;
    const version = versionOf(await this.#amqp());
    return cautionOf({ queue: this.#queue, management, version, isTrusted });
  }

  /** Reports what looking costs, and refuses where the broker may drop what is looked at. */
  async #refuseIfDropping(act: string): Promise<void> {
    const caution = await this.caution();
    if (caution.kind !== 'free' && !this.#isReported) {
      this.#isReported = true;
      this.#options.onCaution?.(caution);
    }
    if (caution.kind !== 'refused') return;
    const { text, remedy } = caution;
    const what = `cannot ${act} the queue ${show(this.#queue)}`;
    throw new RespoolError('move.refused', `${what}: ${text}; ${remedy}`);
  }

  #takenError(act: string): RespoolError {
    return new RespoolError(
      'move.refused',
      `cannot ${act} the queue ${show(this.#queue)}: another look, sweep or replay works on it; ` +
        'wait until that one is done, or stop it',
    );
  }
}

// A message that is open, as a letter.
//
//   open ─begin()─▶ settling ─end()─▶ over
//     └─ end(): the loop went on, or ended, and it was given back ─┘

/** A message in hand, with its content until it is over. */
class OpenMessage {
  readonly read: ReadLetter;
  #message: AmqpMessage | undefined;
  #isSettling = false;

  constructor(read: ReadLetter, message: AmqpMessage) {
    this.read = read;
    this.#message = message;
  }

  /** The message; `body.missing` when it is not in hand any more. */
  get message(): AmqpMessage {
    if (this.#message !== undefined) return this.#message;
    throw new RespoolError(
      'body.missing',
      `cannot read message ${show(this.read.letter.id)}: it is not in hand any more; read it ` +
        'before the next one is asked for, and before it is settled',
    );
  }

  /** Whether it was settled, or is being settled. */
  get wasSettled(): boolean {
    return this.#isSettling;
  }

  /** Begins to settle it; undefined: it is not open. */
  begin(): AmqpMessage | undefined {
    if (this.#isSettling || this.#message === undefined) return undefined;
    this.#isSettling = true;
    return this.#message;
  }

  /** It is not in hand any more. */
  end(): void {
    this.#message = undefined;
  }

  /** As others see it. */
  letter(): TakenLetter {
    return {
      letter: this.read.letter,
      token: this,
      // A copy: changes by the caller must not reach the message that is sent.
      body: async () => new Uint8Array(this.message.content),
      copy: async (reason) => archiveCopyOf(this.read.letter, this.message, reason),
    };
  }
}

/** What is behind a letter; undefined: not a letter of a queue. */
function openMessageOf(open: OpenLetter): OpenMessage | undefined {
  const { token } = open as Partial<TakenLetter>;
  return token instanceof OpenMessage ? token : undefined;
}

/** What a verdict does with a message. */
type SettleAction =
  | { readonly kind: 'leave' }
  | DrainRemoval
  | { readonly kind: 'refuse'; readonly code: string; readonly reason: string };

/** What taking needs. */
interface LetterBatchOptions {
  readonly drain: QueueDrain;
  readonly inHand: number;
  read(message: AmqpMessage): ReadLetter;
  /** What a verdict means for a message; may throw, and then it is left. */
  actionOf(message: AmqpMessage, read: ReadLetter, verdict: LetterVerdict): Promise<SettleAction>;
}

/** The letters of one take that are in hand, until its loop ends. */
class LetterBatch {
  readonly #parts: LetterBatchOptions;
  readonly #open = new Set<OpenMessage>();
  readonly #settling = new InFlight();
  #hasRoom: () => void = () => undefined;

  constructor(parts: LetterBatchOptions) {
    this.#parts = parts;
  }

  get drain(): QueueDrain {
    return this.#parts.drain;
  }

  /** Whether this letter is one of its own. */
  has(message: OpenMessage): boolean {
    return this.#open.has(message);
  }

  /** Throws at its end when the last acks may be lost. */
  async *letters({ isWanted, signal }: LetterTakeOptions): AsyncGenerator<TakenLetter> {
    const onAbort = (): void => this.#hasRoom();
    signal?.addEventListener('abort', onAbort);
    let isBroken = false;
    try {
      for (;;) {
        const message = await this.drain.next();
        if (message === undefined) return;
        const read = this.#parts.read(message);
        if (!isWanted(read.letter)) {
          this.drain.leave(message);
          continue;
        }
        const openMessage = new OpenMessage(read, message);
        this.#open.add(openMessage);
        yield openMessage.letter();
        await this.#room(signal);
      }
    } catch (error) {
      isBroken = true;
      throw error;
    } finally {
      signal?.removeEventListener('abort', onAbort);
      await this.#end();
      if (!isBroken) this.#checkAcks();
    }
  }

  /** Settles one of its own. */
  async settle(openMessage: OpenMessage, verdict: LetterVerdict): Promise<SettleResult> {
    const message = openMessage.begin();
    if (message === undefined) return notInHand(openMessage);
    try {
      return await this.#settling.track(this.#carryOut(openMessage, message, verdict));
    } finally {
      openMessage.end();
      this.#open.delete(openMessage);
      this.#hasRoom();
    }
  }

  async #carryOut(
    openMessage: OpenMessage,
    message: AmqpMessage,
    verdict: LetterVerdict,
  ): Promise<SettleResult> {
    let action: SettleAction;
    try {
      action = await this.#parts.actionOf(message, openMessage.read, verdict);
    } catch (error) {
      action = { kind: 'refuse', code: codeOf(error), reason: textOf(error) };
    }
    if (action.kind === 'ack' || action.kind === 'publish') {
      return settledBy(action.kind, await this.drain.carry(message, action));
    }
    this.drain.leave(message);
    return action.kind === 'leave'
      ? DONE
      : { kind: 'failed', code: action.code, reason: action.reason };
  }

  /** Waits until one more may be in hand. */
  async #room(signal: AbortSignal | undefined): Promise<void> {
    const isFull = (): boolean => this.#open.size >= this.#parts.inHand;
    const isWanted = (): boolean => signal?.aborted !== true;
    while (isFull() && isWanted()) {
      await new Promise<void>((resolve) => {
        this.#hasRoom = resolve;
      });
    }
  }

  /** Waits for pending settlements; letters that were not settled go back. */
  async #end(): Promise<void> {
    for (const openMessage of this.#open) {
      if (openMessage.wasSettled) continue;
      this.drain.leave(openMessage.message);
      openMessage.end();
    }
    await this.#settling.idle();
    this.#open.clear();
    await this.drain.close();
  }

  /** What was reported as done is done, but it may still be in its queue. */
  #checkAcks(): void {
    if (this.drain.lostError !== undefined) throw this.drain.lostError;
  }
}

const DONE: SettleResult = { kind: 'done' };

function settledBy(kind: DrainRemoval['kind'], result: CarryResult): SettleResult {
  switch (result.kind) {
    case 'done':
      return DONE;
    case 'stays': {
      const reason = textOf(result.error);
      if (isUnsure(result.error)) return { kind: 'unsure', reason };
      return { kind: 'failed', code: codeOf(result.error), reason };
    }
    case 'unsure': {
      const otherwise =
        kind === 'ack'
          ? 'it is where it was'
          : 'it was sent, and may be back in its queue all the same';
      return { kind: 'unsure', reason: `${textOf(result.error)}; ${otherwise}` };
    }
    default:
      return unreachable(result);
  }
}

/**
 * What comes of settling a letter that is not in hand: it was settled before, or given back. The
 * code of the latter is BACK_CODE of dead-letters/replay/send-letters.ts.
 */
function notInHand(message: OpenMessage | undefined): SettleResult {
  if (message?.wasSettled === true) return { kind: 'gone' };
  const reason =
    'it is not in hand any more: its loop has ended, and it was given back; take it again';
  return { kind: 'failed', code: 'move.refused', reason };
}

function codeOf(error: unknown): string {
  return isRespoolError(error) ? error.code : 'unknown';
}

/** Whether what was sent may have arrived anyway; a broker that refuses says so. */
function isUnsure(error: unknown): boolean {
  return isRespoolError(error, 'broker.unconfirmed') && !isNack(error.cause);
}
