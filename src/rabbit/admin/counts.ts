/**
 * counts — how many messages a queue holds, by two sources: a passive declare, which is right now
 * and blind to what is in hand or on the way out, and the management API, which may be 5 s old.
 */

import type { QueueState } from '../connection/amqp.ts';
import type { QueueInfo } from './management/answers.ts';
import type { Passive } from './inspect-broker.ts';

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
  passive: Passive<QueueState> | undefined,
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
