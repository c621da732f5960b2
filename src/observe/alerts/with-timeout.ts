/** with-timeout — work that is not waited for any longer than it may take. */

import { formatDuration, SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { withTimeout } from '../../system/wait.ts';

/** What is asked of others takes no longer. */
export const WITHIN_MS: number = 10 * SECOND_MS;

/** What the work comes to; `store.unavailable` when it takes too long. */
export async function withinTime<T>(
  clock: Clock,
  work: () => Promise<T>,
  withinMs: number = WITHIN_MS,
): Promise<T> {
  return withTimeout(clock, withinMs, work(), () => {
    const text = `there was no answer within ${formatDuration(withinMs)}`;
    throw new RespoolError('store.unavailable', text);
  });
}
