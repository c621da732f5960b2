/** check-context — what every check may look at, and where it reports. */

import type { Millis } from '../../../core/duration.ts';
import type { SimDisk } from '../disk.ts';
import type { SimLedger } from '../ledger.ts';
import type { SimPlan } from '../plan.ts';
import type { SimBodyDisk } from '../body-disk.ts';
import type { Timeline } from '../timeline.ts';
import type { Findings, Invariant } from '../violation.ts';

/** The world as the checks see it. */
export interface CheckContext {
  readonly plan: SimPlan;
  readonly ledger: SimLedger;
  readonly disk: SimDisk;
  readonly shelf: SimBodyDisk;
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

/** A process may be this wrong about the store's time; more is its own fault. */
export const CLOCK_ERROR_MAX_MS = 1_000;
