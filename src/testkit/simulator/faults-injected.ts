/**
 * faults-injected — what befalls a world: kills, pauses, power cuts, clocks set, stores that are
 * gone.
 */

import { HOUR_MS } from '../../core/duration.ts';
import type { ProcessSlot, SimWorld } from './world.ts';

/** Lets blows fall until the storm is over. */
export function startFaults(world: SimWorld): void {
  const { chance, plan, timeline } = world;
  const next = (): void => {
    const spanMs = -Math.log(1 - chance.random()) * plan.trouble.blowEveryMs;
    timeline.after(spanMs, () => {
      if (world.isHealed) return;
      strike(world);
      next();
    });
  };
  next();
}

function strike(world: SimWorld): void {
  const { chance, faults } = world;
  const seat = world.someone();
  const kind = chance.weighted({
    kill: 5,
    pause: 5,
    restart: 3,
    powerCut: 2,
    jump: 2,
    down: 2,
    full: 1,
  });
  switch (kind) {
    case 'powerCut':
      world.powerCut();
      return;
    case 'down':
      faults.goDown(chance.between(100, 20_000));
      return;
    case 'full':
      faults.fillUp(chance.between(1_000, 30_000));
      return;
    case 'jump':
      world.jump(Math.round((chance.random() * 2 - 1) * HOUR_MS), seat);
      return;
    default:
      if (seat !== undefined) strikeAt(world, seat, kind);
  }
}

/** Hits one process: at this moment, or just after a call of its has had its effect. */
function strikeAt(world: SimWorld, seat: ProcessSlot, kind: 'kill' | 'pause' | 'restart'): void {
  const { chance, plan } = world;
  if (kind === 'restart') {
    world.restart(seat, chance.pick([0, 1_000, 10_000]), chance.between(0, 5_000));
    return;
  }
  const { process } = seat;
  const downMs = chance.between(0, 60_000);
  const strike = (): void => {
    if (process.isDead) return;
    if (kind === 'kill') world.kill(seat, downMs);
    else pause(world, seat, plan.leaseMs);
  };
  if (chance.happens(0.5)) strike();
  else process.ambush = { callsLeft: chance.between(1, 10), strike };
}

function pause(world: SimWorld, { process }: ProcessSlot, leaseMs: number): void {
  const { chance, timeline } = world;
  // From a tenth of a lease to ten of them.
  const spanMs = leaseMs * 10 ** (chance.random() * 2 - 1);
  process.pause();
  timeline.after(spanMs, () => process.resume(chance));
}
