/** record — a replay as it is on record, changed by compare-and-swap only. */

import { REPLAYS_KIND } from '../../core/canary.ts';
import type { Millis } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { replayIn } from './read-replay.ts';
import type { Replay, ReplayDesk } from './types.ts';

/** Others may write at the same time; nobody does so often. */
const TRIES_MAX = 100;

/** The replay of this id; `message.unknown` when there is none. */
export async function needReplay(records: RecordStore, id: string): Promise<Replay> {
  const found = await records.get(REPLAYS_KIND, id);
  if (found === undefined) throw unknownReplay(id);
  return replayIn(found);
}

/** Writes what the change makes of the record; the change may be asked several times. */
export async function changeReplay(
  records: RecordStore,
  id: string,
  change: (replay: Replay) => Replay,
): Promise<Replay> {
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const found = await records.get(REPLAYS_KIND, id);
    if (found === undefined) throw unknownReplay(id);
    const changed = change(replayIn(found));
    const put = await records.put(REPLAYS_KIND, id, changed, found.revision);
    if (put === 'done') return changed;
  }
  throw new RespoolError(
    'store.unavailable',
    `cannot change replay "${id}": others changed it ${TRIES_MAX} times meanwhile; try again`,
  );
}

/** Whether some process runs it, as far as can be told. */
export function isRunBySomebody({ state, runner }: Replay, now: Millis): boolean {
  return state === 'running' && runner !== undefined && runner.until > now;
}

/** Writes into the audit record what is about to be done to a replay. */
export function auditReplay(
  desk: ReplayDesk,
  action: string,
  { id, source, plan }: Pick<Replay, 'id' | 'source' | 'plan'>,
): Promise<void> {
  return desk.recordAction(`replay.${action}`, { replay: id, source, count: plan.count });
}

function unknownReplay(id: string): RespoolError {
  return new RespoolError(
    'message.unknown',
    `there is no replay "${id}" on record; list them with: respool dlq replays list`,
  );
}
