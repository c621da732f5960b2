/**
 * record-lease — of several processes on one store one looks at the rules, in rounds.
 *
 * Promise: a compare-and-swap for each round. Anyone who gives no sign of life for the time of the
 * lease is followed by another; what that means for `for` is told as a gap.
 */

import { createHash } from 'node:crypto';
import type { Millis } from '../../core/duration.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import {
  type LeaseRecord,
  type OwnedRecord,
  releaseLease,
  takeLease,
} from '../../spool/record-lease.ts';
import { printCondition } from './condition.ts';
import type { AlertRule } from './types.ts';

const TURN_KIND = 'alert.turn';
const TURN_KEY = 'rounds';
/** This many rounds may be missed. */
const LEASE_ROUNDS = 3;

/** Who looks at the rules. */
export interface AlertLease {
  readonly by: string;
  /** Others wait until then. */
  readonly until: Millis;
  /** When the last round began. */
  readonly at: Millis;
  /** Which rules it looks at, as `fingerprintOf` tells. */
  readonly rules?: string;
}

/** What a turn is taken with. */
export interface AlertLeaseParts {
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
export async function takeAlertLease(
  records: RecordStore,
  { by, now, everyMs, rules }: AlertLeaseParts,
): Promise<'taken' | { readonly lastAt: Millis | undefined }> {
  const lease: LeaseRecord<AlertLease | undefined> = {
    ...leaseOf(records, by),
    leaseMs: leaseMsOf(everyMs),
    now: () => now,
    hold: (_, until) => ({ by, until, at: now, rules }),
  };
  const taken = await takeLease(lease);
  return taken === undefined ? 'taken' : { lastAt: taken.before?.at };
}

/** Lets another process go on at once. */
export async function giveAlertLease(records: RecordStore, by: string): Promise<void> {
  await releaseLease(leaseOf(records, by));
}

function leaseOf(records: RecordStore, by: string): OwnedRecord<AlertLease | undefined> {
  return {
    records,
    kind: TURN_KIND,
    key: TURN_KEY,
    what: 'the turn of the alerts',
    name: by,
    read: (record) => record?.value as AlertLease | undefined,
    holderOf: (turn) => turn?.by,
    // n.b. One that began far in the future is of a clock that went back, and would never end.
    isHeld: (turn, now) =>
      turn !== undefined && turn.until > now && turn.at - now <= turn.until - turn.at,
    free: (turn) => turn && { ...turn, until: 0 },
  };
}

/** Who looked last, if anybody ever has. */
export async function readAlertLease(records: RecordStore): Promise<AlertLease | undefined> {
  return (await records.get(TURN_KIND, TURN_KEY))?.value as AlertLease | undefined;
}
