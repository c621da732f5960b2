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

/** Somebody waits for what is settled next. */
interface Change {
  readonly promise: Promise<void>;
  readonly tell: () => void;
}

/** Should nobody tell of a change, it is looked for this often. */
const LOOK_EVERY_MS = 100;

/** Lets as many through as may be sent again. */
export class Window {
  readonly #parts: WindowParts;
  /** Handlers that have not begun to send. */
  #waiting = 0;
  #change: Change | undefined;
  #isTelling = false;

  constructor(parts: WindowParts) {
    this.#parts = parts;
  }

  /** The same handler, begun when there is room. */
  before(handler: Handler): Handler {
    return async (delivery) => {
      this.#waiting += 1;
      try {
        while (!this.#hasRoom) {
          await this.#changed();
          delivery.signal.throwIfAborted();
        }
      } finally {
        this.#waiting -= 1;
      }
      return handler(delivery);
    };
  }

  /** Something was settled; once for all of it in this turn of the loop. */
  look(): void {
    if (this.#change === undefined || this.#isTelling) return;
    this.#isTelling = true;
    this.#parts.clock.soon(() => {
      this.#isTelling = false;
      this.#change?.tell();
    });
  }

  get #hasRoom(): boolean {
    const { running, settling } = this.#parts.load();
    return running - this.#waiting + settling < this.#parts.max;
  }

  #changed(): Promise<void> {
    this.#change ??= this.#nextChange();
    return this.#change.promise;
  }

  #nextChange(): Change {
    const { promise, resolve } = Promise.withResolvers<void>();
    const tell = (): void => {
      this.#change = undefined;
      callOff();
      resolve();
    };
    const callOff = this.#parts.clock.after(LOOK_EVERY_MS, tell);
    return { promise, tell };
  }
}
