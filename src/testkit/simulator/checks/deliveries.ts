/**
 * deliveries — every start of a handler, every byte it reads, every effect it has, and whether
 * the status that settled a claim follows from the handler's outcome.
 *
 * The expected status is computed apart from core/: from the outcome in the ledger, the entry
 * before, and the plan. Anything else is a wrong verdict, a miscounted attempt, or a lost
 * message.
 */

import { createHash } from 'node:crypto';
import { MINUTE_MS } from '../../../core/duration.ts';
import type { Entry, Status } from '../../../core/entry.ts';
import type { RetryPolicy } from '../../../core/policy.ts';
import { topicMatches } from '../../../core/topic.ts';
import type { Delivery } from '../../../ports/handler.ts';
import { type CheckScene, type CheckProblem, CLOCK_ERROR_MAX_MS } from './check-scene.ts';
import { checkTurn } from './world.ts';
import type { ClaimFact, MessageHistory } from '../sim-ledger.ts';
import { DEDUPE_WINDOW_MS, routeFor } from '../plan.ts';
import type { SimProcess } from '../process.ts';

// Stated apart from the code that is judged: the default `timeout` of spool/handle.ts,
// OUTAGE_WAIT_MS of engine/attempt.ts and PREFETCH_WAIT_MS of engine/claiming.ts.

/** How long the handler of one `spool.process` may take. */
const SINGLE_TIMEOUT_MS: number = 15 * MINUTE_MS;

/** The shortest wait of a message whose body could not be read for now. */
const OUTAGE_WAIT_MS = 10_000;

/** What a settled claim may have come to. */
interface Expected {
  readonly verdict:
    | 'ack'
    | 'retry'
    | 'lost'
    | 'bounce'
    | 'expired'
    | 'postpone'
    | 'hold'
    | 'release';
  /** The attempt is given back. */
  readonly isFree: boolean;
  readonly delayMs?: number;
}

/** A settled claim as the data shows it. */
interface Settled {
  readonly scene: CheckScene;
  readonly claim: ClaimFact;
  readonly before: Entry;
  /** Undefined: it was removed. */
  readonly after: Status | undefined;
}

/** The shortest wait for a slot before what was claimed ahead is given back. */
const AHEAD_WAIT_MS = 1_000;

/** A lease is written to end by the latest time that the store's clock may show: a few ms later. */
const LEASE_MARGIN_MS = 100;

/** What is wrong with a settled claim, or whether its attempt was rightly given back. */
export function judgeSettled(
  settled: Settled,
): CheckProblem | { readonly isFree: boolean; readonly isAck: boolean } {
  const { before, after, claim } = settled;
  if (claim.isTwin) {
    const isFree = after !== undefined && after.attempts < before.status.attempts;
    return { isFree, isAck: false };
  }
  const expected = expectations(settled);
  let problem: CheckProblem | undefined;
  for (const one of expected) {
    const found = mismatch(settled, one);
    if (found === undefined) return { isFree: one.isFree, isAck: one.verdict === 'ack' };
    // The nearest miss is reported: the right state with the wrong counters, say.
    if (problem === undefined || problem.invariant === 'verdict') problem = found;
  }
  return problem ?? { invariant: 'verdict', text: `${tell(before, after)} without any outcome` };
}

/** The policy in force for a claimed entry. */
function policyInForce(
  scene: CheckScene,
  { process, isSingle }: ClaimFact,
  { envelope, status }: Entry,
): RetryPolicy {
  const { policies } = scene.plan;
  const known = (name: string): RetryPolicy | undefined =>
    Object.hasOwn(policies, name) ? policies[name] : undefined;
  const byDefault = known('default') as RetryPolicy;
  if (status.lane === 'notice') return known('notice') ?? byDefault;
  if (status.policy !== null) return known(status.policy) ?? byDefault;
  const route = isSingle
    ? undefined
    : routeFor(scene.plan, process.number, 'delivery', envelope.topic);
  return (route?.policy === undefined ? undefined : known(route.policy)) ?? byDefault;
}

