/**
 * list — single entries, pages of them, and counts.
 *
 * The catalog finds and orders; entries are read for what is shown, and for conditions on headers
 * and texts, which the catalog does not hold. What was read is judged again: it may have moved.
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
import { matchesQuery, needsContent, orderValue } from '../shared/query.ts';
import { outlineOf, type Row } from './catalog.ts';
import type { EntryWrites } from './entry-writes.ts';
import { entryOf } from './row.ts';

/** Entries read at once. */
const READ_AT_ONCE = 250;
/** Entries read for one page at most; a page that finds less is short and has a next. */
const READ_MAX = 2_000;

/** The entry of an id; one that waits for its dedupe key is not there yet. */
export async function getEntry(writes: EntryWrites, id: string): Promise<Entry | undefined> {
  const found = await writes.read(id);
  if (found.kind === 'damaged') {
    throw new RespoolError(
      'store.corrupt',
      `cannot read entry "${id}": ${found.damage}; list() names it under "corrupt"`,
    );
  }
  if (found.kind !== 'entry') return undefined;
  const { facts, seq } = found;
  if (facts.isUnborn && facts.key !== undefined && !writes.catalog.isBorn(id, seq, facts.key)) {
    const holder = await writes.readKey(facts.key);
    if (holder?.id !== id || holder.seq < seq) return undefined;
  }
  return entryOf(found.content);
}

/** One page of a list. */
export async function listEntries(writes: EntryWrites, query: ListQuery): Promise<ListPage> {
  const page = readPage(query);
  const { limit } = page;
  const wanted = needsContent(query) ? READ_MAX : limit;
  const candidates = inOrder(writes, query, page, wanted + 1);
  const entries: Entry[] = [];
  let last: PagePosition | undefined;
  let seen = 0;
  while (seen < Math.min(wanted, candidates.length) && entries.length < limit) {
    const part = candidates.slice(seen, seen + Math.min(READ_AT_ONCE, limit));
    for (const [index, entry] of (await readRows(writes, part)).entries()) {
      if (entries.length >= limit || seen >= wanted) break;
      last = placeOf(part[index] as Row, page);
      seen += 1;
      if (entry !== undefined && matchesQuery(entry, query)) entries.push(entry);
    }
  }
  const hasNext = last !== undefined && seen < candidates.length;
  return {
    entries,
    corrupt: page.after === undefined ? corruptIn(writes) : [],
    ...(hasNext && last !== undefined ? { next: writePlace(page, last) } : {}),
  };
}

/** Live rows that fit as far as the catalog can tell. */
function* fitting(writes: EntryWrites, query: EntryQuery): Generator<Row> {
  const { header: _header, text: _text, ...known } = query;
  const { rows } = writes.catalog;
  const some = query.ids === undefined ? rows.values() : byIds(writes, query.ids);
  for (const row of some) {
    if (writes.catalog.isLive(row) && matchesQuery(outlineOf(row), known)) yield row;
  }
}

function* byIds(writes: EntryWrites, ids: readonly string[]): Generator<Row> {
  for (const id of new Set(ids)) {
    const row = writes.catalog.rows.get(id);
    if (row !== undefined) yield row;
  }
}

/** The first `max` of them behind the place, in order. */
function inOrder(writes: EntryWrites, query: ListQuery, page: PageRequest, max: number): Row[] {
  const inPageOrder = (one: Row, other: Row): number =>
    comparePlaces(page, placeOf(one, page), placeOf(other, page));
  let found: Row[] = [];
  for (const row of fitting(writes, query)) {
    if (page.after !== undefined && comparePlaces(page, page.after, placeOf(row, page)) >= 0) {
      continue;
    }
    found.push(row);
    // Cut now and then: sorting all of a large store for a small page would take long.
    if (found.length >= 4 * max) found = found.sort(inPageOrder).slice(0, max);
  }
  return found.sort(inPageOrder).slice(0, max);
}

function placeOf(row: Row, { order }: PageRequest): PagePosition {
  return { value: order === 'id' ? 0 : orderValue(outlineOf(row), order), id: row.id };
}

function comparePlaces(
  { descending }: PageRequest,
  one: PagePosition,
  other: PagePosition,
): number {
  const byId = one.id === other.id ? 0 : one.id < other.id ? -1 : 1;
  const upwards = one.value - other.value || byId;
  return descending ? -upwards : upwards;
}

/** Reads rows; undefined for one that is gone or cannot be read. */
function readRows(writes: EntryWrites, rows: readonly Row[]): Promise<(Entry | undefined)[]> {
  return Promise.all(
    rows.map(async ({ id, seq }) => {
      const content = writes.cache.get(id, seq) ?? (await writes.contentAt(id, seq));
      if (content !== undefined) return { envelope: content.envelope, status: content.status };
      const found = await writes.read(id);
      if (found.kind !== 'entry') return undefined;
      return { envelope: found.content.envelope, status: found.content.status };
    }),
  );
}

function corruptIn({ catalog }: EntryWrites): readonly CorruptEntry[] {
  return [...catalog.damaged].flatMap((id) => {
    const row = catalog.rows.get(id);
    if (row?.damage === undefined) return [];
    return [{ id, where: `message ${row.seq} of the bucket`, reason: row.damage }];
  });
}

// Counts by state, topic, destination or fingerprint.

/** Counts by one property. */
export async function tallyEntries(
  writes: EntryWrites,
  by: TallyBy,
  query: EntryQuery,
): Promise<readonly TallyRow[]> {
  const counts = new Map<string, { key: string; count: number; oldestAt: number }>();
  const count = (row: Row): void => {
    const key = row[by];
    if (key === undefined) return;
    const known = counts.get(key);
    if (known === undefined) counts.set(key, { key, count: 1, oldestAt: row.enqueuedAt });
    else {
      known.count += 1;
      known.oldestAt = Math.min(known.oldestAt, row.enqueuedAt);
    }
  };
  const rows = [...fitting(writes, query)];
  if (!needsContent(query)) for (const row of rows) count(row);
  else {
    for (let at = 0; at < rows.length; at += READ_AT_ONCE) {
      const part = rows.slice(at, at + READ_AT_ONCE);
      for (const [index, entry] of (await readRows(writes, part)).entries()) {
        if (entry !== undefined && matchesQuery(entry, query)) count(part[index] as Row);
      }
    }
  }
  return [...counts.values()];
}
