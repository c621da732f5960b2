/**
 * disturbances — what happens to a world at random: kills, pauses, power cuts, clock changes,
 * stores that go away, and operators who inspect and change messages at any moment.
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

const PATTERNS = ['#', 'mail.*', 'web.hook', 'sms.#'];

/** Lets operators act until the storm is over. */
export function startOperators(world: SimWorld): void {
  const { chance, plan, timeline } = world;
  const next = (): void => {
    const spanMs = -Math.log(1 - chance.random()) * plan.trouble.actEveryMs;
    timeline.after(spanMs, () => {
      if (world.isHealed) return;
      act(world);
      next();
    });
  };
  next();
}

function act(world: SimWorld): void {
  const seat = world.someone();
  if (seat === undefined) return;
  const ids = someIds(world);
  // What is refused, and what a faulty store cannot do, is as good as done for an operator here.
  perform(world, seat, ids).catch(() => undefined);
}

async function perform(
  world: SimWorld,
  { spool, handler }: ProcessSlot,
  ids: readonly string[],
): Promise<unknown> {
  const { chance, plan } = world;
  const [id = 'nobody'] = ids;
  const kind = chance.weighted({
    hold: 3,
    release: 5,
    retry: 4,
    bounce: 2,
    remove: 2,
    pause: 2,
    resume: 3,
    setPolicy: 2,
    setHeaders: 2,
    look: 2,
    process: 2,
    check: 1,
    sweep: 1,
  });
  const operator = spool.operator({ by: 'operator' });
  switch (kind) {
    case 'hold':
      return operator.hold(ids);
    case 'release':
      return operator.release(ids);
    case 'retry':
      return operator.retry(ids);
    case 'bounce':
      return operator.bounce(ids);
    case 'remove':
      return operator.remove(ids, { hard: chance.happens(0.3) });
    case 'pause':
      return operator.pause(chance.pick(PATTERNS));
    case 'resume':
      return operator.resume(chance.pick(PATTERNS));
    case 'setPolicy':
      return operator.setPolicy([id], chance.pick(Object.keys(plan.policies)));
    case 'setHeaders':
      return operator.setHeaders(id, { 'x-touched': String(chance.between(0, 9)) });
    case 'process':
      return spool.process(id, handler);
    case 'check':
      return operator.check({ repair: chance.happens(0.5) });
    case 'sweep':
      return operator.sweep();
    default:
      return spool.count();
  }
}

function someIds({ chance, disk }: SimWorld): string[] {
  const all = [...disk.entries()];
  if (all.length === 0) return [];
  const ids = new Set<string>();
  const count = chance.between(1, 3);
  for (let at = 0; at < count; at += 1) {
    // What waits for an operator is what operators look at most.
    const stuck = all.filter(({ status }) => status.dueAt === null || status.state === 'bounce');
    const from = stuck.length > 0 && chance.happens(0.5) ? stuck : all;
    ids.add(chance.pick(from).envelope.id);
  }
  return [...ids];
}
