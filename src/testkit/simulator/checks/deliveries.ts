/** deliveries — every start of a handler, every byte it reads, every effect it has. */

import { createHash } from 'node:crypto';
import type { Delivery } from '../../../ports/handler.ts';
import type { ClaimFact, Story } from '../ledger.ts';
import type { SimProcess } from '../process.ts';
import { checkTurn } from './order.ts';
import { CLOCK_ERROR_MAX_MS, type CheckContext } from './check-context.ts';
import { policyInForce } from './settle.ts';

/** A handler starts; returns the claim it starts under. */
export function checkStart(
  scene: CheckContext,
  process: SimProcess,
  delivery: Delivery,
): ClaimFact | undefined {
  const { ledger, findings, timeline, disk } = scene;
  const { id, fence, lane, attempt, envelope } = delivery;
  const claim = ledger.startable(process, delivery, disk.peek(id)?.status.holder);
  const story = ledger.stories.get(id);
  if (claim === undefined || story === undefined) {
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
  checkAttempts(scene, story, claim);
  checkTurn(scene, story, claim);
  if (!claim.isSingle) checkLimits(scene, process, envelope.destination);
  return claim;
}

/** A handler has read the body. */
export function checkBody(scene: CheckContext, claim: ClaimFact, bytes: Uint8Array): void {
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const accepted = scene.ledger.stories.get(claim.id)?.invocation.digest;
  if (digest === accepted) return;
  scene.findings.add('integrity', `the handler of "${claim.id}" read ${digest}, not ${accepted}`);
}

/** The outside world changes: what may happen twice, and must not happen more often. */
export function checkEffect(scene: CheckContext, claim: ClaimFact): void {
  const story = scene.ledger.stories.get(claim.id);
  if (story === undefined || claim.lane === 'notice') return;
  story.effects += 1;
  if (story.effects <= 1 + story.excuses) return;
  const { effects, excuses } = story;
  const text = `"${claim.id}" took effect ${effects} times; ${excuses} losses and replays excuse`;
  scene.findings.add('duplicates', text);
}

function checkAttempts(scene: CheckContext, story: Story, claim: ClaimFact): void {
  const { findings, disk } = scene;
  const entry = disk.peek(story.id);
  // A claim that was lost meanwhile is nobody's attempt any more.
  if (entry === undefined || entry.status.holder !== claim.holder) return;
  story.counted += 1;
  if (story.counted > claim.attempt + story.slack) {
    const text = `"${story.id}" was started ${story.counted} times, counted are ${claim.attempt}`;
    findings.add('attempts', text);
  }
  const { maxAttempts } = policyInForce(scene, claim, entry);
  if (claim.attempt <= maxAttempts + story.grants) return;
  findings.add('attempts', `"${story.id}" is at attempt ${claim.attempt} of ${maxAttempts}`);
}

function checkLimits(
  scene: CheckContext,
  process: SimProcess,
  destination: string | undefined,
): void {
  const { plan, ledger, findings } = scene;
  let running = 0;
  let atDestination = 0;
  for (const story of ledger.stories.values()) {
    for (const claim of story.claims.values()) {
      const isRunning =
        claim.process === process &&
        !claim.isSingle &&
        claim.startedAtMs !== undefined &&
        claim.said === undefined &&
        !claim.isAborted;
      if (!isRunning) continue;
      running += 1;
      if (story.entry.envelope.destination === destination) atDestination += 1;
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
