/** operators — people who look and steer at any moment, whether it fits or not. */

import type { ProcessSlot, SimWorld } from './world.ts';

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
    retryNow: 4,
    bounce: 2,
    remove: 2,
    pause: 2,
    resume: 3,
    setPolicy: 2,
    updateHeaders: 2,
    look: 2,
    process: 2,
    check: 1,
    sweep: 1,
  });
  switch (kind) {
    case 'hold':
      return spool.hold(ids);
    case 'release':
      return spool.release(ids);
    case 'retryNow':
      return spool.retryNow(ids);
    case 'bounce':
      return spool.bounce(ids);
    case 'remove':
      return spool.remove(ids, { hard: chance.happens(0.3) });
    case 'pause':
      return spool.pause({ topic: chance.pick(PATTERNS) });
    case 'resume':
      return spool.resume({ topic: chance.pick(PATTERNS) });
    case 'setPolicy':
      return spool.setPolicy(id, chance.pick(Object.keys(plan.policies)));
    case 'updateHeaders':
      return spool.updateHeaders(id, { 'x-touched': String(chance.between(0, 9)) });
    case 'process':
      return spool.process(id, handler);
    case 'check':
      return spool.check({ repair: chance.happens(0.5) });
    case 'sweep':
      return spool.sweep();
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
