/**
 * pauses — a node under load is stopped for longer than its leases and goes on later, while the
 * others take over and work on.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Place } from '../torture/places.ts';
import { Fleet, type FleetResult } from './fleet.ts';
import { onGround } from './ground.ts';
import { LEASE_MS } from './node-order.ts';

const WORDS = [20, 100] as const;
/** In tenths of a lease. */
const LENGTH = [15, 50] as const;

/** Pauses so many times and returns the verdict. */
export function pauses(
  place: Place,
  options: { readonly pauses: number; readonly nodes: number; readonly seed: number },
): Promise<FleetResult> {
  const { nodes, seed } = options;
  return onGround(place, async (path) => {
    // Rough: a node that slept finds its connections closed.
    const fleet = new Fleet({ place, path, nodes, seed, isRough: true });
    try {
      await fleet.start();
      for (let pause = 0; pause < options.pauses; pause += 1) await pauseOne(fleet);
      await fleet.drain();
      return await fleet.verdict();
    } finally {
      await fleet.close();
    }
  });
}

async function pauseOne({ ledger, chance, nodes }: Fleet): Promise<void> {
  await ledger.heard(chance.between(...WORDS));
  const node = nodes[chance.between(0, nodes.length - 1)];
  node?.signal('SIGSTOP');
  const others = ledger.heard(chance.between(...WORDS));
  await Promise.all([others, sleep((chance.between(...LENGTH) / 10) * LEASE_MS)]);
  node?.signal('SIGCONT');
}
