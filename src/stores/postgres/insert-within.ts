/**
 * insert-within — new entries in a transaction of the caller's, and in no other: see tx-check.ts.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { SqlTx } from '../../ports/sql.ts';
import { textArray, Values } from './arrays.ts';
import {
  columnsOf,
  type InsertResult,
  type NewRow,
  newRow,
  ORDER_COLUMN,
  ownersSql,
  rowsOf,
  storedSql,
} from './insert.ts';
import type { Names } from './names.ts';
import {
  type TxGuard,
  txGuardSql,
  TxCheck,
  txCheckSql,
  TX_CHECK_SQL,
  type TxUse,
} from './tx-check.ts';

/** What became of entries, and in which transaction. */
export interface InsertedWithin {
  readonly results: readonly InsertResult[];
  readonly xid: string | undefined;
}

/** The most entries, and the most bytes of their bodies, in one statement. */
const BATCH_MAX = 1_000;
const BATCH_MAX_BYTES: number = 8 * 2 ** 20;
/** More than this is not sent before it is known that there is a transaction. */
const UNASKED_MAX = 20;
const UNASKED_MAX_BYTES: number = 64 * 2 ** 10;
/** How often an insert is tried against entries that come and go at the same time. */
const ROUNDS_MAX = 10;

/** Stores entries in their order, in as many statements as they need. */
export async function insertWithin(
  names: Names,
  tx: SqlTx,
  entries: readonly Entry[],
  within: TxUse,
): Promise<InsertedWithin> {
  // Everything that could be wrong with them is found here, before the transaction is touched.
  const rows = entries.map(newRow);
  const batches = batchesOf(rows);
  const results: InsertResult[] = [];
  const proof = new TxCheck(within);
  const isLarge = !proof.isSure && !isSmall(rows);
  if (batches.length > 1 || isLarge || proof.isDoubtful) await proof.ask(tx);
  for (const batch of batches) results.push(...(await insertBatch(names, tx, batch, proof)));
  return { results, xid: proof.xid };
}

async function insertBatch(
  names: Names,
  tx: SqlTx,
  rows: readonly NewRow[],
  proof: TxCheck,
): Promise<InsertResult[]> {
  const results = new Map<NewRow, InsertResult>();
  for (let round = 0; ; round += 1) {
    const left = rows.filter((row) => !results.has(row));
    if (left.length === 0) return rows.map((row) => results.get(row) ?? 'stored');
    if (round > ROUNDS_MAX) throw unsettled(left[0]?.id);
    const { guard } = proof;
    const answer = await store(names, tx, left, guard);
    if (!proof.takes(guard, answer[0])) continue;
    const refused = answer.flatMap(({ id }) => (typeof id === 'string' ? id : []));
    await settle(names, tx, left, new Set(refused), results);
  }
}

async function store(
  names: Names,
  tx: SqlTx,
  rows: readonly NewRow[],
  guard: TxGuard,
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const values = new Values({ isForeign: true });
  const given = rowsOf(rows, values);
  const columns = columnsOf(rows).map(([name]) => name);
  const isOwn = txGuardSql(guard, values.bind);
  const text = insertSql(names, { columns, rows: given.sql, isOwn, guard });
  return (await tx.query(text, values.list)).rows;
}

/**
 * The statement that stores rows and tells its transaction, with the ids of those it did not store.
 * n.b. What stores reads `given`, which reads `proof`; CASE keeps the order of the rest.
 */
function insertSql(
  { table, turns }: Names,
  given: {
    readonly columns: readonly string[];
    readonly rows: string;
    readonly isOwn: string;
    readonly guard: TxGuard;
  },
): string {
  const { columns, rows, isOwn, guard } = given;
  const isKeyed = columns.includes(ORDER_COLUMN[0]);
  const told = `SELECT ${TX_CHECK_SQL}, r.id FROM proof p LEFT JOIN refused r ON true`;
  const turn = `(SELECT nextval('${turns}')) IS NOT NULL`;
  const condition = isKeyed ? `CASE WHEN ${isOwn} THEN ${turn} ELSE false END` : isOwn;
  return `WITH ${txCheckSql(guard)}given AS MATERIALIZED (${rows} WHERE ${condition}),
${storedSql(table, columns)}
${guard === 'sure' ? 'SELECT id FROM refused' : told}`;
}

/** Notes what became of each; nothing for those that were refused and whose owner went. */
async function settle(
  names: Names,
  tx: SqlTx,
  rows: readonly NewRow[],
  refused: ReadonlySet<string>,
  results: Map<NewRow, InsertResult>,
): Promise<void> {
  const byKey = new Map<string, string>();
  for (const row of rows) {
    if (refused.has(row.id)) continue;
    results.set(row, 'stored');
    if (row.envelope.dedupeKey !== null) byKey.set(row.envelope.dedupeKey, row.id);
  }
  if (refused.size === 0) return;
  const asked = rows.filter(({ id }) => refused.has(id));
  const ids = new Set<string>();
  const keys = asked.flatMap(({ envelope }) => envelope.dedupeKey ?? []);
  const values = [textArray(asked.map(({ id }) => id)), textArray(keys)];
  for (const { id, key } of (await tx.query(ownersSql(names), values)).rows) {
    ids.add(String(id));
    if (typeof key === 'string') byKey.set(key, String(id));
  }
  for (const row of asked) {
    const owner = ids.has(row.id) ? row.id : byKey.get(row.envelope.dedupeKey ?? '');
    if (owner !== undefined) results.set(row, { duplicateOf: owner });
  }
}

/** No id twice in one: what a statement answers is told apart by it. */
function batchesOf(rows: readonly NewRow[]): NewRow[][] {
  const batches: NewRow[][] = [];
  let batch: NewRow[] = [];
  let ids = new Set<string>();
  let bytes = 0;
  for (const row of rows) {
    const size = sizeOf(row);
    const isFull = batch.length === BATCH_MAX || bytes + size > BATCH_MAX_BYTES || ids.has(row.id);
    if (batch.length === 0 || isFull) {
      batch = [];
      batches.push(batch);
      ids = new Set();
      bytes = 0;
    }
    batch.push(row);
    ids.add(row.id);
    bytes += size;
  }
  return batches;
}

function isSmall(rows: readonly NewRow[]): boolean {
  if (rows.length > UNASKED_MAX) return false;
  return rows.reduce((bytes, row) => bytes + sizeOf(row), 0) <= UNASKED_MAX_BYTES;
}

function sizeOf({ body, envelope }: NewRow): number {
  return (body?.byteLength ?? 0) + envelope.text.length;
}

function unsettled(id: string | undefined): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot insert "${id}": entries with its id or dedupe key come and go too fast; try again`,
  );
}
