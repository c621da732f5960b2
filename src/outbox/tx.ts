/**
 * tx — what the caller gave as a transaction, as the one method that we need; or why it is none.
 *
 * Transactions of Kysely, Drizzle, Knex and Prisma are taken as they are: typed by their shape and
 * never imported, anyone who uses one has it; statements go through the library itself, so that its
 * logs and hooks see them. What would run outside the transaction, such as a pool, is refused: a
 * message that is there although the rest was rolled back is worse than an error. Calls on one
 * transaction run one after the other.
 */

import { RespoolError, show } from '../core/errors.ts';
import type { SqlTx } from '../ports/sql.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';

/** Your own transaction: a client of `pg`, or that of Kysely, Drizzle, Knex or Prisma. */
export type AnyTx = SqlTx | KyselyTx | DrizzleTx | KnexTx | PrismaTx;

/** Takes a transaction of a library that we know; `doing` begins the error, as `emit "a.b"`. */
export function sqlTxOf(value: unknown, doing: string): SqlTx {
  for (const { fits, isOpen, take, advice } of KNOWN) {
    if (!fits(value)) continue;
    if (isOpen(value)) return take(value);
    throw new RespoolError('config.invalid', `cannot ${doing}: ${advice}`);
  }
  throw new RespoolError(
    'config.invalid',
    `cannot ${doing}: this is no transaction; give the client of pg that began one, the ` +
      'transaction of Kysely, Drizzle, Knex or Prisma, or an object with query(text, values)',
  );
}

/** Whether it stands for one transaction, and is not used for another after that. */
export function isOneTransaction(value: unknown): boolean {
  return KNOWN.find(({ fits }) => fits(value))?.isOne === true;
}

/** Whether it hands out connections: what runs on it is in no transaction. */
export function isPool(value: unknown): boolean {
  // A client can connect() as well; only one that was handed out can be released, and only a
  // connection can quote.
  return has(value, 'connect') && !has(value, 'release') && !has(value, 'escapeLiteral');
}

/** Whether it is a database of better-sqlite3. */
export function isSqlite(value: unknown): value is SqliteDatabase {
  return has(value, 'prepare') && has(value, 'exec') && has(value, 'pragma');
}

/** One library: how it is known, whether it is in a transaction, and what to do if not. */
interface Library {
  readonly fits: (value: unknown) => boolean;
  readonly isOpen: (value: unknown) => boolean;
  readonly take: (value: unknown) => SqlTx;
  readonly advice: string;
  /** Whether it makes a new object for each transaction. */
  readonly isOne?: boolean;
}

const OUTSIDE = 'what it runs is in no transaction, and would stay if yours is rolled back';

const KNOWN: readonly Library[] = [
  {
    fits: isSqlite,
    isOpen: () => false,
    take: (value) => value as SqlTx,
    advice: 'this is a database of better-sqlite3; make the outbox with { database }',
  },
  {
    fits: (value) => has(value, '$queryRawUnsafe'),
    // A transaction may begin another inside it, since Prisma 7.5; it cannot connect.
    isOpen: (value) => !has(value, '$connect'),
    take: (value) => fromPrisma(value as PrismaTx),
    advice:
      `this is the client of Prisma: ${OUTSIDE}; ` +
      'call it in prisma.$transaction(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: (value) => has(value, 'executeQuery') && has(value, 'withoutPlugins'),
    isOpen: (value) => read(value, 'isTransaction') === true,
    take: (value) => fromKysely(value as KyselyTx),
    advice:
      `this is the database of Kysely: ${OUTSIDE}; ` +
      'call it in db.transaction().execute(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: (value) => has(value, 'raw') && has(value, 'transaction') && has(value, 'schema', 'any'),
    isOpen: (value) => read(value, 'isTransaction') === true,
    take: (value) => fromKnex(value as KnexTx),
    advice:
      `this is Knex itself: ${OUTSIDE}; ` +
      'call it in knex.transaction(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: (value) => has(value, 'execute') && has(value, 'transaction') && has(value, 'select'),
    isOpen: (value) => has(value, 'rollback'),
    take: (value) => fromDrizzle(value as DrizzleTx),
    advice:
      `this is the database of Drizzle: ${OUTSIDE}; ` +
      'call it in db.transaction(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: isPool,
    isOpen: () => false,
    take: (value) => value as SqlTx,
    advice:
      `this is a pool: ${OUTSIDE}; use transaction(pool, async (tx) => …), ` +
      'or a client of the pool on which you began one',
  },
  {
    fits: (value) => has(value, 'query'),
    isOpen: () => true,
    take: (value) => fromQuery(value as SqlTx),
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
export interface KyselyTx {
  readonly isTransaction: boolean;
  withoutPlugins(): {
    executeQuery(query: never): Promise<{ readonly rows: readonly unknown[] }>;
  };
}

/** A transaction of Drizzle, over node-postgres or postgres.js. */
export interface DrizzleTx {
  execute(query: never): PromiseLike<unknown>;
  rollback(): never;
}

/** A transaction of Knex. */
export interface KnexTx {
  readonly isTransaction?: boolean;
  raw(sql: string, bindings: never): PromiseLike<unknown>;
}

/** The client that Prisma hands to an interactive transaction. */
export interface PrismaTx {
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
      // Knex counts its question marks instead of numbers: a value that is used twice goes twice.
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
      // Prisma sends a text in the form of the type it is cast to, which only fits text itself.
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

/** Some give rows, some a result that has them. */
function rowsOf(result: unknown): readonly Row[] {
  if (Array.isArray(result)) return result as readonly Row[];
  const rows: unknown =
    typeof result === 'object' && result !== null ? Reflect.get(result, 'rows') : undefined;
  if (Array.isArray(rows)) return rows as readonly Row[];
  // Taken for none, a duplicate would pass for a message that was stored.
  throw new RespoolError(
    'config.invalid',
    `cannot use this transaction: it answered a statement with ${show(result)}; needed are rows ` +
      'as objects, or { rows }',
  );
}

/**
 * Calls on one object that stands for a transaction. A call may take several statements: another
 * that came in between would overtake it, or be undone with it.
 */
export interface TxMutex {
  /** The id of the transaction, as far as it is known. */
  xid: string | undefined;
}

interface OwnLane extends TxMutex {
  waiting: number;
  last: Promise<unknown>;
}

/** Lanes by their objects. */
export class TxMutexes {
  readonly #lanes = new WeakMap<object, OwnLane>();

  /**
   * Runs `work` when those before it on the same object are through: at once if there are none, and
   * nothing is awaited then. `isKept`: the object lives no longer than its transaction, so the id
   * is kept.
   */
  run<T>(tx: object, isKept: boolean, work: (lane: TxMutex) => Promise<T>): Promise<T> {
    const lane = this.#laneOf(tx);
    const run = lane.waiting === 0 ? work(lane) : lane.last.then(() => work(lane));
    lane.waiting += 1;
    const leave = (): void => {
      lane.waiting -= 1;
      if (lane.waiting === 0 && !isKept) lane.xid = undefined;
    };
    lane.last = run.then(leave, leave);
    return run;
  }

  #laneOf(tx: object): OwnLane {
    const known = this.#lanes.get(tx);
    if (known !== undefined) return known;
    const lane: OwnLane = { xid: undefined, waiting: 0, last: Promise.resolve() };
    this.#lanes.set(tx, lane);
    return lane;
  }
}
