/** replays — what is on record of replays: all of them, one, and what became of each message. */

import {
  getReplay,
  listReplays as allReplays,
} from '../../../../dead-letters/replay/operations.ts';
import { reportReplay as linesOf } from '../../../../dead-letters/replay/report.ts';
import { needReplay } from '../../../../operator/record.ts';
import type { Replay, ReplayDesk } from '../../../../operator/replays.ts';
import { atLetters } from '../letter-places.ts';
import { EXIT, type ExitCode } from '../../../exit-codes.ts';
import { isMadeId, TypedIds } from '../../../id-prefix.ts';
import type { CommandContext } from '../../../spec.ts';
import { pagedTable, tableOf } from '../../../ui/table.ts';
import { LINE_COLUMNS, lineRow, REPLAY_COLUMNS, replayRow, replayView } from './view.ts';

const PAGE = 500;

/** The desk of a command over replays; there is none at a broker. */
export async function deskOf(context: CommandContext): Promise<ReplayDesk> {
  return (await atLetters(context).desk()).control;
}

/** The replay that a command names, also by the beginning of its id. */
export async function namedReplay(context: CommandContext, desk: ReplayDesk): Promise<Replay> {
  const [id = ''] = context.args;
  const replay = await getReplay(desk, id);
  if (replay !== undefined) return replay;
  const typed = new TypedIds([id]);
  const fitting = isMadeId(id) ? [] : (await allReplays(desk)).filter((one) => typed.notes(one.id));
  const [whole] = typed.wholeIds({ out: context.out, isActing: true });
  return fitting.find((one) => one.id === whole) ?? needReplay(desk.records, id);
}

export async function listReplays(context: CommandContext): Promise<ExitCode> {
  const { io, out, options } = context;
  const states = options.texts('state');
  const replays = (await allReplays(await deskOf(context))).filter(
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
  await out.line(await tableOf(out, REPLAY_COLUMNS, rows));
  return EXIT.done;
}

export async function showReplay(context: CommandContext): Promise<ExitCode> {
  const { io, out } = context;
  const replay = await namedReplay(context, await deskOf(context));
  if (out.json) await out.object(replay);
  else await out.line(await replayView(out, replay, io.clock.now()));
  return EXIT.done;
}

export async function reportReplay(context: CommandContext): Promise<ExitCode> {
  const { out, options } = context;
  const results = options.texts('result');
  const desk = await deskOf(context);
  const { id } = await namedReplay(context, desk);
  const draw = pagedTable(out, LINE_COLUMNS);
  let rows: string[][] = [];
  const print = async (): Promise<void> => {
    if (rows.length > 0) await out.line(draw(rows));
    rows = [];
  };
  for await (const line of linesOf(desk, id)) {
    if (results.length > 0 && !results.includes(line.result)) continue;
    if (out.json) await out.object(line);
    else rows.push(lineRow(line));
    if (rows.length >= PAGE) await print();
  }
  await print();
  return EXIT.done;
}
