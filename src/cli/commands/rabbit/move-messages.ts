/** move-messages — something that moves messages, with a bar, and with an end by Ctrl-C. */

import type { MoveProgress } from '../../../rabbit/admin/reports.ts';
import { interruptible } from '../../lifetime.ts';
import { createProgress } from '../../ui/progress.ts';
import { numberText } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';

/** Runs it; `total` is how many messages there are. A signal ends it between two messages. */
export async function moveWith<Report>(
  { io, out }: CommandContext,
  total: number,
  run: (signal: AbortSignal, onProgress: (progress: MoveProgress) => void) => Promise<Report>,
): Promise<Report> {
  const bar = createProgress(io, out);
  /** What was seen, by queue: several are moved one after the other. */
  const seen = new Map<string, number>();
  const done = (): number => [...seen.values()].reduce((sum, count) => sum + count, 0);
  const howFar = (): string =>
    ` after ${numberText(done())} of ${numberText(total)} messages; run it again for the rest: ` +
    'nothing is lost';
  return interruptible(io, howFar, (signal) =>
    run(signal, ({ queue, moved, skipped }) => {
      seen.set(queue, moved + skipped);
      bar.show(done(), total);
    }),
  ).finally(() => bar.clear());
}
