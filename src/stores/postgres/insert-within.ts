/**
 * insert-within — new entries in the caller's transaction, and in no other; and the check that a
 * statement runs in the transaction it is meant for, which the outbox and its inbox use too.
 */

import type { Entry } from '../../core/entry.ts';
import { RespoolError } from '../../core/errors.ts';
import type { SqlTx } from '../../ports/sql.ts';
import {
  columnsOf,
  type InsertResult,
  type NewRow,
  newRow,
  ORDER_COLUMN,
  ownersSql,
  insertRowsOf,
  INSERT_ROUNDS_MAX,
  storedSql,
  unsettledError,
} from './insert.ts';
import type { Names } from './options.ts';
import { type Bind, textArray, Values } from './row.ts';

/** The results of inserts, and their transaction. */
interface InsertedWithin {
  readonly results: readonly InsertResult[];
  readonly xid: string | undefined;
}

/** The most entries, and the most bytes of their bodies, in one statement. */
const BATCH_MAX = 1_000;
const BATCH_MAX_BYTES: number = 8 * 2 ** 20;
/** More than this is not sent before it is known that there is a transaction. */
const UNASKED_MAX = 20;
const UNASKED_MAX_BYTES: number = 64 * 2 ** 10;

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
  const check = new TxCheck(within);
  const isLarge = !check.isSure && !isSmall(rows);
  if (batches.length > 1 || isLarge || check.isDoubtful) await check.ask(tx);
  for (const batch of batches) results.push(...(await insertBatch(names, tx, batch, check)));
  return { results, xid: check.xid };
}

