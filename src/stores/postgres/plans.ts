/**
 * plans — keeps looks for work quick where the server misjudges its tables.
 *
 * After a backlog was drained and cleaned up, the server takes the table for nearly empty until it
 * counts again; then it may read the whole next backlog instead of going through an index, or
 * compile a statement for longer than it runs. So looks that take unusually long put the next ones
 * in a transaction that forbids both. That costs two short rounds each, so it is not the rule: it
 * takes two of a kind in a row, as a single one tells of a machine that is busy, and where the
 * first four show that it does not help, it ends.
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
const SLOW_LOOKS = 2;
/** So many looks are guarded before the server is trusted again. */
const GUARDED_FOR = 64;
/** The first so many show whether it helps: one of them takes no more than this share as long. */
const TRIED_FOR = 4;
const HELPS_SHARE = 0.75;
/** Where it did not help, looks that take so many times as long are guarded again. */
const WORSE_FACTOR = 4;

const GUARDED_BEGIN_SQL = `${BEGIN_SQL}
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off`;

/** A look that took long, and whether it helped to guard those after it. */
interface Suspicion {
  readonly kind: string;
  readonly tookMs: number;
  tried: number;
  hasHelped: boolean;
}

/** How looks over the tables of one store are made. */
export class Plans {
  readonly #clock: Clock;
  #guardedLeft = 0;
  /** How many looks of a kind took long in a row. */
  readonly #slowLooks = new Map<string, number>();
  /** How many more may take long without being suspicious: to guard them would not help. */
  #trustedLeft = 0;
  /** What made the present ones guarded, and what came of it. */
  #suspicion: Suspicion = { kind: '', tookMs: 0, tried: 0, hasHelped: true };
  /** The way to the server and back, by the last guarded looks: far away, every look takes long. */
  #wayMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Asks for up to `max` rows through the indexes; `way` names the statement. */
  async look(
    ask: Ask,
    { way, max }: { readonly way: string; readonly max: number },
    text: string,
    values: readonly unknown[],
  ): Promise<unknown[][]> {
    const isGuarded = this.#guardedLeft > 0;
    if (isGuarded) {
      // Before it is made: where guarded looks fail, they end, too.
      this.#guardedLeft -= 1;
      await this.#begin(ask);
    }
    const beganAt = this.#clock.monotonic();
    const rows = await ask(text, values);
    const tookMs = this.#clock.monotonic() - beganAt;
    if (isGuarded) await ask('COMMIT');
    // Those for about as many can be held against each other.
    const kind = `${way} ${Math.ceil(Math.log2(max))}`;
    const isSlow = tookMs > this.#wayMs + SLOW_MS + SLOW_ROW_MS * max;
    if (isGuarded) this.#noteGuarded(kind, tookMs);
    else this.#note(kind, tookMs, isSlow);
    return rows;
  }

  #note(kind: string, tookMs: number, isSlow: boolean): void {
    const slowLooks = isSlow ? (this.#slowLooks.get(kind) ?? 0) + 1 : 0;
    this.#slowLooks.set(kind, slowLooks);
    // What was not worth it may become so, as a backlog grows.
    if (isSlow && tookMs > WORSE_FACTOR * this.#suspicion.tookMs) this.#trustedLeft = 0;
    if (this.#trustedLeft > 0) this.#trustedLeft -= 1;
    else if (slowLooks >= SLOW_LOOKS) {
      this.#slowLooks.clear();
      this.#guardedLeft = GUARDED_FOR;
      this.#wayMs = Number.POSITIVE_INFINITY;
      this.#suspicion = { kind, tookMs, tried: 0, hasHelped: false };
    }
  }

  #noteGuarded(kind: string, tookMs: number): void {
    const suspicion = this.#suspicion;
    if (suspicion.hasHelped || kind !== suspicion.kind) return;
    suspicion.tried += 1;
    suspicion.hasHelped = tookMs <= HELPS_SHARE * suspicion.tookMs;
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
