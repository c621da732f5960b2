/**
 * insert — new entries with their contents, a batch in one statement (or one transaction, where it
 * names an id or key twice or is tried again), each of them once.
 *
 * All envelopes and inline bodies of a batch go in one binary parameter and are cut apart by the
 * server. An id or dedupe key that is there already stores nothing and fails nothing. A receipt is
 * stored with the batch: it tells a retry that the first try, which got no answer, has happened.
 * insert-within.ts uses the same columns and SQL in the caller's transaction.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Duplicate } from '../../ports/entry-store.ts';
import { checkInline } from '../shared/sql-row.ts';
import { type QueryRequest, BEGIN_SQL, type Server } from './connection.ts';
import type { Names } from './options.ts';
import {
  Blob,
  type Cell,
  type CellType,
  type EnvelopeColumns,
  envelopeColumns,
  Rows,
  type StatusColumns,
  statusColumns,
  textArray,
  Values,
} from './row.ts';

/** An entry, ready to go. */
export interface NewRow {
  readonly id: string;
  readonly status: StatusColumns;
  readonly envelope: EnvelopeColumns;
  readonly body: Uint8Array | undefined;
}

/** The result of one insert. */
export type InsertResult = 'stored' | Duplicate;

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
  readonly receipt: number;
  /** It may be stored already, by a try that got no answer. */
  readonly isUnknown?: boolean;
}

/** How often an insert is tried against entries that come and go at the same time. */
export const INSERT_ROUNDS_MAX = 10;

/** Inserts over the tables of one store. */
export class Inserts {
  readonly #names: Names;
  readonly #node: string;
  readonly #isForced: boolean;

  /** `isForced`: the server would not wait for the disk at a commit unless a statement says so. */
  constructor(names: Names, node: string, isForced: boolean) {
    this.#names = names;
    this.#node = node;
    this.#isForced = isForced;
  }

  /** Stores a batch. */
  async insert(
    ask: QueryRequest,
    rows: readonly NewRow[],
    { receipt, isUnknown = false }: InsertOptions,
  ): Promise<InsertResult[]> {
    const results: Results = rows.map(() => undefined);
    const items = rows.map((row, index) => ({ row, index }));
    // An entry that shares an id or key with an earlier one waits for it: a second statement.
    if (isUnknown || firstOfEach(items).length < items.length) {
      return this.#inTransaction(ask, items, results, receipt);
    }
    const refused = await this.#store(ask, rows, receipt);
    await this.#settle(ask, items, refused, results);
    // The rest conflicted with entries that have been removed since: try them again.
    const left = items.filter(({ index }) => results[index] === undefined);
    if (left.length > 0) return this.#inTransaction(ask, items, results, receipt);
    return results as InsertResult[];
  }

