/**
 * tx — what the caller gave as a transaction, as the one method that we need; or why it is none.
 *
 * Transactions of libraries we know are taken as they are. What would run outside the transaction,
 * such as a pool, is refused: a message that is there although the rest was rolled back is worse
 * than an error.
 */

import { RespoolError } from '../core/errors.ts';
import type { SqlTx } from '../ports/sql.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import {
  type DrizzleTx,
  fromDrizzle,
  fromKnex,
  fromKysely,
  fromPrisma,
  fromQuery,
  type KnexTx,
  type KyselyTx,
  type PrismaTx,
} from './libraries.ts';

/** Your own transaction: a client of `pg`, or that of Kysely, Drizzle, Knex or Prisma. */
export type AnyTx = SqlTx | KyselyTx | DrizzleTx | KnexTx | PrismaTx;

/** Takes a transaction of a library that we know; `doing` begins the error, as `emit "a.b"`. */
export function sqlTxOf(given: unknown, doing: string): SqlTx {
  for (const { fits, isOpen, take, advice } of KNOWN) {
    if (!fits(given)) continue;
    if (isOpen(given)) return take(given);
    throw new RespoolError('config.invalid', `cannot ${doing}: ${advice}`);
  }
  throw new RespoolError(
    'config.invalid',
    `cannot ${doing}: this is no transaction; give the client of pg that began one, the ` +
      'transaction of Kysely, Drizzle, Knex or Prisma, or an object with query(text, values)',
  );
}

/** Whether it stands for one transaction, and is not used for another after that. */
export function isOneTransaction(given: unknown): boolean {
  return KNOWN.find(({ fits }) => fits(given))?.isOne === true;
}

/** Whether it hands out connections: what runs on it is in no transaction. */
export function isPool(given: unknown): boolean {
  // A client can connect() as well; only one that was handed out can be released, and only a
  // connection can quote.
  return has(given, 'connect') && !has(given, 'release') && !has(given, 'escapeLiteral');
}

/** Whether it is a database of better-sqlite3. */
export function isSqlite(given: unknown): given is SqliteDatabase {
  return has(given, 'prepare') && has(given, 'exec') && has(given, 'pragma');
}

/** One library: how it is known, whether it is in a transaction, and what to do if not. */
interface Library {
  readonly fits: (given: unknown) => boolean;
  readonly isOpen: (given: unknown) => boolean;
  readonly take: (given: unknown) => SqlTx;
  readonly advice: string;
  /** Whether it makes a new object for each transaction. */
  readonly isOne?: boolean;
}

const OUTSIDE = 'what it runs is in no transaction, and would stay if yours is rolled back';

const KNOWN: readonly Library[] = [
  {
    fits: isSqlite,
    isOpen: () => false,
    take: (given) => given as SqlTx,
    advice: 'this is a database of better-sqlite3; make the outbox with { database }',
  },
  {
    fits: (given) => has(given, '$queryRawUnsafe'),
    // A transaction may begin another inside it, since Prisma 7.5; it cannot connect.
    isOpen: (given) => !has(given, '$connect'),
    take: (given) => fromPrisma(given as PrismaTx),
    advice:
      `this is the client of Prisma: ${OUTSIDE}; ` +
      'call it in prisma.$transaction(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: (given) => has(given, 'executeQuery') && has(given, 'withoutPlugins'),
    isOpen: (given) => read(given, 'isTransaction') === true,
    take: (given) => fromKysely(given as KyselyTx),
    advice:
      `this is the database of Kysely: ${OUTSIDE}; ` +
      'call it in db.transaction().execute(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: (given) => has(given, 'raw') && has(given, 'transaction') && has(given, 'schema', 'any'),
    isOpen: (given) => read(given, 'isTransaction') === true,
    take: (given) => fromKnex(given as KnexTx),
    advice:
      `this is Knex itself: ${OUTSIDE}; ` +
      'call it in knex.transaction(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: (given) => has(given, 'execute') && has(given, 'transaction') && has(given, 'select'),
    isOpen: (given) => has(given, 'rollback'),
    take: (given) => fromDrizzle(given as DrizzleTx),
    advice:
      `this is the database of Drizzle: ${OUTSIDE}; ` +
      'call it in db.transaction(async (tx) => …) with that tx',
    isOne: true,
  },
  {
    fits: isPool,
    isOpen: () => false,
    take: (given) => given as SqlTx,
    advice:
      `this is a pool: ${OUTSIDE}; use transaction(pool, async (tx) => …), ` +
      'or a client of the pool on which you began one',
  },
  {
    fits: (given) => has(given, 'query'),
    isOpen: () => true,
    take: (given) => fromQuery(given as SqlTx),
    advice: '',
  },
];

function has(given: unknown, name: string, kind: 'function' | 'any' = 'function'): boolean {
  const value = read(given, name);
  return kind === 'any' ? value !== undefined : typeof value === 'function';
}

/** n.b. Knex is a function with properties. */
function read(given: unknown, name: string): unknown {
  const isObject = (typeof given === 'object' && given !== null) || typeof given === 'function';
  return isObject ? (Reflect.get(given, name) as unknown) : undefined;
}
