/**
 * assemble — parts and roads become the plan of one queue.
 */

import { formatDuration } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { mergeTopologies } from './merge.ts';
import type { QueueOrder, QueuePlan, Route, WaitRequest, WaitRoute } from './model.ts';
import { checkName, checkNamesOf } from './names.ts';
import { deadName, type Part, parkedName } from './parts.ts';

/** A wait queue by its wait, and the road into it. */
export interface TopologyRoute {
  readonly waitMs: number;
  /** The attempt that it is there for, where a style has a queue for each. */
  readonly attempt?: number;
  route(request: WaitRequest): Route;
}

/** Checks the order before a style builds names from it. */
export function checkOrder(order: QueueOrder): void {
  checkName('queue', order.queue);
}

/** The plan; the same thing twice in the parts is there once. */
export function assemble(
  order: QueueOrder,
  parts: readonly Part[],
  roads: readonly TopologyRoute[],
): QueuePlan {
  const { queue, type } = order;
  const topology = mergeTopologies(
    parts.map(({ exchanges = [], queues = [], bindings = [] }) => ({
      exchanges,
      queues,
      bindings,
      policies: [],
    })),
  );
  checkNamesOf(topology, queue);
  const sorted = roads.toSorted((a, b) => a.waitMs - b.waitMs);
  const again = straightTo(queue);
  return {
    queue,
    type,
    topology,
    waitsMs: [...new Set(sorted.map((road) => road.waitMs))],
    wait(request): WaitRoute {
      if (request.delayMs <= 0) return { ...again, waitMs: 0 };
      const road = chooseRoad(sorted, request);
      if (road === undefined) throw nowhereToWait(queue, request.delayMs);
      return { ...road.route(request), waitMs: road.waitMs };
    },
    again,
    dead: straightTo(deadName(queue)),
    parked: straightTo(parkedName(queue)),
  };
}

/**
 * We publish to these through the default exchange: there a missing queue comes back as unroutable,
 * while an exchange with an alternate would take the message for good.
 */
function straightTo(queue: string): Route {
  return { exchange: '', key: queue };
}

/** Among equally long waits the one of the attempt itself. */
function chooseRoad(
  sorted: readonly TopologyRoute[],
  request: WaitRequest,
): TopologyRoute | undefined {
  const waitMs = (sorted.find((road) => road.waitMs >= request.delayMs) ?? sorted.at(-1))?.waitMs;
  const fitting = sorted.filter((road) => road.waitMs === waitMs);
  return fitting.find((road) => road.attempt === request.attempt) ?? fitting[0];
}

/** Not "at once instead": a message that must wait and cannot would go round and round. */
function nowhereToWait(queue: string, delayMs: number): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot let a message of queue ${show(queue)} wait for ${formatDuration(delayMs)}: ` +
      'it has no wait queue; give its policy a delay, or name waits of your own',
  );
}
