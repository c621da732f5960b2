/**
 * tallies — counts by state, topic, destination or fingerprint.
 *
 * From the counts that the flows keep, wherever these can answer; by one pass of SQLite otherwise;
 * and by reading a bounded number of entries when headers or texts are asked for.
 */

import { STATES } from '../../core/state.ts';
import type { EntryQuery, TallyBy, TallyRow } from '../../ports/entry-store.ts';
import { matchesQuery } from '../shared/query.ts';
import { type Conditions, conditionsOf } from './conditions.ts';
import type { Connection } from './connection.ts';
import type { CountedFlow, Flows } from './flows.ts';
import { decodeRow, type EntryRow, STATUS_SQL } from './rows.ts';
import { stateOfSlot } from './schema.ts';

/** Up to this many entries in the file, the oldest are found by a pass over all. */
const OLDEST_MAX = 20_000;
/** Entries that may be read between two batches of writes. */
const READ_SOON_MAX = 500;
/** Entries that a tally over headers or texts reads; past it the counts are marked. */
const READ_MAX = 20_000;

interface Count {
  readonly flow: number;
  readonly slot: number;
  readonly fingerprint: string | null;
  readonly count: number;
  readonly oldestAt: number | null;
}

/** Counts over one connection; null when it would take long and must not. */
export function createTally(
  { database }: Connection,
  flows: Flows,
): (by: TallyBy, query: EntryQuery, mayBeLong: boolean) => TallyRow[] | null {
  function bySql({ sql, values }: Conditions, by: TallyBy): Count[] {
    const where = sql.length === 0 ? 'true' : sql.join(' AND ');
    const group = by === 'fingerprint' ? '0, 0, fingerprint' : 'flow, slot, NULL';
    const statement = database.prepare(
      `SELECT ${group}, count(*), min(enqueued_at) FROM {entries} WHERE ${where} GROUP BY 1, 2, 3`,
    );
    const rows = statement.raw().all(...values) as [
      number,
      number,
      string | null,
      number,
      number,
    ][];
    return rows.map(([flow, slot, fingerprint, count, oldestAt]) => ({
      flow,
      slot,
      fingerprint,
      count,
      oldestAt,
    }));
  }

  function byReading({ sql, values }: Conditions, query: EntryQuery) {
    const where = sql.length === 0 ? 'true' : sql.join(' AND ');
    const statement = database.prepare(
      `SELECT e.flow, e.enqueued_at, e.seq, e.id, ${STATUS_SQL}, c.envelope, NULL
      FROM (SELECT * FROM {entries} WHERE ${where} LIMIT ${READ_MAX + 1}) e
      LEFT JOIN {contents} c ON c.seq = e.seq`,
    );
    const counts: Count[] = [];
    let read = 0;
    for (const line of statement.raw().iterate(...values)) {
      read += 1;
      if (read > READ_MAX) break;
      const [flow, oldestAt, ...rest] = line as [number, number, ...unknown[]];
      const row = rest as unknown as EntryRow;
      if (!fits(row, query)) continue;
      counts.push({ flow, slot: row[2], fingerprint: row[13], count: 1, oldestAt });
    }
    return { counts, isCut: read > READ_MAX };
  }

  return (by, query, mayBeLong) => {
    const counted = flows.all();
    const conditions = conditionsOf(query, counted);
    const known = new Map(counted.map((flow) => [flow.flow, flow]));
    const total = counted.reduce((sum, flow) => sum + sumOf(flow.counts), 0);
    const isLong = total > (conditions.needsReading ? READ_SOON_MAX : OLDEST_MAX);
    if (by !== 'fingerprint' && conditions.isCounted && isLong) {
      return fold(by, byCounts(conditions, counted), known);
    }
    if (isLong && !mayBeLong) return null;
    if (!conditions.needsReading) return fold(by, bySql(conditions, by), known);
    const { counts, isCut } = byReading(conditions, query);
    return fold(by, counts, known).map((row) => (isCut ? { ...row, approximate: true } : row));
  };
}

function byCounts({ slots, flows }: Conditions, counted: readonly CountedFlow[]): Count[] {
  return counted
    .filter(({ flow }) => flows === undefined || flows.has(flow))
    .flatMap(({ flow, counts }) =>
      slots.map((slot) => ({
        flow,
        slot,
        fingerprint: null,
        count: counts[slot] ?? 0,
        oldestAt: null,
      })),
    );
}

// What cannot be read is counted by nobody: the next list or claim that meets it reports it.
function fits(row: EntryRow, query: EntryQuery): boolean {
  try {
    return matchesQuery(decodeRow(row), query);
  } catch {
    return false;
  }
}

function fold(
  by: TallyBy,
  counts: readonly Count[],
  flows: ReadonlyMap<number, CountedFlow>,
): TallyRow[] {
  const rows = new Map<string, { key: string; count: number; oldestAt: number | null }>();
  for (const { count, oldestAt, ...of } of counts) {
    const key = keyOf(by, of, flows);
    if (count === 0 || key === undefined) continue;
    const row = rows.get(key);
    if (row === undefined) {
      rows.set(key, { key, count, oldestAt });
      continue;
    }
    row.count += count;
    const isKnown = row.oldestAt !== null && oldestAt !== null;
    row.oldestAt = isKnown ? Math.min(row.oldestAt ?? 0, oldestAt) : null;
  }
  const sorted = [...rows.values()];
  if (by !== 'state') return sorted.sort((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1));
  const place = new Map<string, number>(STATES.map((state, number) => [state, number]));
  return sorted.sort((a, b) => (place.get(a.key) ?? 0) - (place.get(b.key) ?? 0));
}

function keyOf(
  by: TallyBy,
  { flow, slot, fingerprint }: Pick<Count, 'flow' | 'slot' | 'fingerprint'>,
  flows: ReadonlyMap<number, CountedFlow>,
): string | undefined {
  switch (by) {
    case 'state':
      return stateOfSlot(slot);
    case 'topic':
      return flows.get(flow)?.topic;
    case 'destination':
      // Entries without a destination belong to none.
      return flows.get(flow)?.destination || undefined;
    default:
      return fingerprint ?? undefined;
  }
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
