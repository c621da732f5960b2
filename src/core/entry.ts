/**
 * entry — the types of a message as a store holds it: the envelope, which seldom changes, and the
 * status, which every step replaces as a whole.
 *
 * Plain readonly data. Stores keep entries and `core/` computes the next status; nothing modifies
 * one. Stores write these fields to disk, so a change of them is a change of the stored format.
 *
 * Why: docs/decisions/0006-the-envelope-records-where-a-body-is.md
 */

import type { Millis } from './duration.ts';
import type { Failure } from './failure.ts';
import type { ClaimableState, Lane, State } from './state.ts';

/** Header names to values. */
export type Headers = Readonly<Record<string, string>>;

/** Where and how the body of a message is kept. */
export interface BodyInfo {
  /** The name a body store keeps it under; never overwritten, never used twice. Empty inline. */
  readonly ref: string;
  /** `inline` with the entry, `store` under ref, `none` once it was removed after the delivery. */
  readonly place: 'inline' | 'store' | 'none';
  /** Bytes as the caller gave them. */
  readonly size: number;
  /** Bytes as they are stored, after the transforms. */
  readonly storedSize: number;
  /**
   * `sha256:` and 64 hex digits, over the bytes as the caller gave them; `hmac-sha256:` where they
   * are encrypted.
   */
  readonly digest: string;
  /** What each transform recorded, in the order they were applied; empty where there was none. */
  readonly encodings: readonly string[];
}

/**
 * The part of a message that only an operator changes (headers, topic, a repaired or rekeyed body);
 * and a delivery, after which `body.place` may be `none`.
 */
export interface Envelope {
  readonly id: string;
  readonly topic: string;
  readonly headers: Headers;
  readonly enqueuedAt: Millis;
  readonly expiresAt?: Millis;
  /**
   * Not due before this time; only messages of an outbox that were emitted with a delay have it.
   */
  readonly eta?: Millis;
  /** 0 first … 9 last, 5 unless said otherwise. */
  readonly priority: number;
  readonly dedupeKey?: string;
  /** True when the caller chose the id: a repeated enqueue with it must still be a duplicate. */
  readonly ownId?: true;
  readonly destination?: string;
  readonly orderKey?: string;
  readonly body: BodyInfo;
}

/** Why a message is where it is. */
export interface Because {
  readonly code: string;
  readonly text: string;
  /** `handler`, `engine`, `policy`, `caretaker`, `check`, or the operator's name. */
  readonly by: string;
}

/** One attempt in the history of a message. */
export interface AttemptRecord {
  readonly at: Millis;
  readonly tookMs: number;
  readonly by: string;
  readonly lane: Lane;
  /** The attempt's number in its lane. */
  readonly attempt: number;
  /** `delivered`, or the code of the failure, postponement or hold. */
  readonly code: string;
  readonly reason?: string;
}

/** How a message ended. */
export type Ending = 'delivered' | 'bounced' | 'removed' | 'expired';

/** The part of a message that every step replaces as a whole. */
export interface Status {
  readonly state: State;
  readonly lane: Lane;
  /** The policy chosen for this message, or null: the handler's, or the default. */
  readonly policy: string | null;
  /** Raised by exactly one on every write. */
  readonly revision: number;
  /** Delivery attempts, counted when they are claimed. */
  readonly attempts: number;
  /** How often a handler asked to wait, or the body could not be read for now; costs no attempt. */
  readonly postponed: number;
  /** How many holders in a row were lost before they could say how it went. */
  readonly lost: number;
  /** How often an operator sent it again. */
  readonly replays: number;
  /** Notices tried since it bounced. */
  readonly notices: number;
  /**
   * When it is due; for an active entry the end of its lease, for an archived one that of its
   * retention; null: when an operator acts. While it waits for its turn in its order key, a store
   * may show when it looks at it again instead.
   */
  readonly dueAt: Millis | null;
  /** Unique per claim call; only on an active entry. */
  readonly holder?: string;
  /** The state an active entry was claimed from; `active` when its former holder was lost. */
  readonly claimedFrom?: ClaimableState;
  readonly because?: Because;
  readonly ending?: Ending;
  readonly lastFailure?: Failure;
  /** The last ten attempts, oldest first. */
  readonly history: readonly AttemptRecord[];
  /** What handlers wanted to remember. */
  readonly notes: Headers;
  readonly updatedAt: Millis;
}

/** A message as a store holds it. */
export interface Entry {
  readonly envelope: Envelope;
  readonly status: Status;
  /** The stored bytes of a body whose place is `inline`. */
  readonly inlineBody?: Uint8Array;
}

/** How many attempts the history keeps. Also in docs/reference/limits.md. */
export const HISTORY_MAX = 10;
