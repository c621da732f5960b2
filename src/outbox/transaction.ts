/**
 * transaction — begin, do, commit, on one connection of a pool; what fails is rolled back.
 */

import { RespoolError } from '../core/errors.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import { InFlight } from '../system/wait.ts';
import { hasCode, NO_TRANSACTION } from './table-errors.ts';
import { isPool } from './tx.ts';

/**
 * What ends a transaction, in any of several statements; going back to a savepoint does not. What
 * only looks like it, such as the end of a CASE, costs a question to the server.
 */
const ENDING =
  /(?:^|;|\*\/)\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+\w+)?\s+to\b))\b/im;

const known = new WeakMap<object, GuardedTx>();

/** The transaction of `transaction()` that this is, or was. */
export function guardedTxOf(value: unknown): GuardedTx | undefined {
  return typeof value === 'object' && value !== null ? known.get(value) : undefined;
}

/**
 * One of our transactions, and the connection for as long as it is on it. `fn` may leave something
 * behind that goes on after the end, such as the others of a Promise.all of which one failed. By
 * then the connection may be in another transaction; so each gets a proxy of the connection, which
 * refuses everything from the moment the end is sent.
 */
export class GuardedTx<Client extends object = object> {
  /** The connection, until the end. */
  readonly tx: Client;
  /** What the commit waits for: half of it would be worse than none. */
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
    known.set(this.tx, this);
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
    if (this.#isOver) throw over(doing);
  }

  /** From now on it refuses. */
  end(): void {
    this.#isOver = true;
  }

  #query(client: Client, args: unknown[]): unknown {
    const [first, ...rest] = args;
    if (this.#isOver) {
      const isAsked = rest.some((arg) => typeof arg === 'function') || isSubmittable(first);
      if (isAsked) throw over('run a statement');
      return Promise.reject(over('run a statement'));
    }
    if (ENDING.test(textOf(first))) this.#isEndedInside = true;
    return (client as { query(...args: unknown[]): unknown }).query(...args);
  }
}

function over(doing: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot ${doing}: its transaction has ended; await everything you do in it before its ` +
      'function ends',
  );
}

/** A cursor or a stream of rows, which tells its errors by itself. */
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

/** What a pool gives, with everything that can be done with it. */
export type ClientOf<Pool> = Pool extends {
  connect: { (): Promise<infer Client>; (callback: never): unknown };
}
  ? Client
  : Pool extends { connect(): Promise<infer Client> }
    ? Client
    : TxClient;

/** What a connection that is lost while it is ours says it with. */
export interface StatementRunner {
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
  const speaker: StatementRunner = client as StatementRunner;
  let lost: Error | undefined;
  // A connection that breaks while it is idle reports that by an event, and without a
  // listener ends the process. The caller that asks next hears of it.
  const onError = (error: Error): void => {
    lost = error;
  };
  speaker.on?.('error', onError);
  const live = new GuardedTx(client);
  try {
    await client.query('BEGIN');
    const value = await fn(live.tx as ClientOf<Pool>);
    await live.inFlight.idle();
    await checkOpen(client, live);
    live.end();
    await commit(client);
    return value;
  } catch (error) {
    live.end();
    // A rollback that fails leaves a connection in no known state: it is closed, which rolls back.
    await client.query('ROLLBACK').catch((failure: Error) => {
      lost ??= failure;
    });
    throw error;
  } finally {
    speaker.removeListener?.('error', onError);
    client.release(lost);
  }
}

/** A commit where there is nothing to commit is no error to the server. */
async function checkOpen(client: TxClient, live: GuardedTx): Promise<void> {
  const { getTransactionStatus } = client as { getTransactionStatus?: () => unknown };
  // n.b. Older versions of pg do not tell; and what was not waited for has not been told yet.
  let isOpen = getTransactionStatus?.call(client) !== IDLE;
  if (isOpen && live.isEndedInside) {
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

/** As pg tells that a connection is in no transaction. */
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

// The same in a database of better-sqlite3: synchronous from end to end.

/**
 * One transaction, or a savepoint in that of the caller; undone as a whole when `work` throws.
 * `doing` begins the error, as `do "a" once`.
 */
export function withinSqlite<T>(database: SqliteDatabase, doing: string, work: () => T): T {
  const isNested = database.inTransaction;
  // Immediate: what is found at the start must still be so at the first write.
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
