/**
 * start-when-possible — starts what needs a server that may be away, and again after longer and
 * longer waits until it is there.
 *
 * Called by outbox/relay.ts and rabbit/consume.ts.
 */

import { SECOND_MS } from '../../../core/duration.ts';
import { type ErrorCode, isRespoolError, textOf } from '../../../core/errors.ts';
import type { Clock } from '../../../ports/clock.ts';
import { type BackoffRange, backoff, sleep } from '../../../system/wait.ts';
import type { ServeLog } from './serve-log.ts';
import { span } from '../../ui/times.ts';

/** The wait before the next start doubles between these. */
const AGAIN: BackoffRange = { firstMs: SECOND_MS, maxMs: 30 * SECOND_MS };

/** What runs it. */
export interface RetriedStartOptions {
  readonly clock: Clock;
  readonly log: ServeLog;
  /**
   * Hears of what no waiting fixes, such as a queue with other arguments; then it ends there.
   * Without it, as beside a service, that is tried again as well.
   */
  readonly onRefused?: (error: unknown) => void;
  /** Whether a spool writes into the same log: its messages may have the same ids. */
  readonly isBesideSpool?: boolean;
}

/** What is to be started. */
interface RetriedStart {
  readonly start: () => Promise<void>;
  /** What cannot be done while it is away: `consume orders`. */
  readonly doing: string;
  /** The code of the error that waiting fixes. */
  readonly awayCode: ErrorCode;
  /** For the log. */
  readonly fields: object;
}

/** Starts it; true when it runs, false when it was refused or is not wanted any more. */
export async function startWhenPossible(
  { start, doing, awayCode, fields }: RetriedStart,
  { clock, log, onRefused }: RetriedStartOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const retry = backoff(AGAIN);
  while (!signal.aborted) {
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
      const waitMs = retry.next();
      const text = `cannot ${doing}: ${textOf(error)}; trying again in ${span(waitMs)}`;
      log.say(isAway ? 'warn' : 'error', text, fields);
      await sleep(clock, waitMs, signal);
    }
  }
  return false;
}
