/**
 * queue-safety — whether queues, as they are at the broker, can lose messages: arguments and
 * policies taken together, whichever client declared them. Pure.
 */

import { formatDuration } from '../../core/duration.ts';
import { show } from '../../core/errors.ts';
import type { Table } from '../connection/amqp.ts';
import type { ExchangeInfo, QueueInfo } from './management/index.ts';
import { appliedPolicy } from '../topology/effective.ts';
import type { QueueSpec } from '../topology/model.ts';
import type { Snapshot } from '../topology/snapshot.ts';
import { bad, type Finding, warn } from './reports.ts';
import type { PlannedQueue } from './inspect-broker.ts';

/** A lower limit is reached by a consumer that crashes again and again. */
const DELIVERY_LIMIT_LOW = 1_000;
/** Default delivery limit of a quorum queue from 4.0 on. */
const DELIVERY_LIMIT_DEFAULT = 20;

/** What is unsafe about the queues of plans, in their order. */
export function queueFindings(queues: readonly PlannedQueue[], snapshot: Snapshot): Finding[] {
  return queues.flatMap(({ spec }) => {
    const info = snapshot.queues.get(spec.name);
    if (info === undefined) return [];
    const queue: Judged = { spec, info, of: settingsOf(info, snapshot) };
    return [
      ...typeFinding(queue),
      ...stateFinding(queue),
      ...strategyFinding(queue),
      ...dropFinding(queue),
      ...limitFinding(queue, snapshot.version),
      ...lifeFinding(queue),
      ...returnFinding(queue, snapshot),
    ];
  });
}

interface Judged {
  readonly spec: QueueSpec;
  readonly info: QueueInfo;
  /** What holds, by the name that policies use. */
  readonly of: (setting: string) => unknown;
}

/** Of two numbers the lower holds; of anything else the argument. */
function settingsOf(info: QueueInfo, snapshot: Snapshot): (setting: string) => unknown {
  const policies = [...snapshot.policies.values()];
  const { definition } = appliedPolicy(info, policies, snapshot.operatorPolicies);
  return (setting) => {
    const [one, other] = [info.arguments[`x-${setting}`], definition[setting]];
    if (typeof one === 'number' && typeof other === 'number') return Math.min(one, other);
    return one ?? other;
  };
}

function typeFinding({ spec, info }: Judged): Finding[] {
  const wanted = spec.arguments['x-queue-type'];
  if (wanted === undefined || info.type === undefined || wanted === info.type) return [];
  return [
    bad(
      'queue.type',
      `the queue ${show(spec.name)} is of type ${info.type}, planned is ${show(wanted)}`,
      'move to a queue of another name: respool rabbit topology migrate',
    ),
  ];
}

function stateFinding({ spec, info }: Judged): Finding[] {
  const { state } = info;
  if (state === undefined || state === 'running' || state === 'idle') return [];
  return [
    bad(
      'queue.state',
      `the queue ${show(spec.name)} is ${show(state)}, not running`,
      'see that its nodes are up: rabbitmq-diagnostics cluster_status',
    ),
  ];
}

function strategyFinding({ spec, info, of }: Judged): Finding[] {
  if (info.type !== 'quorum' || of('dead-letter-exchange') === undefined) return [];
  const isAsked = of('dead-letter-strategy') === 'at-least-once';
  if (isAsked && of('overflow') === 'reject-publish') return [];
  const why = isAsked
    ? 'it asks for at least once, which is not in force without overflow reject-publish'
    : 'its strategy is not at-least-once';
  return [
    bad(
      'queue.strategy',
      `the ${spec.role} queue ${show(spec.name)} dead-letters at most once: ${why}`,
      'set a policy with dead-letter-strategy at-least-once and overflow reject-publish',
    ),
  ];
}

function dropFinding({ spec, of }: Judged): Finding[] {
  const limit = of('max-length') ?? of('max-length-bytes');
  const overflow = of('overflow');
  if (limit === undefined || String(overflow).startsWith('reject-publish')) return [];
  return [
    bad(
      'queue.drops',
      `the ${spec.role} queue ${show(spec.name)} has a length limit of ${show(limit)} and drops ` +
        'its oldest messages when it is full',
      'set overflow reject-publish: then publishers are refused, and keep the message',
    ),
  ];
}

