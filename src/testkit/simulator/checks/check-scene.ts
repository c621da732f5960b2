/**
 * check-scene — the invariants the simulator asserts, by name, the first violation, and what
 * every check may look at. Judged in checks/, except `liveness`, `prompt`, `orphans` (simulate.ts;
 * `liveness` also in ../world.ts) and `timers` (../world.ts). simulate.ts also judges `early` and
 * `conservation` in part.
 */

import type { Millis } from '../../../core/duration.ts';
import type { SimBodyDisk, SimDisk } from '../disk.ts';
import type { SimLedger } from '../sim-ledger.ts';
import type { SimPlan } from '../plan.ts';
import type { Timeline } from '../timeline.ts';

/** What must hold; the numbers are those of the invariants in ARCHITECTURE.md. */
export type Invariant =
  /** 1: an accepted message is in one state until it is acked or removed by an audited action. */
  | 'conservation'
  /** 2: only a claim makes an entry active, and a handler starts once per claim. */
  | 'claim'
  /** 2: a change needs the current revision, and the holder of an active entry. */
  | 'guard'
  /** 2: no handler starts when the lease of its claim is over. */
  | 'lease'
  /** 3: every write raises the revision by one. */
  | 'revision'
  /** Only moves of the table in core/state.ts. */
  | 'transition'
  /** 4: an entry exists ⇒ its body exists. */
  | 'body'
  /** 5: attempts are counted before the handler starts and stay within the policy. */
  | 'attempts'
  /** 6 and 8: one outcome, one verdict, and what is not final is deferred. */
  | 'verdict'
  /** 9: no handler starts before its message is due. */
  | 'early'
  /** 10: never more handlers at once than allowed. */
  | 'limits'
  /** 11: the bytes a handler reads are those that were accepted. */
  | 'integrity'
  /** Two enqueues with one key or id make one message. */
  | 'dedupe'
  /** Nothing is delivered after its expiry. */
  | 'expiry'
  /** What is paused is not claimed. */
  | 'pause'
  /** A notice never delivers again. */
  | 'notice'
  /** A message takes effect once, and once more per loss that explains it. */
  | 'duplicates'
  /** Messages of one order key go one at a time, in the order they were inserted. */
  | 'order'
  /** A change by an operator is written down before it is made. */
  | 'audit'
  /** What the store answers is what it did. */
  | 'answer'
  /** Once faults are healed all work ends. */
  | 'liveness'
  /** What is due starts soon when nothing is in the way. */
  | 'prompt'
  /** No body without entry is left for good. */
  | 'orphans'
  /** A stopped spool leaves no timer behind. */
  | 'timers';

/** One broken promise. */
export interface Violation {
  readonly invariant: Invariant;
  readonly text: string;
  /** Virtual milliseconds since the world began. */
  readonly atMs: number;
  readonly step: number;
}

/** Keeps the first violation: what follows it is mostly its consequence. */
export class Findings {
  first: Violation | undefined;
  readonly #where: () => { readonly atMs: number; readonly step: number };

  constructor(where: () => { readonly atMs: number; readonly step: number }) {
    this.#where = where;
  }

  add(invariant: Invariant, text: string): void {
    this.first ??= { invariant, text, ...this.#where() };
  }
}

/** The world as the checks see it. */
export interface CheckScene {
  readonly plan: SimPlan;
  readonly ledger: SimLedger;
  readonly disk: SimDisk;
  readonly bodyDisk: SimBodyDisk;
  readonly timeline: Timeline;
  readonly findings: Findings;
  /** The store's clock. */
  storeNow(): Millis;
  /** The latest time the store's clock has ever shown; it may have been set back since. */
  latestNow(): Millis;
}

/** What is wrong, if anything. */
export interface CheckProblem {
  readonly invariant: Invariant;
  readonly text: string;
}

/** A process's clock may differ from the store's by this much; beyond that, it is at fault. */
export const CLOCK_ERROR_MAX_MS = 1_000;
