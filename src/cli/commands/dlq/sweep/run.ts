/**
 * run — one run of the sweep over all queues, from reaching the broker to leaving it.
 *
 * Failures of a queue or the broker are part of the run and not thrown: the next round tries
 * again. The store of the audit record is opened only when something is about to be moved, created
 * if it is missing, and closed with the run: between runs it is free for other processes. Listeners
 * on that store get one `sweep` event for each queue, if anything was to be moved in that run.
 */

import type { Millis } from '../../../../core/duration.ts';
import { textOf } from '../../../../core/errors.ts';
import type { EventOf } from '../../../../core/event.ts';
import { reasonText } from '../../../../core/failure.ts';
import {
  type QueueSweep,
  type SweepDetails,
  sweepJournal,
  type SweepProblem,
  type SweepProgress,
  sweepQueues,
  type SweepTotal,
} from '../../../../rabbit/queues/sweep.ts';
import { createClosers } from '../../../lifetime.ts';
import { type Session, openSession } from '../../../session.ts';
import { reach } from '../../rabbit/reach.ts';
import type { CommandContext } from '../../../spec.ts';
import type { SettingsReader } from './settings.ts';

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
interface RunWatch {
  readonly signal: AbortSignal;
  readonly onProgress?: (done: number, total: number) => void;
}

/** Sweeps once. */
export async function sweepOnce(reader: SettingsReader, watch: RunWatch): Promise<SweepRun> {
  const { clock } = reader.context.io;
  const startedAt = clock.monotonic();
  const closers = createClosers();
  const context = { ...reader.context, atEnd: closers.atEnd };
  let swept: Pick<SweepTotal, 'queues' | 'problems' | 'isWell'> = NOTHING;
  let failure: { readonly error: unknown } | undefined;
  try {
    swept = await sweepAll({ ...reader, context }, watch);
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

async function sweepAll(
  { context, settings }: SettingsReader,
  watch: RunWatch,
): Promise<SweepTotal> {
  const { patterns, target, max, limit, parallel, window, createsTarget, dedupe } = settings;
  const { connection, management } = await reach(context, settings.loaded, settings.broker);
  const { clock } = context.io;
  const writer = writerOf(context, settings.broker.address);
  const swept = await sweepQueues({
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
    onEvent: writer.note,
    audit: writer.audit,
    dedupe:
      dedupe === undefined
        ? undefined
        : sweepJournal(dedupe.file, {
            maxAgeMs: dedupe.maxAgeMs,
            place: settings.broker.address,
            clock,
          }),
  });
  await writer.tell();
  return swept;
}

interface Writer {
  /** Writes down what is about to be moved, in the configured store. */
  readonly audit: (details: SweepDetails) => Promise<void>;
  /** Keeps an event until it is reported. */
  readonly note: (event: EventOf<'sweep'>) => void;
  /** Tells what was noted where it was written down; never rejects: nothing depends on it. */
  readonly tell: () => Promise<void>;
}

function writerOf(context: CommandContext, broker: string): Writer {
  let session: Promise<Session> | undefined;
  const events: EventOf<'sweep'>[] = [];
  return {
    audit: async (details) => {
      session ??= openSession({ ...context, mayCreate: true });
      await (await session).operator.recordAction('dlq.sweep', { broker, ...details });
    },
    note: (event) => void events.push(event),
    tell: async () => {
      if (session === undefined) return;
      try {
        const { operator } = await session;
        for (const { queue, target, moved, left, error } of events) {
          const why = error === undefined ? {} : { error: reasonText(error) };
          await operator.tellSweep({ queue, target, moved, left, ...why });
        }
      } catch (error) {
        // An older service, or one that is gone by now: what was swept is in the report.
        context.out.detail(`the sweep could not be reported: ${textOf(error)}`);
      }
    },
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
