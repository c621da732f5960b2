/** verdict-routes — where a message goes by a verdict, and what its successor tells of it. Pure. */

import type { Millis } from '../../core/duration.ts';
import type { Headers } from '../../core/entry.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Settlement } from '../../ports/source.ts';
import type { RabbitClaim } from './claim.ts';
import type { QueuePlan, Route } from '../topology/model.ts';
import type { HistoryEnding, Past, Successor } from './message-history.ts';

/** A message on its way to another queue. */
export interface VerdictRoute {
  readonly route: Route;
  readonly past: Past;
  readonly ending?: HistoryEnding;
  /** How long it lies in the wait queue there; absent where it does not wait. */
  readonly waitMs?: number;
}

/** A verdict that needs a successor. */
export type MovingVerdict = Extract<Verdict, { kind: 'defer' | 'bounce' | 'hold' }>;

/** The settlement of one. */
export type MovingSettlement = Omit<Settlement, 'verdict'> & { readonly verdict: MovingVerdict };

/** What a verdict makes of a message. */
export function routeForVerdict(
  claim: RabbitClaim,
  { verdict, notes }: MovingSettlement,
  plan: QueuePlan,
  now: Millis,
): VerdictRoute {
  const past = pastAfter(claim, verdict, notes, now);
  if (verdict.kind === 'defer') return deferred(claim, past, verdict.delayMs, plan, now);
  const { code, text, by } = verdict.because;
  const kind = verdict.kind === 'bounce' ? 'dead' : 'parked';
  const route = verdict.kind === 'bounce' ? plan.dead : plan.parked;
  return { route, past, ending: { kind, code, reason: text, at: now, by } };
}

/** The successor that a step makes. */
export function successorMessage(
  { past, route, ending }: VerdictRoute,
  queue: string,
  id: string,
): Successor {
  const routing = route.headers;
  return { past, queue, id, routing, ...(ending === undefined ? undefined : { ending }) };
}

/** It came back from a wait queue that was shorter than its wait. */
export function restingPlace(past: Past, plan: QueuePlan): VerdictRoute {
  const { routingKey, restMs, attempts: attempt } = past;
  const road = plan.wait({ delayMs: restMs, attempt, routingKey });
  const { waitMs } = road;
  return { route: road, past: { ...past, restMs: Math.max(0, restMs - waitMs) }, waitMs };
}

/** How long it waits in all, in this wait queue and in those that its rest leads through. */
export function waitMsOf(first: VerdictRoute, plan: QueuePlan): number {
  let step = first;
  let totalMs = step.waitMs ?? 0;
  for (let legs = 1; step.past.restMs > 0; legs += 1) {
    if (legs === LEGS_MAX) return totalMs + step.past.restMs;
    step = restingPlace(step.past, plan);
    totalMs += step.waitMs ?? 0;
  }
  return totalMs;
}

/** Wait queues that are looked at in advance; a wait of years in queues of hours has more. */
const LEGS_MAX = 1_000;

function deferred(
  claim: RabbitClaim,
  past: Past,
  askedMs: number,
  plan: QueuePlan,
  now: Millis,
): VerdictRoute {
  const { expiresAt } = claim.envelope;
  // A deferral never goes past the expiry: then it comes back to be told so.
  const delayMs = expiresAt === undefined ? askedMs : Math.min(askedMs, expiresAt - now);
  if (delayMs <= 0) return { route: plan.again, past };
  const { attempt } = claim;
  const road = plan.wait({ delayMs, attempt, routingKey: past.routingKey });
  const { waitMs } = road;
  return { route: road, past: { ...past, restMs: Math.max(0, delayMs - waitMs) }, waitMs };
}

function pastAfter(
  claim: RabbitClaim,
  verdict: MovingVerdict,
  notes: Headers | undefined,
  now: Millis,
): Past {
  const { past, envelope, attempt } = claim;
  const failure = verdict.kind === 'hold' ? undefined : verdict.failure;
  // A lost consumer is no attempt here, other than in a spool: one crash loses a whole prefetch.
  const isPoison = claim.claimedFrom === 'active';
  const isFree =
    isPoison || (verdict.kind === 'bounce' ? verdict.expired === true : !verdict.costsAttempt);
  const isPostponed = verdict.kind === 'defer' && !verdict.costsAttempt;
  return {
    ...past,
    attempts: isFree ? past.attempts : attempt,
    postponed: past.postponed + (isPostponed ? 1 : 0),
    // It was settled: the row of lost consumers ends here, unless that is what it is parked for.
    lost: isPoison ? claim.lost : 0,
    firstAt: envelope.enqueuedAt,
    restMs: 0,
    notes: notes === undefined ? past.notes : { ...past.notes, ...notes },
    ...(failure === undefined
      ? undefined
      : {
          lastFailure: failure,
          lastFailedAt: now,
          firstFailedAt: past.firstFailedAt ?? now,
        }),
  };
}
