/**
 * list — single entries, and pages of them, without changing any.
 *
 * entry-store.ts and count.ts call it. The catalog says which files to read; files are read beside
 * the writer. A file that moved meanwhile is looked up again; one that is damaged is put aside.
 */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Entry } from '../../core/entry.ts';
import { isRespoolError, RespoolError } from '../../core/errors.ts';
import { PAGE_MAX } from '../../core/limits.ts';
import { STATES } from '../../core/state.ts';
import type { EntryQuery, ListOrder, ListPage, ListQuery } from '../../ports/entry-store.ts';
import { type PagePosition, readPage, writePlace } from '../shared/page.ts';
import { matchesQuery, needsContent, orderValue } from '../shared/query.ts';
import { type Catalog, dueAtOf, type HeldEntry, outlineOf, pathOf } from './catalog.ts';
import type { Damage } from './disk-protocol.ts';
import { errnoOf, storeError } from './errors.ts';
import { decodeContent, mergeStatus } from './row.ts';
import type { Writer } from './writer.ts';

/** Files looked at for one page when the catalog alone cannot tell what fits. */
const PAGE_READS_MAX = 2_000;

/** Files read at once. */
export const READS_AT_ONCE = 16;

/** How often a file that keeps moving is looked for. */
const TRIES_MAX = 10;

/** An opened store, for those that look at entries. */
export interface OpenedEntries {
  readonly path: string;
  readonly catalog: Catalog;
  readonly damages: readonly Damage[];
  readonly writer: Writer;
}

/** One entry; `store.corrupt` where it was put aside. */
export async function getEntry(opened: OpenedEntries, id: string): Promise<Entry | undefined> {
  const { catalog, writer } = opened;
  for (let tried = 0; tried < TRIES_MAX; tried += 1) {
    const held = catalog.byId.get(id);
    if (held === undefined) break;
    const read = await readHeld(opened.path, held);
    if (typeof read !== 'string') return read;
    // A batch on its way may have moved the file, or used it for another message.
    await writer.settled();
    const isSame = catalog.byId.get(id) === held && !held.isBusy;
    if (isSame) await writer.ask({ kind: 'setAside', held, reason: read });
  }
  if (catalog.byId.has(id)) {
    throw new RespoolError(
      'store.unavailable',
      `cannot read message "${id}": its file moved ${TRIES_MAX} times meanwhile; try again`,
    );
  }
  const damage = opened.damages.find((match) => match.id === id);
  if (damage === undefined) return undefined;
  throw new RespoolError(
    'store.corrupt',
    `cannot read message "${id}": ${damage.reason}; look at "${join(opened.path, damage.where)}"`,
  );
}

/** What a list shows: a damaged entry is reported by itself, not as an error of the whole list. */
export async function readOrSkip(opened: OpenedEntries, id: string): Promise<Entry | undefined> {
  try {
    return await getEntry(opened, id);
  } catch (error) {
    if (isRespoolError(error, 'store.corrupt')) return undefined;
    throw error;
  }
}

/** The entry, or in plain words why its file cannot be trusted. */
async function readHeld(path: string, entry: HeldEntry): Promise<Entry | string> {
  const file = join(path, pathOf(entry));
  let bytes: Buffer;
  try {
    bytes = await readFile(file);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return 'the file is gone';
    throw storeError(`read "${file}"`, error);
  }
  const content = decodeContent(bytes, entry.id);
  if (typeof content === 'string') return content;
  const { envelope, body } = content;
  const status = mergeStatus(content.status, entry.state, { ...entry, dueAt: dueAtOf(entry) });
  return { envelope, status, ...(envelope.body.place === 'inline' ? { inlineBody: body } : {}) };
}

