/**
 * settle — carries out verdicts on deliveries.
 *
 *   ack ─▶ basic.ack        defer ─▶ wait queue     bounce ─▶ dead queue    hold ─▶ parked queue
 *   release ─▶ basic.nack                └────── confirmed and routed, then basic.ack ──────┘
 *
 * Nothing is acked before its successor is confirmed and routed (invariant 7, ARCHITECTURE.md). A
 * crash in between leaves both, with the same message id.
 *
 * A message that cannot be written again as it is (headers that a client cannot write) is rejected:
 * the broker has all of it, and moves it to the dead queue by the arguments of its queue. Where
 * these name none, it goes to the parked queue without the headers of others.
 *
 * Without a verdict: `waitOn` and `postpone` forward to a wait queue, `writeCount` publishes a
 * redelivered message again with its raised count, `giveBack` returns one to the queue. A suspect
 * is a redelivered message that may have ended its consumer; it is handled alone (isolation.ts).
 *
 * Called by the source of a queue (source.ts) and by isolation.ts.
 */

import { type Millis, MINUTE_MS } from '../../core/duration.ts';
import type { Headers } from '../../core/entry.ts';
import { asError, isRespoolError } from '../../core/errors.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Settlement } from '../../ports/source.ts';
import { backoff, InFlight } from '../../system/wait.ts';
import type { AmqpMessage, Properties } from '../connection/amqp.ts';
import type { ReconnectingConnection } from '../connection/reconnecting-connection.ts';
import { ConfirmPublisher, type ConfirmPublisherLoad } from '../publish/confirm-publisher.ts';
import type { QueuePlan, Route } from '../topology/model.ts';
import type { RabbitClaim } from './delivery.ts';
import type { HistoryEnding, HistoryWire, Past, Successor } from '../message-history.ts';
import type { Subscription } from './subscription.ts';

/** What a settler works with. */
interface SettlerSettings {
  readonly subscription: Subscription;
  /** The connection that successors are published over. */
  readonly publishing: ReconnectingConnection;
  readonly clock: Clock;
  readonly plan: QueuePlan;
  readonly wire: HistoryWire;
  /** Deliveries in a row that may be lost with their consumer. */
  readonly maxLost: number;
  readonly onTrouble: (doing: string, error: Error) => void;
}

/** The wait before a message is forwarded again. */
const RETRY = { firstMs: 100, maxMs: 5_000 };
/** Tries to write a raised count before the message is handled with the count in memory only. */
const COUNT_TRIES_MAX = 3;
/**
 * A queue may be slow to confirm. Published again, the message would be there twice; a lost
 * connection ends the wait in any case. Also in docs/reference/rabbit.md.
 */
const PUBLISHER_LIMITS = { confirmTimeoutMs: 10 * MINUTE_MS };

const DONE: Promise<'done'> = Promise.resolve('done');
const STALE: Promise<'stale'> = Promise.resolve('stale');

/** Settles the deliveries of one queue. */
export class Settler {
  readonly #settings: SettlerSettings;
  readonly #inFlight = new InFlight();
  #publisher: ConfirmPublisher | undefined;
  #counting = 0;
  /** Messages forwarded without a verdict so far. */
  forwarded = 0;

  constructor(settings: SettlerSettings) {
    this.#settings = settings;
  }

  /** Whether counts of redelivered messages are being raised. */
  get isCounting(): boolean {
    return this.#counting > 0;
  }

  /** What is on its way to other queues. */
  get load(): ConfirmPublisherLoad | undefined {
    return this.#publisher?.load;
  }

  /** Resolves when nothing is being forwarded without a verdict. */
  idle(): Promise<void> {
    return this.#inFlight.idle();
  }

  /** Carries out a verdict; `stale` when the broker has taken the delivery back. */
  settle(claim: RabbitClaim, settlement: Settlement): Promise<'done' | 'stale'> {
    const { channel } = claim;
    if (!channel.isOpen) return STALE;
    const { verdict } = settlement;
    if (verdict.kind === 'ack') {
      channel.ack(claim.message);
      return DONE;
    }
    if (verdict.kind === 'release') return this.giveBack(claim);
    const { plan, clock } = this.#settings;
    const now = clock.now();
    const route = routeOfVerdict(claim, { ...settlement, verdict }, plan, now);
    if (verdict.kind === 'defer') claim.dueAt = now + totalWaitMs(route, plan);
    return this.#forwardOnce(claim, route);
  }

  /** Back to the queue. A suspect must not be parked because of our own stops. */
  async giveBack(claim: RabbitClaim): Promise<'done'> {
    const { plan, publishing, maxLost } = this.#settings;
    const isReady = publishing.isUp && !publishing.isBlocked;
    if (claim.isSuspect && isReady) await this.#forward(claim, renewedRoute(claim, plan, maxLost));
    else claim.channel.giveBack(claim.message);
    return 'done';
  }

  /** It came back from a wait queue that was shorter than its wait: to the next one. */
  async waitOn(claim: RabbitClaim): Promise<void> {
    await this.#forward(claim, remainingWait(claim.past, this.#settings.plan));
  }

