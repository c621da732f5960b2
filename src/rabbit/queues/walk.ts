/**
 * walk — a pass that may be left early, and leaves the order of the queue as it was all the same.
 *
 * n.b. A quorum queue keeps what was given back in a line of its own, before all others, and puts
 * what comes back at its end. Whoever looks at the first ten of a hundred that were all given back
 * before would find them behind the other ninety. So a walk goes on, without a look, until it comes
 * to a message that was never given back. (3.10.8 and 4.0.5, 2026-11-16; classic queues have no
 * such line.) Beyond what a pass may hold it cannot: then those that were looked at come after the
 * others.
 */

import type { AmqpMessage } from '../connection/amqp.ts';
import type { Pass } from './pass.ts';

/** How far to go. */
export interface WalkOptions {
  /** Messages to see, at the most. */
  readonly max?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

type Step = IteratorResult<AmqpMessage, unknown>;

/** One way through a queue; settle what it brings with the pass, then close it. */
export class Walk {
  readonly pass: Pass;
  readonly #options: WalkOptions;
  readonly #steps: AsyncIterator<AmqpMessage, unknown>;
  /** The next one was asked for, and did not come before the signal. */
  #asked: Promise<Step> | undefined;
  #onAbort: () => void = () => undefined;
  // n.b. One for all messages: to listen and to stop anew for each costs as much as to send it.
  readonly #listen = (): void => this.#onAbort();
  #seen = 0;
  /** The last one had been given back before: others may have been so, too. */
  #isAmongReturned = false;
  #closed: Promise<void> | undefined;

  constructor(pass: Pass, options: WalkOptions = {}) {
    this.pass = pass;
    this.#options = options;
    this.#steps = pass[Symbol.asyncIterator]();
    options.signal?.addEventListener('abort', this.#listen);
  }

  /** The next message; undefined: that is all, or all that was asked for. */
  async next(): Promise<AmqpMessage | undefined> {
    const { max = Number.POSITIVE_INFINITY, signal } = this.#options;
    if (signal?.aborted === true || this.#seen >= max) return undefined;
    const asked = this.#steps.next();
    this.#asked = asked;
    const step = await new Promise<Step | undefined>((resolve, reject) => {
      this.#onAbort = () => resolve(undefined);
      // Whoever closes the walk meanwhile does not wait for it.
      asked.then(resolve, reject);
    });
    if (step === undefined) return undefined;
    this.#asked = undefined;
    return this.#take(step);
  }

  /** Gives back what was left or is in hand, in the order it lay. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  #take({ done, value }: Step): AmqpMessage | undefined {
    if (done === true) {
      this.#isAmongReturned = false;
      return undefined;
    }
    this.#seen += 1;
    this.#isAmongReturned = wasReturned(value);
    return value;
  }

  async #close(): Promise<void> {
    try {
      while (this.#isAmongReturned) {
        const asked = this.#asked ?? this.#steps.next();
        this.#asked = undefined;
        const message = this.#take(await asked);
        if (message !== undefined) this.pass.leave(message);
      }
    } catch {
      // The channel is lost: the broker gave back everything, as it does.
    } finally {
      this.#options.signal?.removeEventListener('abort', this.#listen);
      await this.pass.close();
    }
  }
}

/** Whether a quorum queue has it in the line of those that were given back. */
function wasReturned({ fields, properties }: AmqpMessage): boolean {
  const { 'x-delivery-count': delivered, 'x-acquired-count': acquired } = properties.headers ?? {};
  return fields.redelivered && (delivered !== undefined || acquired !== undefined);
}
