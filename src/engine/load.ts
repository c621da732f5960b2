/**
 * load — what an engine tells of itself, and what it hands out.
 */

import { RespoolError } from '../core/errors.ts';
import type { Claim } from '../ports/source.ts';
import type { Route } from './routes.ts';

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
  readonly route: Route;
  readonly destination: string | undefined;
  /** When its lease ends (monotonic), by the safe side. */
  readonly leaseEndsAt: number;
}

/** What the caller that waits for a message is told when another has taken it over. */
export function isOvertaken({ id }: Claim, when: string): RespoolError {
  return new RespoolError(
    'move.refused',
    `cannot settle message "${id}": its lease was lost ${when}; look with get()`,
  );
}