  /** A suspect that has to wait for another one: to a wait queue, its count as it was. */
  async postpone(claim: RabbitClaim): Promise<void> {
    await this.#forward(claim, postponedRoute(claim, this.#settings.plan));
  }

  /**
   * Publishes a redelivered message again with its raised count; false when that cannot be written.
   * Nothing begins meanwhile: a crash now would leave a message twice, a poisonous one too.
   */
  async writeCount(claim: RabbitClaim, lost: number): Promise<boolean> {
    const route = { route: this.#settings.plan.again, past: { ...claim.past, lost } };
    this.#counting += 1;
    const isWritten = await this.#forward(claim, route, COUNT_TRIES_MAX);
    this.#counting -= 1;
    return isWritten;
  }

  /** Gives up the successors that were not sent yet: their messages are delivered again. */
  dismissWaiting(): void {
    this.#publisher?.dismissWaiting();
  }

  /** Closes the channel that successors are published over, without a wait for their confirms. */
  async close(): Promise<void> {
    const publisher = this.#publisher;
    this.#publisher = undefined;
    await publisher?.close({ waits: false });
  }

  /** Forwards until it works or the delivery is lost; given back once the consumer stops. */
  async #forward(
    claim: RabbitClaim,
    route: VerdictRoute,
    triesMax: number = Number.POSITIVE_INFINITY,
  ): Promise<boolean> {
    const { message, channel, id } = claim;
    const { subscription, onTrouble } = this.#settings;
    this.#inFlight.begin();
    this.forwarded += 1;
    let isForwarded = true;
    const retry = backoff(RETRY);
    for (let tries = 1; channel.isOpen; tries += 1) {
      try {
        await this.#forwardOnce(claim, route);
        break;
      } catch (error) {
        // Counted by how it begins: observe/metrics/aliases.ts.
        onTrouble(`passing on message "${id}"`, asError(error));
        isForwarded = tries < triesMax;
        if (!isForwarded) break;
        if (!subscription.isWanted) {
          channel.giveBack(message);
          break;
        }
        await subscription.sleep(retry.next());
      }
    }
    this.#inFlight.end();
    return isForwarded;
  }

  /** Publishes the successor, then acks; an error leaves the delivery open. */
  async #forwardOnce(claim: RabbitClaim, route: VerdictRoute): Promise<'done' | 'stale'> {
    const { message, channel } = claim;
    const isPublished = await this.#publish(claim, route);
    // Lost meanwhile: the message is delivered once more, beside its successor.
    if (!channel.isOpen) return 'stale';
    if (isPublished) channel.ack(message);
    else channel.reject(message);
    return 'done';
  }

  /** False when the message cannot be written again, and the queue itself leads to a dead queue. */
  async #publish({ message, id }: RabbitClaim, route: VerdictRoute): Promise<boolean> {
    const { publishing, clock, subscription, wire, plan, onTrouble } = this.#settings;
    this.#publisher ??= new ConfirmPublisher(publishing, clock, PUBLISHER_LIMITS);
    const publisher = this.#publisher;
    const { exchange, key } = route.route;
    const { content } = message;
    const properties = wire.write(message, successorOf(route, plan.queue, id));
    try {
      await publisher.send({ exchange, key, content, properties });
      return true;
    } catch (error) {
      if (isRespoolError(error, 'broker.unroutable')) subscription.restoreTopology();
      if (!isRespoolError(error, 'message.invalid')) throw error;
      onTrouble(`writing message "${id}" again`, error);
      if (hasDeadLetters(plan)) return false;
      const { exchange: parking, key: parked } = plan.parked;
      const bare = this.#bareProperties(message, id, route);
      await publisher.send({ exchange: parking, key: parked, content, properties: bare });
      return true;
    }
  }

  /** Properties with our own headers only. */
  #bareProperties(message: AmqpMessage, id: string, { route, past }: VerdictRoute): Properties {
    const { headers: _, messageId: own, ...properties } = message.properties;
    const messageId = own !== undefined && Buffer.byteLength(own) <= 255 ? own : id;
    const ending = {
      kind: 'parked',
      code: 'message.invalid',
      reason: 'its headers cannot be written again',
      at: past.lastFailedAt ?? past.firstAt,
      by: 'engine',
    } as const;
    const { plan, wire } = this.#settings;
    const successor = successorOf({ route, past: { ...past, notes: {} }, ending }, plan.queue, id);
    return wire.write(
      { ...message, properties: { ...properties, messageId } },
      { ...successor, routing: undefined },
    );
  }
}

/** Whether a rejected message goes to a dead queue by the arguments of its own queue. */
function hasDeadLetters({ queue, topology }: QueuePlan): boolean {
  const main = topology.queues.find(({ name }) => name === queue);
  return main?.arguments['x-dead-letter-exchange'] !== undefined;
}

// Where a message goes, and what its successor records. Pure.

/** A message on its way to another queue. */
interface VerdictRoute {
  readonly route: Route;
  readonly past: Past;
  readonly ending?: HistoryEnding;
  /** How long the wait queue keeps it; absent for other queues. */
  readonly waitMs?: number;
}

