/**
 * operator — computes the next status (and envelope) of an entry from an operator's action, or why
 * the action is refused. Pure; the spool audits and commits the result.
 *
 * hold() · release() · retry() · replay() · bounce() · remove() · setPolicy() · a header change.
 * An active entry belongs to its holder: it can be changed only when its lease is over, and its
 * policy and headers not even then.
 *
 * Actions that can make a message due, and hold(), are checked against the ending and the body too,
 * not against the state alone: a delivered message is sent again by retry() and replay() only, and
 * a message that cannot be sent is never due.
 */

import type { Millis } from './duration.ts';
import type { Because, Entry, Envelope, Headers, Status } from './entry.ts';
import { unreachable } from './errors.ts';
import { printable, reasonText } from './failure.ts';
import { AMQP_HEADER, REPLAY_HEADER } from './reserved-headers.ts';
import { retainedUntil, type Retention } from './next-status.ts';
import { mayMove, type State } from './state.ts';

/** What an operator may do to a message. */
export type OperatorAction =
  | { readonly kind: 'hold'; readonly reason: string }
  | { readonly kind: 'release' }
  | { readonly kind: 'retry' }
  | ReplayAction
  | { readonly kind: 'bounce'; readonly reason: string }
  | { readonly kind: 'remove'; readonly hard: boolean; readonly reason: string }
  | { readonly kind: 'setPolicy'; readonly policy: string }
  | { readonly kind: 'touch' };

/** Sends a message that has ended, or is held, again as part of a replay, perhaps repaired. */
export interface ReplayAction extends HeaderChange {
  readonly kind: 'replay';
  /** The id of the replay; written into the header `respool-replay`. */
  readonly replay: string;
  /** Another topic. */
  readonly topic?: string;
}

/** A change of headers. */
interface HeaderChange {
  /** null removes it. */
  readonly headers?: Readonly<Record<string, string | null>>;
  /** Of its header, whatever the case of its name. */
  readonly contentType?: string;
}

/** The entry's next status or its removal, with a changed envelope if any; or why it is refused. */
type OperatorAnswer =
  | { readonly kind: 'do'; readonly to: Status | 'remove'; readonly envelope?: Envelope }
  | { readonly kind: 'refused'; readonly text: string };

/** What an action depends on beside entry and kind. */
export interface OperatorContext {
  readonly now: Millis;
  readonly by: string;
  readonly retention: Retention;
  /** Whether a bounce handler matches: if not, a bounce with a retention is archived at once. */
  readonly announces?: boolean;
}

/** The result of the action. `touch` only raises the revision, for a changed envelope. */
export function operatorMove(
  entry: Entry,
  action: OperatorAction,
  context: OperatorContext,
): OperatorAnswer {
  const { envelope, status } = entry;
  const { now, by } = context;
  if (status.state === 'active' && (status.dueAt ?? 0) > now) {
    return refusedActive(entry, action.kind);
  }
  const base = nextRevision(status, now);
  switch (action.kind) {
    case 'hold':
      return putOnHold(entry, base, because('operator.hold', action.reason, by));
    case 'release':
      return releaseHeld(entry, base, context);
    case 'retry':
      return retryEntry(entry, base, now, 'retry');
    case 'replay':
      return replayEntry(entry, base, now, action);
    case 'bounce':
      return giveUp(entry, base, because('operator.bounce', action.reason, by), context);
    case 'remove':
      if (action.hard) return { kind: 'do', to: 'remove' };
      return moveTo(entry, 'archived', {
        ...base,
        state: 'archived',
        // Stays `delivered` when an operator removes it: as `removed` it could be sent again.
        ending: wasDelivered(entry) ? 'delivered' : 'removed',
        dueAt: retainedUntil(envelope, context.retention.removedMs, context),
        because: because('operator.remove', action.reason, by),
      });
    case 'setPolicy':
      return updateInPlace(entry, { ...base, policy: action.policy });
    case 'touch':
      return updateInPlace(entry, base);
    default:
      return unreachable(action);
  }
}

/** The action that brings a message into a state, for `move`; undefined: no operator can. */
export function actionToReach(from: State, to: State, reason: string): OperatorAction | undefined {
  if (!mayMove(from, to, 'operator')) return undefined;
  switch (to) {
    case 'hold':
      return { kind: 'hold', reason };
    case 'bounce':
      return { kind: 'bounce', reason };
    case 'archived':
      return { kind: 'remove', hard: false, reason };
    case 'incoming':
      return { kind: 'retry' };
    default:
      return undefined;
  }
}

