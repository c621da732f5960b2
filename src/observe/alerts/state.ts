/**
 * state — the state machine of a rule, from quiet to firing and back. Pure; evaluate.ts keeps it
 * on record.
 *
 *   quiet ─holds─▶ pending ─for its time─▶ firing ─holds no more─▶ clearing ─for as long─▶ quiet
 *     ▲──────────────┘ not any more            ▲─────────────────────────┘ holds again
 *
 * Promise: what cannot be measured neither fires nor resolves, and a time without evaluations does
 * not count as held: waiting starts again.
 */

import type { Millis } from '../../core/duration.ts';
import type { Notice } from './notice.ts';

/** Where a rule stands. */
type AlertPhase = 'quiet' | 'pending' | 'firing' | 'clearing';

/** The state of a rule, as it is on record. */
export interface AlertState {
  readonly phase: AlertPhase;
  /** Since when it is in this phase; while it fires, since when its condition holds. */
  readonly since: Millis;
  /** Counts the firings, from 1; 0: it never fired. */
  readonly episode: number;
  /** Of `clearing`: since when the condition does not hold. */
  readonly clearSince?: Millis;
  readonly firedAt?: Millis;
  readonly resolvedAt?: Millis;
  /** Notifications that are not enqueued yet, and their receivers. */
  readonly pendingNotices?: readonly PendingNotice[];
  /** The time of the last notification. */
  readonly notifiedAt?: Millis;
  /** Why it could not be measured, at the last look. */
  readonly why?: string;
  /** Actions of this episode that are still to be done. */
  readonly pendingActions?: readonly string[];
  /** The condition as text, from when it was not quiet last. */
  readonly when?: string;
  /** While it fires: the receivers that were notified, and will be when it is resolved. */
  readonly to?: readonly string[];
  /** While it fires: the topics that are resumed at its end. */
  readonly pauses?: readonly string[];
}

/** A notification that is not stored yet. */
export interface PendingNotice {
  readonly notice: Notice;
  readonly to: readonly string[];
}

/** What one look at a rule found. */
interface AlertLook {
  readonly now: Millis;
  /** undefined: it could not be measured. */
  readonly holds: boolean | undefined;
  /** No evaluation for longer than the lease (records.ts), or the clock was set back. */
  readonly isAfterGap: boolean;
  readonly forMs: number;
  /** Between two rounds; a rule is quiet for one at least before it is resolved. */
  readonly everyMs: number;
}

const PHASES: readonly unknown[] = ['quiet', 'pending', 'firing', 'clearing'];

/** What an earlier version called parts of a state on record. */
interface EarlierNames {
  readonly owed?: AlertState['pendingNotices'];
  readonly todo?: AlertState['pendingActions'];
  readonly toldAt?: AlertState['notifiedAt'];
}

/** The state of a rule in its record; undefined if the record is not a valid state. */
export function alertStateOf(value: unknown): AlertState | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { owed, todo, toldAt, ...state } = value as AlertState & EarlierNames;
  const { phase, since, episode } = state as Partial<AlertState>;
  const isState = PHASES.includes(phase) && Number.isFinite(since) && Number.isInteger(episode);
  if (!isState) return undefined;
  const { pendingNotices = [] } = state;
  // Beside a present name an earlier one is newer: it was added by a process of that version.
  return {
    ...state,
    ...(owed === undefined ? {} : { pendingNotices: [...pendingNotices, ...owed] }),
    ...(todo === undefined ? {} : { pendingActions: todo }),
    ...(toldAt === undefined ? {} : { notifiedAt: toldAt }),
  };
}

/** A rule that nothing is known of. */
export function quietSince(now: Millis): AlertState {
  return { phase: 'quiet', since: now, episode: 0 };
}

/** Where a rule goes, and what that means for others; the same state: nothing has changed. */
export function nextAlertState(
  state: AlertState,
  look: AlertLook,
): { readonly state: AlertState; readonly change?: 'fired' | 'resolved' } {
  const { now, holds, isAfterGap, forMs, everyMs } = look;
  switch (state.phase) {
    case 'quiet': {
      if (holds !== true) return { state };
      const pending: AlertState = { ...state, phase: 'pending', since: now };
      return forMs === 0 ? fired(pending, now) : { state: pending };
    }
    case 'pending': {
      if (holds !== true) return { state: { ...state, phase: 'quiet', since: now } };
      if (isAfterGap && forMs > 0) return { state: { ...state, since: now } };
      return now - state.since >= forMs ? fired(state, now) : { state };
    }
    case 'firing':
      return holds === false
        ? { state: { ...state, phase: 'clearing', clearSince: now } }
        : { state };
    default: {
      const { clearSince = now, ...rest } = state;
      if (holds !== false) return { state: { ...rest, phase: 'firing' } };
      if (isAfterGap) return { state: { ...state, clearSince: now } };
      if (now - clearSince < Math.max(forMs, everyMs)) return { state };
      const resolved = { ...rest, phase: 'quiet', since: now, resolvedAt: now } as const;
      return { state: resolved, change: 'resolved' };
    }
  }
}

function fired(pending: AlertState, now: Millis): { state: AlertState; change: 'fired' } {
  const { resolvedAt: _resolvedAt, ...rest } = pending;
  return {
    state: { ...rest, phase: 'firing', episode: pending.episode + 1, firedAt: now },
    change: 'fired',
  };
}

/** The state with why it could not be measured, or without; the same if that is so already. */
export function withWhy(state: AlertState, why: string | undefined): AlertState {
  if (state.why === why) return state;
  const { why: _why, ...rest } = state;
  return why === undefined ? rest : { ...rest, why };
}

/** The last state of a rule that was removed. */
export function endedState(state: AlertState, now: Millis): ReturnType<typeof nextAlertState> {
  const { clearSince: _clearSince, why: _why, ...rest } = state;
  const quiet = { ...rest, phase: 'quiet', since: now } as const;
  return isFiring(state)
    ? { state: { ...quiet, resolvedAt: now }, change: 'resolved' }
    : { state: quiet };
}

/** Whether it has fired, and is not resolved. */
export function isFiring({ phase }: AlertState): boolean {
  return phase === 'firing' || phase === 'clearing';
}

/** If the rule was changed meanwhile, another condition held: waiting starts again. */
export function begunAnew(state: AlertState, when: string, now: Millis): AlertState {
  const isOther = state.phase === 'pending' && state.when !== when;
  return isOther ? { ...state, phase: 'quiet', since: now } : state;
}

/** The state with the condition it is about; of one that is quiet, the last one. */
export function withWhen(state: AlertState, when: string): AlertState {
  return state.phase === 'quiet' ? state : { ...state, when };
}
