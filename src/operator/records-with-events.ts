/**
 * records-with-events — the records of dead letters, with an event whenever a replay comes to
 * another state: whoever changes its record, here or through a service, changes it here.
 *
 * Promise: told after it is on record; what is not about a replay goes through untouched.
 */

import { REPLAYS_KIND } from '../core/canary.ts';
import type { EventOf } from '../core/event.ts';
import type { RecordStore } from '../ports/record-store.ts';
import { readReplay, type Replay } from './replays.ts';

/** The same records; `tell` hears of replays. */
export function recordsWithEvents(
  records: RecordStore,
  tell: (event: EventOf<'replay'>) => void,
): RecordStore {
  return {
    ...records,
    put: async (kind, key, value, revision) => {
      const replay = kind === REPLAYS_KIND ? readReplay({ key, value, revision: 0 }) : undefined;
      if (replay === undefined) return records.put(kind, key, value, revision);
      const before = await records.get(kind, key);
      const answer = await records.put(kind, key, value, revision);
      if (answer === 'done' && stateOf(before?.value) !== replay.state) tell(eventOf(replay));
      return answer;
    },
  };
}

function stateOf(value: unknown): unknown {
  return (value as Partial<Replay> | undefined)?.state;
}

function eventOf({ id, by, state, counts, because, updatedAt }: Replay): EventOf<'replay'> {
  const { sent, failed, again } = counts;
  return {
    at: updatedAt,
    kind: 'replay',
    replay: id,
    state,
    by,
    sent,
    failed,
    again,
    ...(because === undefined ? {} : { because }),
  };
}
