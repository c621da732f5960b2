/**
 * tx — adapts the caller's transaction to `SqlTx` (one method, `query`): of pg, Kysely, Drizzle,
 * Knex or Prisma. Also `TxMutexes`, by which calls on one transaction run one after the other.
 *
 * The libraries are recognised and typed by their shape and never imported. Statements go through
 * the library itself, so that its logs and hooks see them. Promise: whatever would run outside the
 * transaction, such as a pool, is refused: a message that stays although the rest was rolled back
 * is worse than an error.
 */

import { RespoolError, show } from '../core/errors.ts';
import type { SqlTx } from '../ports/sql.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';

/** Your own transaction: a client of `pg`, or that of Kysely, Drizzle, Knex or Prisma. */
export type AnyTx = SqlTx | KyselyTx | DrizzleTx | KnexTx | PrismaTx;

/** Adapts a transaction of a known library; `doing` begins the error, as `emit "a.b"`. */
export function sqlTxOf(value: unknown, doing: string): SqlTx {
  for (const { fits, isOpen, adapt, advice } of LIBRARIES) {
    if (!fits(value)) continue;
    if (isOpen(value)) return adapt(value);
    throw new RespoolError('config.invalid', `cannot ${doing}: ${advice}`);
  }
  throw new RespoolError(
    'config.invalid',
    `cannot ${doing}: this is no transaction; give the client of pg that began one, the ` +
      'transaction of Kysely, Drizzle, Knex or Prisma, or an object with query(text, values)',
  );
}

/** Whether the object stands for one transaction only, and is never used for another. */
export function isOneTransaction(value: unknown): boolean {
  return LIBRARIES.find(({ fits }) => fits(value))?.isPerTransaction === true;
}

/** Whether it is a pool of connections: statements on it are in no transaction. */
export function isPool(value: unknown): boolean {
  // A client has connect() too; but only a client of a pool has release(), and only a client has
  // escapeLiteral().
  return has(value, 'connect') && !has(value, 'release') && !has(value, 'escapeLiteral');
}

/** Whether it is a database of better-sqlite3. */
export function isSqlite(value: unknown): value is SqliteDatabase {
  return has(value, 'prepare') && has(value, 'exec') && has(value, 'pragma');
}

/** One library: how it is recognised, whether it is in a transaction, and what to do if not. */
interface Library {
  readonly fits: (value: unknown) => boolean;
  readonly isOpen: (value: unknown) => boolean;
  readonly adapt: (value: unknown) => SqlTx;
  readonly advice: string;
  /** Whether it makes a new object for each transaction. */
  readonly isPerTransaction?: boolean;
}

const OUTSIDE = 'what it runs is in no transaction, and would stay if yours is rolled back';

const LIBRARIES: readonly Library[] = [
  {
    fits: isSqlite,
    isOpen: () => false,
    adapt: (value) => value as SqlTx,
    advice: 'this is a database of better-sqlite3; make the outbox with { database }',
  },
  {
    fits: (value) => has(value, '$queryRawUnsafe'),
    // A transaction may begin another inside it, since Prisma 7.5; it cannot connect.
    isOpen: (value) => !has(value, '$connect'),
    adapt: (value) => fromPrisma(value as PrismaTx),
    advice:
      `this is the client of Prisma: ${OUTSIDE}; ` +
      'call it in prisma.$transaction(async (tx) => …) with that tx',
    isPerTransaction: true,
  },
  {
    fits: (value) => has(value, 'executeQuery') && has(value, 'withoutPlugins'),
    isOpen: (value) => read(value, 'isTransaction') === true,
    adapt: (value) => fromKysely(value as KyselyTx),
    advice:
      `this is the database of Kysely: ${OUTSIDE}; ` +
      'call it in db.transaction().execute(async (tx) => …) with that tx',
    isPerTransaction: true,
  },
  {
    fits: (value) => has(value, 'raw') && has(value, 'transaction') && has(value, 'schema', 'any'),
    isOpen: (value) => read(value, 'isTransaction') === true,
    adapt: (value) => fromKnex(value as KnexTx),
    advice:
      `this is Knex itself: ${OUTSIDE}; ` +
      'call it in knex.transaction(async (tx) => …) with that tx',
    isPerTransaction: true,
  },
  {
    fits: (value) => has(value, 'execute') && has(value, 'transaction') && has(value, 'select'),
    isOpen: (value) => has(value, 'rollback'),
    adapt: (value) => fromDrizzle(value as DrizzleTx),
    advice:
      `this is the database of Drizzle: ${OUTSIDE}; ` +
      'call it in db.transaction(async (tx) => …) with that tx',
    isPerTransaction: true,
  },
  {
    fits: isPool,
    isOpen: () => false,
    adapt: (value) => value as SqlTx,
    advice:
      `this is a pool: ${OUTSIDE}; use transaction(pool, async (tx) => …), ` +
      'or a client of the pool on which you began one',
  },
  {
    fits: (value) => has(value, 'query'),
    isOpen: () => true,
    adapt: (value) => fromQuery(value as SqlTx),
    advice: '',
  },
];

function has(input: unknown, name: string, kind: 'function' | 'any' = 'function'): boolean {
  const value = read(input, name);
  return kind === 'any' ? value !== undefined : typeof value === 'function';
}

/** n.b. Knex is a function with properties. */
function read(value: unknown, name: string): unknown {
  const isObject = (typeof value === 'object' && value !== null) || typeof value === 'function';
  return isObject ? (Reflect.get(value, name) as unknown) : undefined;
}

