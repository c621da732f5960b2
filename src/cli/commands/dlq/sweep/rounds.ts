/**
 * rounds — something that is done again and again until a signal: from start to start, and never
 * twice at a time. And the broker that one round reaches.
 */

import type { Broker } from '../../../../config/load/brokers.ts';
import type { LoadedConfig } from '../../../../config/load/load-config.ts';
import type { Clock } from '../../../../ports/clock.ts';
import { sleep } from '../../../../system/wait.ts';
import { createClosers } from '../../../lifetime.ts';
import { type BrokerAccess, reach } from '../../rabbit/reach.ts';
import type { CommandContext } from '../../../spec.ts';

/** Does it at once, then every span; one that takes longer is followed at once by the next. */
export async function inRounds(
  {
    clock,
    everyMs,
    signal,
  }: { readonly clock: Clock; readonly everyMs: number; readonly signal: AbortSignal },
  round: () => Promise<void>,
): Promise<void> {
  while (!signal.aborted) {
    const startedAt = clock.monotonic();
    await round();
    const waitMs = startedAt + everyMs - clock.monotonic();
    if (waitMs > 0) await sleep(clock, waitMs, signal);
  }
}

/** A broker that answers, until it is left. */
export interface ReachedOnce extends BrokerAccess {
  readonly leave: () => Promise<void>;
}

/** Connects; everything is closed by `leave`. */
export async function reachOnce(
  context: CommandContext,
  { loaded, broker }: { readonly loaded: LoadedConfig; readonly broker: Broker },
): Promise<ReachedOnce> {
  const { atEnd, close } = createClosers();
  try {
    return { ...(await reach({ ...context, atEnd }, loaded, broker)), leave: close };
  } catch (error) {
    await close();
    throw error;
  }
}
