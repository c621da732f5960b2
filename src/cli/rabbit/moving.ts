/** moving — something that moves messages, with a bar, and with an end by Ctrl-C. */

import type { MoveProgress } from '../../rabbit/operate/reports.ts';
import { endedBy } from '../exit-codes.ts';
import { stopOnSignal } from '../interruptible.ts';
import { createProgress } from '../progress.ts';
import { numberText } from '../safe.ts';
import type { CommandContext } from '../spec.ts';

/** Runs it; `total` is how many messages there are. A signal ends it between two messages. */
export async function moveWith<Report>(
  { io, out }: CommandContext,
  total: number,
  run: (signal: AbortSignal, onProgress: (progress: MoveProgress) => void) => Promise<Report>,
): Promise<Report> {
  const stop = stopOnSignal(io);
  const bar = createProgress(io, out);
  /** What was seen, by queue: several are moved one after the other. */
  const seen = new Map<string, number>();
  const done = (): number => [...seen.values()].reduce((sum, count) => sum + count, 0);
  try {
    const report = await run(stop.signal, ({ queue, moved, skipped }) => {
      seen.set(queue, moved + skipped);
      bar.show(done(), total);
    });
    if (stop.by() === undefined) return report;
  } catch (error) {
    if (stop.by() === undefined) throw error;
  } finally {
    stop.off();
    bar.clear();
  }
  const text = ` after ${numberText(done())} of ${numberText(total)} messages; run it again`;
  throw endedBy(stop.by() ?? 'SIGINT', `${text} for the rest: nothing is lost`);
}
