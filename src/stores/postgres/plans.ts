/**
 * plans — keeps looks for work quick where the server misjudges its tables.
 *
 * After a backlog was drained and cleaned up, the server takes the table for nearly empty until it
 * counts again; then it may read the whole next backlog instead of going through an index, or
 * compile a statement for longer than it runs. So a look that takes unusually long puts the next
 * ones in a transaction that forbids both. That costs two short rounds each, so it is not the rule.
 */

import type { Clock } from '../../ports/clock.ts';
import type { Ask } from './server.ts';
import { BEGIN_SQL } from './transaction.ts';

/**
 * A look that takes so much longer than the way there and back, and this more for each row it may
 * bring, is suspicious.
 */
const SLOW_MS = 4;
const SLOW_ROW_MS = 0.06;
/** So many looks are guarded before the server is trusted again. */
const GUARDED_FOR = 64;

const GUARDED_BEGIN_SQL = `${BEGIN_SQL}
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off`;

/** How looks over the tables of one store are made. */
export class Plans {
  readonly #clock: Clock;
  #guardedLeft = 0;
  /** The way to the server and back, by the last guarded looks: far away, every look takes long. */
  #wayMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Asks for up to `max` rows through the indexes. */
  async look(
    ask: Ask,
    max: number,
    text: string,
    values: readonly unknown[],
  ): Promise<unknown[][]> {
    if (this.#guardedLeft > 0) {
      this.#guardedLeft -= 1;
      await this.#begin(ask);
      const rows = await ask(text, values);
      await ask('COMMIT');
      return rows;
    }
    const beganAt = this.#clock.monotonic();
    const rows = await ask(text, values);
    const tookMs = this.#clock.monotonic() - beganAt;
    if (tookMs <= this.#wayMs + SLOW_MS + SLOW_ROW_MS * max) return rows;
    this.#guardedLeft = GUARDED_FOR;
    this.#wayMs = Number.POSITIVE_INFINITY;
    return rows;
  }

  async #begin(ask: Ask): Promise<void> {
    const beganAt = this.#clock.monotonic();
    await ask(GUARDED_BEGIN_SQL);
    this.#wayMs = Math.min(this.#wayMs, this.#clock.monotonic() - beganAt);
  }
}
