/**
 * writes — inserts, claims and commits, checked as they happen, with answers for the next due time;
 * operator actions must have been audited before and be what their audit record says.
 */

import type { Millis } from '../../../core/duration.ts';
import type { Entry, Status } from '../../../core/entry.ts';
import { mayMove, type Mover } from '../../../core/state.ts';
import { takesTopic, topicMatches } from '../../../core/topic.ts';
import type { Change, ClaimFilter, ClaimRequest, Duplicate } from '../../../ports/entry-store.ts';
import { type CheckScene, type CheckProblem, CLOCK_ERROR_MAX_MS } from './check-scene.ts';
import { judgeSettled } from './deliveries.ts';
import { turnsOf } from './world.ts';
import type { Write } from '../disk.ts';
import type { Audit, MessageHistory } from '../sim-ledger.ts';
import { routeFor } from '../plan.ts';
import type { SimProcess } from '../process.ts';

/** A pause is known to every process this long after it was made, if nothing is in the way. */
const PAUSE_KNOWN_MS = 90_000;

/** Who asked, and what the store's clock showed when it did. */
export interface Asker {
  readonly process: SimProcess;
  readonly askedAt: Millis;
  /** The same moment in virtual milliseconds, a clock that is never set. */
  readonly askedAtMs: number;
}

/** Checks an insert: what came in, and which results were `duplicate`. */
export function checkInsert(
  scene: CheckScene,
  { process, askedAtMs }: Asker,
  entries: readonly Entry[],
  answers: readonly ('stored' | Duplicate)[],
  writes: readonly Write[],
): void {
  const { findings, ledger, bodyDisk } = scene;
  let at = 0;
  for (const [index, entry] of entries.entries()) {
    const { id, body } = entry.envelope;
    const answer = answers[index];
    if (answer !== 'stored') {
      checkDuplicate(scene, entry, answer);
      continue;
    }
    const write = writes[at];
    at += 1;
    if (write?.id !== id || write.before !== undefined) {
      findings.add('answer', `"${id}" was said to be stored and was not`);
      continue;
    }
    const invocation = ledger.invocationOf(entry);
    if (invocation === undefined || invocation.digest !== body.digest) {
      findings.add('integrity', `"${id}" came in with a body that was never enqueued`);
      continue;
    }
    checkTwins(scene, entry);
    if (body.place === 'store' && bodyDisk.get(body.ref) === undefined) {
      findings.add('body', `"${id}" came in before its body`);
    }
    const history = ledger.open(entry, invocation, write.seq);
    const { state, revision, holder = '' } = entry.status;
    if (revision !== 1) findings.add('revision', `"${id}" came in with revision ${revision}`);
    if (state !== 'active') continue;
    if (!turnsOf(scene)(entry)) findings.add('order', `"${id}" came in active before its turn`);
    if (!holder.startsWith(process.instance) || entry.status.attempts !== 1) {
      findings.add('claim', `"${id}" came in active under "${holder}", uncounted or not its own`);
    }
    const leaseEndsAtMs = askedAtMs + scene.plan.leaseMs;
    ledger.claimed(history, process, entry.status, { before: undefined, leaseEndsAtMs });
  }
}

/** Checks a claim: what was taken was due, was claimable, fits the filter, and is counted. */
export function checkClaim(
  scene: CheckScene,
  asker: Asker,
  request: ClaimRequest,
  answer: readonly Entry[],
  writes: readonly Write[],
): void {
  const { findings } = scene;
  const taken = new Set(answer.map((entry) => entry.envelope.id));
  if (taken.size !== answer.length || answer.length !== writes.length) {
    findings.add('claim', `a claim gave out ${answer.length} entries and changed ${writes.length}`);
  }
  if (answer.length > request.max) findings.add('limits', `a claim gave more than ${request.max}`);
  // Claimed entries still block others, so the order can be checked afterwards.
  const isInTurn = turnsOf(scene);
  for (const write of writes) {
    checkTaken(scene, asker, request, write);
    if (write.before === undefined || isInTurn(write.before)) continue;
    findings.add('order', `"${write.id}" was claimed before its turn`);
  }
  if (answer.length < request.max) checkNothingLeft(scene, request);
}

