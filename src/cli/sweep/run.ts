/**
 * run — one run of the sweep over all queues, from reaching the broker to leaving it.
 *
 * What a queue or the broker does is part of the run and not thrown, so that whoever goes on tries
 * again. The store of the audit record is opened before the first message is moved, made where it
 * is missing, and closed with the run: nobody is kept out of it in between.
 */

import type { Millis } from '../../core/duration.ts';
import {
  type QueueSweep,
  type SweepDetails,
  sweepJournal,
  type SweepProblem,
  type SweepProgress,
  sweepQueues,
  type SweepTotal,
} from '../../rabbit/dead/sweep.ts';
import { createClosers } from '../closers.ts';
import { type Desk, openDesk } from '../open-desk.ts';
import { reach } from '../rabbit/reach.ts';
import type { CommandContext } from '../spec.ts';
import type { Told } from './settings.ts';

/** What a run came to. */
export interface SweepRun {
  readonly endedAt: Millis;
  readonly tookMs: number;
  /** Whether every queue was gone through as it should. */
  readonly isWell: boolean;
  readonly reports: readonly QueueSweep[];
  /** Queues and patterns that were not swept. */
  readonly problems: readonly SweepProblem[];
  /** Why nothing could be swept at all. */
  readonly error?: unknown;
}

/** How a run is stopped, and who hears how far it is. */
export interface RunWatch {
  readonly signal: AbortSignal;
  readonly onProgress?: (done: number, total: number) => void;
}

/** Sweeps once. */
export async function sweepOnce(told: Told, watch: RunWatch): Promise<SweepRun> {
  const { clock } = told.context.io;
  const startedAt = clock.monotonic();
  const closers = createClosers();
  const context = { ...told.context, atEnd: closers.atEnd };
  let swept: Pick<SweepTotal, 'queues' | 'problems' | 'isWell'> = NOTHING;
  let failure: { readonly error: unknown } | undefined;
  try {
    swept = await sweepAll({ ...told, context }, watch);
  } catch (error) {
    failure = { error };
  }
  try {
    await closers.close();
  } catch (error) {
    failure ??= { error };
  }
  const { queues: reports, problems, isWell } = swept;
  return {
    endedAt: clock.now(),
    tookMs: Math.round(clock.monotonic() - startedAt),
    isWell: isWell && failure === undefined,
    reports,
    problems,
    ...failure,
  };
}

const NOTHING = { queues: [], problems: [], isWell: false };

async function sweepAll({ context, settings }: Told, watch: RunWatch): Promise<SweepTotal> {
  const { patterns, target, max, limit, parallel, window, createsTarget, dedupe } = settings;
  const { connection, management } = await reach(context, settings.loaded, settings.broker);
  const { clock } = context.io;
  return sweepQueues({
    connection,
    management,
    patterns,
    target,
    max,
    limit,
    parallel,
    window,
    createsTarget,
    reasons: settings.reasons,
    queues: settings.queues,
    dryRun: settings.isDryRun,
    isTrusted: settings.isTrusted,
    signal: watch.signal,
    onProgress: sumOf(watch),
    clock,
    audit: auditOf(context, settings.broker.address),
    dedupe:
      dedupe === undefined
        ? undefined
        : sweepJournal(dedupe.file, {
            maxAgeMs: dedupe.maxAgeMs,
            place: settings.broker.address,
            clock,
          }),
  });
}

/** Writes down what is about to be moved, in the configured store. */
function auditOf(
  context: CommandContext,
  broker: string,
): (details: SweepDetails) => Promise<void> {
  let desk: Promise<Desk> | undefined;
  return async (details) => {
    desk ??= openDesk({ ...context, mayCreate: true });
    await (await desk).control.recordAction('dlq.sweep', { broker, ...details });
  };
}

/** Progress of all queues together. */
function sumOf({ onProgress }: RunWatch): (progress: SweepProgress) => void {
  const byQueue = new Map<string, SweepProgress>();
  return (progress) => {
    byQueue.set(progress.queue, progress);
    const all = [...byQueue.values()];
    const sum = (count: (one: SweepProgress) => number): number =>
      all.reduce((before, one) => before + count(one), 0);
    onProgress?.(
      sum(({ seen }) => seen),
      sum(({ total }) => total),
    );
  };
}
