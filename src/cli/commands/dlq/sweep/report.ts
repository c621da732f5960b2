/**
 * report — what a run of the sweep came to: one JSON object with our names and the old ones, or a
 * table and a sentence.
 */

import { SECOND_MS } from '../../../../core/duration.ts';
import { textOf } from '../../../../core/errors.ts';
import type { QueueSweep, SweepEnd } from '../../../../rabbit/queues/sweep.ts';
import type { Out } from '../../../ui/output.ts';
import { numberText, safe } from '../../../../observe/logs/safe-text.ts';
import { type Column, tableOf } from '../../../ui/table.ts';
import { exact, span } from '../../../ui/times.ts';
import type { SweepRun } from './run.ts';
import type { SweepCommandSettings } from './settings.ts';

const RIGHT = { align: 'right' as const };

function columnsOf({ isDryRun }: SweepCommandSettings): readonly Column[] {
  return [
    { head: 'queue', isFlexible: true, isReason: true },
    { head: 'target', isFlexible: true },
    { head: 'there', ...RIGHT },
    { head: movedText(isDryRun), ...RIGHT },
    { head: 'left', ...RIGHT },
    { head: 'unseen', ...RIGHT },
    { head: 'end', isFlexible: true },
  ];
}

/** How a queue was gone through, in words. */
const ENDS: Readonly<Record<SweepEnd, string>> = {
  done: 'done',
  max: 'limit reached',
  limit: 'limit reached',
  aborted: 'stopped',
  quiet: 'another consumer has it',
  held: 'too many that stay',
  time: 'time is up',
  locked: 'locked',
  refused: 'refused',
  failed: 'failed',
};

/** Why a queue was not swept to its end, unless that was requested. */
const SHORT: { readonly [K in SweepEnd]?: string } = {
  quiet: 'incomplete: another consumer has exclusive access to the queue; stop it',
  held: 'not all messages were seen: too many stay, and those behind them were not reached',
  time: 'incomplete: a queue is left after 10 minutes; the next run starts over',
};

/** Prints a run: an object, or a table with its sum. */
export async function printRun(
  out: Out,
  settings: SweepCommandSettings,
  run: SweepRun,
): Promise<void> {
  const { reports, error } = run;
  if (error !== undefined) out.error(error);
  if (out.json) {
    await out.object(objectOf(settings, run));
    return;
  }
  if (reports.length > 0 && !out.quiet) {
    await out.line(tableOf(out, columnsOf(settings), reports.map(rowOf)));
  }
  tellFailures(out, run);
  if (error === undefined) await out.line(sumOf(settings, run));
}

/** Prints a run of many: one line, and one for each queue that failed or gave something. */
export async function printRound(
  out: Out,
  settings: SweepCommandSettings,
  run: SweepRun,
): Promise<void> {
  if (out.json) {
    await out.object(objectOf(settings, run));
    return;
  }
  const at = exact(run.endedAt);
  const verb = settings.isDryRun ? 'would-move' : 'moved';
  if (!out.quiet) {
    for (const { queue, target, moved, left } of run.reports.filter((one) => one.moved > 0)) {
      await out.line(`${at} ${safe(queue)} ${verb}=${moved} left=${left} target=${safe(target)}`);
    }
  }
  tellFailures(out, run);
  if (run.error !== undefined) out.warn(textOf(run.error));
  const { moved, left } = totalOf(run.reports);
  const state = run.isWell ? 'swept' : 'failed';
  const sum = `queues=${run.reports.length} ${verb}=${moved} left=${left} took=${span(run.tookMs)}`;
  await out.line(`${at} ${state} ${sum}`);
}

/** What was left out as it should be is printed only with --verbose. */
function tellFailures(out: Out, { reports, problems }: SweepRun): void {
  for (const { text, isSkipped } of problems) {
    if (isSkipped) out.detail(safe(text));
    else out.warn(text);
  }
  for (const { queue, error, end } of reports) {
    const why = error ?? SHORT[end];
    if (why !== undefined) out.warn(`${safe(queue)}: ${why}`, { multiline: true });
  }
}

function rowOf(report: QueueSweep): string[] {
  const { queue, target, total, moved, left, end } = report;
  return [
    safe(queue),
    safe(target),
    numberText(total),
    numberText(moved),
    numberText(left),
    numberText(unseenOf(report)),
    ENDS[end],
  ];
}

/** There at the beginning, and not looked at: the run ended before. */
function unseenOf({ total, moved, left, already }: QueueSweep): number {
  return Math.max(0, total - moved - left - already);
}

function movedText(isDryRun: boolean): string {
  return isDryRun ? 'would move' : 'moved';
}

function sumOf({ isDryRun }: SweepCommandSettings, { reports, tookMs }: SweepRun): string {
  const { moved, left } = totalOf(reports);
  const queues = reports.length === 1 ? '1 queue' : `${reports.length} queues`;
  const unseen = reports.reduce((all, report) => all + unseenOf(report), 0);
  const rest = unseen === 0 ? '' : `, did not look at ${unseen}`;
  return `${movedText(isDryRun)} ${moved}, left ${left}${rest} in ${queues}, in ${span(tookMs)}`;
}

/** The sums over all queues. */
function totalOf(reports: readonly QueueSweep[]): {
  readonly total: number;
  readonly seen: number;
  readonly moved: number;
  readonly left: number;
  readonly already: number;
} {
  const sum = (count: (report: QueueSweep) => number): number =>
    reports.reduce((all, report) => all + count(report), 0);
  return {
    total: sum((one) => one.total),
    seen: sum((one) => one.seen),
    moved: sum((one) => one.moved),
    left: sum((one) => one.left),
    already: sum((one) => one.already),
  };
}

/** One object: `queues` and `total` are ours, the rest is as the old tool's users read it. */
function objectOf(settings: SweepCommandSettings, run: SweepRun): Record<string, unknown> {
  const { isWell, endedAt, tookMs, reports, problems, error } = run;
  const total = totalOf(reports);
  return {
    status: isWell ? 'success' : 'error',
    timestamp: exact(endedAt),
    ...(error === undefined ? {} : { error: textOf(error) }),
    config: configOf(settings),
    results: {
      messages_processed: total.seen,
      moved: total.moved,
      requeued: total.left,
      duration_seconds: tookMs / SECOND_MS,
    },
    ...(reports.length > 1 ? { queue_statistics: statisticsOf(reports) } : {}),
    dryRun: settings.isDryRun,
    total,
    queues: reports,
    problems,
  };
}

/** n.b. Neither user nor password. */
function configOf({
  broker,
  patterns,
  target,
  max,
}: SweepCommandSettings): Record<string, unknown> {
  const { hostname, port, protocol } = new URL(broker.url);
  return {
    host: hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(port),
    vhost: broker.vhost,
    use_ssl: protocol === 'amqps:',
    dlq_name: patterns.length === 1 ? patterns[0] : patterns,
    target_queue: target,
    max_retry_count: max,
  };
}

function statisticsOf(reports: readonly QueueSweep[]): Record<string, unknown> {
  return Object.fromEntries(
    reports.map(({ queue, target, seen, moved, left }) => [
      queue,
      { target_queue: target, messages_processed: seen, moved, requeued: left },
    ]),
  );
}
