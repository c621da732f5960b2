/**
 * server-time — the time of the database server, asked for in a transaction that is at hand anyway.
 *
 * The relay goes by the server's clock. An emit on a machine that is ahead of it would otherwise
 * keep every message waiting for as long. Asked once a minute; in between, local time and the
 * difference that was found.
 */

import { MINUTE_MS, type Millis } from '../core/duration.ts';
import type { Clock } from '../ports/clock.ts';

/** Wall and monotonic time apart by more than this since it was asked: the clock was set. */
const JUMP_MS = 2_000;
/** An answer that took longer is not worth much: only the first one is used all the same. */
const TRUSTED_MS = 1_000;

/** Tells the time of a server. */
export class ServerTime {
  readonly #clock: Clock;
  /** Server time less wall time. */
  #offsetMs: number | undefined;
  #askedWall = 0;
  #askedMonotonic = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  now(): Millis {
    return Math.floor(this.#clock.now() + (this.#offsetMs ?? 0));
  }

  /** Whether it should be asked for. */
  get isOld(): boolean {
    if (this.#offsetMs === undefined) return true;
    const passedMs = this.#clock.monotonic() - this.#askedMonotonic;
    const wallMs = this.#clock.now() - this.#askedWall;
    return passedMs >= MINUTE_MS || Math.abs(wallMs - passedMs) > JUMP_MS;
  }

  /** Asks for it, by a statement that does so. */
  async learn(ask: () => Promise<Millis>): Promise<void> {
    const before = this.#clock.now();
    const started = this.#clock.monotonic();
    const serverNow = await ask();
    const tookMs = this.#clock.monotonic() - started;
    this.#askedWall = this.#clock.now();
    this.#askedMonotonic = this.#clock.monotonic();
    const isJumped = Math.abs(this.#askedWall - before - tookMs) > JUMP_MS;
    const isTrusted = tookMs <= TRUSTED_MS && !isJumped;
    if (!Number.isFinite(serverNow)) return;
    if (this.#offsetMs !== undefined && !isTrusted) return;
    // True somewhere between the question and the answer; the middle is off by half of that.
    this.#offsetMs = serverNow - (this.#askedWall - tookMs / 2);
  }
}
