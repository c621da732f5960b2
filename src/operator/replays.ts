/**
 * replays — a replay: letters that are sent again as one operation, on record from its plan to its
 * last message, so that it can be looked at, paused, resumed and cancelled by anybody.
 *
 *   plan ─▶ planned ─run─▶ running ─▶ done
 *                           │ ▲  ├─▶ stopped   by its guard or its canaries; resume when the cause
 *                           │ │  │             is gone
 *                           ▼ │  └─▶ cancelled what was not sent is where it was
 *                          paused
 */

import type { Duration, Millis } from '../core/duration.ts';
import type { KeptCopy, LetterKind, LetterQuery, LetterRoute } from '../ports/dead-letters.ts';
import type { RecordStore } from '../ports/record-store.ts';

/** Where the letters lie. */
export type ReplaySource =
  | { readonly kind: 'spool'; readonly kinds: readonly LetterKind[] }
  | { readonly kind: 'queue'; readonly queue: string; readonly broker: string };

/** How a replay is to go. */
export interface ReplayOptions {
  /** Which letters; the plan freezes what fits at that moment. */
  readonly query?: LetterQuery;
  /** Where to; default: the home of each letter. */
  readonly to?: LetterRoute;
  /** At most so many letters. */
  readonly max?: number;
  /**
   * So many go first, and the rest only when an attempt of each has ended and not too many failed
   * again; default 10. In a queue: when a consumer has taken each, and not too many came back.
   */
  readonly canary?: number;
  /** Within this time the attempts of the canaries have to end; default 10s. */
  readonly canaryWait?: Duration;
  /** Letters per second; default: as fast as it goes. */
  readonly rate?: number;
  /** On their way at once, 1 to 1,000; default 100. */
  readonly window?: number;
  /** Stops when more than so many percent of them fail, or fail again; default 20, 100: never. */
  readonly stopAbove?: number;
  /** A letter that was replayed so often is parked instead; default 3. */
  readonly replaysMax?: number;
  /** What may have been sent already after a crash: left where it is (default), or sent again. */
  readonly unsure?: 'leave' | 'send';
  /** A file that repairs letters on their way. */
  readonly transform?: string;
}

/** Why a letter of a plan cannot be sent. */
export type CannotKind = 'homeless' | 'replayed-too-often' | 'transform-failed' | 'transform-skips';

/** What would happen. */
export interface ReplayPlan {
  readonly plannedAt: Millis;
  /** Looked at, fitting or not. */
  readonly seen: number;
  readonly count: number;
  readonly bytes: number;
  readonly oldestAt: Millis | null;
  readonly newestAt: Millis | null;
  /** By group, the largest first, 100 at the most. */
  readonly groups: readonly {
    readonly group: string;
    readonly code: string;
    readonly reason: string;
    readonly count: number;
  }[];
  /** By destination, the largest first, 100 at the most. */
  readonly routes: readonly { readonly to: string; readonly count: number }[];
  /** What cannot be sent, by why, with some ids. */
  readonly cannot: readonly {
    readonly why: CannotKind;
    readonly text: string;
    readonly count: number;
    readonly ids: readonly string[];
  }[];
  /** What looking cost, where it did. */
  readonly caution?: string;
}

export type ReplayState = 'planned' | 'running' | 'paused' | 'stopped' | 'cancelled' | 'done';

/** How far it is. */
export interface ReplayCounts {
  readonly sent: number;
  /** Not sent, and where they were. */
  readonly failed: number;
  /** Parked: replayed too often. */
  readonly parked: number;
  /** May have been sent; where they were. */
  readonly unsure: number;
  /** Planned, and not there any more. */
  readonly gone: number;
  /** Left by the transform, or because nobody knows their home. */
  readonly left: number;
  /** Sent, and failed again. */
  readonly again: number;
  /** Sent, and without an ended attempt when the replay was done; where the place can tell. */
  readonly waiting?: number;
}

/** How the canaries did. */
export interface ReplayCanaries {
  /** Delivered; in a queue: taken by a consumer, and not back within the time. */
  readonly passed: number;
  readonly failed: number;
  /** No attempt of theirs has ended. */
  readonly waiting: number;
  /** Not there any more, and not known to be delivered: removed by an operator, or forgotten. */
  readonly removed?: number;
}

/** A replay as it is on record. */
export interface Replay {
  readonly id: string;
  readonly by: string;
  readonly createdAt: Millis;
  readonly updatedAt: Millis;
  readonly source: ReplaySource;
  readonly options: ReplayOptions;
  readonly plan: ReplayPlan;
  readonly state: ReplayState;
  /** Why it is in this state, where somebody or something said so. */
  readonly because?: string;
  readonly counts: ReplayCounts;
  /** Of the run that sent or watched canaries last. */
  readonly canaries?: ReplayCanaries;
  /** What whoever runs it is asked to do next. */
  readonly wanted?: 'pause' | 'cancel';
  /** Who runs it, and until when that is believed without a sign of life. */
  readonly runner?: { readonly name: string; readonly until: Millis };
  /** Of the transform, when the plan was made. */
  readonly transformDigest?: string;
}

/** What became of one letter of a replay. */
export interface ReplayLine {
  readonly at: Millis;
  readonly id: string;
  readonly result: 'sent' | 'failed' | 'parked' | 'unsure' | 'gone' | 'left' | 'again';
  readonly to?: string;
  readonly code?: string;
  readonly reason?: string;
}

/** What replays need of a desk. */
export interface ReplayDesk {
  readonly by: string;
  readonly records: RecordStore;
  /** Writes what is about to be done into the audit record. */
  recordAction(action: string, details: Readonly<Record<string, unknown>>): Promise<void>;
  /** Puts copies down as archived; the originals of what is changed or removed elsewhere. */
  keep(copies: readonly KeptCopy[]): Promise<void>;
}
