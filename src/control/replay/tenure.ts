/**
 * tenure — being the one that runs a replay: a lease on its record, renewed by a heartbeat that
 * also hears what is wanted of it.
 *
 *   begin ─▶ beat, beat, … ─▶ end
 *              └─ pause or cancel wanted · the lease is lost ─▶ halt
 *
 * Promise: two processes never run the same replay; whoever cannot renew its lease in time sends
 * nothing more.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { changeReplay, isRunBySomebody } from './record.ts';
import type { Replay, ReplayState } from './types.ts';

/** Why a run ends before its end. */
export type HaltReason =
  | { readonly kind: 'end'; readonly state: ReplayState; readonly because?: string }
  /** Somebody else runs it by now, or may. */
  | { readonly kind: 'lost' }
  /** Our own machinery failed. */
  | { readonly kind: 'broken'; readonly error: unknown };

/** Ends a run; the first reason counts. */
export class Halt {
  readonly #controller = new AbortController();
  #reason: HaltReason | undefined;

  get reason(): HaltReason | undefined {
    return this.#reason;
  }

  get isSet(): boolean {
    return this.#reason !== undefined;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  stop(reason: HaltReason): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#controller.abort();
  }
}

/** Why a replay is paused whose process was told to end. */
export const INTERRUPTED = 'it was interrupted';

/** How long a runner is believed without a sign of life. */
export const LEASE_MS: number = 30 * SECOND_MS;
const BEAT_MS = SECOND_MS;
/** Before its end nothing new is begun under a lease. */
const MARGIN_MS: number = 5 * SECOND_MS;

interface TenureParts {
  readonly records: RecordStore;
  readonly clock: Clock;
  readonly id: string;
  /** Of this runner; nobody else has it. */
  readonly name: string;
  /** How far it is. */
  readonly progress: () => Pick<Replay, 'counts' | 'canaries'>;
  readonly onProgress: ((replay: Replay) => void) | undefined;
}

/** The time in which this process runs a replay. */
export class Tenure {
  readonly halt: Halt = new Halt();
  readonly #parts: TenureParts;
  #heldUntilMs: number;
  #cancel: (() => void) | undefined;
  #beat: Promise<void> = Promise.resolve();

  private constructor(parts: TenureParts, heldUntilMs: number) {
    this.#parts = parts;
    this.#heldUntilMs = heldUntilMs;
    this.#next();
  }

  /** Takes the lease; `move.refused` when somebody else has it or the replay is over. */
  static async begin(parts: TenureParts): Promise<Tenure> {
    const { records, clock, id, name } = parts;
    const untilMs = clock.monotonic() + LEASE_MS;
    await changeReplay(records, id, (replay) => {
      checkRunnable(replay, clock);
      const { wanted: _, because: __, ...rest } = replay;
      const now = clock.now();
      return {
        ...rest,
        state: 'running',
        updatedAt: now,
        runner: { name, until: now + LEASE_MS },
      };
    });
    return new Tenure(parts, untilMs);
  }

  /** Whether it may begin something now. */
  get isHeld(): boolean {
    if (this.halt.isSet) return false;
    if (this.#parts.clock.monotonic() < this.#heldUntilMs - MARGIN_MS) return true;
    this.halt.stop({ kind: 'lost' });
    return false;
  }

  /** Gives the lease back, with how it ended. */
  async end(state: ReplayState, because: string | undefined): Promise<Replay> {
    await this.drop();
    const { records, clock, id, name, progress, onProgress } = this.#parts;
    const replay = await changeReplay(records, id, (before) => {
      if (before.runner?.name !== name) throw lostError(id);
      const { wanted: _, because: __, runner: ___, ...rest } = before;
      const reason = because === undefined ? {} : { because };
      return { ...rest, ...reason, state, ...progress(), updatedAt: clock.now() };
    });
    onProgress?.(replay);
    return replay;
  }

  /** Stops the heartbeat; the lease runs out by itself. */
  async drop(): Promise<void> {
    this.#cancel?.();
    this.#cancel = undefined;
    await this.#beat;
  }

  #next(): void {
    this.#cancel = this.#parts.clock.after(BEAT_MS, () => {
      this.#beat = this.#beatOnce();
    });
  }

  async #beatOnce(): Promise<void> {
    const { records, clock, id, name, progress, onProgress } = this.#parts;
    const untilMs = clock.monotonic() + LEASE_MS;
    let isLost = false;
    try {
      const replay = await changeReplay(records, id, (before) => {
        isLost = before.runner?.name !== name;
        if (isLost) throw lostError(id);
        const now = clock.now();
        const runner = { name, until: now + LEASE_MS };
        return { ...before, ...progress(), updatedAt: now, runner };
      });
      this.#heldUntilMs = untilMs;
      if (replay.wanted === 'pause') this.halt.stop({ kind: 'end', state: 'paused' });
      if (replay.wanted === 'cancel') this.halt.stop({ kind: 'end', state: 'cancelled' });
      onProgress?.(replay);
    } catch {
      // A store that is away for a moment is asked again at the next beat; without an answer the
      // lease runs out, which `isHeld` turns into the end of this run.
      if (isLost) this.halt.stop({ kind: 'lost' });
    }
    if (this.#cancel !== undefined) this.#next();
  }
}

/**
 * Refuses what is over, or in other hands.
 *
 * n.b. What was done except for some that failed may be run again for those.
 */
export function checkRunnable(replay: Replay, clock: Clock): void {
  const { id, state, counts, runner } = replay;
  if (isRunBySomebody(replay, clock.now())) {
    throw new RespoolError(
      'move.refused',
      `cannot run replay "${id}": "${runner?.name}" runs it; pause it there first, or, where it ` +
        `was killed, try again after ${new Date(runner?.until ?? 0).toISOString()}`,
    );
  }
  const isOver = state === 'cancelled' || (state === 'done' && counts.failed + counts.unsure === 0);
  if (!isOver) return;
  throw new RespoolError(
    'move.refused',
    `cannot run replay "${id}": it is ${state}; plan a new one for what is there now`,
  );
}

/** What a run says that finds another in its place. */
export function lostError(id: string): RespoolError {
  return new RespoolError(
    'move.refused',
    `cannot go on with replay "${id}": its lease was not renewed in time, and another process ` +
      'may run it by now; look at it, and resume it if nobody does',
  );
}
