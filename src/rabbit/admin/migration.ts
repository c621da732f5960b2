/**
 * migration — what the steps of a migration share, and the way back to an old main queue from wait
 * queues that stay because other queues use them too.
 *
 * Whose messages wait there cannot be seen without taking them out, so the old main queue stays
 * until all of those wait queues are empty, at two counts. Its return binding goes with it, not
 * before: what comes back late still finds its queue, and is moved at the next run.
 */

import { formatDuration } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import type { AmqpConnection, QueueState } from '../connection/amqp.ts';
import { type PassiveQueue, passiveQueues } from './inspect-broker.ts';
import type { QueueInfo, BindingInfo, Management } from './management/index.ts';
import type { LeavingQueue, Move } from './old-topology.ts';
import type { MigrateOptions, MigrateStep } from './reports.ts';
import { show } from '../../core/errors.ts';
import { isSameBinding } from '../topology/compare.ts';

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

/** Whether a binding is the way back from the wait queues to a main queue of the old topology. */
export function isReturn(binding: BindingInfo, { bindings, backs, mains }: Move): boolean {
  return (
    mains.has(binding.destination) &&
    backs.includes(binding.exchange) &&
    bindings.some((one) => isSameBinding(one, binding))
  );
}

/** Whether it has to stay for as long as its queue does. */
export function isLastingReturn(binding: BindingInfo, move: Move): boolean {
  const isKept = move.topology.exchanges.some(({ name }) => name === binding.exchange);
  return isKept && isReturn(binding, move);
}

/** A wait queue that stays, with messages that may be of an old main queue. */
export interface SharedWait {
  readonly name: string;
  /** Undefined: the broker has not counted it yet. */
  readonly messages: number | undefined;
  readonly waitMs: number;
  /** The exchange that it leads back through. */
  readonly exchange: string;
  /** Only by numbers that may be old. */
  readonly isUnsettled: boolean;
}

/** The longest wait that has messages and leads to where a leaving main queue is bound. */
export async function sharedWaitOf(
  { move, connection }: Migration,
  management: Management,
  bindings: readonly BindingInfo[],
): Promise<SharedWait | undefined> {
  const leaving = new Set(move.leaving.map(({ name }) => name));
  const returns = bindings.filter(
    (one) => leaving.has(one.destination) && one.to === 'queue' && isReturn(one, move),
  );
  const backs = new Set(returns.map(({ exchange }) => exchange));
  if (backs.size === 0) return undefined;
  const there = await management.queues();
  const waits = there.flatMap((info) => {
    const { name } = info;
    const [exchange, waitMs] = [of(info, 'dead-letter-exchange'), of(info, 'message-ttl')];
    const isWait = typeof exchange === 'string' && typeof waitMs === 'number';
    if (!isWait || !backs.has(exchange) || leaving.has(name)) return [];
    return [{ info, name, exchange, waitMs }];
  });
  const names = waits.map(({ name }) => name);
  const passive = await passiveQueues(connection, names);
  const full = waits.flatMap(({ info, ...wait }): SharedWait[] => {
    const { messages, ready } = countOf(passive.get(wait.name), info);
    return messages === 0 ? [] : [{ ...wait, messages, isUnsettled: ready === 0 }];
  });
  // A number that is right now comes before one that may be old.
  const [first] = full.toSorted(
    (a, b) => Number(a.isUnsettled) - Number(b.isUnsettled) || b.waitMs - a.waitMs,
  );
  return first;
}

function of({ arguments: args, policyDefinition }: QueueInfo, setting: string): unknown {
  return args[`x-${setting}`] ?? policyDefinition[setting];
}

/** Why a queue stays, and how it ends where other queues keep the wait queues full. */
export function whyShared({ name, messages, waitMs, exchange }: SharedWait): string {
  if (messages === undefined) {
    return `the broker has not counted ${show(name)} yet, from which messages may come; run again`;
  }
  const longest = formatDuration(waitMs);
  return (
    `messages may still wait for it, up to ${longest}: ${show(name)} holds ${messages}, of this ` +
    `queue or of others; run again when it is empty. Where others keep it full: ${longest} ` +
    `after the last consumer of the old queue stopped, unbind the old queue from ` +
    `${show(exchange)} by hand, and run again`
  );
}
