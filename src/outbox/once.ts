/**
 * once — runs a database write of a consumer once, however often its message is delivered
 * (idempotent effects). Public, for PostgreSQL and SQLite.
 *
 * The key and the work share one transaction: both are committed, or neither. Of two calls with one
 * key, the second waits for the first, and runs only if the first is rolled back. Promise: at most
 * once per key and scope for as long as the key is kept; after that the key counts as new.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { Duration } from '../core/duration.ts';
import { RespoolError, show } from '../core/errors.ts';
import { checkKey } from '../core/limits.ts';
import { CLOCK_OPTION, type Option, readOptions } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import type { Delivery } from '../ports/handler.ts';
import type { SqlTx } from '../ports/sql.ts';
import { hasGeneratedId } from '../rabbit/message-history.ts';
import { Values } from '../stores/postgres/row.ts';
import { outsideTransaction, TxCheck } from '../stores/postgres/insert-within.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import { systemClock } from '../system/clock.ts';
import { InFlight } from '../system/wait.ts';
import {
  INBOX_OPTIONS,
  type InboxPlace,
  type InboxTable,
  postgresTable,
  sqliteTable,
  insertKeySql,
  insertSqliteKey,
} from './inbox.ts';
import {
  type AnyTx,
  isOneTransaction,
  isPool,
  isSqlite,
  sqlTxOf,
  type TxMutex,
  TxMutexes,
} from './tx.ts';
import {
  type ClientOf,
  type GuardedTx,
  guardedTxOf,
  refusePromise,
  transaction,
  type TxPool,
  withinSqlite,
} from './transaction.ts';
import {
  SERIALIZATION_FAILURE,
  explainMissingTables,
  hasCode,
  NO_TRANSACTION,
} from './table-errors.ts';

const ONCE = {
  scope: {
    kind: 'text',
    type: 'text',
    defaultText: "`''`",
    about: 'keys of different scopes are independent: use one for each consumer',
  },
  ttl: {
    kind: 'duration',
    min: '1ms',
    type: 'duration',
    default: '7d',
    about:
      'how long a key is remembered, from the beginning of its work: longer than the work takes, ' +
      'and than a message may be delivered again',
  },
  ...INBOX_OPTIONS,
  clock: { ...CLOCK_OPTION, about: "for tests, in SQLite; PostgreSQL uses its server's clock" },
} as const;

/** The options of `once`. */
export const ONCE_OPTIONS: Readonly<Record<keyof OnceOptions, Option>> = ONCE;

/** What `once` takes beside its work. */
export interface OnceOptions extends InboxPlace {
  // Written by `npm run options`: edit the table of options instead.
  /** Keys of different scopes are independent: use one for each consumer. Default `''`. */
  readonly scope?: string;
  /**
   * How long a key is remembered, from the beginning of its work: longer than the work takes, and
   * than a message may be delivered again. Default 7d.
   */
  readonly ttl?: Duration;
  /** For tests, in SQLite; PostgreSQL uses its server's clock. Default the system clock. */
  readonly clock?: Clock;
}

/** The result: done now, with what the function returned, or done before. */
export type Once<T> = { readonly done: true; readonly value: T } | { readonly done: false };

const ADVICE = 'run outbox.migrate(), `respool outbox init`, or migrateInbox() for the inbox alone';

/** A delivery as a key: its id, unless that was made up for this copy of the message alone. */
export type OnceKey = string | Pick<Delivery, 'id' | 'envelope'>;

/** Tries of a call on a pool, the first included, where serialization fails. */
const TRIES_MAX = 20;

/** Calls in one transaction run one after the other: a failure undoes all since its savepoint. */
const TX_MUTEXES = new TxMutexes();
/**
 * Makes savepoint names unique: a call that outlives its transaction fails, and affects no other.
 */
let savepoints = 0;

/** The calls inside the work of another call. */
interface Scope {
  readonly mutexes: TxMutexes;
  readonly inFlight: InFlight;
}
const SCOPES = new AsyncLocalStorage<Scope>();

/** A key that was checked. */
interface Key {
  readonly scope: string;
  readonly key: string;
  readonly ttlMs: number;
}

