/**
 * simulate — one world from its first message to its rest, from one seed. The same seed gives the
 * same world, step by step. At the end everything is healed and must come to rest:
 *
 *   heal ─▶ rest: every message ended or legally waiting ─▶ probes start soon ─▶ stop: no timer
 *   ─▶ retention and orphan grace pass ─▶ two sweeps ─▶ nothing is left that should not be
 */

import { HOUR_MS, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import type { MessageOptions } from '../../spool/message.ts';
import type { Violation } from './checks/check-context.ts';
import { checkWhole, turnsOf } from './checks/world.ts';
import { startFaults, startOperators } from './disturbances.ts';
import { isServed, ORPHAN_GRACE_MS, routeFor, type SimPlan, TOPICS } from './plan.ts';
import { SimProcess } from './process.ts';
import { sendProbe, startProducers } from './producers.ts';
import { type Mutation, type ProcessSlot, SimWorld } from './world.ts';

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

/**
 * Runs the world of a seed.
 *
 * @example
 * import { commandFor, SimBodyDisk, SimDisk, simulate } from 'respool/testkit';
 * // Keeps what it is asked to remove, on purpose.
 * class LeakyDisk extends SimBodyDisk {
 *   override remove(): void {}
 * }
 * const { seed, violation } = await simulate(7, {
 *   disk: (timeline) => new SimDisk(timeline),
 *   shelf: (timeline) => new LeakyDisk(timeline),
 * });
 * if (violation !== undefined) console.error(violation, commandFor(seed));
 */
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

/** Everything must be at rest this long after the last fault, by a clock that was not set back. */
const REST_WITHIN_MS: number = 6 * HOUR_MS;
/** A message that is due starts within this, when nothing is in the way. */
const PROMPT_MS = 2_000;
/** Without news from other processes it may take as long as the slow look at the store. */
const UNTOLD_MS = 40_000;

/** Heals the world and sees it to its end. */
async function finish(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const isBroken = (): boolean => world.findings.first !== undefined;
  await heal(world, run);
  await rest(world, run);
  if (isBroken()) return;
  await probes(world, run);
  if (isBroken()) return;
  await stopAll(world, run);
  if (isBroken()) return;
  await sweep(world, run);
  checkWhole(world.scene);
}

async function heal(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  world.isHealed = true;
  world.faults.heal();
  for (const { process } of world.seats) {
    process.ambush = undefined;
    process.resume(world.chance);
  }
  // Who was down boots within a minute; stops that are under way come to their end.
  await run(2 * MINUTE_MS);
  for (const pattern of world.ledger.pausedSinceMs.keys()) {
    const seat = world.someone();
    if (seat === undefined) {
      world.findings.add('liveness', 'no process is up two minutes after the last fault');
      return;
    }
    seat.spool
      .operator({ by: 'simulator' })
      .resume(pattern)
      .catch((error: unknown) => {
        world.findings.add('liveness', `resume() failed on a healthy store: ${String(error)}`);
      });
  }
  // Without notifications every process finds out by itself that nothing is paused any more.
  await run(MINUTE_MS);
}

async function rest(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const { timeline, findings, disk } = world;
  const behindMs = world.scene.latestNow() - world.storeNow();
  const untilMs = timeline.nowMs + behindMs + REST_WITHIN_MS;
  for (;;) {
    // What waits for its turn rests as long as what it waits for does.
    const isInTurn = turnsOf(world.scene);
    const restless = [...disk.entries()].find(
      (entry) => isInTurn(entry) && !isAtRest(world, entry),
    );
    if (restless === undefined || findings.first !== undefined) return;
    if (timeline.nowMs >= untilMs) {
      const { envelope, status } = restless;
      const text = `"${envelope.id}" (${envelope.topic}) is still in ${status.state}`;
      findings.add('liveness', `${text}, due ${status.dueAt}, now ${world.storeNow()}`);
      return;
    }
    await run(30 * SECOND_MS);
  }
}

function isAtRest(world: SimWorld, { envelope, status }: Entry): boolean {
  const { plan } = world;
  switch (status.state) {
    case 'hold':
    case 'archived':
      return true;
    case 'bounce':
      return status.dueAt === null || !isServed(plan, 'notice', envelope.topic);
    case 'active':
      // Left by a lost holder, without a handler, and `unhandled` is not `hold`.
      return isLeft(plan, envelope.topic) && (status.dueAt ?? 0) <= world.storeNow();
    default:
      return isLeft(plan, envelope.topic);
  }
}

function isLeft(plan: SimPlan, topic: string): boolean {
  return plan.unhandled === 'leave' && !isServed(plan, 'delivery', topic);
}

async function probes(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const { plan, chance } = world;
  for (const delayMs of [0, 10 * SECOND_MS, 0]) {
    const seat = world.someone();
    if (seat === undefined) return;
    const strange = TOPICS.filter((topic) => !routeFor(plan, seat.number, 'delivery', topic));
    const topic = chance.pick(strange.length > 0 ? strange : TOPICS);
    await probeOnce(world, seat, { topic, ...(delayMs === 0 ? {} : { delay: delayMs }) }, run);
  }
}

async function probeOnce(
  world: SimWorld,
  seat: ProcessSlot,
  message: MessageOptions,
  run: (spanMs: number) => Promise<void>,
): Promise<void> {
  const { plan, timeline, findings, ledger } = world;
  const dueAtMs = timeline.nowMs + Number(message.delay ?? 0);
  const invocation = sendProbe(world, seat, message);
  const isOwn = routeFor(plan, seat.number, 'delivery', message.topic) !== undefined;
  const limitMs = plan.wakes || isOwn ? PROMPT_MS : UNTOLD_MS;
  await run(dueAtMs - timeline.nowMs + limitMs);
  const story = [...ledger.stories.values()].find((one) => one.invocation === invocation);
  const starts = [...(story?.claims.values() ?? [])].flatMap((claim) => claim.startedAtMs ?? []);
  const startedAtMs = Math.min(...starts);
  if (startedAtMs < dueAtMs)
    findings.add('early', `a probe started ${dueAtMs - startedAtMs} ms early`);
  if (Number.isFinite(startedAtMs)) return;
  const text = `${limitMs} ms after it was due, with every process idle`;
  findings.add('prompt', `a probe (${message.topic}) did not start within ${text}`);
}

async function stopAll(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  let running = 0;
  for (const { process, spool } of world.seats) {
    running += 1;
    void world.stop(process, spool, 10_000).then(() => {
      running -= 1;
    });
  }
  await run(MINUTE_MS);
  if (running > 0) world.findings.add('liveness', `${running} spools did not stop in a minute`);
  for (const { process } of world.seats) process.kill();
  // One whose holder was lost waits like any other while an earlier one of its key is held.
  const isInTurn = turnsOf(world.scene);
  for (const entry of world.disk.entries()) {
    const { envelope, status } = entry;
    if (status.state !== 'active' || isLeft(world.plan, envelope.topic)) continue;
    if (!isInTurn(entry)) continue;
    world.findings.add('liveness', `"${envelope.id}" is active and no process runs`);
  }
}

async function sweep(world: SimWorld, run: (spanMs: number) => Promise<void>): Promise<void> {
  const { timeline, disk, shelf, findings } = world;
  const wall = (): number => world.storeNow();
  const process = new SimProcess(99, 1, { timeline, wall });
  const spool = world.makeSpool(process);
  const onTrouble = (error: unknown): void => findings.add('liveness', `sweep(): ${String(error)}`);
  // A clock that was set back has to show again what it had shown before.
  const behindMs = world.scene.latestNow() - world.storeNow();
  await run(behindMs + ORPHAN_GRACE_MS + 2 * HOUR_MS);
  const operator = spool.operator({ by: 'simulator' });
  for (let round = 0; round < 2; round += 1) {
    operator.sweep().catch(onTrouble);
    await run(20 * MINUTE_MS);
  }
  await world.stop(process, spool, 1_000);
  const needed = new Set<string>();
  for (const { envelope, status } of disk.entries()) {
    if (envelope.body.place === 'store') needed.add(envelope.body.ref);
    const isOver = status.state === 'archived' && (status.dueAt ?? 0) <= world.storeNow() - HOUR_MS;
    if (isOver) findings.add('liveness', `"${envelope.id}" is kept past its retention`);
  }
  for (const ref of shelf.bodies.keys()) {
    if (!needed.has(ref)) findings.add('orphans', `body "${ref}" has no entry and was not removed`);
  }
}
