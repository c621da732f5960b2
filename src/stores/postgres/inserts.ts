/**
 * inserts — new entries with their contents, a batch in one statement, each of them once.
 *
 * All envelopes and inline bodies of a batch go in one binary parameter and are cut apart by the
 * server. An id or dedupe key that is there already stores nothing and fails nothing.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Duplicate } from '../../ports/entry-store.ts';
import { Blob, numberArray, textArray } from './arrays.ts';
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

/** How often an insert is tried against entries that come and go at the same time. */
const ROUNDS_MAX = 10;

/** Inserts over the tables of one store. */
export class Inserts {
  readonly #sql: ReturnType<typeof sqlOf>;

  /** `isForced`: the server would commit without waiting for the disk, so each statement says so. */
  constructor(names: Names, isForced: boolean) {
    this.#sql = sqlOf(names, isForced);
  }

  /**
   * Stores a batch. `isUnknown`: it may be there already by a try that was not answered.
   * `isWithin`: in a transaction of the caller's, which decides itself how it commits.
   */
  async insert(
    ask: Ask,
    rows: readonly NewRow[],
    { isUnknown = false, isWithin = false } = {},
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
    const { insert, forced } = this.#sql;
    const refused = await ask(isWithin ? insert : forced, valuesOf(rows));
    return new Set(refused.map(([id]) => String(id)));
  }

  async #owners(ask: Ask, rows: readonly NewRow[], refused: ReadonlySet<string>) {
    const asked = rows.filter(({ id }) => refused.has(id));
    const found = await ask(this.#sql.owners, [
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

const COLUMNS = [
  ['id', 'text'],
  ['slot', 'int2'],
  ['due_at', 'int8'],
  ['revision', 'int4'],
  ['attempts', 'int4'],
  ['notices', 'int4'],
  ['lost', 'int4'],
  ['postponed', 'int4'],
  ['replays', 'int4'],
  ['holder', 'text'],
  ['claimed_from', 'int2'],
  ['updated_at', 'int8'],
  ['fingerprint', 'text'],
  ['memory', 'text'],
  ['topic', 'text'],
  ['destination', 'text'],
  ['priority', 'int2'],
  ['enqueued_at', 'int8'],
  ['dedupe_key', 'text'],
] as const;

function valuesOf(rows: readonly NewRow[]): unknown[] {
  const blob = new Blob();
  const starts: number[] = [];
  const texts: number[] = [];
  const bodies: (number | null)[] = [];
  for (const { envelope, body } of rows) {
    // n.b. substr counts from 1.
    starts.push(blob.bytes + 1);
    texts.push(blob.add(envelope.text));
    bodies.push(body === undefined ? null : blob.add(body));
  }
  const numbers = (of: (row: NewRow) => number | null): string => numberArray(rows.map(of));
  const words = (of: (row: NewRow) => string | null): string => textArray(rows.map(of));
  return [
    words(({ id }) => id),
    numbers(({ status }) => status.slot),
    numbers(({ status }) => status.dueAt),
    numbers(({ status }) => status.revision),
    numbers(({ status }) => status.attempts),
    numbers(({ status }) => status.notices),
    numbers(({ status }) => status.lost),
    numbers(({ status }) => status.postponed),
    numbers(({ status }) => status.replays),
    words(({ status }) => status.holder),
    numbers(({ status }) => status.claimedFrom),
    numbers(({ status }) => status.updatedAt),
    words(({ status }) => status.fingerprint),
    words(({ status }) => status.memory),
    words(({ envelope }) => envelope.topic),
    words(({ envelope }) => envelope.destination),
    numbers(({ envelope }) => envelope.priority),
    numbers(({ envelope }) => envelope.enqueuedAt),
    words(({ envelope }) => envelope.dedupeKey),
    numberArray(starts),
    numberArray(texts),
    numberArray(bodies),
    blob.toBuffer(),
  ];
}

function sqlOf({ table }: Names, isForced: boolean) {
  const names = COLUMNS.map(([name]) => name).join(', ');
  const arrays = COLUMNS.map(([, type], at) => `$${at + 1}::${type}[]`).join(', ');
  const at = COLUMNS.length;
  const blob = `$${at + 4}::bytea`;
  const insert = (guard: string) => `WITH given AS MATERIALIZED (
  SELECT * FROM unnest(${arrays}, $${at + 1}::int4[], $${at + 2}::int4[], $${at + 3}::int4[])
    AS g(${names}, start, text_bytes, body_bytes)${guard}
), stored AS (
  INSERT INTO ${table.entries} (${names}) SELECT ${names} FROM given
  ON CONFLICT DO NOTHING RETURNING id, seq
), kept AS (
  INSERT INTO ${table.contents} (seq, envelope, body)
  SELECT s.seq, convert_from(substr(${blob}, g.start, g.text_bytes), 'UTF8'),
    substr(${blob}, g.start + g.text_bytes, g.body_bytes)
  FROM stored s JOIN given g ON g.id = s.id
)
SELECT g.id FROM given g WHERE NOT EXISTS (SELECT FROM stored s WHERE s.id = g.id)`;
  return {
    insert: insert(''),
    forced: insert(
      isForced ? " WHERE set_config('synchronous_commit', 'on', true) IS NOT NULL" : '',
    ),
    owners: `SELECT e.id, e.dedupe_key, k.envelope FROM ${table.entries} e
  LEFT JOIN ${table.contents} k ON k.seq = e.seq
  WHERE e.id = ANY($1::text[]) OR e.dedupe_key = ANY($2::text[])`,
  };
}
