/**
 * plan — everything about one world that is drawn before it begins: the number of processes, the
 * kind of store, settings, routes, and the rate of faults.
 */

import { HOUR_MS, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import { exponential, fixed, ladder, noRetry, type RetryPolicy } from '../../core/policy.ts';
import type { Lane } from '../../core/state.ts';
import { topicMatches } from '../../core/topic.ts';
import type { SpoolOptions } from '../../spool/options.ts';
import type { Chance } from './timeline.ts';

/**
 * `one`: a single process at its own disk. `machine`: several at one disk, with one wall clock and
 * one power plug. `server`: several machines, each with a clock of its own, as the server has one.
 */
export type FaultSite = 'one' | 'machine' | 'server';

/** A handler that some processes register. */
interface PlannedRoute {
  readonly lane: Lane;
  readonly pattern: string;
  readonly concurrency?: number;
  readonly timeoutMs: number;
  readonly policy?: string;
  /** Which processes have it, by number. */
  readonly processes: readonly number[];
}

/** How much goes wrong; probabilities are per call unless said otherwise. */
export interface Trouble {
  readonly failBefore: number;
  readonly failAfter: number;
  /** A call that takes up to ten seconds. */
  readonly slow: number;
  /** A call that takes some milliseconds; the others take none. */
  readonly brisk: number;
  readonly bodyFault: number;
  /** The mean span between two faults, each of a kind that `strike` (simulate.ts) picks. */
  readonly faultEveryMs: number;
  /** The mean span between two acts of an operator. */
  readonly actEveryMs: number;
}

/** One world. */
export interface SimPlan {
  readonly site: FaultSite;
  readonly processes: number;
  readonly producers: number;
  readonly messages: number;
  /** How long messages come and faults happen. */
  readonly faultsForMs: number;
  readonly leaseMs: number;
  readonly concurrency: number;
  readonly destinationConcurrency?: number;
  readonly settle: 'lazy' | 'durable';
  readonly unhandled: 'hold' | 'leave';
  readonly wakes: boolean;
  readonly inlineBodyBytes: number;
  /** Null: removed at once. */
  readonly deliveredMs: number | null;
  /** Null: kept in bounce. */
  readonly bouncedMs: number | null;
  readonly policies: Readonly<Record<string, RetryPolicy>>;
  readonly routes: readonly PlannedRoute[];
  /** What some messages are ordered by; none in half of the worlds. */
  readonly orderKeys: readonly string[];
  readonly trouble: Trouble;
}

const REMOVED_MS: number = 30 * MINUTE_MS;
export const DEDUPE_WINDOW_MS: number = HOUR_MS;
export const ORPHAN_GRACE_MS: number = 4 * HOUR_MS;
const CARETAKER_EVERY_MS: number = 5 * MINUTE_MS;
export const TOPICS: readonly string[] = ['mail.send', 'mail.bulk', 'web.hook', 'sms.one'];
/** A topic without a handler. */
export const ODD_TOPIC = 'odd.lost';

/**
 * Draws a world. Order keys are drawn from a chance of their own, so that they change nothing else
 * about the world of a seed.
 */
export function drawSimPlan(chance: Chance, ofKeys: Chance): SimPlan {
  const site = chance.weighted<FaultSite>({ one: 2, machine: 4, server: 4 });
  const processes = site === 'one' ? 1 : chance.between(1, 4);
  return {
    site,
    processes,
    producers: chance.between(1, 3),
    messages: chance.happens(0.1) ? chance.between(80, 150) : chance.between(20, 60),
    faultsForMs: chance.between(1, 6) * MINUTE_MS,
    leaseMs: chance.pick([2, 5, 10, 30]) * SECOND_MS,
    concurrency: chance.pick([1, 2, 4, 10]),
    ...(chance.happens(0.4) ? { destinationConcurrency: chance.between(1, 3) } : {}),
    settle: chance.happens(0.7) ? 'lazy' : 'durable',
    unhandled: chance.happens(0.7) ? 'hold' : 'leave',
    wakes: site !== 'one' && chance.happens(0.85),
    inlineBodyBytes: chance.pick([0, 32, 32, 1024]),
    deliveredMs: chance.happens(0.5) ? null : 10 * MINUTE_MS,
    bouncedMs: chance.happens(0.5) ? null : 10 * MINUTE_MS,
    policies: drawPolicies(chance),
    routes: drawRoutes(chance, processes),
    orderKeys: ofKeys.happens(0.5) ? ['one', 'two', 'three'].slice(0, ofKeys.between(1, 3)) : [],
    trouble: drawTrouble(chance),
  };
}

/** The settings of createSpool that follow from the plan. */
export function simSettings(plan: SimPlan): SpoolOptions {
  const { destinationConcurrency, deliveredMs, bouncedMs } = plan;
  return {
    policies: plan.policies,
    concurrency: plan.concurrency,
    ...(destinationConcurrency === undefined ? {} : { destinationConcurrency }),
    lease: plan.leaseMs,
    settle: plan.settle,
    unhandled: plan.unhandled,
    limits: { inlineBodyBytes: plan.inlineBodyBytes },
    retention: {
      delivered: deliveredMs === null ? 'remove' : { archive: deliveredMs },
      bounced: bouncedMs === null ? 'keep' : { archive: bouncedMs },
      removed: REMOVED_MS,
      dedupeWindow: DEDUPE_WINDOW_MS,
    },
    caretaker: { every: CARETAKER_EVERY_MS, orphanGrace: ORPHAN_GRACE_MS },
  };
}

/** The route of a process for a topic: the first that matches. */
export function routeFor(
  plan: SimPlan,
  process: number,
  lane: Lane,
  topic: string,
): PlannedRoute | undefined {
  return plan.routes.find(
    (route) =>
      route.lane === lane &&
      route.processes.includes(process) &&
      topicMatches(route.pattern, topic),
  );
}

/** Whether any process handles the topic in this lane. */
export function isServed(plan: SimPlan, lane: Lane, topic: string): boolean {
  return plan.routes.some((route) => route.lane === lane && topicMatches(route.pattern, topic));
}

function drawPolicies(chance: Chance): Record<string, RetryPolicy> {
  const jitter = chance.pick([0, 0, 0.3]);
  return {
    default: chance.pick([
      fixed('3s', { attempts: 4, jitter }),
      exponential({ first: '500ms', factor: 3, max: '1m', attempts: 5, jitter }),
    ]),
    notice: fixed('2s', { attempts: 3 }),
    quick: fixed('200ms', { attempts: 3, jitter }),
    steps: ladder(['1s', '5s', '40s']),
    once: noRetry(),
    aged: fixed('15s', { attempts: 50, maxAge: '2m' }),
  };
}

function drawRoutes(chance: Chance, processes: number): PlannedRoute[] {
  const some = (share: number): number[] => {
    const chosen = Array.from({ length: processes }, (_, at) => at).filter(() =>
      chance.happens(share),
    );
    return chosen.length > 0 ? chosen : [chance.between(0, processes - 1)];
  };
  const timeoutMs = chance.pick([10, 60, 600]) * SECOND_MS;
  const limited = chance.happens(0.5) ? { concurrency: chance.between(1, 2) } : {};
  const named = chance.happens(0.5) ? { policy: 'quick' } : {};
  const routes: PlannedRoute[] = [
    { lane: 'delivery', pattern: 'mail.*', timeoutMs, processes: some(0.8) },
    { lane: 'delivery', pattern: 'web.#', timeoutMs, ...limited, ...named, processes: some(0.7) },
    { lane: 'delivery', pattern: 'sms.one', timeoutMs, processes: some(0.7) },
  ];
  if (chance.happens(0.7)) {
    routes.push({ lane: 'notice', pattern: 'mail.*', timeoutMs, processes: some(0.7) });
  }
  if (chance.happens(0.5)) {
    routes.push({ lane: 'notice', pattern: '#', timeoutMs, processes: some(0.5) });
  }
  return routes;
}

function drawTrouble(chance: Chance): Trouble {
  const level = chance.weighted({ calm: 2, fair: 4, foul: 3 });
  const scale = { calm: 0, fair: 1, foul: 4 }[level];
  return {
    failBefore: 0.005 * scale * chance.random(),
    failAfter: 0.005 * scale * chance.random(),
    slow: 0.005 * scale * chance.random(),
    brisk: chance.pick([0, 0.2, 0.8]),
    bodyFault: 0.01 * scale * chance.random(),
    faultEveryMs: level === 'calm' ? 60 * MINUTE_MS : chance.between(8, 40) * (SECOND_MS / scale),
    actEveryMs: chance.pick([2, 5, 20, 600]) * SECOND_MS,
  };
}
