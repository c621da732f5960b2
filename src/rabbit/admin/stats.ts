/**
 * stats — how many messages each queue has, how fast they move, and what in that is a warning.
 *
 * Promise: no message is ever taken or read; asking costs no delivery.
 */

import { formatDuration, MINUTE_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { systemClock } from '../../system/clock.ts';
import { type PassiveQueue, passiveQueues, type QueueState } from '../connection/amqp.ts';
import { queuesOf } from '../topology/broker-state.ts';
import { type PlannedQueue, plannedQueues } from '../topology/model.ts';
import { amqpOf } from '../connection/connection.ts';
import type { QueueInfo } from '../management/management.ts';
import type {
  BrokerLookOptions,
  QueueStats,
  StatsHint,
  StatsOptions,
  StatsReport,
} from './reports.ts';

/** Depth, rates and age of every queue of the plans. */
export async function queueStats(options: StatsOptions): Promise<StatsReport> {
  checkLook('the state of queues', options);
  const { connection, management, plans, previous, clock = systemClock } = options;
  const planned = plannedQueues(plans);
  const names = planned.map((one) => one.spec.name);
  const infos = management === undefined ? undefined : await queuesOf(management, names);
  // Counts of the management API are some seconds old, and absent for a new queue.
  const counted =
    connection === undefined ? undefined : await passiveQueues(await amqpOf(connection), names);
  const at = clock.now();
  const queues = planned.map((one) => {
    const { name } = one.spec;
    return statsOf(one, { info: infos?.get(name), counted: counted?.get(name), at });
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
  readonly info: QueueInfo | undefined;
  readonly counted: PassiveQueue<QueueState> | undefined;
  readonly at: number;
}

function statsOf({ spec, of, waitMs }: PlannedQueue, { info, counted, at }: Known): QueueStats {
  const state = counted !== undefined && 'found' in counted ? counted.found : undefined;
  const isHidden = counted !== undefined && 'problem' in counted;
  return {
    name: spec.name,
    role: spec.role,
    of,
    waitMs,
    isThere: info !== undefined || state !== undefined || isHidden,
    type: info?.type,
    ready: state?.messageCount ?? info?.ready,
    unacked: info?.unacked,
    deadLettering: info?.deadLettering,
    consumers: state?.consumerCount ?? info?.consumers,
    publishRate: info?.publishRate,
    deliverRate: info?.deliverRate,
    ackRate: info?.ackRate,
    published: publishedOf(info),
    oldestAgeMs: info?.headAt === undefined ? undefined : Math.max(0, at - info.headAt),
  };
}

function publishedOf(info: QueueInfo | undefined): number | undefined {
  const stats = info?.raw['message_stats'];
  const count: unknown =
    typeof stats === 'object' && stats !== null ? Reflect.get(stats, 'publish') : undefined;
  return typeof count === 'number' ? count : undefined;
}

function noteOf(
  hasManagement: boolean,
  counted: ReadonlyMap<string, PassiveQueue<QueueState>> | undefined,
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

// What the numbers of queues mean for an operator. Pure.

/**
 * This many messages that no queue accepts stop everything behind them: the broker dead-letters
 * this many at a time and waits for each (tried on 3.10, 4.0 and 4.3). Also in texts of doctor.ts
 * and compat/outbox.ts, docs/reference/rabbit.md and docs/operations/rabbit-retries-late.md.
 */
const STALL_AT = 32;
/** A message may leave its wait queue so much later before it counts as stuck. */
const LATE_MS = MINUTE_MS;

interface HintOptions {
  readonly at: number;
  readonly previous: StatsReport | undefined;
}

/** What should worry, in the order of the queues. */
export function hintsOf(queues: readonly QueueStats[], parts: HintOptions): StatsHint[] {
  return queues.flatMap((queue) => {
    const before = parts.previous?.queues.find((one) => one.name === queue.name);
    return [
      ...missing(queue),
      ...stalled(queue),
      ...deepWait(queue, before, parts),
      ...unrouted(queue),
      ...deadGrowing(queue, before),
    ];
  });
}

function missing({ name, role, isThere }: QueueStats): StatsHint[] {
  if (isThere) return [];
  return [
    {
      kind: 'missing',
      level: 'bad',
      queue: name,
      text: `there is no ${role} queue ${show(name)}`,
      todo: 'declare the topology: respool rabbit topology apply',
    },
  ];
}

function stalled({ name, role, deadLettering = 0 }: QueueStats): StatsHint[] {
  if (deadLettering === 0 || (role !== 'wait' && role !== 'main')) return [];
  const isStopped = deadLettering >= STALL_AT;
  const what =
    `${deadLettering} messages of the ${role} queue ${show(name)} are being dead-lettered and ` +
    'are not confirmed by the queue they go to';
  return [
    {
      kind: 'stalled',
      level: isStopped ? 'bad' : 'warn',
      queue: name,
      text: isStopped ? `${what}; everything behind them stands still` : what,
      todo:
        'check again in 10s; if the number has not changed, make sure the exchange and queue ' +
        'they return to exist and are not full (respool rabbit doctor). The broker tries again ' +
        'every 3 minutes',
    },
  ];
}

/** Everything that is there now came since the last look, or it should have left by now. */
function deepWait(
  queue: QueueStats,
  before: QueueStats | undefined,
  { at, previous }: HintOptions,
): StatsHint[] {
  const { name, waitMs, ready } = queue;
  if (waitMs === undefined || before === undefined || previous === undefined) return [];
  if (at - previous.at < waitMs + LATE_MS || ready === undefined) return [];
  const came = (queue.published ?? Number.NaN) - (before.published ?? Number.NaN);
  // n.b. The counts restart with the broker: then there is no rate.
  if (!(came >= 0) || ready <= came) return [];
  const wait = formatDuration(waitMs);
  return [
    {
      kind: 'deep-wait',
      level: 'warn',
      queue: name,
      text:
        `at least ${ready - came} of ${ready} messages in the wait queue ${show(name)} are there ` +
        `for longer than its ${wait}`,
      todo:
        'see whether a policy gave it a TTL while it held messages (those never expire); then: ' +
        `respool rabbit drain ${name}`,
    },
  ];
}

function unrouted({ name, role, ready = 0 }: QueueStats): StatsHint[] {
  if (role !== 'unrouted' || ready === 0) return [];
  return [
    {
      kind: 'unrouted',
      level: 'bad',
      queue: name,
      text:
        `${ready} messages came back from waiting and found no queue; they are safe in ` +
        show(name),
      todo:
        'declare the queue or binding that they return to (respool rabbit topology apply), then: ' +
        `respool rabbit drain ${name}`,
    },
  ];
}

function deadGrowing(queue: QueueStats, before: QueueStats | undefined): StatsHint[] {
  const { name, role, ready, publishRate = 0 } = queue;
  if (role !== 'dead' || ready === undefined) return [];
  const grown = before?.ready === undefined ? 0 : ready - before.ready;
  if (grown <= 0 && publishRate <= 0) return [];
  const how = grown > 0 ? `has ${grown} more than at the last check` : `gets ${publishRate}/s`;
  return [
    {
      kind: 'dead-growing',
      level: 'warn',
      queue: name,
      text: `the dead queue ${show(name)} grows: it has ${ready} messages and ${how}`,
      todo:
        'read their header respool-ended-reason, fix the cause, then: ' +
        `respool rabbit drain ${name}`,
    },
  ];
}

/** Refuses to look without a management API. */
export function checkLook(what: string, { connection, management }: BrokerLookOptions): void {
  if (connection !== undefined || management !== undefined) return;
  throw new RespoolError(
    'config.invalid',
    `cannot tell ${what}: neither a connection nor the management API is given; give one of them`,
  );
}
