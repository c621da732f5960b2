/** Transactions of libraries, for tests that hold with each of them. */

import { setImmediate as turn } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { CamelCasePlugin, Kysely, PostgresDialect, sql as kyselySql } from 'kysely';
import knex, { type Knex } from 'knex';
import pg from 'pg';
import { expect } from 'vitest';
import {
  type AnyTx,
  fromDrizzle,
  fromKnex,
  fromKysely,
  fromPrisma,
  transaction,
} from 'respool/outbox';
import { atEnd, openPool, serverUrl } from './core-setup.ts';

/** A library in a test: its transactions, and what is no transaction of it. */
export interface Library {
  readonly transaction: (work: (tx: AnyTx, wrapped: AnyTx) => Promise<void>) => Promise<unknown>;
  readonly run: (tx: AnyTx, text: string) => Promise<unknown>;
  readonly root: unknown;
  readonly refusal: RegExp;
}

async function useKysely(max: number): Promise<Library> {
  const db = new Kysely<object>({
    dialect: new PostgresDialect({ pool: await openPool({ max }) }),
    // It would rename what comes back.
    plugins: [new CamelCasePlugin()],
  });
  return {
    transaction: (work) => db.transaction().execute((tx) => work(tx, fromKysely(tx))),
    run: (tx, text) => kyselySql.raw(text).execute(tx as unknown as Kysely<object>),
    root: db,
    refusal: /the database of Kysely.*db\.transaction\(\)\.execute/,
  };
}

async function useDrizzle(max: number): Promise<Library> {
  const db = drizzle({ client: await openPool({ max }) });
  return {
    transaction: (work) => db.transaction((tx) => work(tx, fromDrizzle(tx))),
    run: (tx, text) => (tx as unknown as typeof db).execute(sql.raw(text)),
    root: db,
    refusal: /the database of Drizzle.*db\.transaction/,
  };
}

async function useKnex(max: number): Promise<Library> {
  const db = knex({ client: 'pg', connection: await serverUrl(), pool: { min: 0, max } });
  atEnd(() => db.destroy());
  return {
    transaction: (work) => db.transaction((tx) => work(tx, fromKnex(tx))),
    run: async (tx, text) => (tx as unknown as Knex.Transaction).raw(text),
    root: db,
    refusal: /Knex itself.*knex\.transaction/,
  };
}

/**
 * Prisma by its shape, over a real server: rows alone, whole numbers as bigint, and texts sent in
 * the form of the type they are cast to, which does not fit arrays.
 */
async function usePrisma(max: number): Promise<Library> {
  const pool = await openPool({ max });
  const getTypeParser: pg.CustomTypesConfig['getTypeParser'] = (oid, format) =>
    oid === pg.types.builtins.INT8 ? BigInt : pg.types.getTypeParser(oid, format);
  const types = { getTypeParser };
  const shape = (client: pg.PoolClient) => ({
    $transaction: () => Promise.reject(new Error('not asked for')),
    async $queryRawUnsafe(text: string, ...values: unknown[]): Promise<unknown[]> {
      for (const [at, value] of values.entries()) {
        const casts = text.match(new RegExp(`\\$${at + 1}::\\w+(?:\\[\\])?`, 'g')) ?? [];
        if (typeof value === 'string') expect(casts).toEqual(casts.map(() => `$${at + 1}::text`));
      }
      return (await client.query({ text, values, types })).rows as unknown[];
    },
  });
  return {
    transaction: (work) =>
      byHand(pool, async (client) => {
        const tx = shape(client);
        await work(tx, fromPrisma(tx));
      }),
    run: (tx, text) => (tx as ReturnType<typeof shape>).$queryRawUnsafe(text),
    root: {
      $queryRawUnsafe: () => [],
      $transaction: () => undefined,
      $connect: () => undefined,
    },
    refusal: /the client of Prisma.*prisma\.\$transaction/,
  };
}

const CONNECTIONS = 4;

/** Each by its name, with so many connections. */
export const LIBRARIES: Readonly<Record<string, (max?: number) => Promise<Library>>> = {
  Kysely: (max = CONNECTIONS) => useKysely(max),
  Drizzle: (max = CONNECTIONS) => useDrizzle(max),
  Knex: (max = CONNECTIONS) => useKnex(max),
  Prisma: (max = CONNECTIONS) => usePrisma(max),
};

/** Begins, works, and ends as a library does. */
export type Run = (work: (tx: AnyTx) => Promise<void>) => Promise<unknown>;

async function useClient(max?: number): Promise<Run> {
  const pool = await openPool(max === undefined ? {} : { max });
  return (work) => byHand(pool, work);
}

/** Begins and ends with nothing but a client. */
async function byHand(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<void>,
): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await work(client);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

async function useOwn(max?: number): Promise<Run> {
  const pool = await openPool(max === undefined ? {} : { max });
  return (work) => transaction(pool, work);
}

/** Libraries, a client of pg by itself, and our own. */
export const KINDS: Record<string, (max?: number) => Promise<Run>> = {
  'a client of pg': useClient,
  'transaction()': useOwn,
};
for (const [name, use] of Object.entries(LIBRARIES)) {
  KINDS[name] = async (max) => (await use(max)).transaction;
}

/** Lets so many rounds of the event loop go by: what is on the wire is answered meanwhile. */
export async function turns(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) await turn();
}
