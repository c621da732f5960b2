/**
 * stats — how many messages lie where, how fast they move, and what in that should worry.
 *
 * Promise: no message is ever taken to be looked at; looking costs no delivery.
 */

import { show } from '../../core/errors.ts';
import { systemClock } from '../../system/clock.ts';
import type { QueueState } from '../connection/amqp.ts';
import type { QueueInfo } from './management/answers.ts';
import { hintsOf } from './hints.ts';
import {
  amqpOf,
  checkLook,
  type Passive,
  type PlannedQueue,
  passiveQueues,
  plannedQueues,
  queuesOf,
} from './inspect-broker.ts';
import type { QueueStats, StatsOptions, StatsReport } from './reports.ts';

/** Depth, rates and age of every queue of the plans. */
export async function queueStats(options: StatsOptions): Promise<StatsReport> {
  checkLook('the state of queues', options);
  const { connection, management, plans, previous, clock = systemClock } = options;
  const planned = plannedQueues(plans);
  const names = planned.map((one) => one.spec.name);
  const told = management === undefined ? undefined : await queuesOf(management, names);
  // Counts of the management API are up to 5 s old, and absent for a new queue.
  const counted =
    connection === undefined ? undefined : await passiveQueues(await amqpOf(connection), names);
  const at = clock.now();
  const queues = planned.map((one) => {
    const { name } = one.spec;
    return statsOf(one, { told: told?.get(name), counted: counted?.get(name), at });
  });
  return {
    at,
    source: management === undefined ? 'passive' : 'management',
    note: noteOf(management !== undefined, counted),
    queues,
    hints: hintsOf(queues, { at, previous }),
  };
}

interface Known {
  readonly told: QueueInfo | undefined;
  readonly counted: Passive<QueueState> | undefined;
  readonly at: number;
}

function statsOf({ spec, of, waitMs }: PlannedQueue, { told, counted, at }: Known): QueueStats {
  const state = counted !== undefined && 'found' in counted ? counted.found : undefined;
  const isHidden = counted !== undefined && 'problem' in counted;
  return {
    name: spec.name,
    role: spec.role,
    of,
    waitMs,
    isThere: told !== undefined || state !== undefined || isHidden,
    type: told?.type,
    ready: state?.messageCount ?? told?.ready,
    unacked: told?.unacked,
    deadLettering: told?.deadLettering,
    consumers: state?.consumerCount ?? told?.consumers,
    publishRate: told?.publishRate,
    deliverRate: told?.deliverRate,
    ackRate: told?.ackRate,
    published: publishedOf(told),
    oldestAgeMs: told?.headAt === undefined ? undefined : Math.max(0, at - told.headAt),
  };
}

function publishedOf(told: QueueInfo | undefined): number | undefined {
  const stats = told?.raw['message_stats'];
  const count: unknown =
    typeof stats === 'object' && stats !== null ? Reflect.get(stats, 'publish') : undefined;
  return typeof count === 'number' ? count : undefined;
}

function noteOf(
  hasManagement: boolean,
  counted: ReadonlyMap<string, Passive<QueueState>> | undefined,
): string | undefined {
  const hidden = [...(counted ?? [])].flatMap(([name, answer]) =>
    'problem' in answer ? [`${show(name)} cannot be looked at: ${answer.problem}`] : [],
  );
  const blind = hasManagement
    ? []
    : [
        'depths and consumers only, asked over AMQP: messages in hand or on their way to another ' +
          'queue, rates and ages need the management API',
      ];
  const notes = [...blind, ...hidden];
  return notes.length === 0 ? undefined : notes.join('; ');
}
