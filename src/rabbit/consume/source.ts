/**
 * source — a queue of RabbitMQ as a Source.
 *
 *   ack ─▶ basic.ack        defer ─▶ wait queue     bounce ─▶ dead queue    hold ─▶ parked queue
 *   release ─▶ basic.nack                └────── confirmed and routed, then basic.ack ──────┘
 *
 * Nothing is acked before its successor is confirmed (invariant 7). A crash in between leaves both:
 * the same message id, one lineage more. The broker pushes up to `prefetch` deliveries; they wait
 * here for a slot. A subscription that ends comes back by itself, and with it the topology.
 *
 * Why: docs/decisions/: 0020, 0021, 0023, 0024, 0025, 0026 and 0027.
 */

import type { Millis } from '../../core/duration.ts';
import { asError, RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Claim, Demand, Settlement, Source } from '../../ports/source.ts';
import { backoff, Sleeper, sleep } from '../../system/wait.ts';
import type { AmqpConnection, AmqpMessage } from '../connection/amqp.ts';
import { brokerCount, type ClaimParts, payloadOf, RabbitClaim } from './claim.ts';
import { Subscription, type SubscriptionOptions } from './subscription.ts';
import type { ReconnectingConnection } from '../connection/reconnecting-connection.ts';
import { generatedId } from './generated-id.ts';
import type { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import { ForwardAndAck } from './forward-and-ack.ts';
import { restingPlace, routeForVerdict, waitMsOf } from './verdict-routes.ts';
import { explainRefusal } from '../topology/explain.ts';
import type { QueuePlan } from '../topology/model.ts';
import { isSuspect, laterOf, renewedOf, PoisonIsolation } from './poison-isolation.ts';
import type { HistoryWire } from './message-history.ts';

/** What a source is made of. */
export interface RabbitSourceParts {
  readonly link: ReconnectingConnection;
  /** Where successors are published. */
  readonly outlet: () => ConfirmPublisher;
  readonly plan: QueuePlan;
  readonly wire: HistoryWire;
  readonly clock: Clock;
  readonly subscription: SubscriptionOptions;
  readonly maxLost: number;
  /** How long a delivery may wait here before it begins. */
  readonly bufferedMaxMs: number;
  /** A name for a message that has none. */
  readonly makeId: () => string;
  /** Makes the topology what it should be, over this connection. */
  readonly prepare: (connection: AmqpConnection) => Promise<void>;
  /** Something went wrong that will be tried again. */
  readonly onTrouble: (doing: string, error: Error) => void;
}

/** There is no lease: a delivery is ours until its channel ends. */
const LEASE_MS = 60 * 60_000;
/** The wait before the next try to subscribe, and before a message is passed on again. */
const RETRY = { firstMs: 100, maxMs: 5_000 };
/** This often everything is looked at that messages come back by. */
const LOOK_EVERY_MS = 60_000;
/** Tries to subscribe at first, where the connection was lost meanwhile. */
const OPEN_TRIES = 5;

/** One queue, as an engine sees it. */
export class RabbitSource implements Source {
  readonly name: string;
  readonly leaseMs: number = LEASE_MS;
  readonly isNear = true;
  readonly #parts: RabbitSourceParts;
  readonly #trial: PoisonIsolation;
  #intake: Subscription | undefined;
  #buffer: RabbitClaim[] = [];
  /** The engine, until there is something for it. */
  readonly #sleeper: Sleeper;
  #isWanted = false;
  #subscribing: Promise<void> | undefined;
  #isHealing = false;
  /** Ends every wait with `cease`. */
  #ceasing = new AbortController();
  readonly #passing: ForwardAndAck;
  #cancelLook: (() => void) | undefined;

  constructor(parts: RabbitSourceParts) {
    this.#parts = parts;
    this.#sleeper = new Sleeper(parts.clock);
    this.#passing = new ForwardAndAck({
      ...parts,
      sleep: (ms) => this.#sleep(ms),
      isWanted: () => this.#isWanted,
      heal: () => this.#heal(),
    });
    this.#trial = new PoisonIsolation({
      clock: parts.clock,
      idle: () => this.#passing.idle(),
      passed: () => this.#passing.passed,
      begin: (claim) => this.#begin(claim),
      giveBack: (claim) => this.#giveBack(claim),
      isWanted: () => this.#isWanted,
    });
    this.name = `rabbit:${parts.plan.queue}`;
  }

  get isSubscribed(): boolean {
    return this.#intake?.isConsuming === true;
  }

  /** Deliveries that wait for a slot. */
  get waiting(): number {
    return this.#buffer.length;
  }

  now(): Millis {
    return this.#parts.clock.now();
  }

  /** Subscribes for the first time: what is wrong is thrown. Later it comes back by itself. */
  async open(): Promise<void> {
    this.#want();
    const opening = this.#open();
    // A stop that comes meanwhile waits for it.
    this.#subscribing = opening
      .catch(() => undefined)
      .finally(() => {
        this.#subscribing = undefined;
      });
    await opening;
  }

  async #open(): Promise<void> {
    const { link } = this.#parts;
    for (let tries = 1; ; tries += 1) {
      let connection: AmqpConnection | undefined;
      try {
        connection = await link.tryConnect();
        return await this.#subscribe(connection);
      } catch (error) {
        // n.b. A broker may end the connection while others declare the same quorum queue.
        const isLost = connection !== undefined && connection !== link.current;
        if (!isLost || tries >= OPEN_TRIES || !this.#isWanted) {
          this.#isWanted = false;
          throw error;
        }
        await this.#sleep(RETRY.firstMs);
      }
    }
  }

  /** Subscribes again after `cease`. */
  resume(): void {
    this.#want();
    this.#comeBack();
  }

  /**
   * Takes nothing new and gives back what has not begun; what runs can still be settled. n.b. Not
   * of a queue that is deleted with its last consumer: there, what came is kept here.
   */
  async pause(): Promise<void> {
    const { plan } = this.#parts;
    const main = plan.topology.queues.find(({ name }) => name === plan.queue);
    if (main?.autoDelete !== true) await this.cease();
  }

  #want(): void {
    this.#isWanted = true;
    if (this.#ceasing.signal.aborted) this.#ceasing = new AbortController();
  }

  #sleep(ms: number): Promise<void> {
    return sleep(this.#parts.clock, ms, this.#ceasing.signal);
  }

  async cease(): Promise<void> {
    this.#isWanted = false;
    this.#cancelLook?.();
    this.#ceasing.abort();
    this.#trial.end();
    await this.#subscribing;
    const intake = this.#intake;
    await intake?.cancel();
    for (const claim of this.#buffer.splice(0)) void this.#giveBack(claim);
    await this.#passing.idle();
  }

  /** Ends the channel. What was not settled goes back to the queue. */
  async close(): Promise<void> {
    const intake = this.#intake;
    this.#intake = undefined;
    await intake?.close();
  }

  next(demand: Demand): Promise<readonly Claim[]> {
    if (demand.wants.length === 0 || this.#passing.isCounting) return Promise.resolve([]);
    const isAll = this.#buffer.length <= demand.max;
    const taken = isAll ? this.#buffer : this.#buffer.splice(0, demand.max);
    if (isAll) this.#buffer = [];
    // What a lost channel delivered is delivered again, to somebody.
    return Promise.resolve(taken.filter((claim) => claim.intake.isOpen));
  }

  wait(_demand: Demand, signal: AbortSignal): Promise<void> {
    const hasSome = this.#buffer.length > 0 && !this.#passing.isCounting;
    if (hasSome || signal.aborted) return Promise.resolve();
    return this.#sleeper.sleep(Number.POSITIVE_INFINITY, signal);
  }

  async *body(claim: Claim): AsyncIterable<Uint8Array> {
    if ((claim as RabbitClaim).content.length > 0) yield this.bytes(claim);
  }

  bytes(claim: Claim): Uint8Array {
    return (claim as RabbitClaim).copy();
  }

  settle(claim: Claim, settlement: Settlement): Promise<'done' | 'stale'> {
    const ours = claim as RabbitClaim;
    this.#trial.settle(ours);
    if (!ours.intake.isOpen) return STALE;
    const { verdict } = settlement;
    if (verdict.kind === 'ack') {
      ours.intake.ack(ours.message);
      return DONE;
    }
    if (verdict.kind === 'release') return this.#giveBack(ours);
    const { message, intake, id } = ours;
    const now = this.now();
    const step = routeForVerdict(ours, { ...settlement, verdict }, this.#parts.plan, now);
    if (verdict.kind === 'defer') ours.dueAt = now + waitMsOf(step, this.#parts.plan);
    return this.#passing.forward({ message, intake, id, step });
  }

  deferredTo(claim: Claim): Millis | undefined {
    return (claim as RabbitClaim).dueAt;
  }

  /** Back to the queue. One that was lost often must not be parked for our own stops. */
  async #giveBack(claim: RabbitClaim): Promise<'done'> {
    this.#trial.settle(claim);
    const { message, intake, id } = claim;
    const { plan, outlet, maxLost } = this.#parts;
    const isRenewed = isSuspect(claim, maxLost) && outlet().isReady;
    const step = renewedOf(claim, plan, maxLost);
    if (isRenewed) await this.#passing.pass({ message, intake, id, step });
    else intake.giveBack(message);
    return 'done';
  }

  /** A road is missing: somebody took it away. Laid anew, beside everything else. */
  #heal(): void {
    const { link, prepare, onTrouble } = this.#parts;
    if (this.#isHealing || link.current === undefined) return;
    this.#isHealing = true;
    void prepare(link.current)
      .catch((error: unknown) => onTrouble('restoring the topology', asError(error)))
      .finally(() => {
        this.#isHealing = false;
      });
  }

  async #subscribe(connection: AmqpConnection): Promise<void> {
    const { prepare, plan, subscription } = this.#parts;
    await prepare(connection);
    // After `cease` the channel is still there, with what runs.
    const kept = this.#intake?.isOpen === true ? this.#intake : undefined;
    const intake = kept ?? (await this.#openIntake(connection));
    const { prefetch: _, ...options } = subscription;
    const onMessage = (message: AmqpMessage | null): void => {
      if (message === null) this.#cancelled(intake);
      else this.#arrive(message, intake);
    };
    this.#intake = intake;
    try {
      await intake.consume(plan.queue, onMessage, options);
      this.#lookLater();
    } catch (error) {
      this.#intake = undefined;
      await intake.close();
      throw explainRefusal(error, { act: 'consume', what: 'queue', name: plan.queue });
    }
  }

  /** The way back from a wait queue is not used by us: nobody else would tell that it is gone. */
  #lookLater(): void {
    this.#cancelLook?.();
    this.#cancelLook = this.#parts.clock.after(LOOK_EVERY_MS, () => {
      if (!this.isSubscribed) return;
      this.#heal();
      this.#giveBackOld();
      this.#lookLater();
    });
  }

  /** What waits here for too long is given back before the broker takes the whole channel away. */
  #giveBackOld(): void {
    const oldest = this.#parts.clock.monotonic() - this.#parts.bufferedMaxMs;
    const count = this.#buffer.findIndex(({ arrivedAt }) => arrivedAt >= oldest);
    const old = this.#buffer.splice(0, count < 0 ? this.#buffer.length : count);
    for (const claim of old) void this.#giveBack(claim);
  }

  async #openIntake(connection: AmqpConnection): Promise<Subscription> {
    const channel = await connection.createChannel();
    const intake = new Subscription(channel, this.#parts.clock);
    let reason: Error | undefined;
    channel.on('error', (error: unknown) => {
      reason = asError(error);
    });
    channel.on('close', () => this.#lost(intake, reason));
    await channel.prefetch(this.#parts.subscription.prefetch);
    return intake;
  }

  /** The broker took the consumer away: the queue is gone, or a delivery took too long. */
  #cancelled(intake: Subscription): void {
    if (!intake.isOpen) return;
    const error = new RespoolError(
      'broker.unavailable',
      `the broker ended the subscription to queue "${this.#parts.plan.queue}"; it was deleted or ` +
        'moved, or a delivery took longer than its consumer timeout',
    );
    this.#parts.onTrouble('consuming', error);
    void intake.close().then(() => this.#lost(intake, undefined));
  }

  #lost(intake: Subscription, reason: Error | undefined): void {
    intake.lose();
    this.#trial.lose(intake);
    if (this.#intake !== intake) return;
    this.#intake = undefined;
    this.#buffer = this.#buffer.filter((claim) => claim.intake !== intake);
    this.#cancelLook?.();
    // What was not sent yet is delivered again: its successor must not come on top.
    this.#parts.outlet().dismissWaiting();
    if (reason !== undefined) this.#parts.onTrouble('consuming', reason);
    this.#comeBack();
  }

  #comeBack(): void {
    if (this.#subscribing !== undefined || !this.#isWanted || this.isSubscribed) return;
    this.#subscribing = this.#retrySubscribing().finally(() => {
      this.#subscribing = undefined;
      // Lost once more, or wanted again, before we were done here.
      this.#comeBack();
    });
  }

  async #retrySubscribing(): Promise<void> {
    const retry = backoff(RETRY);
    while (this.#isWanted && !this.isSubscribed) {
      try {
        await this.#subscribe(await this.#parts.link.connected(this.#ceasing.signal));
      } catch (error) {
        if (!this.#isWanted) break;
        this.#parts.onTrouble(`subscribing to queue "${this.#parts.plan.queue}"`, asError(error));
        await this.#sleep(retry.next());
      }
    }
  }

  #arrive(message: AmqpMessage, intake: Subscription): void {
    intake.note(message);
    const { plan, wire, maxLost } = this.#parts;
    const past = wire.read(message, plan.queue);
    if (!this.#isWanted) return intake.giveBack(message);
    const own = wire.id?.(message) ?? message.properties.messageId;
    const id = own ?? generatedId(message, this.#parts.makeId);
    const { redelivered } = message.fields;
    const isCounted = redelivered && plan.type !== 'classic';
    const lost = past.lost + (isCounted ? brokerCount(message.properties.headers) : 0);
    const now = this.now();
    const { queue } = plan;
    const body = payloadOf(message, wire);
    const arrivedAt = this.#parts.clock.monotonic();
    const parts = { message, intake, past, queue, id, lost, maxLost, now, arrivedAt, ...body };
    // A classic queue does not count: it is counted here, before anybody handles it.
    if (redelivered && plan.type === 'classic') void this.#count(parts);
    else this.#take(new RabbitClaim(parts));
  }

  async #count(parts: ClaimParts): Promise<void> {
    const { message, intake, id } = parts;
    const lost = parts.lost + 1;
    const step = { route: this.#parts.plan.again, past: { ...parts.past, lost } };
    const isCounted = await this.#passing.count({ message, intake, id, step });
    if (!this.#passing.isCounting) this.#sleeper.wake();
    // Its queue takes nothing at present: better counted here than not handled at all.
    if (!isCounted && intake.isOpen) this.#take(new RabbitClaim({ ...parts, lost }));
  }

  #take(claim: RabbitClaim): void {
    const { plan, maxLost } = this.#parts;
    const { message, intake, id, past, envelope } = claim;
    const isExpired = envelope.expiresAt !== undefined && this.now() >= envelope.expiresAt;
    if (past.restMs > 0 && !isExpired) {
      void this.#passing.pass({ message, intake, id, step: restingPlace(past, plan) });
    } else if (!isSuspect(claim, maxLost)) this.#begin(claim);
    else if (!this.#trial.take(claim)) {
      void this.#passing.pass({ message, intake, id, step: laterOf(claim, plan) });
    }
  }

  #begin(claim: RabbitClaim): void {
    this.#buffer.push(claim);
    if (!this.#passing.isCounting) this.#sleeper.wake();
  }
}

const DONE: Promise<'done'> = Promise.resolve('done');
const STALE: Promise<'stale'> = Promise.resolve('stale');
