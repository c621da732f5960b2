/**
 * operator — what an operator's action makes of an entry. Pure; the spool audits and commits it.
 *
 * hold() · release() · retry() · replay() · bounce() · remove() · setPolicy() · a header change.
 * An active entry belongs to its holder: it can be changed only when its lease is over.
 *
 * Each move is checked against the ending and the body too, not the state alone: a delivered
 * message is sent again by retry() and replay() only, and what cannot be sent is never due.
 */

import type { Millis } from './duration.ts';
import type { Because, Entry, Envelope, Headers, Status } from './entry.ts';
import { unreachable } from './errors.ts';
import { printable, reasonText } from './failure.ts';
import { AMQP_HEADER, REPLAY_HEADER } from './reserved-headers.ts';
import { forgetAt, type Retention } from './next-status.ts';
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

/** What had ended, or is held, is sent once more by an operation, perhaps repaired. */
export interface ReplayAction extends HeaderChange {
  readonly kind: 'replay';
  /** The operation; written into the header `respool-replay`. */
  readonly replay: string;
  /** Another topic. */
  readonly topic?: string;
}

/** A change of headers. */
export interface HeaderChange {
  /** null removes it. */
  readonly headers?: Readonly<Record<string, string | null>>;
  /** Of its header, whatever the case of its name. */
  readonly contentType?: string;
}

/** Either the entry's next status (or its removal), with a changed envelope if any; or why not. */
export type OperatorAnswer =
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

/** What the action makes of the entry. `touch` only raises the revision, for a changed envelope. */
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
  const base = untouched(status, now);
  switch (action.kind) {
    case 'hold':
      return putOnHold(entry, base, because('operator.hold', action.reason, by));
    case 'release':
      return released(entry, base, context);
    case 'retry':
      return retried(entry, base, now, 'retry');
    case 'replay':
      return replayed(entry, base, now, action);
    case 'bounce':
      return bounced(entry, base, because('operator.bounce', action.reason, by), context);
    case 'remove':
      if (action.hard) return { kind: 'do', to: 'remove' };
      return moved(entry, 'archived', {
        ...base,
        state: 'archived',
        // Stays `delivered` when an operator removes it: as `removed` it could be sent again.
        ending: wasDelivered(entry) ? 'delivered' : 'removed',
        dueAt: forgetAt(envelope, context.retention.removedMs, context),
        because: because('operator.remove', action.reason, by),
      });
    case 'setPolicy':
      return changed(entry, { ...base, policy: action.policy });
    case 'touch':
      return changed(entry, base);
    default:
      return unreachable(action);
  }
}

