/**
 * plans — keeps looks for work quick where the server misjudges its tables.
 *
 * After a backlog was drained and cleaned up, the server takes the table for nearly empty until it
 * counts again; then it may read the whole next backlog instead of going through an index, or
 * compile a statement for longer than it runs. So a look that takes unusually long puts the next
 * ones in a transaction that forbids both. That costs two short rounds each, so it is not the rule,
 * and where it does not help, as on a machine that is merely busy, it ends at once.
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
/** The first so many show whether it helps: one of them has to be so many times as quick. */
const TRIED_FOR = 4;
const HELPS_FACTOR = 2;

const GUARDED_BEGIN_SQL = `${BEGIN_SQL}
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off`;

/** A look that took long, and whether it helped to guard those after it. */
interface Suspicion {
  readonly max: number;
  readonly tookMs: number;
  tried: number;
  hasHelped: boolean;
}

/** How looks over the tables of one store are made. */
export class Plans {
  readonly #clock: Clock;
  #guardedLeft = 0;
  /** How many more may take long without being suspicious: to guard them would not help. */
  #trustedLeft = 0;
  /** What made the present ones guarded, and what came of it. */
  #suspicion: Suspicion = { max: 0, tookMs: 0, tried: 0, hasHelped: true };
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
    const isGuarded = this.#guardedLeft > 0;
    if (isGuarded) await this.#begin(ask);
    const beganAt = this.#clock.monotonic();
    const rows = await ask(text, values);
    const tookMs = this.#clock.monotonic() - beganAt;
    if (isGuarded) await ask('COMMIT');
    if (isGuarded) this.#noteGuarded(max, tookMs);
    else this.#note(max, tookMs);
    return rows;
  }

  #note(max: number, tookMs: number): void {
    if (this.#trustedLeft > 0) this.#trustedLeft -= 1;
    else if (tookMs > this.#wayMs + SLOW_MS + SLOW_ROW_MS * max) {
      this.#guardedLeft = GUARDED_FOR;
      this.#wayMs = Number.POSITIVE_INFINITY;
      this.#suspicion = { max, tookMs, tried: 0, hasHelped: false };
    }
  }

  #noteGuarded(max: number, tookMs: number): void {
    this.#guardedLeft = Math.max(0, this.#guardedLeft - 1);
    const suspicion = this.#suspicion;
    // A look for few is quick in any case.
    if (suspicion.hasHelped || 2 * max < suspicion.max) return;
    suspicion.tried += 1;
    suspicion.hasHelped = HELPS_FACTOR * tookMs <= suspicion.tookMs;
    if (suspicion.hasHelped || suspicion.tried < TRIED_FOR) return;
    this.#guardedLeft = 0;
    this.#trustedLeft = GUARDED_FOR;
  }

  async #begin(ask: Ask): Promise<void> {
    const beganAt = this.#clock.monotonic();
    await ask(GUARDED_BEGIN_SQL);
    this.#wayMs = Math.min(this.#wayMs, this.#clock.monotonic() - beganAt);
  }
}