/** Only for messages that release() can continue: otherwise no action could end the hold. */
function putOnHold(entry: Entry, base: Status, why: Because): OperatorAnswer {
  const reason = whyEnded(entry);
  if (reason !== undefined) return refusal(entry, 'hold', reason);
  return moveTo(entry, 'hold', { ...base, state: 'hold', dueAt: null, because: why });
}

function giveUp(
  entry: Entry,
  base: Status,
  why: Because,
  { now, retention, announces = true }: OperatorContext,
): OperatorAnswer {
  const reason = whyEnded(entry);
  if (reason !== undefined) return refusal(entry, 'bounce', reason);
  const to: Status = {
    ...base,
    state: 'bounce',
    lane: 'notice',
    notices: 0,
    ending: base.ending === 'expired' ? 'expired' : 'bounced',
    dueAt: now,
    because: why,
  };
  const answer = moveTo(entry, 'bounce', to);
  if (announces || retention.bouncedMs === null || answer.kind === 'refused') return answer;
  // No bounce handler will run for it, so its retention begins now, as after a failed delivery.
  const dueAt = retainedUntil(entry.envelope, retention.bouncedMs, { now, retention });
  return moveTo(entry, 'archived', { ...to, state: 'archived', dueAt });
}

function releaseHeld(entry: Entry, base: Status, context: OperatorContext): OperatorAnswer {
  const { envelope, status } = entry;
  const { now, retention } = context;
  if (status.state !== 'hold') {
    return refusal(entry, 'release', 'only a held message can be released');
  }
  const isDelivered = wasDelivered(entry);
  if (isDelivered || isBrokerCopy(envelope)) {
    // Held by an earlier release, which did not look at the ending: back to where it was.
    const keepMs = isDelivered ? (retention.deliveredMs ?? 0) : retention.removedMs;
    return moveTo(entry, 'archived', {
      ...withoutBecause(base),
      state: 'archived',
      lane: 'delivery',
      ending: isDelivered ? 'delivered' : 'removed',
      dueAt: retainedUntil(envelope, keepMs, context),
    });
  }
  if (status.lane === 'delivery') return retryEntry(entry, base, now, 'release');
  // A held notice returns to the lane `notice`; it must never become a delivery again.
  const ending = base.ending === 'expired' ? 'expired' : 'bounced';
  return moveTo(entry, 'bounce', { ...withoutBecause(base), state: 'bounce', ending, dueAt: now });
}

function retryEntry(entry: Entry, base: Status, now: Millis, action: string): OperatorAnswer {
  const { state, lane, ending } = entry.status;
  const why = whyNotDeliverable(entry.envelope);
  if (why !== undefined) return refusal(entry, action, why);
  const fresh: Status = {
    ...withoutBecause(base),
    state: 'incoming',
    lane: 'delivery',
    dueAt: now,
  };
  // A message that has ended starts a new round of attempts; one that only waited continues its
  // own. The ending counts too, not the state alone: a message held after its end has ended as
  // well.
  const hasEnded =
    state === 'bounce' || state === 'archived' || lane === 'notice' || ending !== undefined;
  // n.b. It may be incoming and not due yet, if the clock was set back.
  if (state === 'incoming' && (entry.status.dueAt ?? 0) > now) return { kind: 'do', to: fresh };
  if (!hasEnded) return moveTo(entry, 'incoming', fresh);
  const answer = moveTo(entry, 'incoming', newRound(fresh));
  return answer.kind === 'refused' ? answer : { ...answer, ...unexpired(entry.envelope, now) };
}

/** Unlike with retry(), a held message starts a new round too; each raises `replays`. */
function replayEntry(
  entry: Entry,
  base: Status,
  now: Millis,
  { replay, topic, ...change }: ReplayAction,
): OperatorAnswer {
  const { envelope, status } = entry;
  if (!REPLAYED_FROM.includes(status.state)) {
    const why = `it is ${status.state}; only what bounced, is archived or held can be`;
    return refusal(entry, 'replay', why);
  }
  const why = whyNotDeliverable(envelope);
  if (why !== undefined) return refusal(entry, 'replay', why);
  const { envelope: kept = envelope } = unexpired(envelope, now);
  const headers = changedHeaders(envelope.headers, change);
  const next: Envelope = {
    ...kept,
    ...(topic === undefined ? {} : { topic }),
    headers: { ...headers, [REPLAY_HEADER]: replay },
  };
  const fresh = { ...withoutBecause(base), dueAt: now };
  return { kind: 'do', to: newRound(fresh), envelope: next };
}

