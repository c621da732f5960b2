/**
 * shape — messages by topic and age. Where it grows to the right, something has been stuck for
 * long; where one line is large, one receiver is the trouble. The idea is Postfix's.
 */

import { MINUTE_MS } from '../core/duration.ts';
import { checkOneOf } from '../core/limits.ts';
import type { TallyRow } from '../ports/entry-store.ts';
import type { ListFilter } from '../spool/list.ts';
import type { Spool } from '../spool/spool.ts';
import type { Shape, ShapeOptions, ShapeRow } from './control.ts';

/** Each age is twice the one before. */
const BOUNDS_MS: readonly number[] = [5, 10, 20, 40, 80, 160, 320, 640, 1_280].map(
  (minutes) => minutes * MINUTE_MS,
);
/** What waits. */
const STATES = ['incoming', 'active', 'deferred'] as const;
/** Lines of a shape, at the most. */
const ROWS_MAX = 500;

/** The shape of what fits the filter now. */
export async function shapeOf(spool: Spool, options: ShapeOptions = {}): Promise<Shape> {
  const by = checkOneOf('by', options.by ?? 'topic', ['topic', 'destination']);
  const filter: ListFilter = { state: STATES, ...options.filter };
  const all = await spool.tally(by, filter);
  const at = spool.now();
  const counts = new Map(all.map(({ key, count }) => [key, [count]]));
  // From the young to the old, as long as there is anything older: mostly one look or two.
  let older: readonly TallyRow[] = all;
  for (const boundMs of BOUNDS_MS) {
    if (older.length > 0) older = await spool.tally(by, olderOnly(filter, at - boundMs));
    const byKey = new Map(older.map(({ key, count }) => [key, count]));
    for (const [key, row] of counts) row.push(byKey.get(key) ?? 0);
  }
  const rows = [...counts].map(([key, row]) => rowOf(key, row));
  rows.sort((a, b) => b.total - a.total || (a.key < b.key ? -1 : 1));
  return { at, by, boundsMs: BOUNDS_MS, rows: rows.slice(0, ROWS_MAX), total: totalOf(rows) };
}

function olderOnly(filter: ListFilter, before: number): ListFilter {
  const { enqueuedBefore = before } = filter;
  return { ...filter, enqueuedBefore: Math.min(before, enqueuedBefore) };
}

/** From counts of what is older than each bound to counts of what lies between two. */
function rowOf(key: string, older: readonly number[]): ShapeRow {
  // Messages move between two looks: a difference below zero is one that was delivered meanwhile.
  const counts = older.map((count, at) => Math.max(0, count - (older[at + 1] ?? 0)));
  return { key, total: counts.reduce((sum, count) => sum + count, 0), counts };
}

function totalOf(rows: readonly ShapeRow[]): ShapeRow {
  const counts = [0, ...BOUNDS_MS].map((_, at) =>
    rows.reduce((sum, row) => sum + (row.counts[at] ?? 0), 0),
  );
  return { key: 'TOTAL', total: counts.reduce((sum, count) => sum + count, 0), counts };
}
