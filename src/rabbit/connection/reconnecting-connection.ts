/**
 * reconnecting-connection — one connection to the broker that comes back by itself.
 *
 *   idle ─connected()─▶ opening ─▶ up ─lost─▶ opening (waits longer each time) … ─close()─▶ closed
 *
 * A connection that was passed in is used as it is: when it ends, so does this one.
 */

import { asError, RespoolError, textOf } from '../../core/errors.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import { backoff, endsWithin, Sleeper } from '../../system/wait.ts';
import { type AmqpConnection, CLOSE_TIMEOUT_MS } from './amqp.ts';

/** What happens to a connection. */
export type ConnectionEvent =
  | { readonly kind: 'up' }
  | { readonly kind: 'down'; readonly error: Error }
  | { readonly kind: 'blocked'; readonly reason: string }
  | { readonly kind: 'unblocked' };

/** What the connection needs. */
interface ReconnectingConnectionOptions {
  readonly clock: Clock;
  readonly dice: Dice;
  open(): Promise<AmqpConnection>;
  /** False for a connection that was passed in: it is neither opened again nor closed. */
  readonly isOwned: boolean;
}

/**
 * The wait before the next try to connect doubles between these; up to a half of it is chance. Also
 * in docs/reference/rabbit.md and docs/how-to/consume-rabbitmq.md.
 */
const RETRY = { firstMs: 100, maxMs: 5_000 };

const guarded = new WeakSet<AmqpConnection>();

/** n.b. Without a listener an error of a connection ends the process, also once it is given up. */
function guard(connection: AmqpConnection): void {
  if (guarded.has(connection)) return;
  guarded.add(connection);
  connection.on('error', () => undefined);
}

/** A connection, wanted from its first use on until it is closed. */
export class ReconnectingConnection {
  readonly #parts: ReconnectingConnectionOptions;
  readonly #listeners = new Set<(event: ConnectionEvent) => void>();
  #connection: AmqpConnection | undefined;
  #opening: Promise<AmqpConnection> | undefined;
  #isReturning = false;
  #isClosed = false;
  #isBlocked = false;
  #lastError: Error | undefined;
  readonly #sleeper: Sleeper;
  #unlisten: () => void = () => undefined;

  constructor(parts: ReconnectingConnectionOptions) {
    this.#parts = parts;
    this.#sleeper = new Sleeper(parts.clock);
  }

  get isUp(): boolean {
    return this.#connection !== undefined;
  }