/** A verdict that needs a successor. */
type MovingVerdict = Extract<Verdict, { kind: 'defer' | 'bounce' | 'hold' }>;
type MovingSettlement = Omit<Settlement, 'verdict'> & { readonly verdict: MovingVerdict };

/** Wait queues that are planned ahead; a wait of years in queues of hours needs more. */
const LEGS_MAX = 1_000;
/**
 * The wait of a postponed suspect, or the nearest for which there is a wait queue. Also in
 * docs/reference/rabbit.md.
 */
const POSTPONED_MS = 1_000;

function routeOfVerdict(
  claim: RabbitClaim,
  { verdict, notes }: MovingSettlement,
  plan: QueuePlan,
  now: Millis,
): VerdictRoute {
  const past = pastAfter(claim, verdict, notes, now);
  if (verdict.kind === 'defer') return deferralRoute(claim, past, verdict.delayMs, plan, now);
  const { code, text, by } = verdict.because;
  const kind = verdict.kind === 'bounce' ? 'dead' : 'parked';
  const route = verdict.kind === 'bounce' ? plan.dead : plan.parked;
  return { route, past, ending: { kind, code, reason: text, at: now, by } };
}

function deferralRoute(
  { envelope: { expiresAt }, attempt }: RabbitClaim,
  past: Past,
  askedMs: number,
  plan: QueuePlan,
  now: Millis,
): VerdictRoute {
  // A deferral never goes past the expiry: it comes back then, and is judged as expired.
  const delayMs = expiresAt === undefined ? askedMs : Math.min(askedMs, expiresAt - now);
  if (delayMs <= 0) return { route: plan.again, past };
  const route = plan.wait({ delayMs, attempt, routingKey: past.routingKey });
  const { waitMs } = route;
  return { route, past: { ...past, restMs: Math.max(0, delayMs - waitMs) }, waitMs };
}

/** The next wait queue of a message whose wait is not over. */
export function remainingWait(past: Past, plan: QueuePlan): VerdictRoute {
  const { routingKey, restMs, attempts: attempt } = past;
  const route = plan.wait({ delayMs: restMs, attempt, routingKey });
  const { waitMs } = route;
  return { route, past: { ...past, restMs: Math.max(0, restMs - waitMs) }, waitMs };
}

/** The whole wait: in this wait queue and in those that follow. */
export function totalWaitMs(first: VerdictRoute, plan: QueuePlan): number {
  let leg = first;
  let totalMs = leg.waitMs ?? 0;
  for (let legs = 1; leg.past.restMs > 0; legs += 1) {
    if (legs === LEGS_MAX) return totalMs + leg.past.restMs;
    leg = remainingWait(leg.past, plan);
    totalMs += leg.waitMs ?? 0;
  }
  return totalMs;
}

function postponedRoute({ past, lost }: RabbitClaim, plan: QueuePlan): VerdictRoute {
  const { attempts: attempt, routingKey } = past;
  const delayMs = Math.min(POSTPONED_MS, plan.waitsMs.at(-1) ?? 0);
  return { route: plan.wait({ delayMs, attempt, routingKey }), past: { ...past, lost } };
}

/**
 * To the end of the queue, with half of the count that would park it. n.b. The broker counts every
 * delivery that comes back, whatever the reason.
 */
function renewedRoute({ past }: RabbitClaim, { again }: QueuePlan, maxLost: number): VerdictRoute {
  return { route: again, past: { ...past, lost: Math.floor(maxLost / 2) } };
}

function successorOf({ past, route, ending }: VerdictRoute, queue: string, id: string): Successor {
  const routing = route.headers;
  return { past, queue, id, routing, ...(ending === undefined ? undefined : { ending }) };
}

function pastAfter(
  claim: RabbitClaim,
  verdict: MovingVerdict,
  notes: Headers | undefined,
  now: Millis,
): Past {
  const { past, envelope, attempt } = claim;
  const failure = verdict.kind === 'hold' ? undefined : verdict.failure;
  // Unlike in a spool, a lost consumer costs no attempt: one crash loses a whole prefetch.
  const isPoison = claim.claimedFrom === 'active';
  const isFree =
    isPoison || (verdict.kind === 'bounce' ? verdict.expired === true : !verdict.costsAttempt);
  const isPostponed = verdict.kind === 'defer' && !verdict.costsAttempt;
  return {
    ...past,
    attempts: isFree ? past.attempts : attempt,
    postponed: past.postponed + (isPostponed ? 1 : 0),
    // A settlement ends the streak of lost consumers, unless the streak is why it is parked.
    lost: isPoison ? claim.lost : 0,
    firstAt: envelope.enqueuedAt,
    restMs: 0,
    notes: notes === undefined ? past.notes : { ...past.notes, ...notes },
    ...(failure === undefined
      ? undefined
      : {
          lastFailure: failure,
          lastFailedAt: now,
          firstFailedAt: past.firstFailedAt ?? now,
        }),
  };
}
