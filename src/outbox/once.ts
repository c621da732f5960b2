/**
 * once — a consumer's own write, done once however often its message comes.
 *
 * The key and the work share one transaction: both are there, or neither. Two at once with one key:
 * the second waits for the first, and works only if that is rolled back. At most once per key and
 * scope for as long as the key is kept; a key that comes later than that is new.
 */

import { type Duration, durationMs } from '../core/duration.ts';
import { RespoolError, show } from '../core/errors.ts';
import { checkKey, checkNames } from '../core/limits.ts';
import type { Clock } from '../ports/clock.ts';
import type { Delivery } from '../ports/handler.ts';
import type { SqlTx } from '../ports/sql.ts';
import { hasMadeUpId } from '../rabbit/made-up-id.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import { systemClock } from '../system/clock.ts';
import {
  type InboxPlace,
  type InboxTable,
  postgresTable,
  sqliteTable,
  takeSql,
  takeSqliteKey,
} from './inbox.ts';
import { explain } from './missing-tables.ts';
import { refusePromise, within } from './sqlite-transaction.ts';
import { type ClientOf, type TxPool, transaction } from './transaction.ts';
import { type AnyTx, isPool, isSqlite, sqlTxOf } from './tx.ts';

/** What `once` may be told beside its work. */
export interface OnceOptions extends InboxPlace {
  /** Keys of different scopes do not see each other: one for each consumer; default `''`. */
  readonly scope?: string;
  /** How long a key is remembered, longer than any message may come again; default `'7d'`. */
  readonly ttl?: Duration;
  /** In SQLite another clock, for tests; PostgreSQL goes by the server's. */
  readonly clock?: Clock;
}

/** What became of it: done now, with what the function returned, or done before. */
export type Once<T> = { readonly done: true; readonly value: T } | { readonly done: false };

const TTL_DEFAULT: Duration = '7d';
const NAMES = ['scope', 'ttl', 'schema', 'table', 'clock'];
const ADVICE = 'run outbox.migrate(), `respool outbox init`, or migrateInbox() for the inbox alone';

/** A delivery as a key: its id, unless that was made up for this copy of the message alone. */
export type OnceKey = string | Pick<Delivery, 'id' | 'envelope'>;

/** A key that was checked. */
interface Key {
  readonly scope: string;
  readonly key: string;
  readonly ttlMs: number;
}

/**
 * Runs `fn` in a transaction and remembers `key` in it; a key that was done before runs nothing.
 * With a pool it begins and commits one of its own; with a transaction of yours it is a part of it.
 * With a database of better-sqlite3 it is synchronous. If `fn` throws, nothing has happened.
 *
 * The key is a text, or a delivery, which stands for its id. n.b. A message of others that came
 * without an id is given a new one each time it comes: its delivery is refused, so take a key out
 * of what it says. `delivery.id` as a text cannot be told from a key of yours.
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
  given: OnceKey,
  work: () => T,
  options: OnceOptions,
): Once<T> {
  const key = checkOnce(given, options);
  const table = sqliteTable(options);
  const doing = `do "${key.key}" once`;
  return within(database, doing, () => {
    const now = (options.clock ?? systemClock).now();
    try {
      if (!takeSqliteKey(database, table, { ...key, now })) return { done: false };
    } catch (error) {
      throw explain(error, doing, ADVICE);
    }
    const value = work();
    refusePromise(value, doing);
    return { done: true, value };
  });
}

async function onceInPostgres<T>(
  place: unknown,
  given: OnceKey,
  work: (tx: unknown) => Promise<T>,
  options: OnceOptions,
): Promise<Once<T>> {
  const key = checkOnce(given, options);
  const table = postgresTable(options);
  if (isPool(place)) {
    return transaction(place as TxPool, (tx) =>
      onceWithin(tx as SqlTx, table, key, () => work(tx)),
    );
  }
  const tx = sqlTxOf(place, `do "${key.key}" once`);
  // The caller may catch what the work throws and commit: then neither key nor half of the work
  // may stay.
  await tx.query('SAVEPOINT respool_once', []);
  try {
    const result = await onceWithin(tx, table, key, () => work(place));
    await tx.query('RELEASE SAVEPOINT respool_once', []);
    return result;
  } catch (error) {
    await undo(tx);
    throw error;
  }
}

async function undo(tx: SqlTx): Promise<void> {
  try {
    await tx.query('ROLLBACK TO SAVEPOINT respool_once', []);
    await tx.query('RELEASE SAVEPOINT respool_once', []);
  } catch {
    // Where even this fails the transaction is lost as a whole, and the first error says why.
  }
}

async function onceWithin<T>(
  tx: SqlTx,
  table: InboxTable,
  { scope, key, ttlMs }: Key,
  work: () => Promise<T>,
): Promise<Once<T>> {
  const isTaken = await take(tx, table, [scope, key, ttlMs]);
  return isTaken ? { done: true, value: await work() } : { done: false };
}

async function take(tx: SqlTx, table: InboxTable, values: unknown[]): Promise<boolean> {
  try {
    return (await tx.query(takeSql(table), values)).rows.length > 0;
  } catch (error) {
    throw explain(error, `do ${show(values[1])} once`, ADVICE);
  }
}

function checkOnce(given: unknown, options: OnceOptions): Key {
  checkNames('once', options, NAMES);
  const key = isDelivery(given) ? idOf(given) : given;
  if (key === undefined || key === null || key === '') {
    throw new RespoolError(
      'message.invalid',
      `cannot do ${show(key)} once: the key is empty; a message of another system may come ` +
        'without an id: take a key out of what it says, such as the number of an order',
    );
  }
  const { scope = '', ttl = TTL_DEFAULT } = options;
  return {
    key: checkKey('key of once', key),
    scope: scope === '' ? '' : checkKey('scope of once', scope),
    ttlMs: durationMs(ttl, 'ttl', { minMs: 1 }),
  };
}

function isDelivery(given: unknown): given is Exclude<OnceKey, string> {
  return typeof given === 'object' && given !== null && 'id' in given && 'envelope' in given;
}

function idOf(delivery: Exclude<OnceKey, string>): string {
  if (!hasMadeUpId(delivery)) return delivery.id;
  throw new RespoolError(
    'message.invalid',
    `cannot do message "${delivery.id}" once: it came without an id, and this one was made up ` +
      'for this copy of it; take a key out of what it says, such as the number of an order',
  );
}