function expectations(settled: Settled): Expected[] {
  const { scene, claim, before, after } = settled;
  const expected: Expected[] = [];
  const { process, said, startedAtMs } = claim;
  const { lane, claimedFrom } = before.status;
  const { topic, expiresAt } = before.envelope;
  const route = routeFor(scene.plan, process.number, lane, topic);
  if (startedAtMs === undefined) {
    if (claimedFrom === 'active') expected.push({ verdict: 'lost', isFree: false });
    else {
      // Judged before the clock was set back, maybe.
      const now = Math.max(after?.updatedAt ?? 0, scene.latestNow()) + CLOCK_ERROR_MAX_MS;
      const isOver = lane === 'delivery' && expiresAt !== undefined && now >= expiresAt;
      if (isOver) expected.push({ verdict: 'expired', isFree: true });
      if (route === undefined) expected.push({ verdict: 'hold', isFree: true });
    }
  } else {
    if (said !== undefined) expected.push(bySaying(said));
    if (said?.kind === 'postponed' && mayBeTooOld(settled, said.delayMs)) {
      expected.push({ verdict: 'bounce', isFree: false });
    }
    const timeoutMs = claim.isSingle ? SINGLE_TIMEOUT_MS : (route?.timeoutMs ?? 0);
    if (scene.timeline.nowMs - startedAtMs >= timeoutMs) {
      expected.push({ verdict: 'retry', isFree: false });
    }
  }
  const isGivenBack = process.isStopping || (startedAtMs === undefined && mayBeGivenBack(settled));
  if (isGivenBack) expected.push({ verdict: 'release', isFree: true });
  return expected;
}

/**
 * Claimed ahead and not begun: it waited too long, its topic was paused meanwhile, or it was not to
 * wait at all, since the end of its process would be one loss or attempt too many.
 */
function mayBeGivenBack({ scene, claim, before }: Settled): boolean {
  const { plan, timeline, ledger } = scene;
  const askedAtMs = claim.firstLeaseEndsAtMs - plan.leaseMs - LEASE_MARGIN_MS;
  if (timeline.nowMs - askedAtMs >= AHEAD_WAIT_MS || before.status.lost > 0) return true;
  if (claim.attempt >= policyInForce(scene, claim, before).maxAttempts) return true;
  return [...ledger.everPaused].some((pattern) => topicMatches(pattern, before.envelope.topic));
}

function bySaying(message: NonNullable<ClaimFact['said']>): Expected {
  switch (message.kind) {
    case 'delivered':
      return { verdict: 'ack', isFree: false };
    case 'retryable':
      return {
        verdict: 'retry',
        isFree: false,
        ...(message.afterMs === undefined ? {} : { delayMs: message.afterMs }),
      };
    case 'permanent':
      return { verdict: 'bounce', isFree: false };
    case 'postponed':
      return { verdict: 'postpone', isFree: true, delayMs: message.delayMs };
    case 'outage':
      return { verdict: 'postpone', isFree: true, delayMs: OUTAGE_WAIT_MS };
    case 'held':
      return { verdict: 'hold', isFree: false };
    default:
      return { verdict: 'hold', isFree: true };
  }
}

function mismatch(settled: Settled, expected: Expected): CheckProblem | undefined {
  const { before, after } = settled;
  if (after === undefined) return removalProblem(settled, expected);
  if (before.status.lane === 'notice' && after.lane !== 'notice') {
    return { invariant: 'notice', text: `${tell(before, after)}: a notice became a delivery` };
  }
  const states = statesOf(settled, expected);
  if (!states.includes(`${after.state}${after.dueAt === null ? '' : ' due'}`)) {
    const wanted = `${expected.verdict} leads to ${states.join(' or ')}`;
    return { invariant: 'verdict', text: `${tell(before, after)}, but ${wanted}` };
  }
  return countersProblem(before, after, expected) ?? dueTimeProblem(settled, after, expected);
}

function removalProblem(
  { scene, before }: Settled,
  { verdict }: Expected,
): CheckProblem | undefined {
  const { dedupeKey, ownId } = before.envelope;
  if (verdict !== 'ack' || before.status.lane === 'notice') {
    return { invariant: 'conservation', text: `${tell(before, undefined)} after ${verdict}` };
  }
  if (dedupeKey !== undefined || ownId === true) {
    return { invariant: 'dedupe', text: `${tell(before, undefined)}, but it must be remembered` };
  }
  if (scene.plan.deliveredMs === null) return undefined;
  return { invariant: 'verdict', text: `${tell(before, undefined)} before its retention` };
}