const REPLAYED_FROM: readonly State[] = ['bounce', 'hold', 'archived'];

/** The headers with a change applied; the caller checks the limits. */
export function changedHeaders(
  headers: Headers,
  { headers: changes = {}, contentType }: HeaderChange,
): Headers {
  const merged: Record<string, string> = { ...headers };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) delete merged[name];
    else merged[name] = value;
  }
  if (contentType === undefined) return merged;
  for (const name of Object.keys(merged)) {
    if (name.toLowerCase() === 'content-type') delete merged[name];
  }
  return { ...merged, 'content-type': contentType };
}

/** The first status of a new round. */
function newRound(base: Status): Status {
  const { ending: _ending, ...again } = base;
  return {
    ...again,
    state: 'incoming',
    lane: 'delivery',
    attempts: 0,
    notices: 0,
    lost: 0,
    replays: base.replays + 1,
  };
}

/** Why it cannot be delivered again. */
function whyNotDeliverable(envelope: Envelope): string | undefined {
  if (isBodyGone(envelope)) return 'its body was not kept after the delivery; enqueue it again';
  // Its topic has no handler: it belongs to a queue, and goes back there.
  return isBrokerCopy(envelope) ? BROKER_COPY : undefined;
}

/** Why it can be neither held nor given up: nothing is left to be done for it. */
function whyEnded(entry: Entry): string | undefined {
  if (isBodyGone(entry.envelope)) {
    return 'it was delivered and its body was not kept; only its id or dedupe key is remembered';
  }
  if (wasDelivered(entry)) return 'it was delivered; a retry sends it again';
  return isBrokerCopy(entry.envelope) ? BROKER_COPY : undefined;
}

/** Line breaks in a typed reason become spaces, so that it stays one line. */
const LINE_ENDS = /[\t\r\n]+/g;

const BROKER_COPY =
  'it is a copy of a message of a broker; to put it back, run: respool dlq restore';

/** n.b. A body is removed after a delivery only, so a missing one proves the delivery. */
function wasDelivered({ envelope, status }: Entry): boolean {
  return status.ending === 'delivered' || isBodyGone(envelope);
}

/** n.b. Of an entry that is damaged, the record of its body may be anything. */
function isBodyGone({ body }: Envelope): boolean {
  return (body as Envelope['body'] | null | undefined)?.place === 'none';
}

function isBrokerCopy({ headers }: Envelope): boolean {
  return Object.hasOwn(headers, AMQP_HEADER);
}

/** Removes an expiry that has passed: a message sent again would bounce at once. */
function unexpired(envelope: Envelope, now: Millis): { readonly envelope?: Envelope } {
  const { expiresAt, ...rest } = envelope;
  return expiresAt === undefined || expiresAt > now ? {} : { envelope: rest };
}

function updateInPlace(entry: Entry, status: Status): OperatorAnswer {
  if (entry.status.state !== 'active') return { kind: 'do', to: status };
  return refusal(entry, 'change', 'its holder was lost; hold or retry it first');
}

function moveTo(entry: Entry, to: State, status: Status): OperatorAnswer {
  const { state } = entry.status;
  if (!mayMove(state, to, 'operator')) {
    const why = state === to ? `it is in ${state} already` : `nothing leads there from ${state}`;
    return refusal(entry, `move to ${to}`, why);
  }
  return { kind: 'do', to: status };
}

function refusedActive(entry: Entry, action: string): OperatorAnswer {
  const { dueAt, holder } = entry.status;
  const until = new Date(dueAt ?? 0).toISOString();
  return refusal(entry, action, `it is active, leased by "${holder}" until ${until}; retry then`);
}

function refusal(entry: Entry, action: string, why: string): OperatorAnswer {
  return { kind: 'refused', text: `cannot ${action} message "${entry.envelope.id}": ${why}` };
}

function nextRevision(status: Status, now: Millis): Status {
  const { holder: _holder, claimedFrom: _from, ...rest } = status;
  return { ...rest, revision: status.revision + 1, updatedAt: now };
}

function withoutBecause(status: Status): Status {
  const { because: _because, ...rest } = status;
  return rest;
}

function because(code: string, text: string, by: string): Because {
  return { code, text: reasonText(printable(text.replaceAll(LINE_ENDS, ' '))), by: printable(by) };
}