/**
 * Runs `fn` in a transaction and remembers `key` in it; a key that was done before runs nothing.
 * With a pool it begins and commits one of its own; with your own transaction it is a part of it.
 * With a database of better-sqlite3 it is synchronous. If `fn` throws, nothing has happened.
 * Several on one transaction run one after the other; wait for them before you do anything else in
 * it: what runs meanwhile is undone with one that fails.
 *
 * The key is a text, or a delivery, which stands for its id. n.b. A message of others that came
 * without an id is given a new one each time it comes: its delivery is refused, so take a key out
 * of what it says. `delivery.id` as a text cannot be told from your own key.
 */
export function once<Database extends SqliteDatabase, T>(
  database: Database,
  key: OnceKey,
  fn: (database: Database) => T,
  options?: OnceOptions,
): Once<T>;
export function once<Pool extends TxPool, T>(
  pool: Pool,
  key: OnceKey,
  fn: (tx: ClientOf<Pool>) => Promise<T> | T,
  options?: OnceOptions,
): Promise<Once<T>>;
export function once<Tx extends AnyTx, T>(
  tx: Tx,
  key: OnceKey,
  fn: (tx: Tx) => Promise<T> | T,
  options?: OnceOptions,
): Promise<Once<T>>;
export function once<T>(
  place: unknown,
  key: OnceKey,
  fn: (place: never) => unknown,
  options: OnceOptions = {},
): Promise<Once<T>> | Once<T> {
  const work = fn as (place: unknown) => T;
  if (isSqlite(place)) return onceInSqlite(place, key, () => work(place), options);
  return onceInPostgres(place, key, async (tx) => work(tx), options);
}

function onceInSqlite<T>(
  database: SqliteDatabase,
  onceKey: OnceKey,
  work: () => T,
  options: OnceOptions,
): Once<T> {
  const key = checkOnce(onceKey, options);
  const table = sqliteTable(options);
  const doing = `do "${key.key}" once`;
  return withinSqlite(database, doing, () => {
    const now = (options.clock ?? systemClock).now();
    try {
      if (!insertSqliteKey(database, table, { ...key, now })) return { done: false };
    } catch (error) {
      throw explainMissingTables(error, doing, { place: `"${table}"`, advice: ADVICE });
    }
    const value = work();
    refusePromise(value, doing);
    return { done: true, value };
  });
}

async function onceInPostgres<T>(
  place: unknown,
  onceKey: OnceKey,
  work: (tx: unknown) => Promise<T>,
  options: OnceOptions,
): Promise<Once<T>> {
  const key = checkOnce(onceKey, options);
  const table = postgresTable(options);
  const doing = `do "${key.key}" once`;
  if (isPool(place)) return onceOnPool(place as TxPool, { table, key, doing }, work);
  const tx = sqlTxOf(place, doing);
  const guarded = guardedTxOf(place);
  guarded?.check(doing);
  const isKept = guarded !== undefined || isOneTransaction(place);
  const outer = SCOPES.getStore();
  // One inside the work of another is a part of that, and cannot wait for it.
  const running = (outer?.mutexes ?? TX_MUTEXES).run(place as object, isKept, (mutex) =>
    onceInSavepoint(tx, { table, key, doing, mutex, guarded }, () => work(place)),
  );
  void guarded?.inFlight.track(running);
  void outer?.inFlight.track(running);
  return running;
}

/** What all statements of one call share. */
interface OnceRequest {
  readonly table: InboxTable;
  readonly key: Key;
  readonly doing: string;
}

interface SavepointRequest extends OnceRequest {
  readonly mutex: TxMutex;
  readonly guarded: GuardedTx | undefined;
}

/** In a transaction of its own; nothing is visible until it commits, so it may be retried. */
async function onceOnPool<T>(
  pool: TxPool,
  taking: OnceRequest,
  work: (tx: unknown) => Promise<T>,
): Promise<Once<T>> {
  for (let tries = 1; ; tries += 1) {
    let hasBegun = false;
    try {
      return await transaction(pool, async (tx): Promise<Once<T>> => {
        const isTaken = await insertKey(tx, taking, { xid: undefined }, () => true);
        hasBegun = isTaken;
        return isTaken ? { done: true, value: await work(tx) } : { done: false };
      });
    } catch (error) {
      // With a stricter isolation level, a call that waited for the key gets this error, and the
      // answer only in its next transaction.
      if (hasBegun || tries === TRIES_MAX || !hasCode(error, SERIALIZATION_FAILURE)) throw error;
    }
  }
}

