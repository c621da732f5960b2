/**
 * record-lease — being the one that runs a replay: a lease on its record, renewed by a heartbeat
 * that also hears what is wanted of it.
 *
 *   begin ─▶ beat, beat, … ─▶ end
 *              └─ pause or cancel wanted · the lease is lost ─▶ halt
 *
 * Promise: two processes never run the same replay; one that cannot renew its lease in time sends
 * nothing more.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { type LeaseOptions, RecordLease } from '../../spool/record-lease.ts';
import {
  isRunBySomebody,
  placeOfReplay,
  type Replay,
  replayOf,
  type ReplayState,
} from '../../spool/operator/replays.ts';

/** Why a run ends before its end. */
export type HaltReason =
  | { readonly kind: 'end'; readonly state: ReplayState; readonly because?: string }
  /** Another process runs it by now, or may. */
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
export const INTERRUPTED_REASON = 'it was interrupted';

/** How long a runner is believed without a sign of life. */
export const LEASE_MS: number = 30 * SECOND_MS;
const BEAT_MS = SECOND_MS;
/** Before its end nothing new is begun under a lease. */
const MARGIN_MS: number = 5 * SECOND_MS;

interface TenureParts {
  readonly records: RecordStore;
  readonly clock: Clock;
  readonly id: string;
  /** Identifies this runner; unique. */
  readonly name: string;
  /** How far it is. */
  readonly progress: () => Pick<Replay, 'counts' | 'canaries'>;
  readonly onProgress: ((replay: Replay) => void) | undefined;
}

/** The time in which this process runs a replay. */
export class ReplayLease {
  readonly halt: Halt;
  readonly #parts: TenureParts;
  readonly #lease: RecordLease<Replay>;

  private constructor(parts: TenureParts, halt: Halt, lease: RecordLease<Replay>) {
    this.halt = halt;
    this.#parts = parts;
    this.#lease = lease;
    lease.lost.addEventListener('abort', () => halt.stop({ kind: 'lost' }));
  }

  /** Takes the lease; `move.refused` when another process has it or the replay is over. */
  static async begin(parts: TenureParts): Promise<ReplayLease> {
    const { clock, id } = parts;
    const halt = new Halt();
    const lease = await RecordLease.take(leaseOf(parts, halt), (replay) => {
      checkRunnable(replay, clock);
      const { wanted: _, because: __, ...rest } = replay;
      return { ...rest, state: 'running' as const, updatedAt: clock.now() };
    });
    if (lease === undefined) throw lostError(id);
    return new ReplayLease(parts, halt, lease);
  }

  /** Whether it may begin something now. */
  get isHeld(): boolean {
    return !this.halt.isSet && this.#lease.isHeld;
  }

  /** Gives the lease back, with how it ended. */
  async end(state: ReplayState, because: string | undefined): Promise<Replay> {
    const { clock, progress, onProgress } = this.#parts;
    const replay = await this.#lease.release((before) => {
      const { wanted: _, because: __, ...rest } = before;
      const reason = because === undefined ? {} : { because };
      return { ...rest, ...reason, state, ...progress(), updatedAt: clock.now() };
    });
    onProgress?.(replay);
    return replay;
  }

  /** Stops the heartbeat; the lease runs out by itself. */
  drop(): Promise<void> {
    return this.#lease.drop();
  }
}

function leaseOf(parts: TenureParts, halt: Halt): LeaseOptions<Replay> {
  const { records, clock, id, name, progress, onProgress } = parts;
  return {
    ...placeOfReplay(records, id),
    name,
    clock,
    leaseMs: LEASE_MS,
    beatMs: BEAT_MS,
    marginMs: MARGIN_MS,
    now: () => clock.now(),
    read: (record) => replayOf(record, id),
    holderOf: ({ runner }) => runner?.name,
    isHeld: isRunBySomebody,
    hold: (replay, until) => ({ ...replay, runner: { name, until } }),
    free: (replay) => {
      const { runner: _, ...rest } = replay;
      return rest;
    },
    beat: (replay) => ({ ...replay, ...progress(), updatedAt: clock.now() }),
    onBeat: (replay) => {
      if (replay.wanted === 'pause') halt.stop({ kind: 'end', state: 'paused' });
      if (replay.wanted === 'cancel') halt.stop({ kind: 'end', state: 'cancelled' });
      onProgress?.(replay);
    },
    lostError: () => lostError(id),
  };
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
    `cannot continue with replay "${id}": its lease was not renewed in time, and another process ` +
      'another process may be running it; check, and resume it if none does',
  );
}
