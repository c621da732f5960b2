/**
 * forward-and-ack — messages that go on to another queue: published and confirmed, then acked.
 *
 *   forward()   once; what goes wrong is thrown, and tried again by the caller that asked
 *   pass()      without a handler, until it works or the channel is gone
 *   count()     the same, to raise the count of a classic queue; nothing begins meanwhile
 *
 * A message that cannot be written again as it is (headers beyond what a client can write) is left
 * to the broker, which has it whole: rejected, it goes to the dead queue by the queue's own roads.
 */

import { asError, isRespoolError } from '../../core/errors.ts';
import { InFlight } from '../../system/in-flight.ts';
import { backoff } from '../../system/wait.ts';
import type { AmqpMessage, Properties } from '../connection/amqp.ts';
import type { Subscription } from './subscription.ts';
import type { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import { type VerdictRoute, successorMessage } from './verdict-routes.ts';
import type { QueuePlan } from '../topology/model.ts';
import type { HistoryWire } from './message-history.ts';

/** What passing on needs of its source. */
export interface ForwardAndAckParts {
  readonly outlet: () => ConfirmPublisher;
  readonly plan: QueuePlan;
  readonly wire: HistoryWire;
  /** Ends early when the source takes nothing any more. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly isWanted: () => boolean;
  /** A road is missing. */
  readonly heal: () => void;
  readonly onTrouble: (doing: string, error: Error) => void;
}

/** A delivery on its way to another queue. */
export interface ForwardResult {
  readonly message: AmqpMessage;
  readonly intake: Subscription;
  readonly id: string;
  readonly step: VerdictRoute;
}

const RETRY = { firstMs: 100, maxMs: 5_000 };
/** This often a count is tried to be written before a message begins with it in memory only. */
const COUNT_TRIES_MAX = 3;

/** What one source passes on. */
export class ForwardAndAck {
  readonly #parts: ForwardAndAckParts;
  readonly #inFlight = new InFlight();
  #counting = 0;
  /** How many were passed on so far. */
  passed = 0;

  constructor(parts: ForwardAndAckParts) {
    this.#parts = parts;
  }

  /** Whether counts are being raised. */
  get isCounting(): boolean {
    return this.#counting > 0;
  }

  /** Resolves when nothing is passed on any more. */
  idle(): Promise<void> {
    return this.#inFlight.idle();
  }

  /** Publishes the successor, then acks. */
  async forward(passed: ForwardResult): Promise<'done' | 'stale'> {
    const { message, intake } = passed;
    const isWritten = await this.#publish(passed);
    // Lost meanwhile: the message is delivered once more, and its successor is there, too.
    if (!intake.isOpen) return 'stale';
    if (isWritten) intake.ack(message);
    else intake.reject(message);
    return 'done';
  }

  /** Tries until it works; given back when nobody wants it any more. */
  async pass(passed: ForwardResult, triesMax: number = Number.POSITIVE_INFINITY): Promise<boolean> {
    const { message, intake, id } = passed;
    this.#inFlight.begin();
    this.passed += 1;
    let isPassed = true;
    const retry = backoff(RETRY);
    for (let tries = 1; intake.isOpen; tries += 1) {
      try {
        await this.forward(passed);
        break;
      } catch (error) {
        this.#parts.onTrouble(`passing on message "${id}"`, asError(error));
        isPassed = tries < triesMax;
        if (!isPassed) break;
        if (!this.#parts.isWanted()) {
          intake.giveBack(message);
          break;
        }
        await this.#parts.sleep(retry.next());
      }
    }
    this.#inFlight.end();
    return isPassed;
  }

  /**
   * Raises a count; false when that cannot be written. Nothing begins meanwhile: a crash now would
   * leave a message twice, the guilty one too.
   */
  async count(passed: ForwardResult): Promise<boolean> {
    this.#counting += 1;
    const isCounted = await this.pass(passed, COUNT_TRIES_MAX);
    this.#counting -= 1;
    return isCounted;
  }

  /** False when the message cannot be written again, and the broker has a road for it. */
  async #publish({ message, id, step }: ForwardResult): Promise<boolean> {
    const { outlet, wire, plan, onTrouble } = this.#parts;
    const { exchange, key } = step.route;
    const { content } = message;
    const properties = wire.write(message, successorMessage(step, plan.queue, id));
    try {
      await outlet().send({ exchange, key, content, properties });
      return true;
    } catch (error) {
      if (isRespoolError(error, 'broker.unroutable')) this.#parts.heal();
      if (!isRespoolError(error, 'message.invalid')) throw error;
      onTrouble(`writing message "${id}" again`, error);
      if (hasDeadLetters(plan)) return false;
      const { exchange: parking, key: place } = plan.parked;
      const bare = this.#bare({ message, id, step });
      await outlet().send({ exchange: parking, key: place, content, properties: bare });
      return true;
    }
  }

  /** With our own headers only. */
  #bare({ message, id, step }: Omit<ForwardResult, 'intake'>): Properties {
    const { headers: _, messageId: given, ...properties } = message.properties;
    const messageId = given !== undefined && Buffer.byteLength(given) <= 255 ? given : id;
    const ending = {
      kind: 'parked',
      code: 'message.invalid',
      reason: 'its headers cannot be written again',
      at: step.past.lastFailedAt ?? step.past.firstAt,
      by: 'engine',
    } as const;
    const past = { ...step.past, notes: {} };
    const successor = successorMessage({ ...step, past, ending }, this.#parts.plan.queue, id);
    return this.#parts.wire.write(
      { ...message, properties: { ...properties, messageId } },
      { ...successor, routing: undefined },
    );
  }
}

/** Whether what is rejected goes to a dead queue by the arguments of the queue itself. */
function hasDeadLetters({ queue, topology }: QueuePlan): boolean {
  const main = topology.queues.find(({ name }) => name === queue);
  return main?.arguments['x-dead-letter-exchange'] !== undefined;
}
