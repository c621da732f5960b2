/**
 * merge — several topologies as one: the same thing twice is there once, and two different things
 * of one name are refused before the broker does it with a 406.
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { QueuePlan, Topology } from './model.ts';

/** One topology of several, or of the plans of several queues. */
export function mergeTopologies(given: readonly (Topology | QueuePlan)[]): Topology {
  const all = given.map((one) => ('topology' in one ? one.topology : one));
  return {
    exchanges: byName(
      'exchange',
      all.flatMap((one) => one.exchanges),
    ),
    queues: byName(
      'queue',
      all.flatMap((one) => one.queues),
    ),
    bindings: eachOnce(all.flatMap((one) => one.bindings)),
    policies: byName(
      'policy',
      all.flatMap((one) => one.policies),
    ),
  };
}

function byName<T extends { readonly name: string }>(what: string, items: readonly T[]): T[] {
  const found = new Map<string, T>();
  for (const item of items) {
    const before = found.get(item.name);
    if (before === undefined) found.set(item.name, item);
    else refuseDifference(what, before, item);
  }
  return [...found.values()];
}

function eachOnce<T>(items: readonly T[]): T[] {
  return [...new Map(items.map((item) => [inOrder(item), item])).values()];
}

function refuseDifference<T extends { readonly name: string }>(what: string, a: T, b: T): void {
  const first = flat(a);
  const second = flat(b);
  const differing = [...new Set([...first.keys(), ...second.keys()])].filter(
    (key) => inOrder(first.get(key)) !== inOrder(second.get(key)),
  );
  if (differing.length === 0) return;
  const account = differing.map(
    (key) => `${key} is ${valueOf(first.get(key))} and ${valueOf(second.get(key))}`,
  );
  throw new RespoolError(
    'topology.mismatch',
    `cannot put topologies together: they have two different kinds of ${what} ${show(a.name)}: ` +
      `${account.join(', ')}; use one type and one set of options for all queues that share it, ` +
      'or other names',
  );
}

/** Arguments beside the other fields, so that a difference is named by itself. */
function flat(item: object): Map<string, unknown> {
  return new Map(
    Object.entries(item).flatMap(([key, value]) =>
      key === 'arguments' || key === 'definition'
        ? Object.entries(value as object)
        : [[key, value]],
    ),
  );
}

function valueOf(value: unknown): string {
  return value === undefined ? 'not set' : show(value);
}

/** A value as text in which the order of keys does not matter. */
function inOrder(value: unknown): string {
  return (
    JSON.stringify(value, (_key, part: unknown) =>
      typeof part === 'object' && part !== null && !Array.isArray(part)
        ? Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)))
        : part,
    ) ?? 'undefined'
  );
}