/** The action that takes a message to a state, for `move`; undefined when no operator can. */
export function actionTo(from: State, to: State, reason: string): OperatorAction | undefined {
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

/** Only messages that release() can continue: a held message without a way out is a trap. */
function putOnHold(entry: Entry, base: Status, why: Because): OperatorAnswer {
  const reason = whyEnded(entry);
  if (reason !== undefined) return refused(entry, 'hold', reason);
  return moved(entry, 'hold', { ...base, state: 'hold', dueAt: null, because: why });
}

function bounced(
  entry: Entry,
  base: Status,
  why: Because,
  { now, retention, announces = true }: OperatorContext,
): OperatorAnswer {
  const reason = whyEnded(entry);
  if (reason !== undefined) return refused(entry, 'bounce', reason);
  const to: Status = {
    ...base,
    state: 'bounce',
    lane: 'notice',
    notices: 0,
    ending: base.ending === 'expired' ? 'expired' : 'bounced',
    dueAt: now,
    because: why,
  };
  const answer = moved(entry, 'bounce', to);
  if (announces || retention.bouncedMs === null || answer.kind === 'refused') return answer;
  // No bounce handler will run for it, so its retention begins now, as after a failed delivery.
  const dueAt = forgetAt(entry.envelope, retention.bouncedMs, { now, retention });
  return moved(entry, 'archived', { ...to, state: 'archived', dueAt });
}

function released(entry: Entry, base: Status, context: OperatorContext): OperatorAnswer {
  const { envelope, status } = entry;
  const { now, retention } = context;
  if (status.state !== 'hold') {
    return refused(entry, 'release', 'only a held message can be released');
  }
  const isDelivered = wasDelivered(entry);
  if (isDelivered || isBrokerCopy(envelope)) {
    // Held by an earlier release, which did not look at the ending: back to where it was.
    const keepMs = isDelivered ? (retention.deliveredMs ?? 0) : retention.removedMs;
    return moved(entry, 'archived', {
      ...withoutBecause(base),
      state: 'archived',
      lane: 'delivery',
      ending: isDelivered ? 'delivered' : 'removed',
      dueAt: forgetAt(envelope, keepMs, context),
    });
  }
  if (status.lane === 'delivery') return retried(entry, base, now, 'release');
  // A held notice returns to the lane `notice`; it must never become a delivery again.
  const ending = base.ending === 'expired' ? 'expired' : 'bounced';
  return moved(entry, 'bounce', { ...withoutBecause(base), state: 'bounce', ending, dueAt: now });
}

function retried(entry: Entry, base: Status, now: Millis, action: string): OperatorAnswer {
  const { state, lane, ending } = entry.status;
  const why = whyNot(entry.envelope);
  if (why !== undefined) return refused(entry, action, why);
  const fresh: Status = {
    ...withoutBecause(base),
    state: 'incoming',
    lane: 'delivery',
    dueAt: now,
  };
  // What had come to an end starts a new round of attempts; what only waited goes on with its own.
  // The ending counts too, not the state alone: what was held after its end has ended all the same.
  const hasEnded =
    state === 'bounce' || state === 'archived' || lane === 'notice' || ending !== undefined;
  // n.b. It may be incoming and not due yet: the clock was set back since.
  if (state === 'incoming' && (entry.status.dueAt ?? 0) > now) return { kind: 'do', to: fresh };
  if (!hasEnded) return moved(entry, 'incoming', fresh);
  const answer = moved(entry, 'incoming', sentAgain(fresh));
  return answer.kind === 'refused' ? answer : { ...answer, ...unexpired(entry.envelope, now) };
}

/** Unlike a retry, also a held one starts a new round, and each is counted: replays have an end. */
function replayed(
  entry: Entry,
  base: Status,
  now: Millis,
  { replay, topic, ...change }: ReplayAction,
): OperatorAnswer {
  const { envelope, status } = entry;
  if (!REPLAYED_FROM.includes(status.state)) {
    const why = `it is ${status.state}; only what bounced, is archived or held can be`;
    return refused(entry, 'replay', why);
  }
  const why = whyNot(envelope);
  if (why !== undefined) return refused(entry, 'replay', why);
  const { envelope: kept = envelope } = unexpired(envelope, now);
  const headers = changedHeaders(envelope.headers, change);
  const next: Envelope = {
    ...kept,
    ...(topic === undefined ? {} : { topic }),
    headers: { ...headers, [REPLAY_HEADER]: replay },
  };
  const fresh = { ...withoutBecause(base), dueAt: now };
  return { kind: 'do', to: sentAgain(fresh), envelope: next };
}

const REPLAYED_FROM: readonly State[] = ['bounce', 'hold', 'archived'];

/** Headers as a change makes them; the limits are the caller's to check. */
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
function sentAgain(base: Status): Status {
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
function whyNot(envelope: Envelope): string | undefined {
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

/** n.b. A body is let go of after a delivery only, so its absence outlives a wrong ending. */
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

function changed(entry: Entry, status: Status): OperatorAnswer {
  if (entry.status.state !== 'active') return { kind: 'do', to: status };
  return refused(entry, 'change', 'its holder was lost; hold or retry it first');
}

function moved(entry: Entry, to: State, status: Status): OperatorAnswer {
  const { state } = entry.status;
  if (!mayMove(state, to, 'operator')) {
    const why = state === to ? `it is in ${state} already` : `nothing leads there from ${state}`;
    return refused(entry, `move to ${to}`, why);
  }
  return { kind: 'do', to: status };
}

function refusedActive(entry: Entry, action: string): OperatorAnswer {
  const { dueAt, holder } = entry.status;
  const until = new Date(dueAt ?? 0).toISOString();
  return refused(entry, action, `it is active, leased by "${holder}" until ${until}; retry then`);
}

function refused(entry: Entry, action: string, why: string): OperatorAnswer {
  return { kind: 'refused', text: `cannot ${action} message "${entry.envelope.id}": ${why}` };
}

function untouched(status: Status, now: Millis): Status {
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
