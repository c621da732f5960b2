/**
 * parts — the types that an engine shares with its owner: its dependencies (`EngineParts`), its
 * load in numbers, reserved slots; and the event and the error for what goes wrong in it.
 */

import type { Millis } from '../core/duration.ts';
import { asError, RespoolError } from '../core/errors.ts';
import type { BackoffFunction, RetryPolicy } from '../core/policy.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Claim, Source } from '../ports/source.ts';
import type { TracedPlace, Tracer } from '../ports/tracer.ts';
import type { Events } from './events.ts';
import type { HandlerRoute, Routes, SlotSettings } from './handler-slots.ts';

/** The dependencies of an engine. */
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
  policyFor(claim: Claim, route: HandlerRoute | undefined): RetryPolicy;
  readonly backoffs: Readonly<Record<string, BackoffFunction>>;
  /** The tracer, and the name of its source; undefined: tracing is off. */
  readonly tracing?: {
    readonly tracer: Tracer;
    readonly place: (claim: Claim) => TracedPlace;
  };
  readonly pauses: PausedTopics;
}

/** Topics that must not be claimed. */
export interface PausedTopics {
  /** Their patterns, or 'all'; `NOTHING_PAUSED` for none. */
  readonly now: readonly string[] | 'all';
}

/** One object, so that the hot path compares by identity. */
export const NOTHING_PAUSED: readonly string[] = [];

/** An engine's work in numbers. */
export interface EngineLoad {
  readonly isRunning: boolean;
  /** Handlers that may run at once. */
  readonly concurrency: number;
  /** Handlers that run now, and slots taken for messages that are being accepted. */
  readonly running: number;
  /** Claimed, and waiting for a slot, or for room at their destination or handler. */
  readonly waiting: number;
  /** Verdicts on their way to the store. */
  readonly settling: number;
  /** Claims that came to an end since the spool was made, with or without an attempt. */
  readonly settled: number;
}

/** A slot taken ahead, for a message that is being inserted. */
export interface Reservation {
  readonly route: HandlerRoute;
  readonly destination: string | undefined;
  /** When its lease ends (monotonic), at the earliest. */
  readonly leaseEndsAt: number;
}

/** Emits a `trouble` event: something went wrong that is not a failed delivery. */
export function emitTrouble(
  { events, source }: { readonly events: Events; readonly source: { now(): Millis } },
  doing: string,
  thrown: unknown,
): void {
  events.emit({ at: source.now(), kind: 'trouble', doing, error: asError(thrown) });
}

/** The error for a caller that waits for a message that another holder has taken over. */
export function overtakenError({ id }: Claim, when: string): RespoolError {
  return new RespoolError(
    'move.refused',
    `cannot settle message "${id}": its lease was lost ${when}; look with get()`,
  );
}
