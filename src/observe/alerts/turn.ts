/**
 * turn — of several processes on one store one looks at the rules, in rounds.
 *
 * Promise: a compare-and-swap for each round. Whoever gives no sign of life for the time of the
 * lease is followed by another; what that means for `for` is told as a gap.
 */

import { createHash } from 'node:crypto';
import type { Millis } from '../../core/duration.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { printCondition } from './condition.ts';
import type { AlertRule } from './types.ts';

const TURN_KIND = 'alert.turn';
const TURN_KEY = 'rounds';
/** So many rounds may be missed. */
const LEASE_ROUNDS = 3;

/** Who looks at the rules. */
export interface Turn {
  readonly by: string;
  /** Others wait until then. */
  readonly until: Millis;
  /** When the last round began. */
  readonly at: Millis;
  /** Which rules it looks at, as `fingerprintOf` tells. */
  readonly rules?: string;
}

/** What a turn is taken with. */
export interface TurnParts {
  readonly by: string;
  readonly now: Millis;
  readonly everyMs: number;
  readonly rules: string;
}

/** How long one is believed in without a sign of life. */
export function leaseMsOf(everyMs: number): number {
  return LEASE_ROUNDS * everyMs;
}

/** Tells one set of rules from another. */
export function fingerprintOf(rules: readonly AlertRule[]): string {
  const text = JSON.stringify(rules.map(({ name, when }) => [name, printCondition(when)]));
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

/** Takes the turn for a round; `lastAt`: when somebody looked before. */
export async function takeTurn(
  records: RecordStore,
  { by, now, everyMs, rules }: TurnParts,
): Promise<'taken' | { readonly lastAt: Millis | undefined }> {
  const found = await records.get(TURN_KIND, TURN_KEY);
  const before = found?.value as Turn | undefined;
  if (before !== undefined && before.by !== by && isHeld(before, now)) return 'taken';
  const turn: Turn = { by, until: now + leaseMsOf(everyMs), at: now, rules };
  const result = await records.put(TURN_KIND, TURN_KEY, turn, found?.revision ?? 0);
  return result === 'stale' ? 'taken' : { lastAt: before?.at };
}

/** n.b. One that began far in the future is of a clock that went back, and would never end. */
function isHeld({ at, until }: Turn, now: Millis): boolean {
  return until > now && at - now <= until - at;
}

/** Lets another process go on at once. */
export async function giveTurn(records: RecordStore, by: string): Promise<void> {
  const found = await records.get(TURN_KIND, TURN_KEY);
  const turn = found?.value as Turn | undefined;
  if (found === undefined || turn?.by !== by) return;
  await records.put(TURN_KIND, TURN_KEY, { ...turn, until: 0 }, found.revision);
}

/** Who looked last, if anybody ever has. */
export async function readTurn(records: RecordStore): Promise<Turn | undefined> {
  return (await records.get(TURN_KIND, TURN_KEY))?.value as Turn | undefined;
}
