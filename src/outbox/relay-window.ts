/**
 * relay-window — how many messages of a relay are sent, or on their way, and not yet written down
 * as sent: as many may a crash send again.
 *
 * The engine frees the slot of a handler before its outcome is in the store. While the database is
 * slow, a relay without this would go on sending what it cannot write down.
 */

import type { EngineLoad } from '../engine/load.ts';
import type { Clock } from '../ports/clock.ts';
import type { Handler } from '../ports/handler.ts';

/** What a window is made of. */
export interface WindowParts {
  readonly max: number;
  readonly clock: Clock;
  readonly load: () => Pick<EngineLoad, 'running' | 'settling'>;
}

/** A handler that has not begun to send. */
interface Waiting {
  readonly signal: AbortSignal;
  readonly begin: () => void;
}

/** Should nobody tell of a change, it is looked for this often. */
const LOOK_EVERY_MS = 100;

/** Lets as many through as may be sent again, in the order in which they came. */
export class Window {
  readonly #parts: WindowParts;
  #waiting: Waiting[] = [];
  #isLooking = false;
  #cancelLook: (() => void) | undefined;

  constructor(parts: WindowParts) {
    this.#parts = parts;
  }

  /** The same handler, begun when there is room. */
  before(handler: Handler): Handler {
    return async (delivery) => {
      const { signal } = delivery;
      // This one is running as well.
      if (this.#waiting.length > 0 || this.#room < 0) {
        await new Promise<void>((begin) => this.#wait({ signal, begin }));
        signal.throwIfAborted();
      }
      return handler(delivery);
    };
  }

  /** Something was settled; once for all of it in this turn of the loop. */
  look(): void {
    if (this.#waiting.length === 0 || this.#isLooking) return;
    this.#isLooking = true;
    this.#parts.clock.soon(() => {
      this.#isLooking = false;
      this.#admit();
    });
  }

  /** How many more may begin; what waits is running for the engine. */
  get #room(): number {
    const { running, settling } = this.#parts.load();
    return this.#parts.max - (running - this.#waiting.length + settling);
  }

  #wait(one: Waiting): void {
    this.#waiting.push(one);
    this.#cancelLook ??= this.#parts.clock.after(LOOK_EVERY_MS, () => this.#admit());
  }

  #admit(): void {
    this.#cancelLook?.();
    this.#cancelLook = undefined;
    let room = this.#room;
    const isFree = ({ signal }: Waiting): boolean => {
      if (signal.aborted) return true;
      room -= 1;
      return room >= 0;
    };
    const free = this.#waiting.map(isFree);
    const waiting = this.#waiting;
    this.#waiting = waiting.filter((_, at) => free[at] !== true);
    for (const [at, { begin }] of waiting.entries()) if (free[at] === true) begin();
    if (this.#waiting.length === 0) return;
    this.#cancelLook = this.#parts.clock.after(LOOK_EVERY_MS, () => this.#admit());
  }
}