/** One page of a list. */
export async function listEntries(opened: OpenedEntries, query: ListQuery): Promise<ListPage> {
  const page = readPage(query);
  const { order, limit, after } = page;
  const readsMax = needsContent(query) ? PAGE_READS_MAX : limit;
  const sign = page.descending ? -1 : 1;
  const compare = (a: PagePosition, b: PagePosition): number => sign * comparePlaces(a, b);
  const isWanted = (place: PagePosition): boolean =>
    after === undefined || compare(place, after) > 0;
  const isByDueTime = order === 'dueAt' && !page.descending && query.dueBefore !== undefined;
  const places = isByDueTime
    ? placesByDueTime(opened.catalog, query, isWanted, readsMax)
    : placesOf(opened.catalog, query, order, isWanted);
  const { first, hasMore } = smallest(places, readsMax, compare);
  const entries: Entry[] = [];
  let seen = 0;
  for (let at = 0; at < first.length && entries.length < limit; at += READS_AT_ONCE) {
    const group = first.slice(at, at + READS_AT_ONCE);
    const read = await Promise.all(group.map(({ id }) => readOrSkip(opened, id)));
    for (const entry of read) {
      if (entries.length >= limit) break;
      seen += 1;
      if (entry !== undefined && matchesQuery(entry, query)) entries.push(withoutBytes(entry));
    }
  }
  const last = first[seen - 1];
  const isOver = last === undefined || (seen === first.length && !hasMore);
  const corrupt = query.after === undefined ? damagesOf(opened) : [];
  if (isOver) return { entries, corrupt };
  return { entries, corrupt, next: writePlace(page, last) };
}

/** What may fit, as far as the catalog knows. */
export function* candidates(catalog: Catalog, query: EntryQuery): Generator<HeldEntry> {
  if (query.ids === undefined) {
    for (const held of catalog.byId.values()) if (fitsOutline(held, query)) yield held;
    return;
  }
  for (const id of new Set(query.ids)) {
    const held = catalog.byId.get(id);
    if (held !== undefined && fitsOutline(held, query)) yield held;
  }
}

/** The places of what may fit; a place stays what it was while the entry moves on. */
function* placesOf(
  catalog: Catalog,
  query: EntryQuery,
  order: ListOrder,
  isWanted: (place: PagePosition) => boolean,
): Generator<PagePosition> {
  for (const held of candidates(catalog, query)) {
    const place = { value: orderValue(outlineOf(held), order), id: held.id };
    if (isWanted(place)) yield place;
  }
}

/** Whether the entry may fit, as far as the catalog knows. */
function fitsOutline(entry: HeldEntry, query: EntryQuery): boolean {
  const { code, fingerprint, header: _header, text: _text, ...outline } = query;
  if (code !== undefined && code !== entry.failureCode && code !== entry.becauseCode) return false;
  if (fingerprint !== undefined && fingerprint !== entry.fingerprint) return false;
  return matchesQuery(outlineOf(entry), outline);
}

/**
 * The same for what is due before a time: from the tree, in order, and no more than one too many.
 * The caretaker asks this again and again, beside any number of messages that are kept for later.
 */
function* placesByDueTime(
  catalog: Catalog,
  query: EntryQuery,
  isWanted: (place: PagePosition) => boolean,
  max: number,
): Generator<PagePosition> {
  const { states = STATES, dueBefore = 0 } = query;
  const placeOf = (entry: HeldEntry): PagePosition | undefined => {
    const place = { value: entry.due, id: entry.id };
    return fitsOutline(entry, query) && isWanted(place) ? place : undefined;
  };
  // What is on its way to the disk is in no order; it is few.
  for (const held of catalog.hidden) {
    const place = placeOf(held);
    if (place !== undefined) yield place;
  }
  let count = 0;
  for (const held of catalog.tree.byDueTime(states)) {
    if (held.due >= dueBefore || count > max) return;
    const place = placeOf(held);
    if (place === undefined) continue;
    yield place;
    count += 1;
  }
}

/** The first `count` items in order, without sorting all of them. */
function smallest<Item>(
  items: Iterable<Item>,
  count: number,
  compare: (a: Item, b: Item) => number,
): { readonly first: readonly Item[]; readonly hasMore: boolean } {
  const kept: Item[] = [];
  let total = 0;
  let worst: Item | undefined;
  for (const item of items) {
    total += 1;
    if (worst !== undefined && compare(item, worst) > 0) continue;
    kept.push(item);
    if (kept.length < 2 * count) continue;
    kept.sort(compare);
    kept.length = count;
    worst = kept[count - 1];
  }
  kept.sort(compare);
  return { first: kept.slice(0, count), hasMore: total > count };
}

function comparePlaces(a: PagePosition, b: PagePosition): number {
  return a.value - b.value || (a.id === b.id ? 0 : a.id < b.id ? -1 : 1);
}

function damagesOf({ path, damages }: OpenedEntries): readonly Damage[] {
  const listed = damages.slice(0, PAGE_MAX);
  return listed.map((damage) => ({ ...damage, where: join(path, damage.where) }));
}

function withoutBytes({ envelope, status }: Entry): Entry {
  return { envelope, status };
}
