/**
 * connection-gate — lets messages through to a confirm publisher while the connection is usable.
 *
 *   shut ─first message: connect, declare─▶ open           away ─fallbackAfter─▶ stuck ─back─▶ open
 *
 * Shut: the first try to connect shows what no waiting will fix (a missing package, a wrong URL),
 * and the exchange is declared, once for each connection. Stuck: the broker has been away, or
 * blocked by an alarm, for too long; callers with a fallback learn it at once, also those whose
 * message is on its way.
 *
 * n.b. This is no circuit breaker (system/breaker.ts): it counts no failures, and needs no trial.
 * The connection itself reports when it is lost, blocked and back.
 *
 * Called by publisher.ts and sink.ts.
 */

import { asError, isRespoolError, RespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { TimeLimit } from '../../system/wait.ts';
import { type AmqpConnection, closeChannel, type Outgoing } from '../connection/amqp.ts';
import type {
  ReconnectingConnection,
  ConnectionEvent,
} from '../connection/reconnecting-connection.ts';
import {
  type ConfirmPublisher,
  type ConfirmPublisherLimits,
  isMissingExchange,
} from './confirm-publisher.ts';

/** What the gate needs. */
interface ConnectionGateOptions {
  readonly connection: ReconnectingConnection;
  readonly publisher: ConfirmPublisher;
  readonly clock: Clock;
  readonly limits: ConfirmPublisherLimits;
  /** The exchange to declare, if any. */
  readonly declare: { readonly exchange: string; readonly type: string } | undefined;
  /** How long a broker may be unreachable before sends fail; undefined: they wait. */
  readonly stuckAfterMs: number | undefined;
}

/** Sends through a confirm publisher. */
export class ConnectionGate {
  readonly #parts: ConnectionGateOptions;
  readonly #unlisten: () => void;
  readonly #waiting = new Set<(error: RespoolError) => void>();
  #isOpen = false;
  #opening: Promise<void> | undefined;
  #heldBack = 0;
  #heldBackBytes = 0;
  #isStuck = false;
  /** How often it got stuck: what was waiting here by then has gone to the fallback. */
  #standstills = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(parts: ConnectionGateOptions) {
    this.#parts = parts;
    this.#unlisten = parts.connection.on((event) => this.#onConnection(event));
  }

  get isAway(): boolean {
    const { connection } = this.#parts;
    return !connection.isUp || connection.isBlocked;
  }

  get waiting(): number {
    return this.#heldBack;
  }

  /** Resolves when the message is confirmed and was not returned. */
  send(outgoing: Outgoing): Promise<void> {
    const { stuckAfterMs, declare } = this.#parts;
    if (this.#isStuck) return Promise.reject(this.#stuck(false));
    const sent = declare === undefined ? this.#pass(outgoing) : this.#passTwice(outgoing);
    if (stuckAfterMs === undefined) return sent;
    if (this.isAway) this.#startTimer(stuckAfterMs);
    return this.#unlessStuck(sent);
  }

  close(): void {
    this.#unlisten();
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #pass(outgoing: Outgoing): Promise<void> {
    return this.#isOpen ? this.#parts.publisher.send(outgoing) : this.#sendLater(outgoing);
  }

  /** The exchange may have been deleted: it is declared once more before that is an error. */
  async #passTwice(outgoing: Outgoing): Promise<void> {
    try {
      await this.#pass(outgoing);
    } catch (error) {
      const isOurs = outgoing.exchange === this.#parts.declare?.exchange;
      if (!isOurs || !isMissingExchange(error)) throw error;
      this.#isOpen = false;
      await this.#pass(outgoing);
    }
  }

  async #sendLater(outgoing: Outgoing): Promise<void> {
    const { limits, publisher } = this.#parts;
    const bytes = outgoing.content.length;
    const isFull =
      this.#heldBack >= limits.waitingMax ||
      (this.#heldBack > 0 && this.#heldBackBytes + bytes > limits.waitingMaxBytes);
    if (isFull) throw this.#full();
    const standstills = this.#standstills;
    this.#heldBack += 1;
    this.#heldBackBytes += bytes;
    try {
      this.#opening ??= this.#open().finally(() => {
        this.#opening = undefined;
      });
      await this.#opening;
    } finally {
      this.#heldBack -= 1;
      this.#heldBackBytes -= bytes;
    }
    if (standstills !== this.#standstills) throw this.#stuck(false);
    await publisher.send(outgoing);
  }

  async #open(): Promise<void> {
    const { declare } = this.#parts;
    const connection = await this.#connect(declare !== undefined);
    if (declare !== undefined && connection !== undefined) {
      await declareExchange(connection, declare.exchange, declare.type);
    }
    this.#isOpen = true;
  }

  /** One try shows what will not fix itself; the confirm publisher waits for the rest. */
  async #connect(isNeeded: boolean): Promise<AmqpConnection | undefined> {
    const { connection, clock, limits } = this.#parts;
    try {
      return await connection.tryConnect();
    } catch (error) {
      if (!isRespoolError(error, 'broker.unavailable')) throw error;
      if (!isNeeded) {
        // It goes on trying; messages wait in the confirm publisher, or go to the fallback.
        connection.connected().catch(() => undefined);
        return undefined;
      }
    }
    const limit = new TimeLimit(clock, limits.confirmTimeoutMs);
    try {
      return await connection.connected(limit.signal);
    } finally {
      limit.stop();
    }
  }

  #unlessStuck(sending: Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      sending.then(
        () => {
          this.#waiting.delete(reject);
          resolve();
        },
        (error: unknown) => {
          this.#waiting.delete(reject);
          reject(asError(error));
        },
      );
    });
  }

  #onConnection({ kind }: ConnectionEvent): void {
    const { stuckAfterMs, declare } = this.#parts;
    // A broker that comes back may have come back empty.
    if (kind === 'down' && declare !== undefined) this.#isOpen = false;
    if (stuckAfterMs === undefined) return;
    if (kind === 'down' || kind === 'blocked') this.#startTimer(stuckAfterMs);
    else if (!this.isAway) {
      this.#isStuck = false;
      this.#cancelTimer?.();
      this.#cancelTimer = undefined;
    }
  }

  #startTimer(ms: number): void {
    if (this.#isStuck || this.#cancelTimer !== undefined) return;
    this.#cancelTimer = this.#parts.clock.after(ms, () => {
      this.#cancelTimer = undefined;
      if (!this.isAway) return;
      this.#isStuck = true;
      this.#standstills += 1;
      // What was not sent is not sent any more: it would arrive twice.
      this.#parts.publisher.dismissWaiting();
      for (const reject of this.#waiting) reject(this.#stuck(true));
      this.#waiting.clear();
    });
  }

  #stuck(isHandedOver: boolean): RespoolError {
    // Messages handed to the channel may have been sent: that is unknown.
    return new RespoolError(
      isHandedOver ? 'broker.unconfirmed' : 'broker.unavailable',
      `cannot publish: ${this.#parts.connection.whyAway}`,
    );
  }

  #full(): RespoolError {
    return new RespoolError(
      'limit.exceeded',
      `cannot publish: ${this.#heldBack} messages with ${this.#heldBackBytes} bytes wait for the ` +
        'broker already; try again later, or give a fallback',
    );
  }
}

/** Declares a durable exchange, on a channel of its own: a refusal closes the channel. */
async function declareExchange(
  connection: AmqpConnection,
  exchange: string,
  type: string,
): Promise<void> {
  const channel = await connection.createChannel();
  channel.on('error', () => undefined);
  try {
    await channel.assertExchange(exchange, type, { durable: true });
  } catch (error) {
    const code: unknown = Reflect.get(asError(error), 'code');
    const isRefused = code === 403 || code === 406;
    throw new RespoolError(
      isRefused ? 'topology.mismatch' : 'broker.unavailable',
      `cannot declare the exchange "${exchange}" as ${type}: ${textOf(error)}` +
        (isRefused ? '; use "exchangeType" as it is there, or leave out "declare"' : ''),
      { cause: error },
    );
  }
  await closeChannel(channel);
}
