/**
 * next-status — computes the next Status of an entry, as a whole value, for every step except an
 * operator's action (operator.ts); and how long an ended message is kept.
 *
 * Pure. Stores never decide: they write what these functions return. SQL stores perform
 * `claimedStatus` in one statement (stores/: postgres/claim-sql.ts, sqlite/claim.ts); the suite
 * checks that both agree. The simulator computes apart from this file what has to come out
 * (testkit/simulator/checks/deliveries.ts).
 *
 *   insert ─ initialStatus()   claim ─ claimedStatus()   heartbeat ─ extendedStatus()
 *   hand-off ─ handedOffStatus()   settle ─ nextStatus()
 */

import type { Millis } from './duration.ts';
import {
  type AttemptRecord,
  type Because,
  type Ending,
  type Entry,
  type Envelope,
  type Headers,
  HISTORY_MAX,
  type Status,
} from './entry.ts';
import { assert, unreachable } from './errors.ts';
import type { Failure } from './failure.ts';
import type { ClaimableState, State } from './state.ts';
import type { Verdict } from './verdict.ts';

/** How many notes a message carries over all its attempts. Also in docs/reference/limits.md. */
export const NOTES_KEPT_MAX = 128;

/** How long a message is kept after its end. */
export interface Retention {
  /** After delivery; null: removed at once. */
  readonly deliveredMs: number | null;
  /** After it bounced and was announced; null: kept in bounce until an operator acts. */
  readonly bouncedMs: number | null;
  /** After an operator removed it softly. */
  readonly removedMs: number;
  /** At least this long for a message with a dedupe key or a caller-chosen id. */
  readonly dedupeWindowMs: number;
}

/** The first status of a message: incoming, or deferred when it is not due yet. */
export function initialStatus(input: {
  readonly now: Millis;
  readonly dueAt: Millis;
  readonly policy: string | null;
}): Status {
  return {
    state: input.dueAt > input.now ? 'deferred' : 'incoming',
    lane: 'delivery',
    policy: input.policy,
    revision: 1,
    attempts: 0,
    postponed: 0,
    lost: 0,
    replays: 0,
    notices: 0,
    dueAt: input.dueAt,
    history: [],
    notes: {},
    updatedAt: input.now,
  };
}

/** The status of an entry once it is claimed. */
export function claimedStatus(
  status: Status,
  claim: { readonly now: Millis; readonly leaseMs: number; readonly holder: string },
): Status {
  // Counted at claim, not at settle: a message that kills the process must not be tried forever.
  // A claim taken from `active` starts no attempt: it was counted when the lost holder claimed.
  const isLost = status.state === 'active';
  const counts = isLost ? 0 : 1;
  return {
    ...status,
    state: 'active',
    revision: status.revision + 1,
    attempts: status.attempts + (status.lane === 'delivery' ? counts : 0),
    notices: status.notices + (status.lane === 'notice' ? counts : 0),
    lost: status.lost + (isLost ? 1 : 0),
    dueAt: claim.now + claim.leaseMs,
    holder: claim.holder,
    claimedFrom: status.state as ClaimableState,
    updatedAt: claim.now,
  };
}

/** The status of a fresh entry that is handed to an engine with its insert: one write less. */
export function handedOffStatus(
  status: Status,
  claim: { readonly now: Millis; readonly leaseMs: number; readonly holder: string },
): Status {
  return { ...claimedStatus(status, claim), revision: status.revision };
}

/** The status of an active entry whose holder keeps it for another lease. */
export function extendedStatus(
  status: Status,
  { now, leaseMs }: { readonly now: Millis; readonly leaseMs: number },
): Status {
  return { ...status, revision: status.revision + 1, dueAt: now + leaseMs, updatedAt: now };
}

/** What `nextStatus` needs beside entry and verdict. */
export interface SettleContext {
  readonly now: Millis;
  readonly retention: Retention;
  /** What the handler wants kept, merged over what is there. */
  readonly notes?: Headers;
  /** This attempt's line in the history; none when no handler ran. */
  readonly attempt?: AttemptRecord;
  /** Whether a bounce handler fits: without one, a bounce with a retention is archived at once. */
  readonly announces: boolean;
}

/** The next status of an active entry after a verdict; `remove` if nothing of it is kept. */
export function nextStatus(
  { envelope, status }: Entry,
  verdict: Verdict,
  context: SettleContext,
): Status | 'remove' {
  // Its text is built only where it is needed: this runs once for each message.
  if (status.state !== 'active') {
    assert(false, `settled "${envelope.id}" while it was ${status.state}`);
  }
  // By far the most frequent end, decided before anything is built.
  if (verdict.kind === 'ack' && isRemovedOnAck(envelope, status, context)) return 'remove';
  const base = settledBase(status, context);
  switch (verdict.kind) {
    case 'ack':
      return status.lane === 'delivery'
        ? afterDelivery(envelope, base, context)
        : afterNotice(envelope, base, context);
    case 'defer':
      return verdict.costsAttempt
        ? afterDefer(envelope, base, verdict, context)
        : afterDefer(envelope, countPostponed(uncountAttempt(base, status)), verdict, context);
    case 'bounce':
      return status.lane === 'delivery'
        ? afterBounce(
            envelope,
            verdict.expired === true ? uncountAttempt(base, status) : base,
            verdict,
            context,
          )
        : { ...base, state: 'bounce', dueAt: null };
    case 'hold':
      return {
        ...(verdict.costsAttempt ? base : uncountAttempt(base, status)),
        state: 'hold',
        dueAt: null,
        because: verdict.because,
      };
    case 'release':
      return releasedStatus(status, base, context);
    default:
      return unreachable(verdict);
  }
}