/** Checks what a store says of the next due time. */
export function checkNextDue(scene: CheckScene, filter: ClaimFilter, answer: Millis | null): void {
  const isInTurn = turnsOf(scene);
  let earliest: Millis | null = null;
  for (const entry of scene.disk.entries()) {
    const { dueAt } = entry.status;
    if (dueAt === null || (earliest !== null && dueAt >= earliest)) continue;
    if (fits(entry, filter) && isInTurn(entry)) earliest = dueAt;
  }
  if (earliest === answer) return;
  scene.findings.add('answer', `the next due time is ${earliest}, the store said ${answer}`);
}

/** Checks commits: guarded, explained, legal, one revision further. */
export function checkCommit(
  scene: CheckScene,
  asker: Asker,
  changes: readonly Change[],
  answers: readonly ('done' | 'stale')[],
  writes: readonly Write[],
): void {
  const { findings, disk } = scene;
  let at = 0;
  for (const [index, change] of changes.entries()) {
    if (answers[index] === 'done') {
      const write = writes[at];
      at += 1;
      if (write?.id !== change.id) {
        findings.add('answer', `a change of "${change.id}" was said to be done and was not`);
        continue;
      }
      checkChange(scene, asker, change, write);
      continue;
    }
    const now = disk.peek(change.id);
    const isCurrent = now !== undefined && isGuarded(now.status, change);
    // A later change of the same batch may have made it look current; batches hold an id once.
    if (isCurrent) findings.add('answer', `a change of "${change.id}" was wrongly called stale`);
  }
  if (at < writes.length) findings.add('answer', 'a commit changed more than it said');
}

function checkDuplicate(scene: CheckScene, entry: Entry, answer: Duplicate | undefined): void {
  const { id, dedupeKey } = entry.envelope;
  const first = answer === undefined ? undefined : scene.disk.peek(answer.duplicateOf);
  const isOne =
    first !== undefined &&
    (first.envelope.id === id ||
      (dedupeKey !== undefined && first.envelope.dedupeKey === dedupeKey));
  if (isOne) return;
  scene.findings.add('dedupe', `"${id}" was called a duplicate of what it is no duplicate of`);
}

function checkTwins(scene: CheckScene, { envelope }: Entry): void {
  if (envelope.dedupeKey === undefined) return;
  for (const other of scene.disk.entries()) {
    const isTwin = other.envelope.dedupeKey === envelope.dedupeKey;
    if (!isTwin || other.envelope.id === envelope.id) continue;
    const text = `"${envelope.id}" was stored beside "${other.envelope.id}" with the same key`;
    scene.findings.add('dedupe', text);
  }
}

function checkTaken(
  scene: CheckScene,
  { process, askedAt, askedAtMs }: Asker,
  request: ClaimRequest,
  write: Write,
): void {
  const { findings, ledger } = scene;
  const { id, before, after } = write;
  const history = ledger.histories.get(id);
  if (before === undefined || after === undefined || history === undefined) {
    findings.add('claim', `"${id}" was claimed, but there is no such message`);
    return;
  }
  const { status } = before;
  const who = `"${id}" (${status.state}, due ${status.dueAt})`;
  if (!fits(before, request) || status.dueAt === null) {
    findings.add('claim', `${who} was claimed by who may not: ${JSON.stringify(request)}`);
  }
  if (!mayMove(status.state, 'active', 'claim')) findings.add('transition', `${who} was claimed`);
  const known = Math.min(process.clockErrorMs, CLOCK_ERROR_MAX_MS);
  if ((status.dueAt ?? 0) > Math.min(request.now, askedAt + known)) {
    findings.add('early', `${who} was claimed at ${request.now}, the store's time is ${askedAt}`);
  }
  checkCounted(scene, status, after.status, request);
  if (request.ids === undefined) checkPaused(scene, process, before);
  if (status.state === 'active') history.excuses += 1;
  const leaseEndsAtMs = askedAtMs + request.leaseMs;
  const isSingle = request.ids !== undefined;
  ledger.claimed(history, process, after.status, { before: status, leaseEndsAtMs, isSingle });
}

