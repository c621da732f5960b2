/** report — what became of each letter of a replay, in the order of its plan. */

import { Ledger } from './ledger.ts';
import { needReplay } from '../../operator/record.ts';
import type { ReplayDesk, ReplayLine } from '../../operator/replays.ts';

/** One line per letter of which something is known; the last word counts. */
export async function* reportReplay(
  desk: Pick<ReplayDesk, 'records'>,
  id: string,
): AsyncIterable<ReplayLine> {
  await needReplay(desk.records, id);
  const ledger = await Ledger.load(desk.records, id);
  yield* ledger.lines();
}
