/**
 * migration — what the steps of a migration share: whom they ask, and what they tell.
 */

import { formatDuration } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import type { AmqpConnection, QueueState } from '../connection/amqp.ts';
import type { PassiveQueue } from './inspect-broker.ts';
import type { QueueInfo } from './management/answers.ts';
import type { LeavingQueue, Move } from './old-topology.ts';
import type { MigrateOptions, MigrateStep } from './reports.ts';

/** What a migration works with, and what it has to tell. */
export interface Migration {
  readonly options: MigrateOptions;
  readonly move: Move;
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly steps: MigrateStep[];
  readonly todo: string[];
}

/** Roads between the old queues: they are needed until nothing can come back any more. */
export function isInner(exchange: string, { exchanges, leaving }: Move): boolean {
  return (
    exchange === '' ||
    exchanges.includes(exchange) ||
    leaving.some(({ deadLetters }) => deadLetters === exchange)
  );
}

export const NEEDS_MANAGEMENT: string =
  'give the management API: without it, messages that are still being dead-lettered cannot be ' +
  'seen and what is bound, so no old queue is removed';

export function runOut({ waitMs }: LeavingQueue): string {
  const when = waitMs === undefined ? 'when it is empty' : `in ${formatDuration(waitMs)}`;
  return `left to run out: run again ${when}`;
}

export function step(
  kind: MigrateStep['kind'],
  name: string,
  messages: number,
  text: string,
): MigrateStep {
  return { kind, name, messages, text };
}

// How many messages a queue holds, by two sources: a passive declare, which is right now
// and blind to what is in hand or on the way out, and the management API, which may be 5 s old.

export interface Count {
  /** All that it holds, also in hand and on the way out; undefined: not told. */
  readonly messages: number | undefined;
  /** Of those, what a passive declare shows: right now. */
  readonly ready: number;
  readonly consumers: number;
  /** Consumers only by numbers that may be old: they may have gone. */
  readonly isConsumersOld: boolean;
}

export function countOf(
  passive: PassiveQueue<QueueState> | undefined,
  told: QueueInfo | undefined,
): Count {
  const state = passive !== undefined && 'found' in passive ? passive.found : undefined;
  const ready = state?.messageCount ?? 0;
  const consumers = Math.max(state?.consumerCount ?? 0, told?.consumers ?? 0);
  const isConsumersOld = state?.consumerCount === 0 && consumers > 0;
  const isTold = state !== undefined && told?.messages !== undefined;
  if (!isTold) {
    return { messages: ready === 0 ? undefined : ready, ready, consumers, isConsumersOld };
  }
  const inAll = (told.ready ?? 0) + (told.unacked ?? 0) + (told.deadLettering ?? 0);
  const held = inAll + (told.delayed ?? 0);
  return { messages: Math.max(ready, told.messages ?? 0, held), ready, consumers, isConsumersOld };
}
