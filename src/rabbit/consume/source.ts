/**
 * source — a queue of RabbitMQ as a Source of the engine.
 *
 *   subscription ─delivery─▶ claim ─▶ buffer ─next()─▶ engine ─settle()─▶ settler
 *                              ├─ suspect ─▶ isolation ─▶ buffer
 *                              └─ its wait is not over, or to be counted ─▶ settler
 *
 * The broker pushes up to `prefetch` deliveries; they wait in the buffer for a slot. Promise:
 * nothing is acked before its successor is confirmed (settle.ts).
 *
 * Why: docs/decisions/: 0020, 0021, 0023, 0024, 0025, 0026 and 0027.
 */

import type { Millis } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Claim, Demand, Settlement, Source } from '../../ports/source.ts';
import { Sleeper } from '../../system/wait.ts';
import type { AmqpConnection, AmqpMessage } from '../connection/amqp.ts';
import type { RabbitConnection } from '../connection/connection.ts';
import type { ConfirmPublisherLoad } from '../publish/confirm-publisher.ts';
import type { QueuePlan } from '../topology/model.ts';
import { brokerCount, payloadOf, RabbitClaim } from './delivery.ts';
import { type SubscribeOptions, Subscription } from './subscription.ts';
import type { DeliveryChannel } from '../connection/delivery-channel.ts';
import { Isolation } from './isolation.ts';
import { generatedId, type HistoryWire } from '../message-history.ts';
import { Settler } from './settle.ts';

/** A queue, and how it is consumed. */
interface RabbitSourceOptions {
  readonly connection: RabbitConnection;
  readonly plan: QueuePlan;
  readonly wire: HistoryWire;
  readonly clock: Clock;
  readonly subscribe: SubscribeOptions;
  /** Deliveries in a row that may be lost with their consumer. */
  readonly maxLost: number;
  /** How long a delivery may wait for a slot. */
  readonly bufferedMaxMs: number;
  /** The id of a message that comes without one. */
  readonly makeId: () => string;
  /** Declares or verifies the topology, over this connection. */
  readonly prepare: (connection: AmqpConnection) => Promise<void>;
  /** An error after which the same is tried again. */
  readonly onTrouble: (doing: string, error: Error) => void;
}

/** There is no lease: a delivery is ours until its channel is closed. */
const LEASE_MS = 60 * 60_000;

/** One queue, as an engine sees it. */
export class RabbitSource implements Source {
  readonly name: string;
  readonly leaseMs: number = LEASE_MS;
  readonly isNear = true;
  readonly #options: RabbitSourceOptions;
  readonly #subscription: Subscription;
  readonly #settler: Settler;
  readonly #isolation: Isolation;
  /** Deliveries that wait for a slot. */
  #buffer: RabbitClaim[] = [];
  /** In which the engine sleeps until there is something for it. */
  readonly #sleeper: Sleeper;

