/**
 * reopening — enumerates the moments at which a process can die while it opens what a killed one
 * left behind: recovery must survive being killed itself.
 */
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { startChild } from './child.ts';
import { sightComplaints } from './crash.ts';
import { inFolder } from './folder.ts';
import { inspect } from './inspect.ts';
import type { Place } from './places.ts';
import { judgeScript } from './points-judge.ts';
import { type PointsOrder, SPOOL_OPTIONS } from './points-order.ts';
import { killAtAny, record } from './tracing.ts';

/** What came of all moments. */
export interface ReopeningResult {
  readonly place: Place;
  readonly tried: number;
  readonly missed: number;
  readonly worstRecoveryMs: number;
  readonly complaints: readonly string[];
}

/** What a killed process left, and what it had said. */
interface Remains {
  readonly path: string;
  readonly lines: readonly string[];
}

interface Moment {
  readonly name: string;
  readonly count: number;
}

/** Said right before the process is killed whose remains are opened: a message is active then. */
const KILLED_AT = 'claimed hold1';

/** Dies at every moment, or at `max` of them spread evenly. */
export function reopening(
  place: Place,
  { max = Number.POSITIVE_INFINITY }: { readonly max?: number } = {},
): Promise<ReopeningResult> {
  return inFolder(async (folder) => {
    const remains = await leaveRemains(place, join(folder, 'remains'));
    const moments = await knownMoments(place, remains);
    const stride = Math.max(1, Math.ceil(moments.length / max));
    const complaints: string[] = [];
    let [tried, missed, worstRecoveryMs] = [0, 0, 0];
    for (let at = 0; at < moments.length; at += stride) {
      const moment = moments[at] as Moment;
      const died = await dieAt(place, remains, moment);
      tried += 1;
      if (!died.isHit) missed += 1;
      worstRecoveryMs = Math.max(worstRecoveryMs, died.recoveryMs);
      const where = `${place}, opening, before ${moment.name} ${moment.count}`;
      complaints.push(...died.complaints.map((text) => `${where}: ${text}`));
    }
    return { place, tried, missed, worstRecoveryMs, complaints };
  });
}

async function leaveRemains(place: Place, path: string): Promise<Remains> {
  const order: PointsOrder = { place, path, phase: 'steps' };
  const child = startChild('points-child.ts', order);
  await child.line('ready');
  child.say('go');
  await child.line(KILLED_AT);
  child.signal('SIGKILL');
  await child.ended;
  return { path, lines: child.lines };
}

function knownMoments(place: Place, { path: from }: Remains): Promise<readonly Moment[]> {
  return inFolder(async (folder) => {
    const path = join(folder, 'copy');
    await cp(from, path, { recursive: true });
    const child = startChild('points-child.ts', { place, path, phase: 'open' });
    await child.line('ready');
    const { calls } = await record(child.pid);
    child.say('go');
    const most = new Map<string, number>();
    for (const { name, count, text } of await calls) {
      if (text.includes(path)) most.set(name, Math.max(count, most.get(name) ?? 0));
    }
    await child.ended;
    return [...most].flatMap(([name, count]) =>
      Array.from({ length: count }, (_, before) => ({ name, count: before + 1 })),
    );
  });
}

function dieAt(
  place: Place,
  { path: from, lines }: Remains,
  { name, count }: Moment,
): Promise<{
  readonly isHit: boolean;
  readonly recoveryMs: number;
  readonly complaints: readonly string[];
}> {
  return inFolder(async (folder) => {
    const path = join(folder, 'copy');
    await cp(from, path, { recursive: true });
    const child = startChild('points-child.ts', { place, path, phase: 'open' });
    await child.line('ready');
    const tracer = await killAtAny(child.pid, name, count);
    child.say('go');
    const { signal } = await child.ended;
    await tracer.output;
    const first = await inspect(place, path, { options: SPOOL_OPTIONS });
    const second = await inspect(place, path, { options: SPOOL_OPTIONS });
    return {
      isHit: signal === 'SIGKILL',
      recoveryMs: Math.round(first.openMs),
      complaints: [
        ...judgeScript(lines, first.entries),
        ...sightComplaints(first, { ...second, orphans: 0 }),
      ],
    };
  });
}