  /** The broker takes nothing from this connection: an alarm of memory or disk. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  /** Why nothing can be sent at present, for a sentence about what was not. */
  get whyAway(): string {
    if (this.#isBlocked)
      return 'the broker accepts no messages at present (alarm of memory or disk)';
    const why = this.#lastError === undefined ? '' : ` (${this.#lastError.message})`;
    return `there is no connection to the broker${why}`;
  }

  /** The connection as it is now, without waiting. */
  get current(): AmqpConnection | undefined {
    return this.#connection;
  }

  /** Hears of every change; the returned function ends that. */
  on(listener: (event: ConnectionEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The connection; opens it with a single try: `broker.unavailable` says why it failed. */
  async tryConnect(): Promise<AmqpConnection> {
    this.#refuseClosed();
    if (this.#connection !== undefined) return this.#connection;
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  /** The connection; waits for as many tries as it takes, or until the signal fires. */
  async connected(signal?: AbortSignal): Promise<AmqpConnection> {
    if (this.#connection !== undefined || this.#isClosed || !this.#parts.isOwned) {
      return this.tryConnect();
    }
    // Not waited for: the signal may be quicker than a broker that does not answer.
    this.tryConnect().catch(() => this.#comeBack());
    return this.#nextUp(signal);
  }

  /** Ends the connection if it is ours, and every wait for it. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#sleeper.wake();
    // One that is still opening is ended when it is open (see #open).
    const connection = this.#connection;
    this.#connection = undefined;
    this.#tell({ kind: 'down', error: closedError() });
    this.#listeners.clear();
    // One that was passed in lives on, and may be passed in many times.
    if (!this.#parts.isOwned) this.#unlisten();
    if (!this.#parts.isOwned || connection === undefined) return;
    // n.b. Already closed by the other side: there is nothing left to end.
    await this.#end(connection);
  }

  async #end(connection: AmqpConnection): Promise<void> {
    const isClosed = await endsWithin(this.#parts.clock, CLOSE_TIMEOUT_MS, goodbye(connection));
    // A broker that stands still answers nothing; its socket would keep the process alive.
    if (!isClosed) connection.connection?.stream?.destroy();
  }

  /** Ends the connection if it is ours, without closing this: it can be opened again. */
  async hangUp(): Promise<void> {
    const connection = this.#connection;
    if (!this.#parts.isOwned || connection === undefined) return;
    this.#connection = undefined;
    this.#isBlocked = false;
    await this.#end(connection);
  }

  async #open(): Promise<AmqpConnection> {
    let connection: AmqpConnection;
    try {
      connection = await this.#parts.open();
    } catch (error) {
      this.#lastError = asError(error);
      throw error;
    }
    if (this.#isClosed) {
      if (this.#parts.isOwned) await connection.close().catch(() => undefined);
      throw closedError();
    }
    this.#unlisten = this.#listen(connection);
    this.#connection = connection;
    this.#lastError = undefined;
    this.#tell({ kind: 'up' });
    return connection;
  }

  #listen(connection: AmqpConnection): () => void {
    let reason: Error | undefined;
    guard(connection);
    const listeners = {
      error: (error: unknown) => {
        reason = asError(error);
      },
      close: (error: unknown) => {
        this.#lost(connection, reason ?? (error === undefined ? undefined : asError(error)));
      },
      blocked: (why: unknown) => {
        this.#isBlocked = true;
        this.#tell({ kind: 'blocked', reason: textOf(why) });
      },
      unblocked: () => {
        this.#isBlocked = false;
        this.#tell({ kind: 'unblocked' });
      },
    };
    const all = Object.entries(listeners);
    for (const [event, listener] of all) connection.on(event, listener);
    return () => {
      for (const [event, listener] of all) connection.off?.(event, listener);
    };
  }

  #lost(connection: AmqpConnection, why: Error | undefined): void {
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    this.#isBlocked = false;
    const said = why === undefined ? 'it was closed' : textOf(why);
    const text = `the connection to RabbitMQ was lost: ${said}`;
    this.#lastError = new RespoolError('broker.unavailable', text, { cause: why });
    this.#tell({ kind: 'down', error: this.#lastError });
    if (this.#parts.isOwned) this.#comeBack();
    else this.#isClosed = true;
  }

  /** Tries until it is up again; one loop at a time. */
  #comeBack(): void {
    if (this.#isReturning || this.#isClosed) return;
    this.#isReturning = true;
    void this.#retry().finally(() => {
      this.#isReturning = false;
      // Lost once more before we were done here.
      if (this.#connection === undefined) this.#comeBack();
    });
  }

  async #retry(): Promise<void> {
    const retry = backoff(RETRY);
    while (!this.#isClosed) {
      await this.#sleeper.sleep(retry.next() * (0.5 + this.#parts.dice.random() / 2));
      if (this.#isClosed || this.#connection !== undefined) return;
      const isUp = await this.tryConnect().then(
        () => true,
        () => false,
      );
      if (isUp) return;
    }
  }

  #nextUp(signal: AbortSignal | undefined): Promise<AmqpConnection> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        undo();
        signal?.removeEventListener('abort', onAbort);
      };
      const undo = this.on((event) => {
        if (this.#isClosed) {
          end();
          reject(closedError());
        } else if (event.kind === 'up' && this.#connection !== undefined) {
          end();
          resolve(this.#connection);
        }
      });
      const onAbort = (): void => {
        end();
        reject(this.#lastError ?? closedError());
      };
      signal?.addEventListener('abort', onAbort);
      if (signal?.aborted === true) onAbort();
      else if (this.#connection !== undefined) {
        end();
        resolve(this.#connection);
      }
    });
  }

  #refuseClosed(): void {
    if (this.#isClosed) throw this.#parts.isOwned ? closedError() : (this.#lastError ?? ended());
  }

  #tell(event: ConnectionEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

/** n.b. A connection that is closing already throws instead of rejecting. */
async function goodbye(connection: AmqpConnection): Promise<void> {
  await connection.close();
}

function closedError(): RespoolError {
  return new RespoolError('broker.unavailable', 'the connection to RabbitMQ was closed by us');
}

function ended(): RespoolError {
  const text = 'the connection to RabbitMQ that was passed in has ended; pass a url to reconnect';
  return new RespoolError('broker.unavailable', text);
}