function checkCounted(
  scene: CheckScene,
  before: Status,
  after: Status,
  request: ClaimRequest,
): void {
  const { findings } = scene;
  const counts = before.state === 'active' ? 0 : 1;
  const isNotice = before.lane === 'notice';
  if (after.revision !== before.revision + 1) {
    findings.add('revision', `a claim went from revision ${before.revision} to ${after.revision}`);
  }
  const isCounted =
    after.attempts === before.attempts + (isNotice ? 0 : counts) &&
    after.notices === before.notices + (isNotice ? counts : 0) &&
    after.lost === before.lost + (1 - counts);
  if (!isCounted) {
    const text = `a claim from ${before.state} counted ${before.attempts} → ${after.attempts}`;
    findings.add('attempts', `${text} attempts, ${before.lost} → ${after.lost} lost`);
  }
  const isHeld =
    after.state === 'active' && after.holder === request.holder && after.lane === before.lane;
  if (!isHeld || after.dueAt !== request.now + request.leaseMs) {
    findings.add('claim', `a claim by ${request.holder} made ${JSON.stringify(after)}`);
  }
}

function checkPaused(
  { findings, ledger, timeline }: CheckScene,
  process: SimProcess,
  entry: Entry,
): void {
  for (const [pattern, sinceMs] of ledger.pausedSinceMs) {
    const quietMs = timeline.nowMs - Math.max(sinceMs, process.troubledAtMs);
    if (quietMs < PAUSE_KNOWN_MS || !topicMatches(pattern, entry.envelope.topic)) continue;
    const { id, topic } = entry.envelope;
    findings.add('pause', `"${id}" (${topic}) was claimed while "${pattern}" was paused`);
  }
}

function checkNothingLeft(scene: CheckScene, request: ClaimRequest): void {
  if (request.ids !== undefined) return;
  const isInTurn = turnsOf(scene);
  for (const entry of scene.disk.entries()) {
    const { dueAt, holder } = entry.status;
    if (dueAt === null || dueAt > request.now || holder === request.holder) continue;
    if (!fits(entry, request) || !isInTurn(entry)) continue;
    scene.findings.add('answer', `a claim passed over "${entry.envelope.id}", which is due`);
  }
}

function fits({ envelope, status }: Entry, filter: ClaimFilter): boolean {
  return (
    status.lane === filter.lane &&
    filter.states.some((state) => state === status.state) &&
    (filter.ids === undefined || filter.ids.includes(envelope.id)) &&
    takesTopic(filter.topics, envelope.topic) &&
    !(
      envelope.destination !== undefined &&
      (filter.exceptDestinations ?? []).includes(envelope.destination)
    )
  );
}

function checkChange(
  scene: CheckScene,
  asker: Asker,
  change: Change,
  { before, after }: Write,
): void {
  const { findings, ledger } = scene;
  const { id } = change;
  const history = ledger.histories.get(id);
  if (before === undefined || history === undefined) {
    findings.add('guard', `"${id}" was changed, but there is no such message`);
    return;
  }
  const { status } = before;
  if (!isGuarded(status, change)) {
    const asked = `revision ${change.revision} by ${change.holder}`;
    const text = `is at ${status.revision} held by ${status.holder}`;
    findings.add('guard', `"${id}" ${text} and was changed from ${asked}`);
    return;
  }
  if (after !== undefined) checkContents(scene, change, before, after);
  explain(scene, asker, history, before, after);
}

/** Apart from the disk, whose rule this is: a disk that breaks it must not be asked. */
function isGuarded({ revision, holder }: Status, change: Change): boolean {
  return revision === change.revision && holder === change.holder;
}

