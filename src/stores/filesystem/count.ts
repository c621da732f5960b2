/**
 * count — counts by state, topic, destination or fingerprint.
 */

import { STATES } from '../../core/state.ts';
import type { EntryQuery, TallyBy, TallyRow } from '../../ports/entry-store.ts';
import { matchesQuery, needsContent } from '../shared/query.ts';
import type { HeldEntry } from './catalog.ts';
import { candidates, type OpenedEntries, READS_AT_ONCE, readOrSkip } from './list.ts';

/** Files looked at for one tally by words; above, the counts are marked as approximate. */
const TALLY_READS_MAX = 10_000;

/**
 * Up to this many entries a tally by state, of all, goes through them; above, it answers with what
 * was counted along, without `oldestAt`.
 */
const TALLY_FREELY_MAX = 50_000;

/** Counts entries; where their files have to be read, approximately beyond a limit. */
export async function tallyEntries(
  opened: OpenedEntries,
  by: TallyBy,
  query: EntryQuery,
): Promise<readonly TallyRow[]> {
  const { catalog } = opened;
  if (by === 'state' && Object.keys(query).length === 0 && catalog.byId.size > TALLY_FREELY_MAX) {
    return STATES.filter((state) => catalog.count(state) > 0).map((state) => ({
      key: state,
      count: catalog.count(state),
      oldestAt: null,
    }));
  }
  const fitting = [...candidates(catalog, query)];
  const counted = needsContent(query) ? await readFitting(opened, query, fitting) : fitting;
  const isPartial = needsContent(query) && fitting.length > TALLY_READS_MAX;
  const rows = new Map<string, { count: number; oldestAt: number }>();
  for (const held of counted) {
    const key = keyOf(held, by);
    if (key === undefined) continue;
    const row = rows.get(key);
    if (row === undefined) rows.set(key, { count: 1, oldestAt: held.enqueuedAt });
    else {
      row.count += 1;
      row.oldestAt = Math.min(row.oldestAt, held.enqueuedAt);
    }
  }
  return [...rows].map(([key, { count, oldestAt }]) => ({
    key,
    count,
    oldestAt,
    ...(isPartial ? { approximate: true } : {}),
  }));
}

async function readFitting(
  opened: OpenedEntries,
  query: EntryQuery,
  fitting: readonly HeldEntry[],
): Promise<readonly HeldEntry[]> {
  const found: HeldEntry[] = [];
  const looked = fitting.slice(0, TALLY_READS_MAX);
  for (let at = 0; at < looked.length; at += READS_AT_ONCE) {
    const group = looked.slice(at, at + READS_AT_ONCE);
    const read = await Promise.all(group.map(({ id }) => readOrSkip(opened, id)));
    group.forEach((item, index) => {
      const entry = read[index];
      if (entry !== undefined && matchesQuery(entry, query)) found.push(item);
    });
  }
  return found;
}

function keyOf(entry: HeldEntry, by: TallyBy): string | undefined {
  return by === 'state' ? entry.state : entry[by];
}
