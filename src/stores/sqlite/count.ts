/**
 * count — counts by state, topic, destination or fingerprint.
 *
 * In a large file from the counts that the flows keep, where these can answer; by one pass of
 * SQLite otherwise; and by reading a bounded number of entries when headers, texts or codes are
 * asked for.
 */

import { STATES } from '../../core/state.ts';
import type { EntryQuery, TallyBy, TallyRow } from '../../ports/entry-store.ts';
import { matchesQuery } from '../shared/query.ts';
import { type Conditions, conditionsOf } from './list.ts';
import type { Connection } from './connection.ts';
import type { TopicFlows } from './topic-flows.ts';
import { tallyText, type TallyText } from './protocol.ts';
import { decodeRow, type EntryRow, STATUS_SQL } from './row.ts';

/** Up to this many entries in the file, the oldest are found by a pass over all. */
const OLDEST_MAX = 20_000;
/** Entries that may be read between two batches of writes. */
const READ_SOON_MAX = 500;
/** Entries that a tally over headers, texts or codes reads; past it the counts are marked. */
const READ_MAX = 20_000;

/** What one entry or one group of entries counts for; no key: it belongs to none. */
type Count = readonly [key: string | number | null, count: number, oldestAt: number | null];

/** What groups an entry of {entries}; topic and destination are names of its flow. */
const INNER_KEY: Readonly<Record<TallyBy, string>> = {
  state: 'slot >> 1',
  topic: 'flow',
  destination: 'flow',
  fingerprint: 'fingerprint',
};

/** Counts over one connection, as JSON; null when it would take long and must not. */
export function createTally(
  { database }: Connection,
  flows: TopicFlows,
): (by: TallyBy, query: EntryQuery, mayBeLong: boolean) => TallyText | null {
  function byCounts({ slots, flows: wanted }: Conditions, by: CountedBy): TallyText {
    if (by === 'state') {
      const counts = flows.counts(wanted);
      return tallyText(
        fold(
          by,
          slots.map((slot) => [slot >> 1, counts[slot] ?? 0, null]),
        ),
      );
    }
    const count = slots.map((slot) => `n${slot}`).join(' + ') || '0';
    const where = wanted === undefined ? '' : 'WHERE flow IN (SELECT value FROM json_each(?))';
    const values = wanted === undefined ? [] : [JSON.stringify([...wanted])];
    return sqlText(
      database,
      `SELECT ${by} AS key, sum(${count}) AS count, NULL AS oldest
        FROM {flows} ${where} GROUP BY 1`,
      values,
    );
  }

  function byReading({ sql, values }: Conditions, by: TallyBy, query: EntryQuery) {
    const where = sql.length === 0 ? 'true' : sql.join(' AND ');
    const key = isOfFlow(by) ? `f.${by}` : `e.${INNER_KEY[by]}`;
    const statement = database.prepare(
      `SELECT ${key}, e.enqueued_at, e.seq, e.id, ${STATUS_SQL}, c.envelope, NULL
      FROM (SELECT * FROM {entries} WHERE ${where} LIMIT ${READ_MAX + 1}) e
      LEFT JOIN {contents} c ON c.seq = e.seq LEFT JOIN {flows} f ON f.flow = e.flow`,
    );
    const counts: Count[] = [];
    let read = 0;
    for (const line of statement.raw().iterate(...values)) {
      read += 1;
      if (read > READ_MAX) break;
      const [ofKey, oldestAt, ...rest] = line as [Count[0], number, ...unknown[]];
      if (fits(rest as unknown as EntryRow, query)) counts.push([ofKey, 1, oldestAt]);
    }
    return { counts, isCut: read > READ_MAX };
  }

  return (by, query, mayBeLong) => {
    const conditions = conditionsOf(query, flows);
    const total = flows.counts().reduce((sum, count) => sum + count, 0);
    const isLong = total > (conditions.needsReading ? READ_SOON_MAX : OLDEST_MAX);
    if (by !== 'fingerprint' && conditions.isCounted && isLong) {
      return byCounts(conditions, by);
    }
    if (isLong && !mayBeLong) return null;
    if (!conditions.needsReading) return bySql(database, conditions, by);
    const { counts, isCut } = byReading(conditions, by, query);
    return tallyText(fold(by, counts).map((row) => (isCut ? { ...row, approximate: true } : row)));
  };
}

function bySql(
  database: Connection['database'],
  { sql, values }: Conditions,
  by: TallyBy,
): TallyText {
  const where = sql.length === 0 ? 'true' : sql.join(' AND ');
  const groups = `SELECT ${INNER_KEY[by]} AS key, count(*) AS count, min(enqueued_at) AS oldest
    FROM {entries} WHERE ${where} GROUP BY 1`;
  if (by === 'state') {
    const counts = database.prepare(groups).raw();
    return tallyText(fold(by, counts.all(...values) as Count[]));
  }
  if (!isOfFlow(by)) return sqlText(database, groups, values);
  return sqlText(
    database,
    `SELECT f.${by} AS key, sum(g.count) AS count, min(g.oldest) AS oldest FROM (${groups}) g
      JOIN {flows} f ON f.flow = g.key GROUP BY 1`,
    values,
  );
}

/** Written by SQLite: with many names, a row for each would be an object in this heap. */
function sqlText(
  database: Connection['database'],
  groups: string,
  values: readonly unknown[],
): TallyText {
  const statement = database.prepare(
    `SELECT json_group_array(json_array(key, count, oldest)
      ORDER BY count DESC, key) FROM (${groups}) WHERE count > 0 AND key <> ''`,
  );
  return statement.pluck().get(...values) as string;
}

type CountedBy = Exclude<TallyBy, 'fingerprint'>;

function isOfFlow(by: TallyBy): by is 'topic' | 'destination' {
  return by === 'topic' || by === 'destination';
}

// Unreadable rows are not counted: the next list or claim that meets one reports it.
function fits(row: EntryRow, query: EntryQuery): boolean {
  try {
    return matchesQuery(decodeRow(row), query);
  } catch {
    return false;
  }
}

function fold(by: TallyBy, counts: readonly Count[]): TallyRow[] {
  const rows = new Map<string, { key: string; count: number; oldestAt: number | null }>();
  for (const [keyed, count, oldestAt] of counts) {
    const key = typeof keyed === 'number' ? STATES[keyed] : keyed;
    // Entries without a destination belong to none.
    if (count === 0 || key === undefined || key === null || key === '') continue;
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
