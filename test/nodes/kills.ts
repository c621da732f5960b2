/**
 * kills — nodes on one store are killed with SIGKILL at random moments while all of them work; each
 * is replaced, and the others go on.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Place } from '../torture/places.ts';
import { Fleet, type FleetResult } from './fleet.ts';
import { onGround } from './ground.ts';

/** A kill falls after so many words to the ledger. */
const WORDS = [1, 100] as const;
/** And in between two words, or when there are none to come. */
const BETWEEN_MS = [0, 15] as const;
const SILENCE_MAX_MS = 3_000;

/** Kills `kills` times and returns the verdict. */
export function kills(
  place: Place,
  options: { readonly kills: number; readonly nodes: number; readonly seed: number },
): Promise<FleetResult> {
  const { nodes, seed } = options;
  return onGround(place, async (path) => {
    const fleet = new Fleet({ place, path, nodes, seed });
    try {
      await fleet.start();
      while (fleet.gone.size < options.kills) await killOne(fleet);
      await fleet.drain();
      return await fleet.verdict();
    } finally {
      await fleet.close();
    }
  });
}

async function killOne(fleet: Fleet): Promise<void> {
  const { ledger, chance } = fleet;
  await Promise.race([ledger.heard(chance.between(...WORDS)), sleep(SILENCE_MAX_MS)]);
  await sleep(chance.between(...BETWEEN_MS));
  const node = fleet.nodes[chance.between(0, fleet.nodes.length - 1)];
  if (node !== undefined) await fleet.kill(node);
}