  /** A batch that takes several statements, or has perhaps been stored before. */
  async #inTransaction(
    ask: QueryRequest,
    items: readonly Item[],
    results: Results,
    receipt: number,
  ): Promise<InsertResult[]> {
    await ask(BEGIN_SQL);
    if (this.#isForced) await ask("SELECT set_config('synchronous_commit', 'on', true)");
    const known = await takeReceipt(ask, this.#names, { node: this.#node, number: receipt });
    if (Array.isArray(known)) await this.#settle(ask, items, new Set(known), results);
    else if (known !== undefined) {
      for (const { index } of items) {
        const owner = known[index];
        results[index] = owner === undefined ? 'stored' : { duplicateOf: owner };
      }
    }
    const all = await this.#rounds(ask, items, results);
    await keepResults(ask, this.#names, { node: this.#node, number: receipt }, ownersOf(all));
    await ask('COMMIT');
    return all;
  }

  /** Stores what has no result yet. */
  async #rounds(
    ask: QueryRequest,
    items: readonly Item[],
    results: Results,
  ): Promise<InsertResult[]> {
    for (let round = 0; ; round += 1) {
      const left = items.filter(({ index }) => results[index] === undefined);
      if (left.length === 0) return results as InsertResult[];
      if (round === INSERT_ROUNDS_MAX + items.length) throw unsettledError(left[0]?.row.id);
      const now = firstOfEach(left);
      const sent = now.map(({ row }) => row);
      await this.#settle(ask, now, await this.#store(ask, sent, undefined), results);
    }
  }

  /** Notes the result of each; nothing for refused ones whose conflicting entry is gone. */
  async #settle(
    ask: QueryRequest,
    items: readonly Item[],
    refused: ReadonlySet<string>,
    results: Results,
  ): Promise<void> {
    const asked = items.filter(({ row }) => refused.has(row.id));
    const owners = asked.length === 0 ? undefined : await this.#owners(ask, asked);
    for (const { row, index } of items) {
      results[index] = refused.has(row.id) ? owners?.(row) : 'stored';
    }
  }

  /** The ids that were not stored. */
  async #store(
    ask: QueryRequest,
    rows: readonly NewRow[],
    receipt: number | undefined,
  ): Promise<Set<string>> {
    const values = new Values();
    const given = insertRowsOf(rows, values);
    const isForced = this.#isForced && receipt !== undefined;
    const noted = receipt === undefined ? undefined : this.#noted(values, receipt);
    const columns = columnsOf(rows).map(([name]) => name);
    const text = insertSql(this.#names, given, { columns, isForced, noted });
    const refused = await ask(text, values.list);
    return new Set(refused.map(([id]) => String(id)));
  }

  #noted({ bind }: Values, receipt: number): string {
    return receiptSql(this.#names, bind(this.#node, 'text'), bind(receipt, 'int8'));
  }

  async #owners(ask: QueryRequest, items: readonly Item[]) {
    const ids = textArray(items.map(({ row }) => row.id));
    const keys = textArray(items.flatMap(({ row }) => row.envelope.dedupeKey ?? []));
    const found = await ask(ownersSql(this.#names), [ids, keys]);
    const present = new Set(found.map(([id]) => id));
    const byKey = new Map(found.map(([id, key]) => [key, id as string]));
    return ({ id, envelope: { dedupeKey } }: NewRow): InsertResult | undefined => {
      if (present.has(id)) return { duplicateOf: id };
      const owner = dedupeKey === null ? undefined : byKey.get(dedupeKey);
      return owner === undefined ? undefined : { duplicateOf: owner };
    };
  }
}

/** What became of each so far. */
type Results = (InsertResult | undefined)[];

function ownersOf(results: readonly InsertResult[]): Record<number, string> {
  const owners: Record<number, string> = {};
  for (const [index, result] of results.entries()) {
    if (result !== 'stored') owners[index] = result.duplicateOf;
  }
  return owners;
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

/** The error after `INSERT_ROUNDS_MAX` tries. */
export function unsettledError(id: string | undefined): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot insert "${id}": entries with its id or dedupe key come and go too fast; try again`,
  );
}

/** The columns of `entries`, and what a new row has there; also in commit.ts, row.ts, schema.ts. */
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

/** Only where there is one: see order-keys.ts. */
export const ORDER_COLUMN: (typeof COLUMNS)[number] = [
  'order_key',
  'text',
  ({ envelope }) => envelope.orderKey,
];

export function isKeyed({ envelope: { orderKey } }: NewRow): boolean {
  return orderKey !== null;
}

export function columnsOf(rows: readonly NewRow[]): typeof COLUMNS {
  return rows.some(isKeyed) ? [...COLUMNS, ORDER_COLUMN] : COLUMNS;
}

/** All rows, and where in the blob their envelopes and bodies are. */
export function insertRowsOf(rows: readonly NewRow[], values: Values): Rows {
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
  for (const [name, type, read] of columnsOf(rows)) given.add(name, type, rows.map(read));
  return given
    .add('start', 'int4', starts)
    .add('text_bytes', 'int4', texts)
    .add('body_bytes', 'int4', bodies);
}

const BLOB_SQL = '$1::bytea';

/** Stores what is `given`, and lists in `refused` what was already there; parts of a WITH. */
export function storedSql(table: Names['table'], columns: readonly string[]): string {
  const names = columns.join(', ');
  return `stored AS (
  INSERT INTO ${table.entries} (${names}) SELECT ${names} FROM given
  ON CONFLICT DO NOTHING RETURNING id, seq
), kept AS (
  INSERT INTO ${table.contents} (seq, envelope, body)
  SELECT s.seq, convert_from(substr(${BLOB_SQL}, g.start, g.text_bytes), 'UTF8'),
    substr(${BLOB_SQL}, g.start + g.text_bytes, g.body_bytes)
  FROM stored s JOIN given g ON g.id = s.id
), refused AS MATERIALIZED (
  SELECT g.id FROM given g WHERE NOT EXISTS (SELECT FROM stored s WHERE s.id = g.id)
)`;
}

/** The statement that stores rows and gives the ids of those that it did not store. */
function insertSql(
  { table, turns }: Names,
  rows: Rows,
  options: {
    readonly columns: readonly string[];
    readonly isForced: boolean;
    readonly noted: string | undefined;
  },
): string {
  const { columns, isForced, noted } = options;
  const firsts = isForced ? ["set_config('synchronous_commit', 'on', true)"] : [];
  // Tells stores that take order keys as unused that there are some now: order-keys.ts.
  if (columns.includes(ORDER_COLUMN[0])) firsts.push(`nextval('${turns}')`);
  const guards = firsts.map((first) => `(SELECT ${first}) IS NOT NULL`);
  const guard = guards.length === 0 ? '' : ` WHERE ${guards.join(' AND ')}`;
  return `WITH given AS MATERIALIZED (${rows.sql}${guard}),
${storedSql(table, columns)}${noted === undefined ? '' : `, noted AS (${noted})`}
SELECT id FROM refused`;
}

/** n.b. Joined: the server would go through all entries with a list of values for each. */
export function ownersSql({ table }: Names): string {
  return `SELECT e.id, e.dedupe_key AS key FROM unnest($1::text::text[]) AS g(id)
  JOIN ${table.entries} e ON e.id = g.id
UNION ALL
SELECT e.id, e.dedupe_key FROM unnest($2::text::text[]) AS g(key)
  JOIN ${table.entries} e ON e.dedupe_key = g.key`;
}

// Receipts: what a batch of inserts leaves behind until its answer has arrived.
//
//   insert + receipt ─▶ commit ─▶ answered ─▶ receipt removed, with many others
//                          └─▶ answer lost ─▶ sent again: the receipt is there, nothing to do;
//                                             it stays for a day, for a try that arrives late
//
// The entries themselves are no proof: another node may have delivered and removed them before the
// batch is retried, and a message must not reappear. Receipts are rows of their
// own, never updated while others wait: one row changed by every insert would grow a chain of dead
// versions wherever a long transaction keeps them.
//
// Why: docs/decisions/0016-inserts-on-postgresql-leave-a-receipt.md

/** Identifies a receipt. */
interface Receipt {
  readonly node: string;
  readonly number: number;
}

/**
 * Receipts that were answered are removed this many at a time. Also in
 * docs/reference/stores/postgres.md and test/stores/postgres/receipts.test.ts.
 */
const REMOVE_AT = 256;
/**
 * All others, as of a process that died, are removed after this time, by the next process that
 * opens the store. Also in docs/reference/stores/postgres.md and decision 0016.
 */
const KEEP_FOR = '1 day';

/** The receipts of one opened store. */
export class Receipts {
  readonly #server: Server;
  readonly #node: string;
  readonly #sql: string;
  #last = 0;
  #answered: number[] = [];

  constructor(server: Server, names: Names, node: string) {
    this.#server = server;
    this.#node = node;
    this.#sql = `DELETE FROM ${names.table.receipts} WHERE node = $1 AND number = ANY($2::int8[])`;
  }

  /** The number for a batch. */
  next(): number {
    this.#last += 1;
    return this.#last;
  }

  /**
   * The answer has come, to the only try; resolves when the receipt is removed or left to a later
   * removal.
   */
  async answered(number: number): Promise<void> {
    this.#answered.push(number);
    if (this.#answered.length >= REMOVE_AT) await this.end();
  }

  /**
   * Removes those that were answered. Not those of batches with a try that was given up: a server
   * that stood still may carry it out after all, and must find the receipt.
   */
  async end(): Promise<void> {
    const numbers = this.#answered;
    if (numbers.length === 0) return;
    this.#answered = [];
    await this.#server.run('remove receipts', (ask) =>
      ask(this.#sql, [this.#node, `{${numbers.join(',')}}`]),
    );
  }
}

/** Removes what processes that died have left. */
export async function sweepReceipts(ask: QueryRequest, { table }: Names): Promise<void> {
  await ask(
    `DELETE FROM ${table.receipts} WHERE written_at < clock_timestamp() - interval '${KEEP_FOR}'`,
  );
}

/** Part of an insert statement, which has a `refused`: stores the receipt with it. */
function receiptSql({ table }: Names, node: string, number: string): string {
  return `INSERT INTO ${table.receipts} (node, number, refused)
  SELECT ${node} AS node, ${number} AS number, (SELECT json_agg(id)::text FROM refused)`;
}

/**
 * Takes the receipt for a transaction that is about to store its batch. Waits for a try that is
 * still on its way; afterwards that one cannot happen any more. Where the batch was stored already:
 * the ids that were refused, or, by position in the batch, the ids they duplicate.
 */
async function takeReceipt(
  ask: QueryRequest,
  { table }: Names,
  { node, number }: Receipt,
): Promise<readonly string[] | Readonly<Record<number, string>> | undefined> {
  const taken = await ask(
    `INSERT INTO ${table.receipts} (node, number) VALUES ($1, $2)
  ON CONFLICT DO NOTHING RETURNING number`,
    [node, number],
  );
  if (taken.length > 0) return undefined;
  const [[refused] = []] = await ask(
    `SELECT refused FROM ${table.receipts} WHERE node = $1 AND number = $2`,
    [node, number],
  );
  return typeof refused === 'string' ? (JSON.parse(refused) as string[]) : [];
}

/** Records the results of a batch, by position. */
async function keepResults(
  ask: QueryRequest,
  { table }: Names,
  { node, number }: Receipt,
  owners: Readonly<Record<number, string>>,
): Promise<void> {
  await ask(`UPDATE ${table.receipts} SET refused = $3 WHERE node = $1 AND number = $2`, [
    node,
    number,
    JSON.stringify(owners),
  ]);
}
