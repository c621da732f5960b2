/**
 * per-delay — a wait queue for each delay, of a queue or of all queues of an exchange.
 *
 *   by queue      {queue}.delay_2s ─TTL─▶ {queue}.return (direct, by the queue's name) ─▶ {queue}
 *   by exchange   {exchange}.delay_2s (fanout) ─▶ {exchange}.delay_2s ─TTL─▶ {exchange}.return
 *                 (direct, by the routing key: the failing queue's name) ─▶ {queue}
 *
 * The routing key that a message first came with is in its headers only.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkOneOf } from '../../core/limits.ts';
import { assemble, checkOrder, type TopologyRoute } from './assemble.ts';
import type { QueueOrder, QueuePlan, TopologyStyle } from './model.ts';
import { checkName, delayLabel } from './names.ts';
import * as parts from './parts.ts';

/** Whose wait queues they are. */
export interface PerDelayOptions {
  /** Wait queues for each queue (`queue`, default), or for all queues of an exchange. */
  readonly by?: 'queue' | 'exchange';
  /** With `by: 'exchange'`: whose name they carry; default: the one exchange of the bindings. */
  readonly exchange?: string;
}

/** One wait queue per distinct delay and queue, or per distinct delay and exchange. */
export function perDelay(options: PerDelayOptions = {}): TopologyStyle {
  checkNames('perDelay()', options, ['by', 'exchange']);
  const by = checkOneOf('by', options.by ?? 'queue', ['queue', 'exchange']);
  const { exchange } = options;
  if (exchange !== undefined) checkName('exchange', exchange);
  if (exchange !== undefined && by === 'queue') {
    throw new RespoolError(
      'config.invalid',
      `cannot use exchange ${show(exchange)} in perDelay() by queue: it names the wait queues ` +
        "by exchange; add by: 'exchange', or leave it out",
    );
  }
  return {
    name: by === 'queue' ? 'perDelay' : 'perDelay by exchange',
    plan: (order) => {
      checkOrder(order);
      return by === 'queue' ? planByQueue(order) : planByExchange(order, exchange);
    },
  };
}

function planByQueue(order: QueueOrder): QueuePlan {
  const { queue, type } = order;
  const back = `${queue}.return`;
  const waits = parts.waitsOf(order);
  const nameOf = (waitMs: number): string => `${queue}.delay_${delayLabel(waitMs)}`;
  const waiting: parts.Part = {
    queues: waits.map((waitMs) =>
      parts.waitQueue(nameOf(waitMs), waitMs, type, { to: back, key: queue }),
    ),
    bindings: [parts.binding(queue, back, queue)],
  };
  const roads = waits.map(
    (waitMs): TopologyRoute => ({ waitMs, route: () => ({ exchange: '', key: nameOf(waitMs) }) }),
  );
  const way = parts.wayBack(type, { [back]: 'direct' }, `${queue}.unrouted`);
  return assemble(order, [parts.home(order, back), way, waiting], roads);
}

function planByExchange(order: QueueOrder, given: string | undefined): QueuePlan {
  const { queue, type } = order;
  const base = given ?? exchangeOf(order);
  const back = `${base}.return`;
  const waits = parts.waitsOf(order);
  const nameOf = (waitMs: number): string => `${base}.delay_${delayLabel(waitMs)}`;
  const waiting: parts.Part = {
    // A fanout takes any routing key, so the key is free to say where the message comes back to.
    exchanges: waits.map((waitMs) => parts.exchange(nameOf(waitMs), 'fanout')),
    queues: waits.map((waitMs) => parts.waitQueue(nameOf(waitMs), waitMs, type, { to: back })),
    bindings: [
      ...waits.map((waitMs) => parts.binding(nameOf(waitMs), nameOf(waitMs), '')),
      parts.binding(queue, back, queue),
    ],
  };
  const roads = waits.map(
    (waitMs): TopologyRoute => ({
      waitMs,
      route: () => ({ exchange: nameOf(waitMs), key: queue }),
    }),
  );
  const way = parts.wayBack(type, { [back]: 'direct' }, `${base}.unrouted`);
  return assemble(order, [parts.home(order, back), way, waiting], roads);
}

function exchangeOf({ queue, bindings }: QueueOrder): string {
  const [name, ...more] = new Set(bindings.map((one) => one.exchange));
  if (name !== undefined && more.length === 0) return name;
  const found = name === undefined ? 'none' : [name, ...more].map(show).join(', ');
  throw new RespoolError(
    'config.invalid',
    `cannot name the wait queues of queue ${show(queue)} by its exchange: its bindings have ` +
      `${found}, exactly one is needed; name it: perDelay({ by: 'exchange', exchange: '…' })`,
  );
}
