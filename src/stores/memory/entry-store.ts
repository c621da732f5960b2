/**
 * memory — entries in the memory of this process: for tests, for simulation, for what may be lost.
 *
 * Every operation is done within microtasks: no timer, no turn of the event loop. So virtual time
 * works with it, and a claim on a small store costs microseconds.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import { claimedStatus } from '../../core/next-status.ts';
import { takesTopic } from '../../core/topic.ts';
import type {
  Change,
  ClaimFilter,
  ClaimRequest,
  EntryStore,
  EntryStoreTraits,
} from '../../ports/entry-store.ts';
import { systemClock } from '../../system/clock.ts';
import { Operations } from '../shared/operations.ts';
import { readHeadsMax } from '../shared/page.ts';
import { tallyRows } from './list.ts';
import { compareText, copyOf, Data, type MemoryData } from './data.ts';
import type { Row } from './due-flows.ts';
import { getRow, listRows } from './list.ts';
import { entryData, type MemoryOptions } from './options.ts';
import { createMemoryRecords } from './records.ts';

const TRAITS: EntryStoreTraits = {
  processes: 'one',
  wakes: false,
  ordered: true,
  inlineMaxBytes: 64 * 1024,
  durability: 'none',
};

/**
 * Data for several memory stores to share.
 *
 * @example
 * import { createMemoryData, memory } from 'respool/stores/memory';
 * const shared = createMemoryData();
 * const first = memory({ shared });
 * const second = memory({ shared }); // sees the entries of the first, as another process would
 */
export function createMemoryData(): MemoryData {
  return new Data();
}

/** An entry store that forgets everything with the process, or with the last use of its data. */
export function memory(options: MemoryOptions = {}): EntryStore {
  const data = entryData(options);
  const instance = data.nextInstance();
  const operations = new Operations('entries', systemClock);
  let isOpen = false;
  // Async functions turn what this throws into rejections.
  const checkOpen = (): void => {
    if (isOpen) return;
    throw new RespoolError(
      'store.unavailable',
      `cannot use store "${instance}": it is not open; call open() first`,
    );
  };
  return {
    name: 'memory',
    instance,
    traits: TRAITS,
    async open() {
      isOpen = true;
    },
    async close() {
      isOpen = false;
    },
    ...operations.writes(createWrites(data, checkOpen)),
    ...operations.reads(createReads(data, checkOpen)),
    async nextDueAt(filter) {
      checkOpen();
      return nextDueAt(data, filter);
    },
    async flush() {
      checkOpen();
    },
    async keyHeads(max) {
      checkOpen();
      return data.lines.heads(readHeadsMax(max));
    },
    onOperation: operations.on,
    records: operations.records(createMemoryRecords(data, checkOpen)),
  };
}

function createWrites(
  data: Data,
  checkOpen: () => void,
): Pick<EntryStore, 'insert' | 'claim' | 'commit'> {
  return {
    async insert(entries) {
      checkOpen();
      return entries.map((entry) => {
        const duplicateOf = data.insert(entry);
        return duplicateOf === undefined ? 'stored' : { duplicateOf };
      });
    },
    async claim(request) {
      checkOpen();
      return claimRows(data, request);
    },
    async commit(changes) {
      checkOpen();
      return changes.map((change) => commitOne(data, change));
    },
  };
}

function createReads(
  data: Data,
  checkOpen: () => void,
): Pick<EntryStore, 'get' | 'list' | 'tally'> {
  return {
    async get(id) {
      checkOpen();
      return getRow(data, id);
    },
    async list(query) {
      checkOpen();
      return listRows(data, query);
    },
    async tally(by, query) {
      checkOpen();
      return tallyRows(data, by, query);
    },
  };
}

function commitOne(data: Data, change: Change): 'done' | 'stale' {
  const row = data.rows.get(change.id);
  if (row === undefined || row.damage !== undefined) return 'stale';
  const { revision, holder } = row.entry.status;
  if (revision !== change.revision) return 'stale';
  if (holder !== change.holder) return 'stale';
  data.change(row, change);
  return 'done';
}

// Due entries made active: from the flows, or among the ids that were asked for.

/** Claims what is due, at most `max`. */
function claimRows(data: Data, request: ClaimRequest): readonly Entry[] {
  const { now, max } = request;
  const rows = request.ids === undefined ? data.due.take(request, now, max) : byIds(data, request);
  return rows.map((row) => {
    data.setStatus(row, claimedStatus(row.entry.status, request));
    return copyOf(row.entry);
  });
}

function byIds(data: Data, request: ClaimRequest): Row[] {
  return fitting(data, request)
    .filter(({ dueAt }) => dueAt <= request.now)
    .sort(inClaimOrder)
    .slice(0, request.max);
}

/** When the next entry is due that such a claim would take. */
function nextDueAt(data: Data, filter: ClaimFilter): number | null {
  if (filter.ids === undefined) return data.due.nextDueAt(filter);
  const dues = fitting(data, filter).map(({ dueAt }) => dueAt);
  return dues.length === 0 ? null : Math.min(...dues);
}

/** The filed rows among the ids of the filter that the rest of it lets through. */
function fitting(data: Data, filter: ClaimFilter): Row[] {
  const { lane, states, topics, exceptDestinations = [] } = filter;
  return [...new Set(filter.ids)].flatMap((id) => {
    const row = data.rows.get(id);
    if (row?.flow === undefined) return [];
    const { envelope, status } = row.entry;
    const fits =
      status.lane === lane &&
      states.some((state) => state === status.state) &&
      takesTopic(topics, envelope.topic) &&
      !(envelope.destination !== undefined && exceptDestinations.includes(envelope.destination));
    return fits ? [row] : [];
  });
}

function inClaimOrder(one: Row, other: Row): number {
  return (
    one.entry.envelope.priority - other.entry.envelope.priority ||
    one.dueAt - other.dueAt ||
    compareText(one.id, other.id)
  );
}
