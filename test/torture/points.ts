/**
 * points — enumerates the moments at which a process can die: before every single call that changes
 * the disk, in every thread, while messages are enqueued, claimed, settled and removed.
 *
 *   one run recorded ─▶ its calls ─▶ for each: a fresh run, killed right before it ─▶ look ─▶ judge
 */
import { startChild } from './child.ts';
import { sightComplaints } from './crash.ts';
import { inFolder } from './folder.ts';
import { inspect } from './inspect.ts';
import type { Place } from './places.ts';
import { judgeScript } from './points-judge.ts';
import { type PointsOrder, SPOOL_OPTIONS } from './points-order.ts';
import { type Call, killAt, NEW_THREAD, record } from './tracing.ts';

/** A call to die before, and the step that makes it. */
export interface Point extends Call {
  readonly step: string;
}

/** What came of all points. */
export interface PointsResult {
  readonly place: Place;
  /** Points that the recorded run had. */
  readonly known: number;
  readonly tried: number;
  /** Runs that ended by themselves: their calls came in another order than in the recorded run. */
  readonly missed: number;
  readonly byStep: ReadonlyMap<string, number>;
  readonly worstRecoveryMs: number;
  readonly complaints: readonly string[];
}

/** Runs at a time; more than the cores would only wait for each other. */
const LANES = 2;
/** One thread of libuv: with several, which one makes a call is up to chance. */
const ENV = { UV_THREADPOOL_SIZE: '1' };

/** Dies at every point, or at `max` of them spread evenly. */
export async function points(
  place: Place,
  { max = Number.POSITIVE_INFINITY }: { readonly max?: number } = {},
): Promise<PointsResult> {
  const known = await knownPoints(place);
  const chosen = spread(known, max);
  const complaints: string[] = [];
  const queue = [...chosen];
  let [missed, worstRecoveryMs] = [0, 0];
  const lane = async (): Promise<void> => {
    for (let point = queue.shift(); point !== undefined; point = queue.shift()) {
      const died = await dieAt(place, point);
      if (!died.isHit) missed += 1;
      worstRecoveryMs = Math.max(worstRecoveryMs, died.recoveryMs);
      const { step, thread, name, count } = point;
      const where = `${place}, ${step}, before ${name} ${count} of ${thread}`;
      complaints.push(...died.complaints.map((text) => `${where}: ${text}`));
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  const byStep = new Map<string, number>();
  for (const { step } of chosen) byStep.set(step, (byStep.get(step) ?? 0) + 1);
  const tried = chosen.length;
  return { place, known: known.length, tried, missed, byStep, worstRecoveryMs, complaints };
}

/** Every call below the spool's folder, in the order of one run. */
function knownPoints(place: Place): Promise<readonly Point[]> {
  return inFolder(async (path) => {
    const child = startChild(
      'points-child.ts',
      { place, path, phase: 'steps' } satisfies PointsOrder,
      {
        env: ENV,
      },
    );
    await child.line('ready');
    const { calls } = await record(child.pid);
    child.say('go');
    let step = 'start';
    const found: Point[] = [];
    for (const call of await calls) {
      step = /"doing ([^"\\]+)/.exec(call.text)?.[1] ?? step;
      // A thread that is not there at the start cannot be waited for at the start.
      if (call.thread.startsWith(NEW_THREAD)) continue;
      if (call.text.includes(path)) found.push({ ...call, step });
    }
    await child.ended;
    if (!child.lines.includes('end')) throw new Error(`points-child failed: ${child.complaint()}`);
    return found;
  });
}

/** Dies at one point and looks at what is left, twice. */
function dieAt(
  place: Place,
  point: Point,
): Promise<{
  readonly isHit: boolean;
  readonly recoveryMs: number;
  readonly complaints: readonly string[];
}> {
  return inFolder(async (path) => {
    const child = startChild(
      'points-child.ts',
      { place, path, phase: 'steps' } satisfies PointsOrder,
      {
        env: ENV,
      },
    );
    await child.line('ready');
    const tracer = await killAt(child.pid, point);
    child.say('go');
    const { signal } = await child.ended;
    await tracer.output;
    const first = await inspect(place, path, { options: SPOOL_OPTIONS });
    const second = await inspect(place, path, { options: SPOOL_OPTIONS });
    const failed = child.lines.filter((line) => line.startsWith('failed'));
    return {
      isHit: signal === 'SIGKILL',
      recoveryMs: Math.round(first.openMs),
      complaints: [
        ...failed,
        ...judgeScript(child.lines, first.entries),
        // Orphans are not repaired here: they are young, and may be.
        ...sightComplaints(first, { ...second, orphans: 0 }),
      ],
    };
  });
}

/** At most `max` of them: one of each kind first, the rest evenly from all. */
function spread(all: readonly Point[], max: number): readonly Point[] {
  if (all.length <= max) return all;
  const kinds = new Map(all.map((point) => [`${point.step} ${point.thread} ${point.name}`, point]));
  const ofKind = evenly([...kinds.values()], max);
  const chosen = new Set([...ofKind, ...evenly(all, max - ofKind.length)]);
  return all.filter((point) => chosen.has(point));
}

function evenly<Value>(all: readonly Value[], max: number): Value[] {
  const step = Math.max(1, all.length / Math.max(1, max));
  const chosen: Value[] = [];
  for (let at = 0; at < all.length && chosen.length < max; at += step) {
    chosen.push(all[Math.floor(at)] as Value);
  }
  return chosen;
}
