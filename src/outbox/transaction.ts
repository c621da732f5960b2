/**
 * transaction — `transaction()`: BEGIN, the caller's function, COMMIT or ROLLBACK on one connection
 * of a pool; the proxy that refuses statements after the end (`GuardedTx`); and transactions of
 * better-sqlite3 (`withinSqlite`).
 */

import { RespoolError } from '../core/errors.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import { InFlight } from '../system/wait.ts';
import { hasCode, NO_TRANSACTION } from './table-errors.ts';
import { isPool } from './tx.ts';

/**
 * Statements that end a transaction, also as one of several; ROLLBACK TO a savepoint does not. A
 * false match, such as the END of a CASE, costs one statement to the server.
 */
const ENDING =
  /(?:^|;|\*\/)\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+\w+)?\s+to\b))\b/im;

const GUARDED = new WeakMap<object, GuardedTx>();

/** The guard of a transaction of `transaction()`, also after its end; undefined for others. */
export function guardedTxOf(value: unknown): GuardedTx | undefined {
  return typeof value === 'object' && value !== null ? GUARDED.get(value) : undefined;
}

/**
 * A transaction of `transaction()`, and a proxy of its connection. `fn` may leave work behind that
 * continues after the end, such as the other members of a Promise.all of which one failed. By then
 * the connection may be in another transaction. So each transaction gets a proxy of the connection,
 * which refuses every statement once COMMIT or ROLLBACK is sent.
 */
export class GuardedTx<Client extends object = object> {
  /** The connection, until the end. */
  readonly tx: Client;
  /** Emits and calls of `once` that the commit waits for: all of them are committed, or none. */
  readonly inFlight: InFlight = new InFlight();
  #isOver = false;
  #isEndedInside = false;

  constructor(client: Client) {
    const query = (...args: unknown[]): unknown => this.#query(client, args);
    this.tx = new Proxy(client, {
      get(target, name) {
        if (name === 'query') return query;
        const value: unknown = Reflect.get(target, name);
        // n.b. Fields that are private cannot be read through a proxy.
        const isMethod = typeof value === 'function' && name !== 'constructor';
        return isMethod ? value.bind(target) : value;
      },
    });
    GUARDED.set(this.tx, this);
  }

  /** Whether a statement sent now is in the transaction, regardless of later statements. */
  get isSure(): boolean {
    return !this.#isOver && !this.#isEndedInside;
  }

  /** Whether a statement was sent that ends it, or looks like it. */
  get isEndedInside(): boolean {
    return this.#isEndedInside;
  }

  /** Refuses what comes after the end. */
  check(doing: string): void {
    if (this.#isOver) throw endedError(doing);
  }

  /** Refuses every statement from now on. */
  end(): void {
    this.#isOver = true;
  }

  #query(client: Client, args: unknown[]): unknown {
    const [first, ...rest] = args;
    if (this.#isOver) {
      const isAsked = rest.some((arg) => typeof arg === 'function') || isSubmittable(first);
      if (isAsked) throw endedError('run a statement');
      return Promise.reject(endedError('run a statement'));
    }
    if (ENDING.test(textOf(first))) this.#isEndedInside = true;
    return (client as { query(...args: unknown[]): unknown }).query(...args);
  }
}

