/** disk-meter — how soon the disk of a store is full, from looks at it every minute. */

import { MINUTE_MS } from '../../core/duration.ts';
import { Trend, TREND_MS } from '../../core/forecast.ts';
import type { Clock } from '../../ports/clock.ts';

const EVERY_MS: number = MINUTE_MS;

/** Looks at a disk from its making until it is stopped. */
export class DiskMeter {
  readonly #freeBytes: () => Promise<number>;
  readonly #clock: Clock;
  readonly #trend = new Trend(TREND_MS);
  #callOff: () => void = () => undefined;
  #isOver = false;

  constructor(freeBytes: () => Promise<number>, clock: Clock) {
    this.#freeBytes = freeBytes;
    this.#clock = clock;
    void this.#look();
  }

  /** null: it is not filling up, or not known yet. */
  get fullInMs(): number | null {
    return this.#trend.endsInMs ?? null;
  }

  /** Looks no more. */
  stop(): void {
    this.#isOver = true;
    this.#callOff();
  }

  async #look(): Promise<void> {
    try {
      this.#trend.add(this.#clock.now(), await this.#freeBytes());
    } catch {
      // A disk that says nothing now is asked again; doctor and alerts tell of it.
    }
    if (!this.#isOver) this.#callOff = this.#clock.after(EVERY_MS, () => void this.#look());
  }
}
