/**
 * operations — replays from outside: look at them, pause, cancel and forget them.
 *
 * A process that runs a replay is asked by its record: it begins nothing more within about a
 * second, and ends once what is on its way is settled. If no process runs it, the record is changed
 * at once.
 */

import { REPLAYS_RECORD_KIND } from '../../core/reserved-headers.ts';
import { RespoolError } from '../../core/errors.ts';
import {
  auditReplay,
  changeReplay,
  isRunBySomebody,
  needReplay,
  readReplay,
  type Replay,
  type ReplayOperator,
  replayIn,
  type ReplayLine,
} from '../../spool/operator/replays.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import { notTheSameLetter } from './send-letters.ts';
import { LetterProgress, removeJournal, ReplayJournal, unackedText } from './run-state.ts';

interface OperationTools {
  readonly clock?: Clock;
}

/** All replays on record, the latest first. */
export async function listReplays(operator: Pick<ReplayOperator, 'records'>): Promise<Replay[]> {
  const found = await operator.records.list(REPLAYS_RECORD_KIND);
  // Ids sort by the time they were made.
  return found.flatMap((record) => readReplay(record) ?? []).reverse();
}

/** A replay as it is on record; undefined when there is none of this id. */
export async function getReplay(
  operator: Pick<ReplayOperator, 'records'>,
  id: string,
): Promise<Replay | undefined> {
  const found = await operator.records.get(REPLAYS_RECORD_KIND, id);
  return found === undefined ? undefined : replayIn(found);
}

/**
 * Asks the process that runs it to pause; what is on its way ends first.
 *
 * @example
 * import {
 *   cancelReplay,
 *   getReplay,
 *   listReplays,
 *   pauseReplay,
 *   removeReplay,
 *   resumeReplay,
 * } from 'respool/dead-letters';
 * for (const one of await listReplays(operator)) {
 *   if (one.state === 'running') await pauseReplay(operator, one.id);
 * }
 * const replay = await getReplay(operator, id);
 * if (replay?.state === 'paused') await resumeReplay(operator, letters, id);
 * await cancelReplay(operator, id);
 * await removeReplay(operator, id);
 */
export function pauseReplay(
  operator: ReplayOperator,
  id: string,
  tools: OperationTools = {},
): Promise<Replay> {
  return ask('pause', { operator, id, tools });
}

/** Ends a replay for good: what was not sent stays where it is. */
export function cancelReplay(
  operator: ReplayOperator,
  id: string,
  tools: OperationTools = {},
): Promise<Replay> {
  return ask('cancel', { operator, id, tools });
}

/** Forgets a replay and its log; not one that runs. The letters are not touched. */
export async function removeReplay(
  operator: ReplayOperator,
  id: string,
  { clock = systemClock }: OperationTools = {},
): Promise<void> {
  const replay = await needReplay(operator.records, id);
  if (isRunBySomebody(replay, clock.now())) throw refused('remove', replay, 'cancel it first');
  await auditReplay(operator, 'remove', replay);
  await removeJournal(operator.records, id);
  await operator.records.remove(REPLAYS_RECORD_KIND, id);
}

interface Asked {
  readonly operator: ReplayOperator;
  readonly id: string;
  readonly tools: OperationTools;
}

const STATES = { pause: 'paused', cancel: 'cancelled' } as const;

async function ask(
  target: 'pause' | 'cancel',
  { operator, id, tools: { clock = systemClock } }: Asked,
): Promise<Replay> {
  const { records, by } = operator;
  const check = (replay: Replay) => {
    const isOver = replay.state === 'done' || replay.state === 'cancelled';
    if (isOver) throw refused(target, replay, 'there is nothing left to do');
  };
  const found = await needReplay(records, id);
  check(found);
  await auditReplay(operator, target, found);
  const progress = await progressOf(target, found, { operator, clock });
  // What a pause leaves behind goes when it is resumed.
  const mayLinger = target === 'cancel' && found.source.kind === 'queue';
  return changeReplay(records, id, (replay) => {
    check(replay);
    const now = clock.now();
    if (isRunBySomebody(replay, now)) {
      // A cancellation that was asked for is not replaced by a pause.
      return { ...replay, wanted: replay.wanted === 'cancel' ? 'cancel' : target };
    }
    const { wanted: _, runner: __, ...rest } = replay;
    // It may have been run meanwhile: then the record is newer.
    const known = replay.updatedAt === found.updatedAt ? progress : undefined;
    const counts = known?.counts ?? rest.counts;
    const unacked = mayLinger ? (known?.unacked ?? 0) : 0;
    const more = unacked === 0 ? '' : `; ${unackedText(unacked)}: some may be in the queue still`;
    return { ...rest, counts, state: STATES[target], because: `by ${by}${more}`, updatedAt: now };
  });
}

/**
 * The progress of a replay that no process runs: its process may have died since its last report.
 * After a cancellation, what may have been sent is not searched for: it is reported as unsure.
 */
async function progressOf(
  target: 'pause' | 'cancel',
  replay: Replay,
  { operator: { records }, clock }: Pick<Asked, 'operator'> & { readonly clock: Clock },
): Promise<LetterProgress | undefined> {
  if (replay.state === 'planned' || isRunBySomebody(replay, clock.now())) return undefined;
  const progress = await LetterProgress.load(records, replay.id);
  if (target === 'pause') return progress;
  const journal = new ReplayJournal(records, replay.id, clock);
  notTheSameLetter(progress, journal, clock.now());
  await journal.step([]);
  return progress;
}

function refused(what: string, { id, state }: Replay, remedy: string): RespoolError {
  return new RespoolError(
    'move.refused',
    `cannot ${what} replay "${id}": it is ${state}; ${remedy}`,
  );
}

// What became of each letter of a replay, in the order of its plan.

/** One line per letter of which something is known; the last word counts. */
export async function* reportReplay(
  operator: Pick<ReplayOperator, 'records'>,
  id: string,
): AsyncIterable<ReplayLine> {
  await needReplay(operator.records, id);
  const progress = await LetterProgress.load(operator.records, id);
  yield* progress.lines();
}
