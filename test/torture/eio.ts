/**
 * eio — lets fsync fail, once or for good, and cuts the power: what was acknowledged must be there.
 *
 * The program is that of points.ts. Its disk is an image where we may mount one, so that the look
 * afterwards sees what the disk has, not what memory still knows.
 */
import { join } from 'node:path';
import { startChild } from './child.ts';
import { inFolder } from './folder.ts';
import { type Image, withImage } from './image.ts';
import { inspect, type Sight } from './inspect.ts';
import type { Place } from './places.ts';
import { judgeScript } from './points-judge.ts';
import { type PointsOrder, SPOOL_OPTIONS } from './points-order.ts';
import { inject } from './tracing.ts';

/** What came of it. */
export interface EioResult {
  readonly place: Place;
  readonly faults: number;
  /** Steps that said they failed: more than none, or no fault was felt. */
  readonly failedSteps: number;
  readonly complaints: readonly string[];
}

/** Which calls, and which of them in each thread: the third; all from the third on. */
export type Failing = `${'fsync' | 'fdatasync' | 'fsync,fdatasync'} ${number}${'' | '+'}`;

/** Runs the script once for each way of failing. */
export async function eio(
  place: Place,
  { failing, canMount }: { readonly failing: readonly Failing[]; readonly canMount: boolean },
): Promise<EioResult> {
  const complaints: string[] = [];
  let failedSteps = 0;
  for (const one of failing) {
    const { lines, sight } = await inFolder((folder) =>
      canMount
        ? withImage(folder, (image) => runOnce(place, image.path, one, image))
        : runOnce(place, folder, one),
    );
    failedSteps += lines.filter((line) => line.startsWith('failed')).length;
    const found = [
      ...judgeScript(lines, sight.entries, { survived: canMount ? 'power cut' : 'process' }),
      ...sight.corrupt.map((text) => `cannot be read: ${text}`),
      ...sight.findings.map(({ kind, where, text }) => `check found ${kind} at ${where}: ${text}`),
      ...(lines.includes('end') ? [] : ['the program died of it']),
    ];
    complaints.push(...found.map((text) => `${place}, ${one} fails: ${text}`));
  }
  return { place, faults: failing.length, failedSteps, complaints };
}

async function runOnce(
  place: Place,
  folder: string,
  failing: Failing,
  image?: Image,
): Promise<{ readonly lines: readonly string[]; readonly sight: Sight }> {
  const path = join(folder, 'spool');
  const order: PointsOrder = { place, path, phase: 'steps' };
  const child = startChild('points-child.ts', order, { env: { UV_THREADPOOL_SIZE: '1' } });
  await child.line('ready');
  const [calls, when] = failing.split(' ');
  const tracer = await inject(child.pid, `${calls}:error=EIO:when=${when}`);
  child.say('go');
  await child.ended;
  await tracer.output;
  const look = (root: string): Promise<Sight> =>
    inspect(place, join(root, 'spool'), { options: SPOOL_OPTIONS });
  const sight = await (image === undefined ? look(folder) : image.cut(look));
  return { lines: child.lines, sight };
}