/** A transaction of Kysely. */
interface KyselyTx {
  readonly isTransaction: boolean;
  withoutPlugins(): {
    executeQuery(query: never): Promise<{ readonly rows: readonly unknown[] }>;
  };
}

/** A transaction of Drizzle, over node-postgres or postgres.js. */
interface DrizzleTx {
  execute(query: never): PromiseLike<unknown>;
  rollback(): never;
}

/** A transaction of Knex. */
interface KnexTx {
  readonly isTransaction?: boolean;
  raw(sql: string, bindings: never): PromiseLike<unknown>;
}

/** The client that Prisma hands to an interactive transaction. */
interface PrismaTx {
  $queryRawUnsafe(text: string, ...values: never[]): PromiseLike<unknown>;
}

type Row = Readonly<Record<string, unknown>>;

/** The transaction of `db.transaction().execute(async (tx) => …)`. */
export function fromKysely(tx: KyselyTx): SqlTx {
  // A plugin may rename what comes back.
  const plain = tx.withoutPlugins();
  return {
    async query(text, values) {
      const query = { kind: 'RawNode', sqlFragments: [text], parameters: [] };
      const compiled = { sql: text, parameters: values, query, queryId: { queryId: text } };
      return { rows: (await plain.executeQuery(compiled as never)).rows as readonly Row[] };
    },
  };
}

/** The transaction of `db.transaction(async (tx) => …)`. */
export function fromDrizzle(tx: DrizzleTx): SqlTx {
  return {
    async query(text, values) {
      const statement = { toQuery: () => ({ sql: text, params: values }) };
      const result = await tx.execute({ getSQL: () => statement } as never);
      return { rows: rowsOf(result) };
    },
  };
}

/**
 * The transaction of `knex.transaction(async (tx) => …)`.
 *
 * @example
 * import { fromDrizzle, fromKnex, fromKysely, fromPrisma, type Outbox } from 'respool/outbox';
 * declare const outbox: Outbox;
 * declare const tx: Parameters<typeof fromKnex>[0];
 * await outbox.emit(fromKnex(tx), 'orders.paid', { order: 7 });
 * const others = { fromDrizzle, fromKysely, fromPrisma }; // the same for other libraries
 */
export function fromKnex(tx: KnexTx): SqlTx {
  return {
    async query(text, values) {
      // Knex has question marks instead of numbers: a value that is used twice is passed twice.
      const bindings: unknown[] = [];
      const counted = text.replaceAll('?', '\\?').replaceAll(PLACEHOLDER, (_, number: string) => {
        bindings.push(values[Number(number) - 1]);
        return '?';
      });
      return { rows: rowsOf(await tx.raw(counted, bindings as never)) };
    },
  };
}

/** The client of `prisma.$transaction(async (tx) => …)`. */
export function fromPrisma(tx: PrismaTx): SqlTx {
  return {
    async query(text, values) {
      // Prisma sends a text as the type that it is cast to, which fails for all types but text.
      const typed = text.replaceAll(PLACEHOLDER, (placeholder, number: string) =>
        typeof values[Number(number) - 1] === 'string' ? `${placeholder}::text` : placeholder,
      );
      return { rows: rowsOf(await tx.$queryRawUnsafe(typed, ...(values as never[]))) };
    },
  };
}

/** Any object with query(text, values), such as a client of pg. */
function fromQuery(tx: SqlTx): SqlTx {
  return {
    async query(text, values) {
      return { rows: rowsOf(await tx.query(text, values)) };
    },
  };
}

const PLACEHOLDER = /\$(\d+)\b/g;

/** The rows of a result: some libraries return rows, some an object with rows. */
function rowsOf(result: unknown): readonly Row[] {
  if (Array.isArray(result)) return result as readonly Row[];
  const rows: unknown =
    typeof result === 'object' && result !== null ? Reflect.get(result, 'rows') : undefined;
  if (Array.isArray(rows)) return rows as readonly Row[];
  // If they counted as no rows, a duplicate would look like a stored message.
  throw new RespoolError(
    'config.invalid',
    `cannot use this transaction: it answered a statement with ${show(result)}; needed are rows ` +
      'as objects, or { rows }',
  );
}

/**
 * The calls on one transaction, one at a time. A call may take several statements: another call in
 * between would overtake it, or be undone with it.
 */
export interface TxMutex {
  /** The id of the transaction, as far as it is known. */
  xid: string | undefined;
}

interface MutexState extends TxMutex {
  waiting: number;
  last: Promise<unknown>;
}

/** Mutexes by the objects of their transactions. */
export class TxMutexes {
  readonly #states = new WeakMap<object, MutexState>();

  /**
   * Runs `work` once earlier calls on the same object have ended; without earlier calls at once,
   * with nothing awaited. `isKept`: the object lives no longer than its transaction, so the
   * transaction id is kept.
   */
  run<T>(tx: object, isKept: boolean, work: (mutex: TxMutex) => Promise<T>): Promise<T> {
    const mutex = this.#stateOf(tx);
    const run = mutex.waiting === 0 ? work(mutex) : mutex.last.then(() => work(mutex));
    mutex.waiting += 1;
    const leave = (): void => {
      mutex.waiting -= 1;
      if (mutex.waiting === 0 && !isKept) mutex.xid = undefined;
    };
    mutex.last = run.then(leave, leave);
    return run;
  }

  #stateOf(tx: object): MutexState {
    const known = this.#states.get(tx);
    if (known !== undefined) return known;
    const mutex: MutexState = { xid: undefined, waiting: 0, last: Promise.resolve() };
    this.#states.set(tx, mutex);
    return mutex;
  }
}