  constructor(options: RabbitSourceOptions) {
    const { connection, plan, clock } = options;
    this.name = `rabbit:${plan.queue}`;
    this.#options = options;
    this.#sleeper = new Sleeper(clock);
    this.#subscription = new Subscription(
      { ...options, connection: connection.consuming },
      {
        onMessage: (message, channel) => this.#onMessage(message, channel),
        onLost: (channel) => this.#onLost(channel),
        onCheck: () => this.#giveBackOld(),
      },
    );
    this.#settler = new Settler({
      ...options,
      subscription: this.#subscription,
      publishing: connection.publishing,
    });
    this.#isolation = new Isolation(this.#subscription, this.#settler);
  }

  get isSubscribed(): boolean {
    return this.#subscription.isActive;
  }

  /** Deliveries that wait for a slot. */
  get waiting(): number {
    return this.#buffer.length;
  }

  /** Successors on their way to other queues. */
  get publishing(): ConfirmPublisherLoad | undefined {
    return this.#settler.load;
  }

  now(): Millis {
    return this.#options.clock.now();
  }

  /** Subscribes for the first time and throws what fails. Later it comes back by itself. */
  async open(): Promise<void> {
    await this.#subscription.open();
  }

  /** Subscribes again after `cease`. */
  resume(): void {
    this.#subscription.resume();
  }

  /**
   * Takes nothing new and gives back what has not begun; what runs can still be settled. n.b. A
   * queue that is deleted with its last consumer stays subscribed: its deliveries wait here.
   */
  async pause(): Promise<void> {
    const { plan } = this.#options;
    const main = plan.topology.queues.find(({ name }) => name === plan.queue);
    if (main?.autoDelete !== true) await this.cease();
  }

  async cease(): Promise<void> {
    await this.#subscription.cease();
    for (const claim of this.#buffer.splice(0)) void this.#giveBack(claim);
    await this.#settler.idle();
  }

  /** Closes the channels. What was not settled goes back to the queue. */
  async close(): Promise<void> {
    await this.#subscription.close();
    await this.#settler.close();
  }

  next(demand: Demand): Promise<readonly Claim[]> {
    if (demand.wants.length === 0 || this.#settler.isCounting) return Promise.resolve([]);
    const isAll = this.#buffer.length <= demand.max;
    const taken = isAll ? this.#buffer : this.#buffer.splice(0, demand.max);
    if (isAll) this.#buffer = [];
    // What a lost channel delivered, the broker delivers again.
    return Promise.resolve(taken.filter((claim) => claim.channel.isOpen));
  }

  wait(_demand: Demand, signal: AbortSignal): Promise<void> {
    const hasSome = this.#buffer.length > 0 && !this.#settler.isCounting;
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
    if (ours.isSuspect) this.#isolation.release(ours);
    return this.#settler.settle(ours, settlement);
  }

  deferredTo(claim: Claim): Millis | undefined {
    return (claim as RabbitClaim).dueAt;
  }

  #onMessage(message: AmqpMessage, channel: DeliveryChannel): void {
    const { plan, wire, maxLost, clock, makeId } = this.#options;
    const { queue } = plan;
    const past = wire.read(message, queue);
    if (!this.#subscription.isWanted) return channel.giveBack(message);
    const { redelivered } = message.fields;
    const isClassic = plan.type === 'classic';
    const countedByBroker = redelivered && !isClassic ? brokerCount(message.properties.headers) : 0;
    const delivery = {
      message,
      channel,
      past,
      queue,
      id: wire.id?.(message) ?? message.properties.messageId ?? generatedId(message, makeId),
      lost: past.lost + countedByBroker,
      maxLost,
      now: this.now(),
      arrivedAt: clock.monotonic(),
      ...payloadOf(message, wire),
    };
    if (!redelivered || !isClassic) return this.#accept(new RabbitClaim(delivery));
    // A classic queue counts nothing, so the count is written before a handler may run.
    const lost = delivery.lost + 1;
    void this.#count(new RabbitClaim({ ...delivery, lost }), lost);
  }

  async #count(claim: RabbitClaim, lost: number): Promise<void> {
    const isWritten = await this.#settler.writeCount(claim, lost);
    if (!this.#settler.isCounting) this.#sleeper.wake();
    // Its queue takes nothing at present: handled with a count in memory, rather than not at all.
    if (!isWritten && claim.channel.isOpen) this.#accept(claim);
  }

  #accept(claim: RabbitClaim): void {
    const { expiresAt } = claim.envelope;
    const isExpired = expiresAt !== undefined && this.now() >= expiresAt;
    if (claim.past.restMs > 0 && !isExpired) void this.#settler.waitOn(claim);
    else if (claim.isSuspect) void this.#isolate(claim);
    else this.#begin(claim);
  }

  async #isolate(claim: RabbitClaim): Promise<void> {
    const admitted = this.#isolation.admit(claim);
    if (admitted === undefined) return this.#settler.postpone(claim);
    const decision = await admitted;
    if (decision === 'begin') this.#begin(claim);
    else if (decision === 'give back') await this.#giveBack(claim);
  }

  #begin(claim: RabbitClaim): void {
    this.#buffer.push(claim);
    if (!this.#settler.isCounting) this.#sleeper.wake();
  }

  async #giveBack(claim: RabbitClaim): Promise<void> {
    this.#isolation.release(claim);
    await this.#settler.giveBack(claim);
  }

  /** Gives back what has waited too long, before the broker closes the whole channel for it. */
  #giveBackOld(): void {
    const oldest = this.#options.clock.monotonic() - this.#options.bufferedMaxMs;
    const count = this.#buffer.findIndex(({ arrivedAt }) => arrivedAt >= oldest);
    const old = this.#buffer.splice(0, count < 0 ? this.#buffer.length : count);
    for (const claim of old) void this.#giveBack(claim);
  }

  #onLost(channel: DeliveryChannel): void {
    this.#buffer = this.#buffer.filter((claim) => claim.channel !== channel);
    // Their messages are delivered again: successors that were not sent must not come on top.
    this.#settler.dismissWaiting();
  }
}