/** In a transaction of the caller's; the caller may catch what the work throws, and commit. */
async function onceInSavepoint<T>(
  tx: SqlTx,
  taking: SavepointRequest,
  work: () => Promise<T>,
): Promise<Once<T>> {
  const { mutex, guarded, doing } = taking;
  savepoints += 1;
  const savepoint = `respool_once_${savepoints}`;
  await tx.query(`SAVEPOINT ${savepoint}`, []).catch((error: unknown) => {
    throw hasCode(error, NO_TRANSACTION) ? outsideTransaction(doing) : error;
  });
  try {
    const isTaken = await insertKey(tx, taking, mutex, () => guarded?.isSure === true);
    const result: Once<T> = isTaken
      ? { done: true, value: await runInScope(work) }
      : { done: false };
    await tx.query(`RELEASE SAVEPOINT ${savepoint}`, []);
    return result;
  } catch (error) {
    await rollBackTo(tx, savepoint);
    throw error;
  }
}

/** Runs the work, and waits for all calls of `once` inside it. */
async function runInScope<T>(work: () => Promise<T>): Promise<T> {
  const scope: Scope = { mutexes: new TxMutexes(), inFlight: new InFlight() };
  try {
    return await SCOPES.run(scope, work);
  } finally {
    await scope.inFlight.idle();
  }
}

/** Undoes the key and all of the work. */
async function rollBackTo(tx: SqlTx, savepoint: string): Promise<void> {
  try {
    await tx.query(`ROLLBACK TO SAVEPOINT ${savepoint}`, []);
    await tx.query(`RELEASE SAVEPOINT ${savepoint}`, []);
  } catch {
    // Where even this fails the transaction is lost as a whole, and the first error says why.
  }
}

/** Inserts the key in the caller's transaction; true if it was new. */
async function insertKey(
  tx: SqlTx,
  { table, key: { scope, key, ttlMs }, doing }: OnceRequest,
  mutex: TxMutex,
  isSure: () => boolean,
): Promise<boolean> {
  const check = new TxCheck({ doing, xid: mutex.xid, isSure });
  try {
    for (;;) {
      const { guard } = check;
      const values = new Values({ isForeign: true });
      values.list.push(scope, key, ttlMs);
      const [row] = (await tx.query(insertKeySql(table, guard, values), values.list)).rows;
      if (!check.takes(guard, row)) continue;
      mutex.xid = check.xid;
      return Number(row?.['taken']) > 0;
    }
  } catch (error) {
    const place = `schema "${table.schema}", "${table.table}"`;
    throw explainMissingTables(error, doing, { place, advice: ADVICE });
  }
}

function checkOnce(value: unknown, options: OnceOptions): Key {
  const { ttlMs } = readOptions({ what: 'once' }, options, ONCE);
  const key = isDelivery(value) ? idOf(value) : value;
  if (key === undefined || key === null || key === '') {
    throw new RespoolError(
      'message.invalid',
      `cannot do ${show(key)} once: the key is empty; a message of another system may come ` +
        'without an id: take a key out of what it says, such as the number of an order',
    );
  }
  const { scope = '' } = options;
  return {
    key: checkKey('key of once', key),
    scope: scope === '' ? '' : checkKey('scope of once', scope),
    ttlMs,
  };
}

function isDelivery(value: unknown): value is Exclude<OnceKey, string> {
  return typeof value === 'object' && value !== null && 'id' in value && 'envelope' in value;
}

function idOf(delivery: Exclude<OnceKey, string>): string {
  if (!hasGeneratedId(delivery)) return delivery.id;
  throw new RespoolError(
    'message.invalid',
    `cannot do message "${delivery.id}" once: it arrived without an id, and this one was ` +
      `generated ` +
      'for this copy of it; take a key out of what it says, such as the number of an order',
  );
}
