/** settling — an active entry, every verdict and what becomes of it, for next-status. */
import { SAMPLE_AT, sampleEntry, type SampleParts } from 'respool/testkit';
import { type Entry, failure, type Lane, type Status, type Verdict } from 'respool';
import { nextStatus, type Retention, type SettleContext } from '../../src/core/next-status.ts';
import type { ClaimableState } from '../../src/core/state.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../time.ts';

export const NOW = SAMPLE_AT + HOUR_MS;
export const CLAIM = { now: NOW, leaseMs: MINUTE_MS, holder: 'h/1' };
export const LEAN: Retention = {
  deliveredMs: null,
  bouncedMs: null,
  removedMs: DAY_MS,
  dedupeWindowMs: DAY_MS,
};
export const KEEPING: Retention = { ...LEAN, deliveredMs: 7 * DAY_MS, bouncedMs: 30 * DAY_MS };

export const because = { code: 'smtp.451', text: 'greylisted', by: 'handler' };
export const broken = failure('transient', 'smtp.451', 'greylisted');
export const VERDICTS = {
  ack: { kind: 'ack' },
  defer: { kind: 'defer', delayMs: 5_000, because, failure: broken, costsAttempt: true },
  postpone: { kind: 'defer', delayMs: 5_000, because, costsAttempt: false },
  bounce: { kind: 'bounce', because, failure: broken, spent: true },
  expire: { kind: 'bounce', because, spent: false, expired: true },
  hold: { kind: 'hold', because, costsAttempt: true },
  'free hold': { kind: 'hold', because, costsAttempt: false },
  release: { kind: 'release' },
} as const satisfies Record<string, Verdict>;
export type VerdictName = keyof typeof VERDICTS;

/** Claims that can be: a delivery from three states, a notice from two. */
export const CLAIMS: readonly [Lane, ClaimableState][] = [
  ['delivery', 'incoming'],
  ['delivery', 'deferred'],
  ['delivery', 'active'],
  ['notice', 'bounce'],
  ['notice', 'active'],
];

/** An active entry in its third attempt of the lane, with something in every counter. */
export function active(lane: Lane, claimedFrom: ClaimableState, parts: SampleParts = {}): Entry {
  const isNotice = lane === 'notice';
  return sampleEntry('m-1', {
    state: 'active',
    lane,
    claimedFrom,
    holder: 'h/1',
    revision: 7,
    attempts: isNotice ? 5 : 3,
    notices: isNotice ? 3 : 0,
    postponed: 2,
    lost: 2,
    replays: 1,
    dueAt: NOW + MINUTE_MS,
    ...(isNotice ? { ending: 'bounced' as const } : {}),
    ...parts,
  });
}

export function context(extra: Partial<SettleContext> = {}): SettleContext {
  return { now: NOW, retention: LEAN, announces: true, ...extra };
}

/** The next status, which must not be a removal. */
export function settled(
  entry: Entry,
  name: VerdictName,
  extra: Partial<SettleContext> = {},
): Status {
  const to = nextStatus(entry, VERDICTS[name], context(extra));
  if (to === 'remove') throw new Error('it was removed');
  return to;
}
