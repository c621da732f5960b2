/**
 * list — single entries, pages of them, and counts.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type {
  CorruptEntry,
  EntryQuery,
  ListPage,
  ListQuery,
  TallyBy,
  TallyRow,
} from '../../ports/entry-store.ts';
import { type PageRequest, type PagePosition, readPage, writePlace } from '../shared/page.ts';
import { matchesQuery, orderValue } from '../shared/query.ts';
import { compareText, copyOf, type Data } from './data.ts';
import type { Row } from './due-flows.ts';

/** One entry; `store.corrupt` where it was damaged. */
export function getRow(data: Data, id: string): Entry | undefined {
  const row = data.rows.get(id);
  if (row?.damage !== undefined) throw damaged(row);
  return row === undefined ? undefined : copyOf(row.entry);
}

/** One page of a list. */
export function listRows(data: Data, query: ListQuery): ListPage {
  const page = readPage(query);
  const found: { readonly entry: Entry; readonly place: PagePosition }[] = [];
  for (const { id, entry } of readable(data, query)) {
    const place = { value: orderValue(entry, page.order), id };
    if (page.after === undefined || inPageOrder(page, page.after, place) < 0) {
      found.push({ entry, place });
    }
  }
  found.sort((one, other) => inPageOrder(page, one.place, other.place));
  const shown = found.slice(0, page.limit);
  const last = shown.at(-1);
  return {
    entries: shown.map(({ entry: { envelope, status } }) => ({ envelope, status })),
    corrupt: page.after === undefined ? corruptIn(data) : [],
    ...(last === undefined || found.length <= page.limit
      ? {}
      : { next: writePlace(page, last.place) }),
  };
}

function inPageOrder({ descending }: PageRequest, one: PagePosition, other: PagePosition): number {
  const upwards = one.value - other.value || compareText(one.id, other.id);
  return descending ? -upwards : upwards;
}

/** The rows that fit and can be read. */
function* readable(data: Data, query: EntryQuery): Generator<Row> {
  const rows = query.ids === undefined ? data.rows.values() : some(data, query.ids);
  for (const row of rows) {
    if (row.damage === undefined && matchesQuery(row.entry, query)) yield row;
  }
}

function* some(data: Data, ids: readonly string[]): Generator<Row> {
  for (const id of new Set(ids)) {
    const row = data.rows.get(id);
    if (row !== undefined) yield row;
  }
}

function corruptIn(data: Data): readonly CorruptEntry[] {
  const corrupt: CorruptEntry[] = [];
  for (const { id, damage } of data.rows.values()) {
    if (damage !== undefined) corrupt.push({ id, where: `memory "${id}"`, reason: damage });
  }
  return corrupt;
}

function damaged({ id, damage }: Row): RespoolError {
  return new RespoolError(
    'store.corrupt',
    `cannot read entry "${id}": ${damage}; list() names it under "corrupt"`,
  );
}

// Counts by state, topic, destination or fingerprint.

/** Counts entries by one property. */
export function tallyRows(data: Data, by: TallyBy, query: EntryQuery): readonly TallyRow[] {
  const rows = new Map<string, { key: string; count: number; oldestAt: number }>();
  for (const { entry } of readable(data, query)) {
    const key = tallyKey(by, entry);
    if (key === undefined) continue;
    const { enqueuedAt } = entry.envelope;
    const row = rows.get(key);
    if (row === undefined) rows.set(key, { key, count: 1, oldestAt: enqueuedAt });
    else {
      row.count += 1;
      row.oldestAt = Math.min(row.oldestAt, enqueuedAt);
    }
  }
  return [...rows.values()];
}

function tallyKey(by: TallyBy, { envelope, status }: Entry): string | undefined {
  switch (by) {
    case 'state':
      return status.state;
    case 'fingerprint':
      return status.lastFailure?.fingerprint;
    default:
      return envelope[by];
  }
}
