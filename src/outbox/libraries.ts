/**
 * libraries — transactions of Kysely, Drizzle, Knex and Prisma as the one method that we need.
 *
 * Typed by their shape and never imported: anyone who uses one has it. Statements go through the
 * library itself, so that its logs and hooks see them.
 */

import { RespoolError, show } from '../core/errors.ts';
import type { SqlTx } from '../ports/sql.ts';

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

/** The transaction of `knex.transaction(async (tx) => …)`. */
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

/** Whatever has query(text, values), as a client of pg has. */
export function fromQuery(tx: SqlTx): SqlTx {
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