function checkContents(
  { findings }: CheckScene,
  change: Change,
  before: Entry,
  after: Entry,
): void {
  const { id } = change;
  const { revision, state, holder } = after.status;
  if (revision !== before.status.revision + 1) {
    findings.add('revision', `"${id}" went from ${before.status.revision} to ${revision}`);
  }
  if (after.status !== change.to) findings.add('answer', `"${id}" is not what was committed`);
  if (state !== 'active' && holder !== undefined) {
    findings.add('claim', `"${id}" is in ${state} and has a holder`);
  }
  const [was, is] = [before.envelope, after.envelope];
  const isSame =
    was.topic === is.topic &&
    was.enqueuedAt === is.enqueuedAt &&
    was.dedupeKey === is.dedupeKey &&
    was.orderKey === is.orderKey &&
    was.body.digest === is.body.digest &&
    was.body.ref === is.body.ref;
  if (!isSame) findings.add('integrity', `the envelope of "${id}" was changed`);
}

/** Who made this change, and was it theirs to make? */
function explain(
  scene: CheckScene,
  asker: Asker,
  history: MessageHistory,
  before: Entry,
  after: Entry | undefined,
): void {
  const { findings } = scene;
  const { state } = before.status;
  if (after?.status.state === 'active') {
    const isKept =
      state === 'active' &&
      before.status.holder === after.status.holder &&
      before.status.attempts === after.status.attempts;
    if (!isKept) findings.add('claim', `"${history.id}" became active without a claim`);
    const claim = history.claims.get(after.status.holder ?? '');
    if (claim !== undefined) claim.leaseEndsAtMs = asker.askedAtMs + scene.plan.leaseMs;
    return;
  }
  const mover = moverOf(scene, asker, history, before, after);
  if (mover === undefined) return;
  if (after === undefined) {
    history.ended = `removed by ${mover}`;
    return;
  }
  const isTouched = state === after.status.state && mover === 'operator';
  if (isTouched || mayMove(state, after.status.state, mover)) return;
  findings.add('transition', `"${history.id}" went from ${state} to ${after.status.state}`);
}

function moverOf(
  scene: CheckScene,
  asker: Asker,
  history: MessageHistory,
  before: Entry,
  after: Entry | undefined,
): Mover | undefined {
  const { findings, ledger } = scene;
  const { process } = asker;
  const { status } = before;
  if (status.state !== 'active') {
    if (isCaretaking(scene, asker, before, after)) return 'operator';
    const problem = takeAudit(history, process, before, after);
    if (problem === undefined) return 'operator';
    findings.add(after === undefined ? 'conservation' : problem.invariant, problem.text);
    return undefined;
  }
  const claim = ledger.claim(history.id, status.holder ?? '');
  const isIts = claim !== undefined && claim.process === process && !claim.isSettled;
  const settled = isIts ? judgeSettled({ scene, claim, before, after: after?.status }) : undefined;
  if (settled !== undefined && 'isFree' in settled && claim !== undefined) {
    claim.isSettled = true;
    // Given up while it ran (time limit, shutdown): it took effect anyway, or may do so yet.
    const isUnheard = claim.said === undefined || claim.said.kind === 'delivered';
    if (claim.startedAtMs !== undefined && isUnheard && !settled.isAck) history.excuses += 1;
    const isCounted = claim.startedAtMs !== undefined && claim.lane === 'delivery';
    if (settled.isFree && isCounted) history.counted = Math.max(0, history.counted - 1);
    return 'settle';
  }
  const isOver = (status.dueAt ?? 0) <= asker.askedAt + CLOCK_ERROR_MAX_MS;
  if (isOver && isCaretaking(scene, asker, before, after)) return 'operator';
  if (isOver && takeAudit(history, process, before, after) === undefined) {
    history.excuses += 1;
    return 'operator';
  }
  const problem = settled ?? {
    invariant: 'guard' as const,
    text: `"${history.id}" is not its own`,
  };
  if ('text' in problem) findings.add(problem.invariant, problem.text);
  return undefined;
}

