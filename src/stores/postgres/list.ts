/**
 * list — single entries, and pages of them in any order, each page from the place where the one
 * before ended.
 *
 * Texts, headers and codes have no column: to filter by them entries are read one after the other,
 * at most READ_MAX per page; such a page may be short and still have a next. entry-store.ts moves
 * to quarantine what is `broken`.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { CorruptEntry, ListOrder, ListPage, ListQuery } from '../../ports/entry-store.ts';
import { type PageRequest, type PagePosition, readPage, writePlace } from '../shared/page.ts';
import { matchesQuery } from '../shared/query.ts';
import { ARCHIVED_KEY, type BrokenRow, decodeAll } from '../shared/sql-row.ts';
import { CONTENTS_SQL, decodeRow, type EntryRow, STATUS_SQL, Values } from './row.ts';
import { allOf, conditionsOf } from './conditions.ts';
import type { Names } from './options.ts';
import type { QueryRequest } from './connection.ts';

/** Rows that one page may read as a whole, to look into headers, texts and codes. */
const READ_MAX = 5_000;
const READ_CHUNK = 500;
/** Rows behind the first page that are read too, since only that page reports damage. */
const LOOK_AHEAD = 100;
const CORRUPT_MAX = 500;

const ORDER_SQL: Readonly<Record<ListOrder, string>> = {
  id: '0',
  dueAt: `coalesce(e.due_at, ${Number.MAX_SAFE_INTEGER})`,
  updatedAt: 'e.updated_at',
  priority: 'e.priority',
  attempts: 'e.attempts',
};

/** A page, and what was met that cannot be read. */
interface ListedRow {
  readonly page: ListPage;
  readonly broken: readonly BrokenRow[];
}

interface Read {
  readonly entries: Entry[];
  readonly broken: BrokenRow[];
  /** The last place of the page, when there may be more behind it. */
  readonly last?: PagePosition;
}

/** Lists over the tables of one store. */
export class Lists {
  readonly #names: Names;

  constructor(names: Names) {
    this.#names = names;
  }

  async list(ask: QueryRequest, query: ListQuery): Promise<ListedRow> {
    const page = readPage(query);
    const isFirst = query.after === undefined;
    const needsReading = [query.header, query.code, query.text].some((word) => word !== undefined);
    const read = needsReading
      ? await this.#search(ask, query, page)
      : await this.#read(ask, query, page, isFirst ? LOOK_AHEAD : 1);
    const corrupt = isFirst ? await this.#corrupt(ask, read.broken) : [];
    const next = read.last === undefined ? {} : { next: writePlace(page, read.last) };
    return { page: { entries: read.entries, corrupt, ...next }, broken: read.broken };
  }

  /** The row; or why there is none to hand out. */
  async get(ask: QueryRequest, id: string): Promise<EntryRow | CorruptEntry | undefined> {
    const { entries, contents, quarantine } = this.#names.table;
    // n.b. PostgreSQL takes no zero character, not even in a question.
    if (id.includes('\0')) return undefined;
    const [row] = await ask(
      `SELECT ${STATUS_SQL}, ${CONTENTS_SQL} FROM ${entries} e
LEFT JOIN ${contents} k ON k.seq = e.seq WHERE e.id = $1`,
      [id],
    );
    if (row !== undefined) return row as unknown as EntryRow;
    const [broken] = await ask(
      `SELECT seq, reason FROM ${quarantine} WHERE id = $1 ORDER BY seq DESC LIMIT 1`,
      [id],
    );
    if (broken === undefined) return undefined;
    return { id, where: `quarantine row ${String(broken[0])}`, reason: String(broken[1]) };
  }

