/** interruptible — work that a signal ends in order: what it has in hand goes back first. */

import { endedBy } from '../exit-codes.ts';
import type { Io } from '../io.ts';

/** Does the work; after a signal its error is the signal's, and `then` says how far it came. */
export async function interruptible<T>(
  io: Io,
  then: string,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  let stoppedBy: 'SIGINT' | 'SIGTERM' | undefined;
  const off = io.onSignal((signal) => {
    stoppedBy ??= signal;
    stop.abort();
  });
  try {
    return await work(stop.signal);
  } catch (error) {
    throw stoppedBy === undefined ? error : endedBy(stoppedBy, then);
  } finally {
    off();
  }
}
