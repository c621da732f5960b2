/**
 * replays — replays on record: all of them, one, and what became of each message; and the commands
 * that pause, resume, cancel and forget one. Beginning one: replay.ts.
 */

import { REPLAY_RANGES } from '../../../../core/limits.ts';
import { SECOND_MS } from '../../../../core/duration.ts';
import * as operations from '../../../../dead-letters/replay/operations.ts';
import {
  getReplay,
  listReplays as allReplays,
  reportReplay as linesOf,
} from '../../../../dead-letters/replay/operations.ts';
import { safe } from '../../../../observe/logs/safe-text.ts';
import {
  needReplay,
  type Replay,
  type ReplayOperator,
  type ReplayOptions,
} from '../../../../spool/operator/replays.ts';
import { sleep } from '../../../../system/wait.ts';
import { endedBy, EXIT, type ExitCode } from '../../../exit-codes.ts';
import { isMadeId, TypedIds } from '../../../id-prefix.ts';
import type { CommandContext } from '../../../spec.ts';
import { pagedTable, tableOf } from '../../../ui/table.ts';
import { atLetters, openSource } from '../letter-places.ts';
import {
  carryOut,
  countsText,
  LINE_COLUMNS,
  lineRow,
  REPLAY_COLUMNS,
  replayRow,
  replayView,
} from './view.ts';

const PAGE = 500;

/** The operator of a command over replays; there is none at a broker. */
async function operatorOf(context: CommandContext): Promise<ReplayOperator> {
  return (await atLetters(context, { routes: false }).session()).operator;
}

/** The replay that a command names, also by the beginning of its id. */
async function namedReplay(context: CommandContext, operator: ReplayOperator): Promise<Replay> {
  const [id = ''] = context.args;
  const replay = await getReplay(operator, id);
  if (replay !== undefined) return replay;
  const typed = new TypedIds([id]);
  const fitting = isMadeId(id)
    ? []
    : (await allReplays(operator)).filter((one) => typed.notes(one.id));
  const [whole] = typed.wholeIds({ out: context.out, isActing: true });
  return fitting.find((one) => one.id === whole) ?? needReplay(operator.records, id);
}

export async function listReplaysCommand(context: CommandContext): Promise<ExitCode> {
  const { io, out, options } = context;
  const states = options.texts('state');
  const replays = (await allReplays(await operatorOf(context))).filter(
    ({ state }) => states.length === 0 || states.includes(state),
  );
  if (out.json) {
    for (const replay of replays) await out.object(replay);
    return EXIT.done;
  }
  if (replays.length === 0) {
    out.note('there is no replay; make one: respool dlq replay');
    return EXIT.done;
  }
  const now = io.clock.now();
  const rows = replays.map((replay) => replayRow(replay, now));
  await out.line(tableOf(out, REPLAY_COLUMNS, rows));
  return EXIT.done;
}

export async function showReplay(context: CommandContext): Promise<ExitCode> {
  const { io, out } = context;
  const replay = await namedReplay(context, await operatorOf(context));
  if (out.json) await out.object(replay);
  else await out.line(await replayView(out, replay, io.clock.now()));
  return EXIT.done;
}

export async function reportReplayCommand(context: CommandContext): Promise<ExitCode> {
  const { out, options } = context;
  const results = options.texts('result');
  const operator = await operatorOf(context);
  const { id } = await namedReplay(context, operator);
  const draw = pagedTable(out, LINE_COLUMNS);
  let rows: string[][] = [];
  const print = async (): Promise<void> => {
    if (rows.length > 0) await out.line(draw(rows));
    rows = [];
  };
  for await (const line of linesOf(operator, id)) {
    if (results.length > 0 && !results.includes(line.result)) continue;
    if (out.json) await out.object(line);
    else rows.push(lineRow(line));
    if (rows.length >= PAGE) await print();
  }
  await print();
  return EXIT.done;
}

// Pause, resume, cancel and forget replays.
//
// A process that runs a replay elsewhere is asked through its record, and given a little time to
// obey; one whose heartbeat is overdue is dealt with here.

/** Time limit for a runner to react; longer than its lease (LEASE_MS of replay/run-state.ts). */
const OBEYED_WITHIN_MS: number = 40 * SECOND_MS;
const LOOK_EVERY_MS = 200;

export async function pauseReplayCommand(context: CommandContext): Promise<ExitCode> {
  return steer(context, 'pause');
}

export async function cancelReplayCommand(context: CommandContext): Promise<ExitCode> {
  return steer(context, 'cancel');
}

/** Runs it here, from where it is. */
export async function resumeReplayCommand(commandContext: CommandContext): Promise<ExitCode> {
  const context = atLetters(commandContext);
  const { options } = context;
  const operator = (await context.session()).operator;
  const replay = await namedReplay(context, operator);
  const isTrusted = options.flag('trustLimit');
  const { letters } = await openSource(context, replay.source, { isTrusted });
  const unsure = options.text('unsure') as ReplayOptions['unsure'];
  const canary = options.number('canary', REPLAY_RANGES.canary);
  const how = {
    ...(unsure === undefined ? {} : { unsure }),
    ...(canary === undefined ? {} : { canary }),
  };
  return carryOut(context, { operator, letters, replay, how });
}

export async function forgetReplay(context: CommandContext): Promise<ExitCode> {
  const { io, out } = context;
  const operator = await operatorOf(context);
  const { id } = await namedReplay(context, operator);
  await operations.removeReplay(operator, id, { clock: io.clock });
  if (out.json) await out.object({ id, result: 'forgotten' });
  else await out.line(`replay ${safe(id)} is forgotten`);
  return EXIT.done;
}

const ASK = { pause: operations.pauseReplay, cancel: operations.cancelReplay } as const;

async function steer(context: CommandContext, target: 'pause' | 'cancel'): Promise<ExitCode> {
  const { io, out } = context;
  const operator = await operatorOf(context);
  const { id } = await namedReplay(context, operator);
  const asked = await ASK[target](operator, id, { clock: io.clock });
  const replay = await obeyed(context, { operator, wanted: target, replay: asked });
  if (out.json) await out.object(replay);
  else {
    await out.line(`replay ${safe(id)} is ${replay.state}: ${countsText(replay)}`);
  }
  if (replay.state !== 'running') return EXIT.done;
  out.note(`the process that runs it was asked to ${target} and has not done so yet`);
  return EXIT.refused;
}

interface Asked {
  readonly operator: ReplayOperator;
  readonly wanted: 'pause' | 'cancel';
  readonly replay: Replay;
}

/** Waits until the process that runs it has let go, or its lease has ended. */
async function obeyed(
  { io }: CommandContext,
  { operator, wanted, replay }: Asked,
): Promise<Replay> {
  const { clock } = io;
  const endsAt = clock.monotonic() + OBEYED_WITHIN_MS;
  const stop = new AbortController();
  const off = io.onSignal((signal) => stop.abort(endedBy(signal, '; it was asked all the same')));
  try {
    let last = replay;
    while (last.state === 'running' && clock.monotonic() < endsAt) {
      stop.signal.throwIfAborted();
      await sleep(clock, LOOK_EVERY_MS, stop.signal);
      last = (await operations.getReplay(operator, last.id)) ?? last;
      const isOver = last.runner === undefined || last.runner.until <= clock.now();
      if (last.state === 'running' && isOver)
        last = await ASK[wanted](operator, last.id, { clock });
    }
    return last;
  } finally {
    off();
  }
}
