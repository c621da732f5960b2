/** sweep — `respool dlq sweep`: once, with a bar and a table, or again and again. */

import { EXIT, endedBy, type ExitCode, exitCodeOf } from '../../../exit-codes.ts';
import { stopOnSignal } from '../../../lifetime.ts';
import { createProgress } from '../../../ui/progress.ts';
import type { CommandContext } from '../../../spec.ts';
import { sweepUntilSignal } from './daemon.ts';
import { printRun } from './report.ts';
import { type SweepRun, sweepOnce } from './run.ts';
import { readSettings, type SettingsReader } from './settings.ts';

/** Sweeps; 0 when all went well, 1 when a queue did not. */
export async function sweep(given: CommandContext): Promise<ExitCode> {
  const told = await readSettings(given);
  const { everyMs } = told.settings;
  return everyMs === undefined ? sweepAndTell(told) : sweepUntilSignal(told, everyMs);
}

async function sweepAndTell(told: SettingsReader): Promise<ExitCode> {
  const { context, settings } = told;
  const { io, out } = context;
  const stop = stopOnSignal(io);
  const bar = createProgress(io, out);
  let run: SweepRun;
  try {
    const onProgress = (done: number, total: number): void => bar.show(done, total);
    run = await sweepOnce(told, { signal: stop.signal, onProgress });
  } finally {
    stop.off();
    bar.clear();
  }
  await printRun(out, settings, run);
  const stoppedBy = stop.by();
  if (stoppedBy !== undefined) {
    throw endedBy(stoppedBy, '; run it again for the rest: nothing is lost');
  }
  if (run.isWell) return EXIT.done;
  // Who switched from the old tool knows 0 and 1.
  return run.error === undefined || settings.isOld ? EXIT.refused : exitCodeOf(run.error);
}
