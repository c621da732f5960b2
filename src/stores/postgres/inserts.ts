/**
 * inserts — new entries with their contents, a batch in one statement, each of them once.
 *
 * All envelopes and inline bodies of a batch go in one binary parameter and are cut apart by the
 * server. An id or dedupe key that is there already stores nothing and fails nothing.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Duplicate } from '../../ports/entry-store.ts';
import { Blob, type Cell, type CellType, Rows, textArray, Values } from './arrays.ts';
import type { Names } from './names.ts';
import {
  checkInline,
  type EnvelopeColumns,
  envelopeColumns,
  type StatusColumns,
  statusColumns,
} from './rows.ts';
import type { Ask } from './server.ts';

/** An entry, ready to go. */
export interface NewRow {
  readonly id: string;
  readonly status: StatusColumns;
  readonly envelope: EnvelopeColumns;
  readonly body: Uint8Array | undefined;
}

/** What became of one. */
export type Inserted = 'stored' | Duplicate;

export function newRow({ envelope, status, inlineBody }: Entry): NewRow {
  const { id } = envelope;
  return {
    id,
    status: statusColumns(status, id),
    envelope: envelopeColumns(envelope),
    body: checkInline(inlineBody, id),
  };
}

/** How a batch is stored. */
interface InsertOptions {
  /** It may be there already, by a try that was not answered. */
  readonly isUnknown?: boolean;
  /** In a transaction of the caller's, which decides itself how it commits. */
  readonly isWithin?: boolean;
}

/** How often an insert is tried against entries that come and go at the same time. */
const ROUNDS_MAX = 10;

/** Inserts over the tables of one store. */
export class Inserts {
  readonly #names: Names;
  readonly #isForced: boolean;

  /** `isForced`: the server would not wait for the disk at a commit unless a statement says so. */
  constructor(names: Names, isForced: boolean) {
    this.#names = names;
    this.#isForced = isForced;
  }

  /** Stores a batch. */
  async insert(
    ask: Ask,
    rows: readonly NewRow[],
    { isUnknown = false, isWithin = false }: InsertOptions = {},
  ): Promise<Inserted[]> {
    const results: Inserted[] = rows.map(() => 'stored');
    let left = rows.map((row, index) => ({ row, index }));
    // Nearly always one round: what shares an id or a key with an earlier one has to wait for it.
    const needsMore = firstOfEach(left).length < left.length && !isWithin;
    if (needsMore) await ask('BEGIN');
    for (let round = 0; left.length > 0; round += 1) {
      if (round === ROUNDS_MAX + rows.length) throw unsettled(left[0]?.row.id);
      const now = firstOfEach(left);
      const sent = now.map(({ row }) => row);
      const refused = await this.#store(ask, sent, isWithin);
      const owners = refused.size === 0 ? undefined : await this.#owners(ask, sent, refused);
      const settled = new Set(now);
      for (const item of now) {
        if (!refused.has(item.row.id)) continue;
        const owner = owners?.(item.row, isUnknown);
        // Gone between the two statements: then there is room for it after all.
        if (owner === undefined) settled.delete(item);
        else results[item.index] = owner;
      }
      left = left.filter((item) => !settled.has(item));
    }
    if (needsMore) await ask('COMMIT');
    return results;
  }

  /** The ids that were not stored. */
  async #store(ask: Ask, rows: readonly NewRow[], isWithin: boolean): Promise<Set<string>> {
    const values = new Values();
    const sql = insertSql(this.#names, rowsOf(rows, values), this.#isForced && !isWithin);
    const refused = await ask(sql, values.list);
    return new Set(refused.map(([id]) => String(id)));
  }

  async #owners(ask: Ask, rows: readonly NewRow[], refused: ReadonlySet<string>) {
    const asked = rows.filter(({ id }) => refused.has(id));
    const found = await ask(ownersSql(this.#names), [
      textArray(asked.map(({ id }) => id)),
      textArray(asked.flatMap(({ envelope }) => envelope.dedupeKey ?? [])),
    ]);
    const byId = new Map(found.map(([id, , text]) => [id, text]));
    const byKey = new Map(found.map(([id, key]) => [key, id as string]));
    return ({ id, envelope }: NewRow, isUnknown: boolean): Inserted | undefined => {
      // The very same envelope, to its millisecond: our own try, whose answer was lost.
      if (isUnknown && byId.get(id) === envelope.text) return 'stored';
      if (byId.has(id)) return { duplicateOf: id };
      const owner = envelope.dedupeKey === null ? undefined : byKey.get(envelope.dedupeKey);
      return owner === undefined ? undefined : { duplicateOf: owner };
    };
  }
}

