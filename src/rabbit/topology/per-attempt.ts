/**
 * per-attempt — a wait queue for each attempt, as in GoQueue.
 *
 *   {queue}__retry_exchange (topic) ─▶ {queue}__retry.{n} ─TTL─▶ {queue}__dlx (direct) ─▶ {queue}
 *
 * Easy to read in the management pages: a queue's name tells which attempt failed. Needs the most
 * queues of the three styles.
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { Failure } from '../../core/failure.ts';
import { delayMs, type RetryPolicy } from '../../core/policy.ts';
import { assemble, checkOrder, type TopologyRoute } from './assemble.ts';
import type { QueueOrder, QueuePlan, TopologyStyle } from './model.ts';
import { delayLabel } from './names.ts';
import * as parts from './parts.ts';

/** One wait queue per attempt and queue. */
export function perAttempt(): TopologyStyle {
  return { name: 'perAttempt', plan };
}

interface Level {
  readonly name: string;
  readonly waitMs: number;
  readonly attempt?: number;
}

function plan(order: QueueOrder): QueuePlan {
  checkOrder(order);
  const { queue, type } = order;
  const into = `${queue}__retry_exchange`;
  const back = `${queue}__dlx`;
  const levels = levelsOf(order);
  const waiting: parts.Part = {
    exchanges: [parts.exchange(into, 'topic')],
    queues: levels.map(({ name, waitMs }) =>
      parts.waitQueue(name, waitMs, type, { to: back, key: queue }),
    ),
    bindings: [
      ...levels.map(({ name }) => parts.binding(name, into, name)),
      parts.binding(queue, back, queue),
    ],
  };
  const roads = levels.map(
    ({ name, ...level }): TopologyRoute => ({
      ...level,
      route: () => ({ exchange: into, key: name }),
    }),
  );
  const way = parts.wayBack(type, { [back]: 'direct' }, `${queue}__unrouted`);
  return assemble(order, [parts.home(order, back), way, waiting], roads);
}

/** A custom policy may ask for any of its rungs at any attempt: its queues are named by delay. */
function levelsOf(order: QueueOrder): Level[] {
  const { policy } = order;
  const isCustom = policy.backoff.kind === 'custom';
  const attempts = isCustom ? [] : attemptLevels(order);
  const waits = isCustom ? parts.waitsOf(order) : parts.extraWaits(order);
  const covered = new Set(attempts.map((level) => level.waitMs));
  const others = waits.filter((waitMs) => !covered.has(waitMs));
  return [
    ...attempts,
    ...others.map((waitMs) => ({
      name: `${order.queue}__retry.wait_${delayLabel(waitMs)}`,
      waitMs,
    })),
  ];
}

function attemptLevels({ queue, policy }: QueueOrder): Level[] {
  const retries = policy.maxAttempts - 1;
  if (retries > parts.RUNGS_MAX) {
    throw new RespoolError(
      'policy.invalid',
      `cannot make a wait queue per attempt for queue ${show(queue)}: its policy has ` +
        `${retries} retries, allowed are ${parts.RUNGS_MAX}; use fewer attempts, ` +
        'or shared() or perDelay(), which have one wait queue per delay',
    );
  }
  const levels: Level[] = [];
  for (let attempt = 1; attempt <= retries; attempt += 1) {
    const waitMs = parts.cappedWait(plainDelayMs(policy, attempt));
    if (waitMs > 0) levels.push({ name: `${queue}__retry.${attempt}`, waitMs, attempt });
  }
  return levels;
}

/** The delay after an attempt as the policy has it, without chance. */
function plainDelayMs(policy: RetryPolicy, attempt: number): number {
  return delayMs({ policy: { ...policy, jitter: 0 }, attempt, failure: ANY_FAILURE, random: 0 });
}

/** The delay of a plain policy does not depend on the failure. */
const ANY_FAILURE: Failure = { permanence: 'transient', code: 'any', reason: '', fingerprint: '' };
