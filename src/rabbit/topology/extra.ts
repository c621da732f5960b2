/**
 * extra — what is at the broker under names of ours and is not in a topology: wait queues of
 * former delays, bindings that were taken out of the settings. Pure.
 *
 * n.b. Wait queues of shared() and of perDelay({ by: 'exchange' }) serve several queues: what one
 * topology does not use may be in use by another.
 */

import type { BindingInfo, QueueInfo } from '../admin/management/answers.ts';
import { isSameBinding } from './compare.ts';
import type { QueueSpec, Topology } from './model.ts';

/** The end of a wait queue's name: a delay, or the number of an attempt. */
const NUMBERED = /^(.*?)(\d+)(ms|s)?$/s;

/** The queues of a topology, by name and role. */
interface Named {
  readonly queues: readonly Pick<QueueSpec, 'name' | 'role'>[];
}

export function extraQueues<T extends Pick<QueueInfo, 'name'>>(
  topology: Named,
  there: readonly T[],
): readonly T[] {
  const wanted = new Set(topology.queues.map(({ name }) => name));
  const families = familiesOf(topology);
  return there.filter(({ name }) => !wanted.has(name) && families.has(familyOf(name) ?? ''));
}

/** Bindings between a queue of the topology and an exchange that it does not ask for. */
export function extraBindings(
  { queues, bindings }: Topology,
  there: readonly BindingInfo[],
): readonly BindingInfo[] {
  const names = new Set(queues.map(({ name }) => name));
  return there.filter(
    (have) =>
      have.to === 'queue' &&
      have.exchange !== '' &&
      names.has(have.destination) &&
      !bindings.some((want) => isSameBinding(want, have)),
  );
}

/** What comes before the number in the names of our wait queues, whichever style made them. */
function familiesOf({ queues }: Named): ReadonlySet<string> {
  const families = new Set<string>();
  for (const { name, role } of queues) {
    const family = role === 'wait' ? familyOf(name) : undefined;
    if (family !== undefined) families.add(family);
    if (role !== 'main') continue;
    // A style that was used before.
    for (const ending of ['.delay_', '__retry.', '__retry.wait_']) families.add(name + ending);
  }
  families.delete('');
  return families;
}

function familyOf(name: string): string | undefined {
  return NUMBERED.exec(name)?.[1];
}
