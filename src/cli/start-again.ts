/**
 * start-again — starts what stands on a server that may be away, and again after longer and longer
 * waits until it is there.
 */

import { SECOND_MS } from '../core/duration.ts';
import { type ErrorCode, isRespoolError, textOf } from '../core/errors.ts';
import type { Clock } from '../ports/clock.ts';
import type { ServeLog } from './serve-log.ts';
import { span } from './times.ts';

/** The wait before the next start doubles between these. */
const AGAIN_MIN_MS: number = SECOND_MS;
const AGAIN_MAX_MS: number = 30 * SECOND_MS;

/** What runs it. */
export interface LifeParts {
  readonly clock: Clock;
  readonly log: ServeLog;
  /** Hears of what no waiting mends, such as a queue with other arguments; then it ends there. */
  readonly onRefused?: (error: unknown) => void;
  /** Whether a spool writes into the same log: its messages may have the same ids. */
  readonly isBesideSpool?: boolean;
}

/** What is to be started. */
export interface Starting {
  readonly start: () => Promise<void>;
  /** What cannot be done while it is away: `consume orders`. */
  readonly doing: string;
  /** The code of the error that waiting mends. */
  readonly awayCode: ErrorCode;
  /** For the log. */
  readonly fields: object;
}

/** Starts it; true when it runs, false when it was refused or is not wanted any more. */
export async function startWhenPossible(
  { start, doing, awayCode, fields }: Starting,
  { clock, log, onRefused }: LifeParts,
  signal: AbortSignal,
): Promise<boolean> {
  for (let waitMs = AGAIN_MIN_MS; !signal.aborted; waitMs = Math.min(2 * waitMs, AGAIN_MAX_MS)) {
    try {
      await start();
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      const isAway = isRespoolError(error, awayCode);
      if (!isAway && onRefused !== undefined) {
        onRefused(error);
        return false;
      }
      const text = `cannot ${doing}: ${textOf(error)}; trying again in ${span(waitMs)}`;
      log.say(isAway ? 'warn' : 'error', text, fields);
      await pause(clock, waitMs, signal);
    }
  }
  return false;
}

/** Whether it ended in time. */
export async function endsWithin(
  end: Promise<unknown>,
  ms: number,
  clock: Clock,
): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<boolean>();
  const callOff = clock.after(ms, () => resolve(false));
  const isOver = await Promise.race([end.then(() => true), late]);
  callOff();
  return isOver;
}

async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    const callOff = clock.after(ms, end);
    function end(): void {
      callOff();
      signal.removeEventListener('abort', end);
      resolve();
    }
    signal.addEventListener('abort', end);
  });
}
