/** migrate-plans — the old and the new topology of the migration tests, by one name. */

import { perDelay, type QueuePlan, shared } from 'respool/rabbit';
import { orderOf } from './setup.ts';

export function oldAndNew(name: string): { readonly old: QueuePlan; readonly next: QueuePlan } {
  const bindings = [{ exchange: `${name}.shop`, key: 'order.#' }];
  const extraWaitsMs = [600_000];
  return {
    old: perDelay().plan(orderOf(name, { bindings, extraWaitsMs, type: 'classic' })),
    next: shared({ prefix: `${name}.new` }).plan(
      orderOf(`${name}.v2`, { bindings, extraWaitsMs: [900_000] }),
    ),
  };
}

/** The wait queue of a plan by its time. */
export function waitName({ topology }: QueuePlan, ms: number): string {
  const found = topology.queues.find(({ arguments: args }) => args['x-message-ttl'] === ms);
  if (found === undefined) throw new Error(`no wait queue of ${ms} ms`);
  return found.name;
}