/** Whether the body is still needed once the entry has this status. */
export function keepsBody(status: Status, retention: Retention): boolean {
  const isOnlyDeduplicated =
    status.state === 'archived' && status.ending === 'delivered' && retention.deliveredMs === null;
  return !isOnlyDeduplicated;
}

/** Whether a repeated enqueue of this message must still be recognised after its end. */
export function isDeduplicated(envelope: Envelope): boolean {
  return envelope.dedupeKey !== undefined || envelope.ownId === true;
}

/** Until when an entry that ends now is kept. */
export function retainedUntil(
  envelope: Envelope,
  keepMs: number,
  { now, retention }: { readonly now: Millis; readonly retention: Retention },
): Millis {
  return now + Math.max(keepMs, isDeduplicated(envelope) ? retention.dedupeWindowMs : 0);
}

function settledBase(status: Status, { now, notes, attempt }: SettleContext): Status {
  const { holder: _holder, claimedFrom, ...rest } = status;
  return {
    ...rest,
    revision: status.revision + 1,
    // A holder that settles ends the series of lost holders, unless it only judged the loss.
    lost: claimedFrom === 'active' ? status.lost : 0,
    history: attempt === undefined ? status.history : appendAttempt(status.history, attempt),
    notes: notes === undefined ? status.notes : mergeNotes(status.notes, notes),
    updatedAt: now,
  };
}

/** The newest notes over the older ones; past the limit the oldest names go first. */
function mergeNotes(older: Headers, newer: Headers): Headers {
  const kept = Object.entries(older).filter(([name]) => !Object.hasOwn(newer, name));
  return Object.fromEntries([...kept, ...Object.entries(newer)].slice(-NOTES_KEPT_MAX));
}

function appendAttempt(
  history: readonly AttemptRecord[],
  attempt: AttemptRecord,
): readonly AttemptRecord[] {
  return [...history.slice(1 - HISTORY_MAX), attempt];
}

/** Whether an entry is removed once it is delivered. */
function isRemovedOnAck(
  envelope: Envelope,
  { lane }: Status,
  { retention }: SettleContext,
): boolean {
  return lane === 'delivery' && retention.deliveredMs === null && !isDeduplicated(envelope);
}

function afterDelivery(envelope: Envelope, base: Status, context: SettleContext): Status {
  const { deliveredMs } = context.retention;
  // Why it once waited is no reason for where it is now; the history keeps what happened.
  const { because: _because, ...done } = base;
  return archivedStatus(done, 'delivered', retainedUntil(envelope, deliveredMs ?? 0, context));
}

function afterNotice(envelope: Envelope, base: Status, context: SettleContext): Status {
  const { bouncedMs } = context.retention;
  if (bouncedMs === null) return { ...base, state: 'bounce', dueAt: null };
  return archivedStatus(
    base,
    base.ending ?? 'bounced',
    retainedUntil(envelope, bouncedMs, context),
  );
}

function archivedStatus(base: Status, ending: Ending, dueAt: Millis): Status {
  return { ...base, state: 'archived', ending, dueAt };
}

function afterDefer(
  envelope: Envelope,
  base: Status,
  verdict: Extract<Verdict, { kind: 'defer' }>,
  { now }: SettleContext,
): Status {
  const isNotice = base.lane === 'notice';
  const wantedAt = now + verdict.delayMs;
  // A deferral never goes past the expiry: then the message is claimed once more, to bounce.
  const dueAt = isNotice ? wantedAt : Math.min(wantedAt, envelope.expiresAt ?? wantedAt);
  if (isNotice) return { ...base, state: 'bounce', dueAt };
  return { ...withReason(base, verdict.because, verdict.failure), state: 'deferred', dueAt };
}

function countPostponed(base: Status): Status {
  return { ...base, postponed: base.postponed + 1 };
}

function afterBounce(
  envelope: Envelope,
  base: Status,
  verdict: Extract<Verdict, { kind: 'bounce' }>,
  context: SettleContext,
): Status {
  const ending = verdict.expired === true ? 'expired' : 'bounced';
  const bounced: Status = {
    ...withReason(base, verdict.because, verdict.failure),
    lane: 'notice',
    notices: 0,
    state: 'bounce',
    ending,
    dueAt: context.now,
  };
  const { bouncedMs } = context.retention;
  if (context.announces || bouncedMs === null) return bounced;
  return archivedStatus(bounced, ending, retainedUntil(envelope, bouncedMs, context));
}

function withReason(base: Status, because: Because, failure: Failure | undefined): Status {
  return { ...base, because, ...(failure === undefined ? {} : { lastFailure: failure }) };
}

function uncountAttempt(base: Status, status: Status): Status {
  // A claim taken from `active` counted no attempt, so there is none to give back.
  if (status.claimedFrom === 'active') return base;
  return status.lane === 'delivery'
    ? { ...base, attempts: base.attempts - 1 }
    : { ...base, notices: base.notices - 1 };
}

function releasedStatus(status: Status, base: Status, { now }: SettleContext): Status {
  if (status.claimedFrom === 'active') {
    // The loss is not judged yet: it goes back as it was, active with its lease over. Deferring it
    // would let a message with no attempts left have one more.
    const { revision, history, notes } = base;
    const lost = status.lost - 1;
    return { ...status, revision, lost, history, notes, dueAt: now, updatedAt: now };
  }
  const state: State = status.claimedFrom ?? (status.lane === 'delivery' ? 'incoming' : 'bounce');
  return { ...uncountAttempt(base, status), lost: status.lost, state, dueAt: now };
}
