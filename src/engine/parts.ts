/** parts — what an engine is made of; given by whoever builds one. */

import type { BackoffFunction, RetryPolicy } from '../core/policy.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Claim, Source } from '../ports/source.ts';
import type { TracedPlace, Tracer } from '../ports/tracer.ts';
import type { Events } from './events.ts';
import type { Route, Routes } from './routes.ts';
import type { SlotSettings } from './slots.ts';

/** What an engine is made of. */
export interface EngineParts {
  readonly source: Source;
  readonly routes: Routes;
  readonly events: Events;
  readonly clock: Clock;
  readonly dice: Dice;
  readonly slots: SlotSettings;
  /** This engine's name in the history of attempts. */
  readonly name: string;
  /** The policy of a message: by its own name, its route, or the default. */
  policyFor(claim: Claim, route: Route | undefined): RetryPolicy;
  readonly backoffs: Readonly<Record<string, BackoffFunction>>;
  /** Who writes spans, and where its messages come from; undefined: nobody. */
  readonly tracing?: {
    readonly tracer: Tracer;
    readonly place: (claim: Claim) => TracedPlace;
  };
  /** Topic patterns that are paused now, or 'all'. */
  paused(): readonly string[] | 'all';
}

/**
 * What `paused()` returns when nothing is: one object, so that the hot path compares by identity.
 */
export const NOTHING_PAUSED: readonly string[] = [];