/** Retention that is over, a topic without a handler, a body that a check could not read. */
function isCaretaking(
  scene: CheckScene,
  { process, askedAt }: Asker,
  before: Entry,
  after: Entry | undefined,
): boolean {
  const { state, dueAt } = before.status;
  // A clock that was set back after the look does not undo that it had shown the time.
  const known = Math.max(askedAt, scene.latestNow()) + CLOCK_ERROR_MAX_MS;
  if (after === undefined) return state === 'archived' && dueAt !== null && dueAt <= known;
  if (after.status.state !== 'hold' || after.status.because === undefined) return false;
  const { code, by } = after.status.because;
  if (by === 'check') return code === 'body.missing' || code === 'body.corrupt';
  return (
    code === 'handler.missing' &&
    (state === 'incoming' || state === 'deferred' || state === 'active') &&
    routeFor(scene.plan, process.number, 'delivery', before.envelope.topic) === undefined
  );
}

/** Uses up the audit line that explains this change; a problem when there is none. */
function takeAudit(
  history: MessageHistory,
  process: SimProcess,
  before: Entry,
  after: Entry | undefined,
): CheckProblem | undefined {
  const { audits } = history;
  const at = audits.findIndex(
    (audit) => audit.process === process && isCarriedOut(audit, before, after),
  );
  const [audit] = at < 0 ? [] : audits.splice(at, 1);
  if (audit === undefined) {
    const { state } = before.status;
    const to = after === undefined ? 'removed' : after.status.state;
    const text = `"${history.id}" went from ${state} to ${to}, and no audit record says so`;
    return { invariant: 'audit', text };
  }
  history.isMoved = true;
  if (after === undefined) return undefined;
  // A smaller policy may find more attempts made than it allows.
  history.grants += audit.action === 'setPolicy' ? before.status.attempts + 1 : 1;
  const isReplay = after.status.replays > before.status.replays;
  if (isReplay) {
    history.excuses += 1;
    history.counted = 0;
  }
  return countersProblem(history.id, before.status, after.status, isReplay);
}

function isCarriedOut(
  { action, details }: Audit,
  before: Entry,
  after: Entry | undefined,
): boolean {
  if (after === undefined) return action === 'remove' && details['hard'] === true;
  const { status } = after;
  if (status.state === before.status.state) {
    // A check that finds the body of a delivered message missing records that it was not kept.
    const isForgotten = status.ending === 'delivered' && after.envelope.body.place === 'none';
    if (action === 'check') return isForgotten;
    if (after.envelope !== before.envelope) return action === 'setHeaders';
    // What came before the clock was set back is incoming, and not due yet.
    if (action === 'retry') {
      return status.state === 'incoming' && Number(status.dueAt) < Number(before.status.dueAt);
    }
    return action === 'setPolicy' && status.policy === details['policy'];
  }
  switch (action) {
    case 'hold':
      return status.state === 'hold';
    case 'release':
      return status.state === (status.lane === 'notice' ? 'bounce' : 'incoming');
    case 'retry':
      return status.state === 'incoming' && status.lane === 'delivery';
    case 'bounce':
      // Archived at once if no bounce handler would run.
      return (
        status.lane === 'notice' &&
        (status.state === 'bounce' ||
          (status.state === 'archived' &&
            (status.ending === 'bounced' || status.ending === 'expired')))
      );
    case 'remove':
      // Not the audit of a removal for good, which may still be on its way.
      return details['hard'] !== true && status.state === 'archived' && status.ending === 'removed';
    default:
      return false;
  }
}

function countersProblem(
  id: string,
  before: Status,
  after: Status,
  isReplay: boolean,
): CheckProblem | undefined {
  const attempts = isReplay ? 0 : before.attempts;
  if (after.attempts === attempts) return undefined;
  const text = `an operator's action took "${id}" to ${after.attempts} attempts, not ${attempts}`;
  return { invariant: 'attempts', text };
}
