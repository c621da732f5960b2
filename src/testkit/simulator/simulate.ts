/**
 * simulate — one world from its first message to its rest, from one seed. The same seed gives the
 * same world, step by step.
 */

import { checkWhole } from './checks/whole.ts';
import { startFaults } from './faults-injected.ts';
import { finish } from './finale.ts';
import { startOperators } from './operators.ts';
import type { SimPlan } from './plan.ts';
import { startProducers } from './producers.ts';
import type { Violation } from './violation.ts';
import { type Mutation, SimWorld } from './world.ts';

/** What came of a world. */
export interface SimReport {
  readonly seed: number;
  readonly plan: SimPlan;
  /** The first broken promise, if any. */
  readonly violation: Violation | undefined;
  /** Moments that passed and calls at the doors of stores. */
  readonly events: number;
  readonly messages: number;
  readonly starts: number;
  readonly effects: number;
  /** Effects beyond the first, each of them excused by a loss or a replay. */
  readonly duplicates: number;
  readonly kills: number;
  readonly powerCuts: number;
  /** How long the world lasted, in its own time. */
  readonly virtualMs: number;
}

/** More moments than this mean that something spins. */
const STEPS_MAX = 400_000;
/** The whole is looked at after this many moments. */
const LOOK_EVERY = 100;

/** Runs the world of a seed. */
export async function simulate(seed: number, mutation: Mutation = {}): Promise<SimReport> {
  const world = new SimWorld(seed, mutation);
  const { timeline, findings, plan, ledger } = world;
  let lookAt = LOOK_EVERY;
  const isOver = (): boolean => {
    if (timeline.steps >= lookAt) {
      lookAt = timeline.steps + LOOK_EVERY;
      checkWhole(world.scene);
    }
    if (timeline.steps > STEPS_MAX) findings.add('liveness', `no rest in ${STEPS_MAX} steps`);
    return findings.first !== undefined;
  };
  const run = (spanMs: number): Promise<void> => timeline.runTo(timeline.nowMs + spanMs, isOver);
  startProducers(world);
  startOperators(world);
  startFaults(world);
  await run(plan.stormMs);
  checkWhole(world.scene);
  if (findings.first === undefined) await finish(world, run);
  let effects = 0;
  let duplicates = 0;
  for (const story of ledger.stories.values()) {
    effects += story.effects;
    duplicates += Math.max(0, story.effects - 1);
  }
  return {
    seed,
    plan,
    violation: findings.first,
    events: timeline.steps + timeline.calls,
    messages: ledger.stories.size,
    starts: ledger.starts + ledger.notices,
    effects,
    duplicates,
    kills: world.kills,
    powerCuts: world.faults.powerCuts,
    virtualMs: timeline.nowMs,
  };
}

/** The command that shows a seed again. */
export function commandFor(seed: number): string {
  return `SEED=${seed} npm run sim -- --seed ${seed}`;
}