  async #read(
    ask: QueryRequest,
    query: ListQuery,
    page: PageRequest,
    ahead: number,
  ): Promise<Read> {
    const { limit } = page;
    const found = await this.#rows(ask, query, page, limit + ahead);
    const { entries } = decodeAll(found.slice(0, limit), decodeRow);
    const { broken } = decodeAll(found, decodeRow);
    const last = found.length > limit ? placeOf(found[limit - 1]) : undefined;
    return { entries, broken, ...(last === undefined ? {} : { last }) };
  }

  /** Reads entries until the page is full; what cannot be read is reported, never passed over. */
  async #search(ask: QueryRequest, query: ListQuery, page: PageRequest): Promise<Read> {
    const entries: Entry[] = [];
    const broken: BrokenRow[] = [];
    let from = page;
    for (let read = 0; read < READ_MAX; read += READ_CHUNK) {
      const rows = await this.#rows(ask, query, from, READ_CHUNK);
      for (const row of rows) {
        const one = decodeAll([row], decodeRow);
        broken.push(...one.broken);
        entries.push(...one.entries.filter((entry) => matchesQuery(entry, query)));
        if (entries.length < page.limit) continue;
        const isEnd = row === rows.at(-1) && rows.length < READ_CHUNK;
        return isEnd ? { entries, broken } : { entries, broken, last: placeOf(row) };
      }
      const end = rows.at(-1);
      if (end === undefined || rows.length < READ_CHUNK) return { entries, broken };
      from = { ...page, after: placeOf(end) };
    }
    return { entries, broken, ...(from.after === undefined ? {} : { last: from.after }) };
  }

  /** Rows from a place on, each with its value of the order at the end. */
  async #rows(
    ask: QueryRequest,
    query: ListQuery,
    page: PageRequest,
    max: number,
  ): Promise<readonly EntryRow[]> {
    const values = new Values();
    const { sql, slots } = conditionsOf(query, values.bind);
    if (slots.length === 0 || query.ids?.length === 0) return [];
    const { entries, contents } = this.#names.table;
    const isEnded = slots.every((slot) => slot >= ARCHIVED_KEY);
    // Without `coalesce` where nothing can be null, so that an index gives the order.
    const hasDue = query.dueBefore !== undefined || query.dueAfter !== undefined;
    const isPlain = page.order === 'dueAt' && hasDue && isEnded;
    const value = isPlain ? 'e.due_at' : ORDER_SQL[page.order];
    const way = page.descending ? 'DESC' : 'ASC';
    const conditions = [...sql];
    if (page.after !== undefined) {
      const { after } = page;
      const id = values.bind(after.id, 'text');
      const sign = page.descending ? '<' : '>';
      conditions.push(
        page.order === 'id'
          ? `e.id ${sign} ${id}`
          : `(${value}, e.id) ${sign} (${values.bind(after.value, 'int8')}, ${id})`,
      );
    }
    const order = page.order === 'id' ? `e.id ${way}` : `${value} ${way}, e.id ${way}`;
    const rows = await ask(
      `SELECT ${STATUS_SQL}, k.envelope, NULL::text, e.value
FROM (
  SELECT e.*, ${value} AS value FROM ${entries} e WHERE ${allOf(conditions)}
  ORDER BY ${order} LIMIT ${max}
) e LEFT JOIN ${contents} k ON k.seq = e.seq
ORDER BY e.value ${way}, e.id ${way}`,
      values.list,
    );
    return rows as unknown as EntryRow[];
  }

  async #corrupt(ask: QueryRequest, fresh: readonly BrokenRow[]): Promise<CorruptEntry[]> {
    const found = await ask(
      `SELECT seq, id, reason FROM ${this.#names.table.quarantine}
ORDER BY seq DESC LIMIT ${CORRUPT_MAX}`,
    );
    return [
      ...fresh.map(({ seq, id, reason }) => ({ id, where: `entries row ${seq}`, reason })),
      ...found.map(([seq, id, reason]) => ({
        ...(typeof id === 'string' ? { id } : {}),
        where: `quarantine row ${String(seq)}`,
        reason: String(reason),
      })),
    ];
  }
}

/** The entry of a row, or the error that says why there is none to hand out. */
export function entryOf(row: EntryRow | CorruptEntry, id: string): Entry {
  if (!('where' in row)) return decodeRow(row);
  throw corruptEntry(id, row.reason);
}

export function corruptEntry(id: string, reason: string): RespoolError {
  return new RespoolError(
    'store.corrupt',
    `cannot read entry "${id}": ${reason}; it is in quarantine, list() names it under "corrupt"`,
  );
}

/** Of a row of `#rows`, whose last column is the value of the order. */
function placeOf(row: EntryRow | undefined): PagePosition {
  return { value: Number(row?.[16] ?? 0), id: row?.[1] ?? '' };
}