async function insertBatch(
  names: Names,
  tx: SqlTx,
  rows: readonly NewRow[],
  check: TxCheck,
): Promise<InsertResult[]> {
  const results = new Map<NewRow, InsertResult>();
  for (let round = 0; ; round += 1) {
    const left = rows.filter((row) => !results.has(row));
    if (left.length === 0) return rows.map((row) => results.get(row) ?? 'stored');
    if (round > INSERT_ROUNDS_MAX) throw unsettledError(left[0]?.id);
    const { guard } = check;
    const answer = await store(names, tx, left, guard);
    if (!check.takes(guard, answer[0])) continue;
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
  const given = insertRowsOf(rows, values);
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
  value: {
    readonly columns: readonly string[];
    readonly rows: string;
    readonly isOwn: string;
    readonly guard: TxGuard;
  },
): string {
  const { columns, rows, isOwn, guard } = value;
  const isKeyed = columns.includes(ORDER_COLUMN[0]);
  const answer = `SELECT ${TX_CHECK_SQL}, r.id FROM proof p LEFT JOIN refused r ON true`;
  const turn = `(SELECT nextval('${turns}')) IS NOT NULL`;
  const condition = isKeyed ? `CASE WHEN ${isOwn} THEN ${turn} ELSE false END` : isOwn;
  return `WITH ${txCheckSql(guard)}given AS MATERIALIZED (${rows} WHERE ${condition}),
${storedSql(table, columns)}
${guard === 'sure' ? 'SELECT id FROM refused' : answer}`;
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

/** Each id at most once per statement: its results are matched by id. */
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

// The transaction check: a statement runs in the transaction it is meant for, as the server says.
//
//   statement ─▶ has its transaction an id? ─yes─▶ done
//                          └─no─▶ nothing done, but now it has one ─▶ again, for this id alone
//
// Calls run beside others on one connection: by the time a statement is sent, its transaction may
// have been rolled back, and what follows would stay by itself, or go with the transaction of
// another call. A statement by itself has no transaction id (xid) when it begins; one in a
// transaction that has written has. Every further statement of a call names the id of the first.

/** The transaction of the caller, and how the caller knows that there is one. */
interface TxUse {
  /** What an error text begins with, as `emit "a.b"`. */
  readonly doing: string;
  /** The transaction that is meant, where it is known. */
  readonly xid?: string | undefined;
  /** Whether what is sent now is surely in it, without asking the server. */
  readonly isSure?: (() => boolean) | undefined;
  readonly habit?: TxHabit | undefined;
}

/** Whether the last transaction had written nothing before: then the next may be like it. */
export interface TxHabit {
  isFirst: boolean;
}

/** The one transaction that is meant, by its id; any that has one; or nothing is asked. */
export type TxGuard = { readonly xid: string } | 'any' | 'sure';

/**
 * The first of a statement's WITH. n.b. Whatever gives a transaction its id has to read it, so that
 * it comes after it: as `txGuardSql` does, with CASE where there is more than one condition.
 */
export function txCheckSql(guard: TxGuard): string {
  if (guard === 'sure') return '';
  return 'proof AS MATERIALIZED (SELECT txid_current_if_assigned()::text AS xid), ';
}

/** The columns of a statement with `FROM proof p` that `takes` reads. */
export const TX_CHECK_SQL = `p.xid AS before,
  CASE WHEN p.xid IS NULL THEN txid_current()::text END AS now`;

/** The condition under which a statement may write. */
export function txGuardSql(guard: TxGuard, bind: Bind): string {
  if (guard === 'sure') return 'true';
  const xid = '(SELECT xid FROM proof)';
  return guard === 'any' ? `${xid} IS NOT NULL` : `${xid} = ${bind(guard.xid, 'text')}`;
}

const ASK_SQL = `SELECT txid_current_if_assigned()::text AS before, txid_current()::text AS now,
  (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS time`;

/** The id of a transaction, which has one from now on, and the time of the server. */
export async function askTransaction(
  tx: SqlTx,
): Promise<{ readonly xid: string; readonly isNew: boolean; readonly time: number }> {
  const row = (await tx.query(ASK_SQL, [])).rows[0];
  const isNew = typeof row?.['before'] !== 'string';
  return { xid: String(row?.['now']), isNew, time: Number(row?.['time']) };
}

/** What one call knows about its transaction. */
export class TxCheck {
  readonly #within: TxUse;
  #xid: string | undefined;

  constructor(within: TxUse) {
    this.#within = within;
    this.#xid = within.xid;
  }

  get xid(): string | undefined {
    return this.#xid;
  }

  /** For the statement that is sent now. */
  get guard(): TxGuard {
    if (this.#xid !== undefined) return { xid: this.#xid };
    return this.isSure ? 'sure' : 'any';
  }

  get isSure(): boolean {
    return this.#within.isSure?.() === true;
  }

  /** Gets the id before anything else is sent. */
  async ask(tx: SqlTx): Promise<void> {
    if (this.#xid !== undefined) return;
    const { xid, isNew } = await askTransaction(tx);
    this.#xid = xid;
    this.#note(isNew);
  }

  /** Whether it is better asked before: nothing is sent that would have to be sent again. */
  get isDoubtful(): boolean {
    return this.guard === 'any' && this.#within.habit?.isFirst === true;
  }

  /** Whether a statement could write, by its answer; if not, it is sent again with a new guard. */
  takes(guard: TxGuard, answer: Readonly<Record<string, unknown>> | undefined): boolean {
    if (guard === 'sure') return true;
    if (answer === undefined) throw silent();
    const { before, now } = answer;
    if (guard !== 'any' && before !== guard.xid) throw outsideTransaction(this.#within.doing);
    if (guard === 'any') this.#note(typeof before !== 'string');
    this.#xid = String(before ?? now);
    return typeof before === 'string';
  }

  #note(isFirst: boolean): void {
    if (this.#within.habit !== undefined) this.#within.habit.isFirst = isFirst;
  }
}

/** Refuses to go on in another transaction, or in none. */
export function outsideTransaction(doing: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot ${doing}: no transaction is open on this connection, or no longer the one it began ` +
      'in; begin one, and wait for what you do in it before you end it',
  );
}

function silent(): RespoolError {
  return new RespoolError(
    'config.invalid',
    'cannot use this transaction: it answered a statement that gives one row with none',
  );
}
