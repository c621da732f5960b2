/**
 * source — the interface to where an engine gets its work: a spool, a queue, an outbox. The engine
 * claims with `next`, sleeps in `wait`, and reports each verdict with `settle`.
 *
 * Why: docs/decisions/0002-a-source-has-next-and-wait.md
 */

import type { Millis } from '../core/duration.ts';
import type { AttemptRecord, Envelope, Headers } from '../core/entry.ts';
import type { Failure } from '../core/failure.ts';
import type { ClaimableState, Lane } from '../core/state.ts';
import type { TopicRule } from '../core/topic.ts';
import type { Verdict } from '../core/verdict.ts';

/** A message that this engine has claimed, until its lease ends. */
export interface Claim {
  readonly id: string;
  readonly envelope: Envelope;
  readonly lane: Lane;
  /** This attempt's number in its lane, counted already. */
  readonly attempt: number;
  /** Holders lost in a row, including the one before this claim. */
  readonly lost: number;
  readonly claimedFrom: ClaimableState;
  /** The policy the message asks for by name, if any. */
  readonly policy: string | null;
  readonly lastFailure: Failure | undefined;
  readonly notes: Headers;
  /** Identifies this claim of the message: id and revision. */
  readonly fence: string;
}

/** One kind of message an engine can take, and how many of it. */
export interface Want {
  readonly lane: Lane;
  /** The first match decides, no match means no. */
  readonly topics: readonly TopicRule[];
  readonly max: number;
}

/** Wants that may be asked for at once. */
export interface WantGroup {
  /** The union of their topics, for as many as each of them has room for. */
  readonly together: Want;
  readonly of: readonly Want[];
}

/** What an engine can take now: at most `max` over all wants. */
export interface Demand {
  readonly max: number;
  readonly wants: readonly Want[];
  /**
   * Groups of these wants, so that a question costs the same with 50 handlers as with two: only
   * where the group brings all it asked for has each want to be asked. A source may ignore them.
   */
  readonly groups?: readonly WantGroup[];
  readonly exceptDestinations: readonly string[];
}

/** The verdict on an attempt, and what is recorded with it. */
export interface Settlement {
  readonly verdict: Verdict;
  readonly notes?: Headers;
  /** None when no handler ran. */
  readonly attempt?: AttemptRecord;
}

/** Where work comes from and where verdicts are carried out. */
export interface Source {
  readonly name: string;
  readonly leaseMs: number;
  /** True if `next` answers from memory: then nothing is claimed ahead. */
  readonly isNear?: boolean;
  /** The source's clock. */
  now(): Millis;
  /** Claims what is due now, without waiting; may be nothing. */
  next(demand: Demand): Promise<readonly Claim[]>;
  /** Resolves when `next` may find something, or when the signal fires. */
  wait(demand: Demand, signal: AbortSignal): Promise<void>;
  /** The body, decoded; verified at its end. */
  body(claim: Claim): AsyncIterable<Uint8Array>;
  /**
   * The whole body, verified, if it is in memory; otherwise undefined. A promise only where
   * decoding takes long.
   */
  bytes?(claim: Claim): Uint8Array | Promise<Uint8Array> | undefined;
  /** Carries out the verdict; 'stale' if the claim was lost to another holder. */
  settle(claim: Claim, settlement: Settlement): Promise<'done' | 'stale'>;
  /** When a claim that was deferred is due, as the source has recorded it. */
  deferredTo?(claim: Claim): Millis | undefined;
  /** Keeps the claims for another lease; 'stale' for claims that were lost. */
  extend?(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]>;
}
