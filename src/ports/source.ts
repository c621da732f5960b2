/**
 * source — where an engine gets its work: a spool, a queue, an outbox. One engine, several sources.
 */

import type { Millis } from '../core/duration.ts';
import type { AttemptRecord, Envelope, Headers } from '../core/entry.ts';
import type { Failure } from '../core/failure.ts';
import type { ClaimableState, Lane } from '../core/state.ts';
import type { TopicRule } from '../core/topic.ts';
import type { Verdict } from '../core/verdict.ts';

/** A message that is ours until its lease ends. */
export interface Claim {
  readonly id: string;
  readonly envelope: Envelope;
  readonly lane: Lane;
  /** This attempt's number in its lane, counted already. */
  readonly attempt: number;
  readonly lost: number;
  readonly claimedFrom: ClaimableState;
  /** The policy the message asks for by name, if any. */
  readonly policy: string | null;
  readonly lastFailure?: Failure;
  readonly notes: Headers;
  readonly fence: string;
}

/** What an engine can take now. */
export interface Demand {
  readonly max: number;
  /** Which topics to deliver; the first match decides. */
  readonly topics: readonly TopicRule[];
  /** Which topics to announce the bounce of. */
  readonly notices: readonly TopicRule[];
  readonly exceptDestinations: readonly string[];
}

/** How an attempt is put on record. */
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
  /** Waits until something can be claimed or the signal fires (then: an empty list). */
  next(demand: Demand, signal: AbortSignal): Promise<readonly Claim[]>;
  /** The stored body, decoded; verified at its end. */
  body(claim: Claim): AsyncIterable<Uint8Array>;
  /** Carries out the verdict; 'stale' when somebody overtook us. */
  settle(claim: Claim, settlement: Settlement): Promise<'done' | 'stale'>;
  /** Keeps the claims for another lease; those that were lost answer 'stale'. */
  extend?(claims: readonly Claim[]): Promise<readonly ('done' | 'stale')[]>;
  /** The source's clock. */
  now(): Millis;
}
