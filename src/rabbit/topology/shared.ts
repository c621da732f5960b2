/**
 * shared — a wait queue for each delay, for all queues together. The default.
 *
 *   {prefix}.wait (headers: wait-for) ─▶ {prefix}.wait.2s ─TTL─▶ {prefix}.return (headers:
 *   return-to) ─▶ {queue}
 *
 * Headers do the routing, so a message keeps the routing key that it first came with. Their names
 * do not begin with `x-`: a headers exchange would overlook them, and match everything.
 */

import { checkNames } from '../../core/limits.ts';
import { assemble, checkOrder, type TopologyRoute } from './assemble.ts';
import type { QueueOrder, QueuePlan, TopologyStyle } from './model.ts';
import { checkName, delayLabel } from './names.ts';
import * as parts from './parts.ts';

/** How the shared queues and exchanges are called. */
export interface SharedOptions {
  /** Begins their names; default `respool`. */
  readonly prefix?: string;
}

const PREFIX_DEFAULT = 'respool';

/** One wait queue per distinct delay, for all queues that use the same prefix. */
export function shared(options: SharedOptions = {}): TopologyStyle {
  checkNames('shared()', options, ['prefix']);
  const prefix = checkName('prefix', options.prefix ?? PREFIX_DEFAULT);
  return { name: 'shared', plan: (order) => plan(order, prefix) };
}

function plan(order: QueueOrder, prefix: string): QueuePlan {
  checkOrder(order);
  const { queue, type } = order;
  const into = `${prefix}.wait`;
  const back = `${prefix}.return`;
  // n.b. Not the return exchange: what comes back still has its return-to, and a message that is
  // rejected then would be back in the queue at once, for ever.
  const deadLetters = `${prefix}.dlx`;
  const waits = parts.waitsOf(order);
  const nameOf = (waitMs: number): string => `${into}.${delayLabel(waitMs)}`;
  const waiting: parts.Part = {
    exchanges: [parts.exchange(into, 'headers')],
    queues: waits.map((waitMs) => parts.waitQueue(nameOf(waitMs), waitMs, type, { to: back })),
    bindings: [
      ...waits.map((waitMs) =>
        parts.binding(nameOf(waitMs), into, '', match({ 'wait-for': delayLabel(waitMs) })),
      ),
      parts.binding(queue, back, '', match({ 'return-to': queue })),
    ],
  };
  const roads = waits.map(
    (waitMs): TopologyRoute => ({
      waitMs,
      route: ({ routingKey }) => ({
        exchange: into,
        key: routingKey,
        headers: { 'wait-for': delayLabel(waitMs), 'return-to': queue },
      }),
    }),
  );
  const ways = { [back]: 'headers', [deadLetters]: 'direct' } as const;
  const way = parts.wayBack(type, ways, `${prefix}.unrouted`);
  return assemble(order, [parts.home(order, deadLetters), way, waiting], roads);
}

function match(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return { 'x-match': 'all', ...headers };
}
