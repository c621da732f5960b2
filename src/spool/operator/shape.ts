/**
 * shape — messages by topic and age. Where it grows to the right, something has been stuck for
 * long; where one line is large, one receiver is the trouble. The idea is Postfix's.
 */

import { MINUTE_MS } from '../../core/duration.ts';
import { checkOneOf } from '../../core/limits.ts';
import type { TallyRow } from '../../ports/entry-store.ts';
import type { ListFilter } from '../list.ts';
import type { SpoolInternals } from '../internals.ts';
import type { Shape, ShapeOptions, ShapeRow } from './operator.ts';
import { needsReading } from './bulk.ts';

/** Each age is twice the one before. */
const BOUNDS_MS: readonly number[] = [5, 10, 20, 40, 80, 160, 320, 640, 1_280].map(
  (minutes) => minutes * MINUTE_MS,
);
/** What waits. */
const STATES = ['incoming', 'active', 'deferred'] as const;
/** Lines of a shape, at the most. */
const ROWS_MAX = 500;

/** The shape of what fits the filter now. */
export async function shapeOf(spool: SpoolInternals, options: ShapeOptions = {}): Promise<Shape> {
  const by = checkOneOf('by', options.by ?? 'topic', ['topic', 'destination']);
  const filter: ListFilter = { state: STATES, ...options.filter };
  const at = spool.now();
  const counted = needsReading(filter)
    ? await countByReading(spool, by, filter, at)
    : await countByTallies(spool, by, filter, at);
  return { at, by, boundsMs: BOUNDS_MS, ...counted };
}

type By = Shape['by'];
type Counted = Pick<Shape, 'rows' | 'total'>;

/** Only the largest names get a line, so no more are remembered than these; the total has all. */
async function countByTallies(
  spool: SpoolInternals,
  by: By,
  filter: ListFilter,
  at: number,
): Promise<Counted> {
  const all = await spool.tally(by, filter);
  const largest = all.toSorted(byCount).slice(0, ROWS_MAX);
  const rows = new Map(largest.map(({ key, count }) => [key, [count]]));
  const total = [countOf(all)];
  // From the young to the old, as long as there is anything older: mostly one look or two.
  let older: readonly TallyRow[] = all;
  for (const boundMs of BOUNDS_MS) {
    if (older.length > 0) older = await spool.tally(by, olderOnly(filter, at - boundMs));
    total.push(countOf(older));
    const counts = new Map<string, number>();
    for (const { key, count } of older) if (rows.has(key)) counts.set(key, count);
    for (const [key, row] of rows) row.push(counts.get(key) ?? 0);
  }
  return {
    rows: linesOf([...rows].map(([key, row]) => rowOf(key, row))),
    total: rowOf('TOTAL', total),
  };
}

function byCount(a: TallyRow, b: TallyRow): number {
  return b.count - a.count || (a.key < b.key ? -1 : 1);
}

function countOf(rows: readonly TallyRow[]): number {
  return sumOf(rows.map(({ count }) => count));
}

function linesOf(rows: readonly ShapeRow[]): ShapeRow[] {
  return rows.toSorted((a, b) => b.total - a.total || (a.key < b.key ? -1 : 1)).slice(0, ROWS_MAX);
}

/** Message by message: a store's counts of such a filter stop before the end. */
async function countByReading(
  spool: SpoolInternals,
  by: By,
  filter: ListFilter,
  at: number,
): Promise<Counted> {
  const counts = new Map<string, number[]>();
  for await (const { envelope } of spool.list(filter)) {
    const key = envelope[by];
    if (key === undefined) continue;
    const row = counts.get(key) ?? [0, ...BOUNDS_MS].map(() => 0);
    const age = BOUNDS_MS.findIndex((boundMs) => at - envelope.enqueuedAt <= boundMs);
    const column = age < 0 ? BOUNDS_MS.length : age;
    row[column] = (row[column] ?? 0) + 1;
    counts.set(key, row);
  }
  const rows = [...counts].map(([key, row]) => ({ key, total: sumOf(row), counts: row }));
  return { rows: linesOf(rows), total: totalOf(rows) };
}

function olderOnly(filter: ListFilter, before: number): ListFilter {
  const { enqueuedBefore = before } = filter;
  return { ...filter, enqueuedBefore: Math.min(before, enqueuedBefore) };
}

/** From counts of what is older than each bound to counts of what lies between two. */
function rowOf(key: string, older: readonly number[]): ShapeRow {
  // Messages move between two looks: a difference below zero is one that was delivered meanwhile.
  const counts = older.map((count, at) => Math.max(0, count - (older[at + 1] ?? 0)));
  return { key, total: sumOf(counts), counts };
}

function totalOf(rows: readonly ShapeRow[]): ShapeRow {
  const counts = [0, ...BOUNDS_MS].map((_, at) =>
    rows.reduce((sum, row) => sum + (row.counts[at] ?? 0), 0),
  );
  return { key: 'TOTAL', total: sumOf(counts), counts };
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