/** The states the verdict may lead to; `due` when there must be a time. */
function statesOf(settled: Settled, { verdict, delayMs }: Expected): readonly string[] {
  const { scene, before, claim } = settled;
  const { lane, claimedFrom, lost } = before.status;
  const isNotice = lane === 'notice';
  switch (verdict) {
    case 'ack':
      if (!isNotice) return ['archived due'];
      return scene.plan.bouncedMs === null ? ['bounce'] : ['archived due'];
    case 'hold':
      return ['hold'];
    case 'release':
      if (claimedFrom !== undefined && claimedFrom !== 'active') return [`${claimedFrom} due`];
      return isNotice ? ['bounce due'] : ['deferred due'];
    case 'bounce':
    case 'expired':
      return isNotice ? ['bounce'] : bounceStates(settled);
    case 'postpone':
      return isNotice ? ['bounce due'] : ['deferred due'];
    default: {
      if (verdict === 'lost' && lost > 3) return ['hold'];
      const policy = policyInForce(scene, claim, before);
      const attempt = isNotice ? before.status.notices : before.status.attempts;
      if (attempt >= policy.maxAttempts) return isNotice ? ['bounce'] : bounceStates(settled);
      if (isNotice) return ['bounce due'];
      const waitMs = delayMs ?? plainDelayMs(policy, attempt);
      return mayBeTooOld(settled, waitMs)
        ? ['deferred due', ...bounceStates(settled)]
        : ['deferred due'];
    }
  }
}

function bounceStates({ scene, claim, before }: Settled): readonly string[] {
  const { plan } = scene;
  const isTold = routeFor(plan, claim.process.number, 'notice', before.envelope.topic);
  return isTold !== undefined || plan.bouncedMs === null ? ['bounce due'] : ['archived due'];
}

function mayBeTooOld({ scene, claim, before, after }: Settled, waitMs: number): boolean {
  const { maxAgeMs } = policyInForce(scene, claim, before);
  if (maxAgeMs === null) return false;
  const now = after?.updatedAt ?? scene.storeNow();
  return now + waitMs * 2 + CLOCK_ERROR_MAX_MS > before.envelope.enqueuedAt + maxAgeMs;
}

function countersProblem(
  before: Entry,
  after: Status,
  { verdict, isFree }: Expected,
): CheckProblem | undefined {
  const { status } = before;
  const isBack = isFree && status.claimedFrom !== 'active' ? 1 : 0;
  const isNotice = status.lane === 'notice';
  const attempts = status.attempts - (isNotice ? 0 : isBack);
  if (after.attempts !== attempts) {
    const wrong = `${after.attempts} attempts, not ${attempts} (${verdict})`;
    return { invariant: 'attempts', text: `${tell(before, after)} with ${wrong}` };
  }
  const startsNotices = !isNotice && after.lane === 'notice';
  const notices = startsNotices ? 0 : status.notices - (isNotice ? isBack : 0);
  if (after.notices === notices) return undefined;
  const text = `${tell(before, after)} with ${after.notices} notices, not ${notices} (${verdict})`;
  return { invariant: 'attempts', text };
}

function dueTimeProblem(
  settled: Settled,
  after: Status,
  expected: Expected,
): CheckProblem | undefined {
  const { scene, before, claim } = settled;
  const { envelope, status } = before;
  if (after.dueAt === null) return undefined;
  const sinceMs = after.dueAt - after.updatedAt;
  if (after.state === 'archived') {
    const { deliveredMs, bouncedMs } = scene.plan;
    const keepMs = (after.ending === 'delivered' ? deliveredMs : bouncedMs) ?? 0;
    const isRemembered = envelope.dedupeKey !== undefined || envelope.ownId === true;
    if (sinceMs >= Math.max(keepMs, isRemembered ? DEDUPE_WINDOW_MS : 0)) return undefined;
    const text = `${tell(before, after)} for only ${sinceMs} ms`;
    return { invariant: isRemembered ? 'dedupe' : 'verdict', text };
  }
  if (after.state !== 'deferred' && !(after.state === 'bounce' && status.lane === 'notice')) {
    return undefined;
  }
  if (expected.verdict === 'release') return undefined;
  const policy = policyInForce(scene, claim, before);
  const attempt = status.lane === 'notice' ? status.notices : status.attempts;
  const waitMs = expected.delayMs ?? plainDelayMs(policy, attempt);
  const untilExpiryMs =
    status.lane === 'notice' || envelope.expiresAt === undefined
      ? Number.POSITIVE_INFINITY
      : envelope.expiresAt - after.updatedAt;
  if (sinceMs >= Math.min(waitMs, untilExpiryMs)) return undefined;
  return { invariant: 'early', text: `${tell(before, after)} for ${sinceMs} ms, not ${waitMs} ms` };
}

function plainDelayMs({ backoff }: RetryPolicy, attempt: number): number {
  switch (backoff.kind) {
    case 'fixed':
      return backoff.delayMs;
    case 'exponential':
      return Math.min(backoff.maxMs, backoff.firstMs * backoff.factor ** (attempt - 1));
    case 'ladder':
      return backoff.delaysMs[Math.min(attempt, backoff.delaysMs.length) - 1] ?? 0;
    default:
      return 0;
  }
}