interface Item {
  readonly row: NewRow;
  readonly index: number;
}

/** Those that share neither id nor dedupe key with one before them. */
function firstOfEach(items: readonly Item[]): Item[] {
  const ids = new Set<string>();
  const keys = new Set<string>();
  return items.filter(({ row: { id, envelope } }) => {
    const { dedupeKey } = envelope;
    const isFirst = !ids.has(id) && (dedupeKey === null || !keys.has(dedupeKey));
    ids.add(id);
    if (dedupeKey !== null) keys.add(dedupeKey);
    return isFirst;
  });
}

function unsettled(id: string | undefined): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot insert "${id}": entries with its id or dedupe key come and go too fast; try again`,
  );
}

/** The columns of `entries`, and what a new row has there. */
const COLUMNS: readonly (readonly [string, CellType, (row: NewRow) => Cell])[] = [
  ['id', 'text', ({ id }) => id],
  ['slot', 'int2', ({ status }) => status.slot],
  ['due_at', 'int8', ({ status }) => status.dueAt],
  ['revision', 'int4', ({ status }) => status.revision],
  ['attempts', 'int4', ({ status }) => status.attempts],
  ['notices', 'int4', ({ status }) => status.notices],
  ['lost', 'int4', ({ status }) => status.lost],
  ['postponed', 'int4', ({ status }) => status.postponed],
  ['replays', 'int4', ({ status }) => status.replays],
  ['holder', 'text', ({ status }) => status.holder],
  ['claimed_from', 'int2', ({ status }) => status.claimedFrom],
  ['updated_at', 'int8', ({ status }) => status.updatedAt],
  ['fingerprint', 'text', ({ status }) => status.fingerprint],
  ['memory', 'text', ({ status }) => status.memory],
  ['topic', 'text', ({ envelope }) => envelope.topic],
  ['destination', 'text', ({ envelope }) => envelope.destination],
  ['priority', 'int2', ({ envelope }) => envelope.priority],
  ['enqueued_at', 'int8', ({ envelope }) => envelope.enqueuedAt],
  ['dedupe_key', 'text', ({ envelope }) => envelope.dedupeKey],
];

const COLUMNS_SQL: string = COLUMNS.map(([name]) => name).join(', ');

/** All rows, and where in the blob their envelopes and bodies are. */
function rowsOf(rows: readonly NewRow[], values: Values): Rows {
  const starts: number[] = [];
  const texts: number[] = [];
  const bodies: (number | null)[] = [];
  const blob = new Blob();
  for (const { envelope, body } of rows) {
    // n.b. substr counts from 1.
    starts.push(blob.bytes + 1);
    texts.push(blob.add(envelope.text));
    bodies.push(body === undefined ? null : blob.add(body));
  }
  // The first parameter; BLOB_SQL names it.
  values.bind(blob.toBuffer(), 'bytea');
  const given = new Rows(values);
  for (const [name, type, read] of COLUMNS) given.add(name, type, rows.map(read));
  return given
    .add('start', 'int4', starts)
    .add('text_bytes', 'int4', texts)
    .add('body_bytes', 'int4', bodies);
}

const BLOB_SQL = '$1::bytea';

/** The statement that stores rows and gives the ids of those that it did not store. */
function insertSql({ table }: Names, rows: Rows, isForced: boolean): string {
  const guard = isForced ? " WHERE set_config('synchronous_commit', 'on', true) IS NOT NULL" : '';
  return `WITH given AS MATERIALIZED (${rows.sql}${guard}), stored AS (
  INSERT INTO ${table.entries} (${COLUMNS_SQL}) SELECT ${COLUMNS_SQL} FROM given
  ON CONFLICT DO NOTHING RETURNING id, seq
), kept AS (
  INSERT INTO ${table.contents} (seq, envelope, body)
  SELECT s.seq, convert_from(substr(${BLOB_SQL}, g.start, g.text_bytes), 'UTF8'),
    substr(${BLOB_SQL}, g.start + g.text_bytes, g.body_bytes)
  FROM stored s JOIN given g ON g.id = s.id
)
SELECT g.id FROM given g WHERE NOT EXISTS (SELECT FROM stored s WHERE s.id = g.id)`;
}

function ownersSql({ table }: Names): string {
  return `SELECT e.id, e.dedupe_key, k.envelope FROM ${table.entries} e
  LEFT JOIN ${table.contents} k ON k.seq = e.seq
  WHERE e.id = ANY($1::text[]) OR e.dedupe_key = ANY($2::text[])`;
}
