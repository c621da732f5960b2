/**
 * sweep — `respool dlq sweep`: once, with a bar and a table, or with `--every` a run at once and
 * then one every span, until a signal.
 *
 *   starting ─first run─▶ ready ⇄ not ready (a run failed, or none for twice the span)
 *      └──────────────── SIGTERM, SIGINT ─▶ what is in hand is given back ─▶ 0
 *
 * A broker that is away is a failed run like any other: health tells it, and the next run tries.
 */

import { inRounds, listenForTheEnd, stopOnSignal } from '../../../lifetime.ts';
import { EXIT, endedBy, type ExitCode, exitCodeOf } from '../../../exit-codes.ts';
import { createProgress } from '../../../ui/progress.ts';
import type { CommandContext } from '../../../spec.ts';
import { printRun, printRound } from './report.ts';
import { type SweepRun, sweepOnce } from './run.ts';
import { readSettings, type SettingsReader } from './settings.ts';
import { textOf } from '../../../../core/errors.ts';
import type { Clock } from '../../../../ports/clock.ts';
import { isLoopback } from '../../../../web/server/settings.ts';
import { safe } from '../../../../observe/logs/safe-text.ts';
import { span } from '../../../ui/times.ts';
import { startListening } from './listen.ts';

/** Sweeps; 0 when all went well, 1 when a queue did not. */
export async function sweep(context: CommandContext): Promise<ExitCode> {
  const told = await readSettings(context);
  const { everyMs } = told.settings;
  return everyMs === undefined ? sweepAndTell(told) : sweepUntilSignal(told, everyMs);
}

async function sweepAndTell(reader: SettingsReader): Promise<ExitCode> {
  const { context, settings } = reader;
  const { io, out } = context;
  const stop = stopOnSignal(io);
  const bar = createProgress(io, out);
  let run: SweepRun;
  try {
    const onProgress = (done: number, total: number): void => bar.show(done, total);
    run = await sweepOnce(reader, { signal: stop.signal, onProgress });
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
  // Users of the old tool know 0 and 1.
  return run.error === undefined || settings.isOld ? EXIT.refused : exitCodeOf(run.error);
}

// With --every.

/**
 * Runs without a success for this many spans are too many. Also in
 * docs/how-to/sweep-dead-queues.md.
 */
const SPANS_MAX = 2;

/** Sweeps until SIGTERM or SIGINT. */
async function sweepUntilSignal(reader: SettingsReader, everyMs: number): Promise<ExitCode> {
  const { context, settings } = reader;
  const { io, out } = context;
  const over = new AbortController();
  const ending = listenForTheEnd(context).then((end) => {
    over.abort();
    return end;
  });
  const health = createHealth(io.clock, everyMs);
  const count = await listen(reader, health);
  const round = async (): Promise<void> => {
    const run = await sweepOnce(reader, { signal: over.signal });
    health.hear(run);
    count?.(run);
    await printRound(out, settings, run);
  };
  await inRounds({ clock: io.clock, everyMs, signal: over.signal }, round);
  const end = await ending;
  if (end.kind === 'error') throw end.error;
  return EXIT.done;
}

async function listen(
  { context, settings }: SettingsReader,
  health: SweepHealth,
): Promise<((run: SweepRun) => void) | undefined> {
  if (settings.listen === undefined) return undefined;
  const { createSweepMetrics: createMetrics } = await import('./metrics.ts');
  const metrics = createMetrics();
  const { out, atEnd } = context;
  const { reasons } = health;
  const answers = { reasons, metrics: () => metrics.text() };
  const listening = await startListening(settings.listen, answers, context.io.clock);
  atEnd(() => listening.close());
  if (!isLoopback(settings.listen.host)) {
    out.warn('anyone who can reach this address can read the names of queues and their counts');
  }
  const { url } = listening;
  if (out.json) await out.object({ url });
  else out.note(`listening on ${safe(url)}: /healthz, /readyz, /metrics`);
  return (run) => metrics.count(run);
}

/** Whether what runs does what it should. */
interface SweepHealth {
  hear(run: SweepRun): void;
  /** Why it is not ready; none: it is. */
  readonly reasons: () => readonly string[];
}

/** Ready when the last run went well, and not too long ago. */
export function createHealth(clock: Clock, everyMs: number): SweepHealth {
  let last: SweepRun | undefined;
  let wellAt: number | undefined;
  const startedAt = clock.monotonic();
  return {
    hear: (run) => {
      last = run;
      if (run.isWell) wellAt = clock.monotonic();
    },
    reasons: () => {
      const reasons: string[] = [];
      if (last === undefined) reasons.push('no run has ended yet');
      else if (!last.isWell) reasons.push(...whyFailed(last));
      const quietMs = clock.monotonic() - (wellAt ?? startedAt);
      if (quietMs > SPANS_MAX * everyMs) {
        reasons.push(
          `no run has succeeded for ${span(quietMs)}, one is due every ${span(everyMs)}`,
        );
      }
      return reasons;
    },
  };
}

function whyFailed({ error, reports, problems }: SweepRun): readonly string[] {
  return [
    ...(error === undefined ? [] : [textOf(error)]),
    ...problems.filter(({ isSkipped }) => !isSkipped).map(({ text }) => text),
    ...reports.flatMap(({ queue, error: why }) => (why === undefined ? [] : [`${queue}: ${why}`])),
  ];
}
