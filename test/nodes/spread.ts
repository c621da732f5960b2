/**
 * spread — nodes that only handle share what others put down; then one of them dies in the middle of
 * its work, and the rest takes over what it held.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Child } from '../torture/child.ts';
import { type Place, spoolAt } from '../torture/places.ts';
import { bodyOf, type Planned, sha256 } from '../torture/plans.ts';
import { Fleet, type FleetResult } from './fleet.ts';
import { onGround } from './ground.ts';

/** What came of it. */
export interface SpreadResult extends FleetResult {
  /** How many messages each node handled while all lived. */
  readonly shares: readonly number[];
  /** Messages in the hands of the one that died, which others delivered. */
  readonly takenOver: number;
}

const MESSAGES = 300;
const SIZE = 500;
/** Between two looks for a moment at which a node has something in its hands. */
const AGAIN_MS = 5;
const LOOKS_MAX = 100;

export function spread(
  place: Place,
  { nodes, seed }: { readonly nodes: number; readonly seed: number },
): Promise<SpreadResult> {
  return onGround(place, async (path) => {
    const fleet = new Fleet({ place, path, nodes, seed, producing: 0, replaces: false });
    try {
      await fleet.start();
      await putDown(place, path, fleet, 'first');
      const { ledger } = fleet;
      await ledger.until(() => ledger.completions.size === MESSAGES);
      const shares = fleet.nodes.map(({ pid }) => handledBy(fleet, pid).size);
      const [victim] = fleet.nodes as readonly [Child];
      let held: readonly string[] = [];
      for (let more = 1; held.length === 0; more += 1) {
        const putting = putDown(place, path, fleet, `more-${more}`);
        held = await killBusy(fleet, victim);
        await putting;
      }
      await fleet.drain();
      const living = ledger.effects.filter(
        ({ kind, pid }) => kind === 'delivered' && pid !== victim.pid,
      );
      const byOthers = new Set(living.map(({ key }) => key));
      const takenOver = held.filter((key) => byOthers.has(key)).length;
      return { ...(await fleet.verdict()), shares, takenOver };
    } finally {
      await fleet.close();
    }
  });
}

/** Puts messages down as a process that handles nothing. */
async function putDown(place: Place, path: string, fleet: Fleet, name: string): Promise<void> {
  const spool = spoolAt(place, path);
  const messages = Array.from({ length: MESSAGES }, (_, at): Planned => {
    const key = `${name}-${at}`;
    return { key, plan: 'ok', size: SIZE, sha256: sha256(bodyOf(key, SIZE)), hasOwnId: true };
  });
  for (const message of messages) fleet.ledger.enter(message);
  await Promise.all(
    messages.map(({ key, plan }) =>
      spool.enqueue({ id: key, topic: 'work', headers: { key, plan }, body: bodyOf(key, SIZE) }),
    ),
  );
  await spool.stop();
}

function handledBy({ ledger }: Fleet, pid: number): Set<string> {
  const own = ledger.effects.filter((effect) => effect.kind === 'delivered' && effect.pid === pid);
  return new Set(own.map(({ key }) => key));
}

/** Kills a node while it has messages in its hands; which ones, if that moment came. */
async function killBusy(fleet: Fleet, victim: Child): Promise<readonly string[]> {
  for (let looks = 0; looks < LOOKS_MAX; looks += 1) {
    victim.signal('SIGSTOP');
    // What it had said before is heard.
    await sleep(AGAIN_MS);
    const done = handledBy(fleet, victim.pid);
    const begun = fleet.ledger.effects.filter(
      ({ kind, pid, key }) => kind === 'begun' && pid === victim.pid && !done.has(key),
    );
    if (begun.length > 0) {
      await fleet.kill(victim);
      return begun.map(({ key }) => key);
    }
    victim.signal('SIGCONT');
    await sleep(AGAIN_MS);
  }
  return [];
}