function limitFinding({ spec, info, of }: Judged, version: string): Finding[] {
  if (info.type !== 'quorum') return [];
  const isModern = Number.parseInt(version, 10) >= 4;
  const limit = of('delivery-limit') ?? (isModern ? DELIVERY_LIMIT_DEFAULT : undefined);
  if (typeof limit !== 'number' || limit >= DELIVERY_LIMIT_LOW) return [];
  // n.b. There −1 means without limit.
  if (limit < 0 && isModern) return [];
  const isKept = of('dead-letter-exchange') !== undefined;
  const todo = 'set a policy with delivery-limit 1000000, or such an argument in a new queue';
  const what = `the ${spec.role} queue ${show(spec.name)} has a delivery limit of ${limit}`;
  if (limit < 0) {
    return [bad('queue.delivery-limit', `${what}: 3.x gives up at the first return`, todo)];
  }
  return [
    isKept
      ? warn('queue.delivery-limit', `${what}: a crash costs every message in hand one`, todo)
      : bad('queue.delivery-limit', `${what} and no dead-letter exchange: then it is lost`, todo),
  ];
}

/** What ends messages, or the queue with them, by time alone. */
function lifeFinding({ spec, of }: Judged): Finding[] {
  const found: Finding[] = [];
  const expires = of('expires');
  if (typeof expires === 'number') {
    const span = formatDuration(expires);
    found.push(
      bad(
        'queue.expires',
        `the ${spec.role} queue ${show(spec.name)} is deleted with its messages when no consumer ` +
          `uses it for ${span}`,
        'take "expires" out of its policy or arguments',
      ),
    );
  }
  const ttl = of('message-ttl');
  const planned = spec.arguments['x-message-ttl'];
  if (typeof ttl !== 'number' || ttl === planned) return found;
  const isShorter = spec.role === 'wait' && typeof planned === 'number';
  if (spec.role === 'wait' && !isShorter) return found;
  const what = `the ${spec.role} queue ${show(spec.name)} has a TTL of ${formatDuration(ttl)}`;
  const todo = 'keep the pattern of that policy off this queue';
  return [
    ...found,
    isShorter
      ? bad('queue.ttl', `${what} instead of ${formatDuration(planned)}: retries are early`, todo)
      : bad('queue.ttl', `${what}: messages that are not consumed in time are removed`, todo),
  ];
}

/** Without an alternate exchange 32 messages that no queue takes stop a whole wait queue. */
function returnFinding({ spec, of }: Judged, snapshot: Snapshot): Finding[] {
  if (spec.role !== 'wait') return [];
  const name = of('dead-letter-exchange');
  const what = `the wait queue ${show(spec.name)}`;
  const apply = 'declare the topology: respool rabbit topology apply';
  if (typeof name !== 'string') {
    return [bad('queue.return', `${what} leads nowhere: its messages are dropped`, apply)];
  }
  if (name === '') {
    const todo = 'use a topology of our own, or watch "leaving" in respool rabbit stats';
    const text =
      `${what} leads back through the default exchange, which cannot have an alternate: 32 ` +
      'messages whose queue is gone stop all behind them';
    return [warn('exchange.alternate', text, todo)];
  }
  const exchange = snapshot.exchanges.get(name);
  if (exchange === undefined) {
    return [bad('queue.return', `${what} leads to ${show(name)}, which does not exist`, apply)];
  }
  if (alternateOf(exchange, snapshot) !== undefined) return [];
  const text =
    `${what} leads back through the exchange ${show(name)}, which has no alternate exchange: 32 ` +
    'messages that no queue takes stop all behind them';
  return [warn('exchange.alternate', text, 'give it one by a policy (alternate-exchange)')];
}

function alternateOf({ policy, arguments: args }: ExchangeInfo, snapshot: Snapshot): unknown {
  const definition: Table = snapshot.policies.get(policy ?? '')?.definition ?? {};
  return args['alternate-exchange'] ?? definition['alternate-exchange'];
}
