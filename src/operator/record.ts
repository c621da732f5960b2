/** record — a replay as it is on record, changed by compare-and-swap only. */

import { REPLAYS_KIND } from '../core/canary.ts';
import type { Millis } from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import type { KeyedRecord, RecordStore } from '../ports/record-store.ts';
import { changeRecord, type RecordPlace } from '../spool/record-lease.ts';
import { replayIn } from './read-replay.ts';
import type { Replay, ReplayDesk } from './replays.ts';

/** The replay of this id; `message.unknown` when there is none. */
export async function needReplay(records: RecordStore, id: string): Promise<Replay> {
  return replayOf(await records.get(REPLAYS_KIND, id), id);
}

/** Where a replay is on record. */
export function placeOfReplay(records: RecordStore, id: string): RecordPlace {
  return { records, kind: REPLAYS_KIND, key: id, what: `replay "${id}"` };
}

/** The replay in its record; `message.unknown` when there is none. */
export function replayOf(record: KeyedRecord | undefined, id: string): Replay {
  if (record === undefined) throw unknownReplay(id);
  return replayIn(record);
}

/** Writes what the change makes of the record; the change may be asked several times. */
export function changeReplay(
  records: RecordStore,
  id: string,
  change: (replay: Replay) => Replay,
): Promise<Replay> {
  return changeRecord(placeOfReplay(records, id), (record) => change(replayOf(record, id)));
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
