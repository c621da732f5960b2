/** backlog — what is still to be delivered or sent, of what a store has in each state. */

import type { State } from '../../core/state.ts';

/** Neither at its end nor held nor given up. */
const PENDING: ReadonlySet<string> = new Set<State>(['incoming', 'active', 'deferred']);

/** The sum over the states that are still to be delivered. */
export function backlogOf(counts: Iterable<readonly [state: string, count: number]>): number {
  let sum = 0;
  for (const [state, count] of counts) if (PENDING.has(state)) sum += count;
  return sum;
}