function endedError(doing: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot ${doing}: its transaction has ended; await everything you do in it before its ` +
      'function ends',
  );
}

/** Whether it is a cursor or a stream of rows, which reports errors by itself. */
function isSubmittable(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'submit' in value;
}

function textOf(value: unknown): string {
  const text = typeof value === 'object' && value !== null ? Reflect.get(value, 'text') : value;
  return typeof text === 'string' ? text : '';
}

/** A connection of a pool, as `pg` gives it. */
export interface TxClient {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{
    readonly rows: readonly Readonly<Record<string, unknown>>[];
    readonly rowCount?: number | null;
    readonly command?: string;
  }>;
}

/** What gives connections: your own `pg.Pool`. */
export interface TxPool {
  connect(): Promise<TxClient & { release(error?: Error | boolean): void }>;
}

/** The type of the clients of a pool. */
export type ClientOf<Pool> = Pool extends {
  connect: { (): Promise<infer Client>; (callback: never): unknown };
}
  ? Client
  : Pool extends { connect(): Promise<infer Client> }
    ? Client
    : TxClient;

/** The `error` event of a connection, by which it reports that it is lost. */
export interface ErrorEmitter {
  on?(event: 'error', listener: (error: Error) => void): unknown;
  removeListener?(event: 'error', listener: (error: Error) => void): unknown;
}

/**
 * Runs `fn` in a transaction: committed when it resolves, rolled back when it throws. What `fn`
 * emits is there if this resolves, and not if it rejects; n.b. when the connection is lost while
 * it commits, it rejects and the transaction may have been committed. Emits and onces that `fn` did
 * not wait for are waited for before the commit. After the end, `tx` refuses everything.
 */
export async function transaction<Pool extends TxPool, T>(
  pool: Pool,
  fn: (tx: ClientOf<Pool>) => Promise<T> | T,
): Promise<T> {
  if (!isPool(pool)) {
    throw new RespoolError(
      'config.invalid',
      'cannot begin a transaction: the first argument is no pool with connect(); give a pg.Pool',
    );
  }
  const client = await pool.connect();
  const connection: ErrorEmitter = client as ErrorEmitter;
  let lost: Error | undefined;
  // A connection that breaks while it is idle reports that by an event, and without a
  // listener ends the process. The caller that asks next hears of it.
  const onError = (error: Error): void => {
    lost = error;
  };
  connection.on?.('error', onError);
  const guarded = new GuardedTx(client);
  try {
    await client.query('BEGIN');
    const value = await fn(guarded.tx as ClientOf<Pool>);
    await guarded.inFlight.idle();
    await checkOpen(client, guarded);
    guarded.end();
    await commit(client);
    return value;
  } catch (error) {
    guarded.end();
    // A rollback that fails leaves a connection in no known state: it is closed, which rolls back.
    await client.query('ROLLBACK').catch((failure: Error) => {
      lost ??= failure;
    });
    throw error;
  } finally {
    connection.removeListener?.('error', onError);
    client.release(lost);
  }
}

/** Throws if the transaction has ended already: for the server a COMMIT would be no error. */
async function checkOpen(client: TxClient, guarded: GuardedTx): Promise<void> {
  const { getTransactionStatus } = client as { getTransactionStatus?: () => unknown };
  // n.b. Older versions of pg have no status; and it lags behind statements that were not awaited.
  let isOpen = getTransactionStatus?.call(client) !== IDLE;
  if (isOpen && guarded.isEndedInside) {
    isOpen = await client.query('SAVEPOINT respool_end').then(
      () => true,
      (error: unknown) => !hasCode(error, NO_TRANSACTION),
    );
  }
  if (isOpen) return;
  throw new RespoolError(
    'config.invalid',
    'the transaction was ended inside its function, by a COMMIT or ROLLBACK of its own: what ' +
      'came before stayed or went with that; leave the end to transaction(), throw to roll back',
  );
}

/** The transaction status of pg for: in no transaction. */
const IDLE = 'I';

async function commit(client: TxClient): Promise<void> {
  const { command } = await client.query('COMMIT');
  // n.b. The server answers the COMMIT of a transaction in which a statement failed by rolling it
  // back, without an error.
  if (command !== 'ROLLBACK') return;
  throw new RespoolError(
    'config.invalid',
    'the transaction was rolled back at its commit: a statement in it had failed, and its error ' +
      'was caught; let it through, or use a savepoint',
  );
}

// Transactions in a database of better-sqlite3: synchronous.

/**
 * One transaction, or a savepoint in that of the caller; undone as a whole when `work` throws.
 * `doing` begins the error, as `do "a" once`.
 */
export function withinSqlite<T>(database: SqliteDatabase, doing: string, work: () => T): T {
  const isNested = database.inTransaction;
  // Immediate: what is read at the start must not change before the first write.
  database.exec(isNested ? 'SAVEPOINT respool_outbox' : 'BEGIN IMMEDIATE');
  try {
    const value = work();
    refusePromise(value, doing);
    database.exec(isNested ? 'RELEASE respool_outbox' : 'COMMIT');
    return value;
  } catch (error) {
    // SQLite itself rolls back after some errors, as on a full disk.
    if (database.inTransaction) {
      const undo = 'ROLLBACK TO respool_outbox; RELEASE respool_outbox';
      database.exec(isNested ? undo : 'ROLLBACK');
    }
    throw error;
  }
}

/** A promise would settle after the transaction: its work would be done twice, or half. */
export function refusePromise(value: unknown, doing: string): void {
  const isPromise = typeof value === 'object' && value !== null && 'then' in value;
  if (!isPromise || typeof value.then !== 'function') return;
  // Not awaited: a failure must not end the process.
  Promise.resolve(value).catch(() => undefined);
  throw new RespoolError(
    'config.invalid',
    `cannot ${doing}: its function returned a promise, and better-sqlite3 is synchronous; do ` +
      'what is asynchronous before',
  );
}