function tell({ envelope, status }: Entry, after: Status | undefined): string {
  const { holder, claimedFrom, attempts } = status;
  return (
    `"${envelope.id}" (claimed from ${claimedFrom} by ${holder}, attempt ${attempts}) ` +
    (after === undefined ? 'was removed' : `was settled as ${after.state}`)
  );
}

/** A handler starts; returns the claim it starts under. */
export function checkStart(
  scene: CheckScene,
  process: SimProcess,
  delivery: Delivery,
): ClaimFact | undefined {
  const { ledger, findings, timeline, disk } = scene;
  const { id, fence, lane, attempt, envelope } = delivery;
  const claim = ledger.startable(process, delivery, disk.peek(id)?.status.holder);
  const history = ledger.histories.get(id);
  if (claim === undefined || history === undefined) {
    findings.add('claim', `a handler started on "${fence}" without a claim, or a second time`);
    return undefined;
  }
  claim.startedAtMs = timeline.nowMs;
  if (lane !== claim.lane)
    findings.add('notice', `"${id}" was claimed as ${claim.lane}, run as ${lane}`);
  if (attempt !== claim.attempt && !claim.isTwin) {
    findings.add('attempts', `"${id}" runs attempt ${attempt}, but ${claim.attempt} is counted`);
  }
  const lateMs = timeline.nowMs - claim.leaseEndsAtMs;
  if (lateMs >= 0 && !claim.isTwin) {
    findings.add('lease', `"${fence}" was started ${lateMs} ms after the end of its lease`);
  }
  if (lane === 'notice') {
    ledger.notices += 1;
    return claim;
  }
  ledger.starts += 1;
  const now = scene.storeNow();
  if (envelope.expiresAt !== undefined && now > envelope.expiresAt + CLOCK_ERROR_MAX_MS) {
    findings.add('expiry', `"${id}" expired at ${envelope.expiresAt} and was started at ${now}`);
  }
  checkAttempts(scene, history, claim);
  checkTurn(scene, history, claim);
  if (!claim.isSingle) checkLimits(scene, process, envelope.destination);
  return claim;
}

/** A handler has read the body. */
export function checkBody(scene: CheckScene, claim: ClaimFact, bytes: Uint8Array): void {
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const accepted = scene.ledger.histories.get(claim.id)?.invocation.digest;
  if (digest === accepted) return;
  scene.findings.add('integrity', `the handler of "${claim.id}" read ${digest}, not ${accepted}`);
}

/** The outside world changes: what may happen twice, and must not happen more often. */
export function checkEffect(scene: CheckScene, claim: ClaimFact): void {
  const history = scene.ledger.histories.get(claim.id);
  if (history === undefined || claim.lane === 'notice') return;
  history.effects += 1;
  if (history.effects <= 1 + history.excuses) return;
  const { effects, excuses } = history;
  const text = `"${claim.id}" took effect ${effects} times; ${excuses} losses and replays excuse`;
  scene.findings.add('duplicates', text);
}

function checkAttempts(scene: CheckScene, history: MessageHistory, claim: ClaimFact): void {
  const { findings, disk } = scene;
  const entry = disk.peek(history.id);
  // A claim that was lost meanwhile is no attempt any more.
  if (entry === undefined || entry.status.holder !== claim.holder) return;
  history.counted += 1;
  if (history.counted > claim.attempt + history.slack) {
    const { id, counted } = history;
    const text = `"${id}" was started ${counted} times, counted are ${claim.attempt}`;
    findings.add('attempts', text);
  }
  const { maxAttempts } = policyInForce(scene, claim, entry);
  if (claim.attempt <= maxAttempts + history.grants) return;
  findings.add('attempts', `"${history.id}" is at attempt ${claim.attempt} of ${maxAttempts}`);
}

function checkLimits(
  scene: CheckScene,
  process: SimProcess,
  destination: string | undefined,
): void {
  const { plan, ledger, findings } = scene;
  let running = 0;
  let atDestination = 0;
  for (const history of ledger.histories.values()) {
    for (const claim of history.claims.values()) {
      const isRunning =
        claim.process === process &&
        !claim.isSingle &&
        claim.startedAtMs !== undefined &&
        claim.said === undefined &&
        !claim.isAborted;
      if (!isRunning) continue;
      running += 1;
      if (history.entry.envelope.destination === destination) atDestination += 1;
    }
  }
  if (running > plan.concurrency) {
    findings.add('limits', `${running} handlers run at once, ${plan.concurrency} may`);
  }
  const limit = destination === undefined ? undefined : plan.destinationConcurrency;
  if (limit !== undefined && atDestination > limit) {
    findings.add('limits', `${atDestination} handlers run for "${destination}", ${limit} may`);
  }
}
