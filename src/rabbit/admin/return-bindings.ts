/**
 * return-bindings — the way back to an old main queue from wait queues that stay, because other
 * queues use them too.
 *
 * Whose messages wait there cannot be seen without taking them out, so the old main queue stays
 * until all of those wait queues are empty, at two counts. Its return binding goes with it, not
 * before: what comes back late still finds its queue, and is moved at the next run.
 */

import { formatDuration } from '../../core/duration.ts';
import { show } from '../../core/errors.ts';
import type { BindingInfo, QueueInfo } from './management/answers.ts';
import type { Management } from './management/index.ts';
import { isSameBinding } from '../topology/compare.ts';
import { countOf, type Migration } from './migration.ts';
import { passiveQueues } from './inspect-broker.ts';
import type { Move } from './old-topology.ts';

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
