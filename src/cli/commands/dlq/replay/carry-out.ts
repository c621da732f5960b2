/**
 * carry-out — runs a replay here to its end, with a bar; Ctrl-C pauses it.
 *
 * Promise: whatever ends it, the record tells how far it is, and the last line how to go on.
 */

import type { ReplayOperator, Replay } from '../../../../spool/operator/replays.ts';
import { resumeReplay, runReplay, type RunTools } from '../../../../dead-letters/replay/run.ts';
import { isRespoolError } from '../../../../core/errors.ts';
import type { DeadLetters } from '../../../../ports/dead-letters.ts';
import { CommandError, endedBy, EXIT, type ExitCode, exitCodeOf } from '../../../exit-codes.ts';
import { createProgress } from '../../../ui/progress.ts';
import { safe } from '../../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../../spec.ts';
import { stopOnSignal } from '../../../lifetime.ts';
import { countsText, decidedText, resumeLine } from './view.ts';

/** What is run, and where. */
export interface ReplayResult {
  readonly operator: ReplayOperator;
  readonly letters: DeadLetters;
  readonly replay: Replay;
  /** Other than planned. */
  readonly how?: Pick<RunTools, 'unsure' | 'canary'>;
}

/** Runs it, and tells what came of it; a signal throws, with how to resume. */
export async function carryOut(context: CommandContext, carried: ReplayResult): Promise<ExitCode> {
  const { io, out } = context;
  const { operator, letters, replay, how } = carried;
  const stop = stopOnSignal(io);
  const bar = createProgress(io, out);
  const { count } = replay.plan;
  const tools: RunTools = {
    clock: io.clock,
    signal: stop.signal,
    onProgress: ({ counts }) => bar.show(decidedText(counts), count),
    ...how,
  };
  const run = replay.state === 'planned' ? runReplay : resumeReplay;
  try {
    const ended = await run(operator, letters, replay.id, tools);
    bar.clear();
    await tell(context, ended);
    const stoppedBy = stop.by();
    if (stoppedBy === undefined) return codeOf(ended);
    // Also when it was over before it heard of it: what comes after it is not wanted any more.
    const isPaused = ended.state === 'paused';
    throw endedBy(stoppedBy, isPaused ? `; continue with: ${resumeLine(ended.id)}` : '');
  } catch (error) {
    bar.clear();
    if (isMishap(error)) out.note(`when the cause is fixed: ${resumeLine(replay.id)}`);
    throw error;
  } finally {
    stop.off();
    bar.clear();
  }
}

/** It began, or could have: no refusal, which says itself what to do. */
function isMishap(error: unknown): boolean {
  if (isRespoolError(error)) return exitCodeOf(error) === EXIT.unavailable;
  return !(error instanceof CommandError);
}

async function tell({ out }: CommandContext, replay: Replay): Promise<void> {
  if (out.json) return out.object(replay);
  const { id, state, counts, plan, because, canaries } = replay;
  const why = because === undefined ? '' : `: ${safe(because)}`;
  await out.line(`replay ${safe(id)} is ${state}${why}`);
  await out.line(countsText(counts, plan.count));
  if (state === 'stopped') out.note(`when the cause is fixed: ${resumeLine(id)}`);
  const { waiting = 0, removed = 0 } = canaries ?? {};
  if (state === 'stopped' && waiting + removed > 0) {
    out.note(`to send the rest without canaries: ${resumeLine(id)} --canary 0`);
  }
  if (state === 'done' && counts.failed > 0) out.note(`to try the failed ones: ${resumeLine(id)}`);
  if (state === 'done' && counts.unsure > 0) {
    out.note(`to send what may have been sent already: ${resumeLine(id)} --unsure send`);
  }
  const isOdd = counts.failed + counts.unsure + counts.again > 0;
  if (isOdd) out.note(`which, and why: respool dlq replays report ${safe(id)}`);
}

/** Done, and nothing of it needs care. */
function codeOf({ state, counts }: Replay): ExitCode {
  const isWell = state === 'done' && counts.failed + counts.unsure + counts.again === 0;
  return isWell ? EXIT.done : EXIT.refused;
}
