/**
 * list — pages of entries by key, in any order, with bounded work per page.
 *
 * page-scan.ts finds where the entries of a page stand; this file reads them. Texts and headers
 * have no column: to filter by them entries are read one after the other, at most READ_MAX per
 * page.
 */

import { textOf } from '../../core/errors.ts';
import type { CorruptEntry, ListQuery } from '../../ports/entry-store.ts';
import type { SqliteDatabase } from '../shared/client.ts';
import { readPage, writePlace } from '../shared/page.ts';
import { matchesQuery } from '../shared/query.ts';
import { type BrokenRow } from '../shared/sql-row.ts';
import type { Connection } from './connection.ts';
import type { Flows } from './flows.ts';
import { scanPage, type PagePlace } from './page-scan.ts';
import type { EntryReply, ListReply } from './protocol.ts';
import { decodeRow, type EntryRow, STATUS_SQL } from './row.ts';
import { ACTIVE_SQL } from './schema.ts';

/** Rows that one page may read as a whole, to look into headers and texts. */
const READ_MAX = 5_000;
const READ_CHUNK = 200;
/** Rows that may be read between two batches of writes. */
const READ_SOON_MAX = 500;
/** Rows behind the first page that are read too, since only that page tells of damage. */
const LOOK_AHEAD = 100;
const CORRUPT_MAX = 500;

interface Page {
  readonly rows: readonly EntryRow[];
  readonly broken: readonly BrokenRow[];
  /** The last place of the page, when there are more behind it. */
  readonly last: PagePlace | undefined;
}

/** Lists over one connection. */
export class Lists {
  readonly #database: SqliteDatabase;
  readonly #flows: Flows;
  readonly #sql: ReturnType<typeof prepare>;

  constructor({ database }: Connection, flows: Flows) {
    this.#database = database;
    this.#flows = flows;
    this.#sql = prepare(database);
  }

  /** Null when it would take long and must not. */
  list(query: ListQuery, mayBeLong: boolean): ListReply | null {
    const page = readPage(query);
    const isFirst = query.after === undefined;
    const needsReading = [query.header, query.code, query.text].some((word) => word !== undefined);
    const max = needsReading ? READ_MAX : query.limit + (isFirst ? LOOK_AHEAD : 1);
    const found = scanPage(this.#database, this.#flows, { query, page, max, mayBeLong });
    const isLong = found === null || (needsReading && found.places.length > READ_SOON_MAX);
    if (found === null || (isLong && !mayBeLong)) return null;
    const { rows, broken, last } = needsReading
      ? this.#search(found.places, query)
      : this.#read(found.places, query.limit);
    const isCut = needsReading && found.places.length === max;
    const end = last ?? (isCut ? found.places.at(-1) : found.stoppedAt);
    return {
      rows,
      broken,
      corrupt: isFirst ? (this.#sql.quarantined.all(CORRUPT_MAX) as BrokenRow[]).map(corrupt) : [],
      ...(end === undefined ? {} : { next: writePlace(page, { value: end[1], id: end[2] }) }),
    };
  }

  /** The row, or what lies in quarantine under this id. */
  get(id: string): EntryReply | undefined {
    const row = this.#sql.ofId.get(id) as EntryRow | undefined;
    if (row !== undefined) return row;
    const broken = this.#sql.quarantinedId.get(id) as BrokenRow | undefined;
    return broken && corrupt(broken);
  }

  /** Whether an instance still has something active. */
  holdsAny(instance: string): boolean {
    return this.#sql.held.get(instance.length, instance) !== undefined;
  }

  #read(places: readonly PagePlace[], limit: number): Page {
    const rows = this.#rowsOf(places);
    return {
      rows: rows.slice(0, limit),
      broken: rows.slice(limit).flatMap(damageOf),
      last: places.length > limit ? places[limit - 1] : undefined,
    };
  }

  /** Reads entries until the page is full; what cannot be read is reported, never passed over. */
  #search(places: readonly PagePlace[], query: ListQuery): Page {
    const rows: EntryRow[] = [];
    const broken: BrokenRow[] = [];
    for (let from = 0; from < places.length; from += READ_CHUNK) {
      const chunk = places.slice(from, from + READ_CHUNK);
      for (const row of this.#rowsOf(chunk)) {
        const damage = damageOf(row);
        broken.push(...damage);
        if (damage.length === 0 && matchesQuery(decodeRow(row), query)) rows.push(row);
        if (rows.length < query.limit) continue;
        const last = chunk.find(([seq]) => seq === row[0]);
        const isEnd = last === places.at(-1) && places.length < READ_MAX;
        return { rows, broken, last: isEnd ? undefined : last };
      }
    }
    return { rows, broken, last: undefined };
  }

  #rowsOf(places: readonly PagePlace[]): EntryRow[] {
    const seqs = JSON.stringify(places.map(([seq]) => seq));
    const rows = this.#sql.ofSeqs.all(seqs) as EntryRow[];
    const bySeq = new Map(rows.map((row) => [row[0], row]));
    return places.map(([seq]) => bySeq.get(seq)).filter((row) => row !== undefined);
  }
}

function prepare(database: SqliteDatabase) {
  const row = `e.seq, e.id, ${STATUS_SQL}, c.envelope`;
  return {
    ofId: database
      .prepare(
        `SELECT ${row}, c.body FROM {entries} e LEFT JOIN {contents} c ON c.seq = e.seq
        WHERE e.id = ?`,
      )
      .raw(),
    ofSeqs: database
      .prepare(
        `SELECT ${row}, NULL FROM json_each(?) s JOIN {entries} e ON e.seq = s.value
        LEFT JOIN {contents} c ON c.seq = e.seq`,
      )
      .raw(),
    quarantined: database.prepare(
      'SELECT seq, id, reason FROM {quarantine} ORDER BY seq DESC LIMIT ?',
    ),
    quarantinedId: database.prepare('SELECT seq, id, reason FROM {quarantine} WHERE id = ?'),
    held: database.prepare(
      `SELECT 1 FROM {entries} INDEXED BY {entries_due}
      WHERE ${ACTIVE_SQL} AND substr(holder, 1, ?) = ? LIMIT 1`,
    ),
  };
}

function damageOf(row: EntryRow): BrokenRow[] {
  try {
    decodeRow(row);
    return [];
  } catch (error) {
    return [{ seq: row[0], id: row[1], reason: textOf(error) }];
  }
}

function corrupt({ seq, id, reason }: BrokenRow): CorruptEntry {
  return { id, where: `quarantine row ${seq}`, reason };
}
