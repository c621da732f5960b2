/**
 * turn — of several processes on one store one looks at the rules, in rounds.
 *
 * Promise: a compare-and-swap for each round. Whoever gives no sign of life for the time of the
 * lease is followed by another; what that means for `for` is told as a gap.
 */

import type { Millis } from '../../core/duration.ts';
import type { RecordStore } from '../../ports/record-store.ts';

const TURN_KIND = 'alert.turn';
const TURN_KEY = 'rounds';
/** So many rounds may be missed. */
const LEASE_ROUNDS = 3;

interface TurnRecord {
  readonly by: string;
  readonly until: Millis;
  readonly at: Millis;
}

/** How long one is believed in without a sign of life. */
export function leaseMsOf(everyMs: number): number {
  return LEASE_ROUNDS * everyMs;
}

/** Takes the turn for a round; `lastAt`: when somebody looked before. */
export async function takeTurn(
  records: RecordStore,
  { by, now, everyMs }: { readonly by: string; readonly now: Millis; readonly everyMs: number },
): Promise<'taken' | { readonly lastAt: Millis | undefined }> {
  const found = await records.get(TURN_KIND, TURN_KEY);
  const before = found?.value as TurnRecord | undefined;
  if (before !== undefined && before.by !== by && before.until > now) return 'taken';
  const turn: TurnRecord = { by, until: now + leaseMsOf(everyMs), at: now };
  const result = await records.put(TURN_KIND, TURN_KEY, turn, found?.revision ?? 0);
  return result === 'stale' ? 'taken' : { lastAt: before?.at };
}

/** Lets another process go on at once. */
export async function giveTurn(records: RecordStore, by: string): Promise<void> {
  const found = await records.get(TURN_KIND, TURN_KEY);
  const turn = found?.value as TurnRecord | undefined;
  if (found === undefined || turn?.by !== by) return;
  await records.put(TURN_KIND, TURN_KEY, { ...turn, until: 0 }, found.revision);
}
