/** conformance — the shared suites over the PostgreSQL stores; several files run them. */

import type { BodyStore, EntryStore } from 'respool';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import {
  type BodiesUnderTest,
  bodyStoreSuite,
  entryStoreSuite,
  type StoreUnderTest,
} from 'respool/testkit';
import { runSuite } from '../../suite.ts';
import { connect, newSchema, serverUrl } from './setup.ts';

/** Each file has one schema: making the tables anew for each case takes most of the time. */
const schema = newSchema();

const TABLES = [
  'entries',
  'contents',
  'receipts',
  'quarantine',
  'log_heads',
  'logs',
  'maps',
  'bodies',
  'chunks',
];

async function empty(): Promise<void> {
  const client = await connect();
  const found = await client.query(`SELECT to_regclass('"${schema}".entries') AS name`);
  if (found.rows[0]?.name !== null) {
    await client.query(`ALTER SEQUENCE "${schema}".turns RESTART`);
    const names = TABLES.map((table) => `"${schema}".${table}`);
    const counted = await client.query(
      `SELECT 1 FROM ${names[0]} UNION ALL SELECT 1 FROM ${names.at(-1)} LIMIT 2000`,
    );
    // A crowd is quicker to truncate, a few rows are quicker to delete.
    if ((counted.rowCount ?? 0) === 2_000) await client.query(`TRUNCATE ${names.join(', ')}`);
    else await client.query(names.map((name) => `DELETE FROM ${name};`).join(''));
  }
  await client.end();
}

/** As if there had been a message with an order key before: statements think of keys from then on. */
async function hadKeys(): Promise<void> {
  const client = await connect();
  await client.query(`SELECT nextval('"${schema}".turns')`);
  await client.end();
}

async function makeEntries(url: string, isOrdered: boolean): Promise<StoreUnderTest> {
  const stores: EntryStore[] = [];
  const open = async () => {
    const store = postgres({ url, schema });
    stores.push(store);
    await store.open();
    return store;
  };
  const first = await open();
  if (isOrdered) await hadKeys();
  const store = isOrdered ? await open() : first;
  return {
    store,
    async reopen() {
      await store.close();
      return open();
    },
    second: open,
    async damage(id) {
      const client = await connect();
      const cut = `UPDATE "${schema}".contents SET envelope = substr(envelope, 1, 20)
        WHERE seq = (SELECT seq FROM "${schema}".entries WHERE id = $1)`;
      await client.query(cut, [id]);
      await client.end();
    },
    async dispose() {
      for (const opened of stores) await opened.close();
      await empty();
    },
  };
}

async function makeBodies(url: string): Promise<BodiesUnderTest> {
  const stores: BodyStore[] = [];
  const open = async () => {
    const bodies = postgresBodies({ url, schema });
    stores.push(bodies);
    await bodies.open();
    return bodies;
  };
  const bodies = await open();
  return {
    bodies,
    async reopen() {
      await bodies.close();
      return open();
    },
    async dispose() {
      for (const opened of stores) await opened.close();
      await empty();
    },
  };
}

/**
 * Every promise of an entry store; `via` gives the URL that the stores are opened with. `isOrdered`:
 * in a store that had order keys from the beginning, otherwise only in the cases about them.
 */
export function runEntries(
  where: string,
  via: () => Promise<string> = serverUrl,
  { isOrdered = false }: { readonly isOrdered?: boolean } = {},
): void {
  runSuite(
    `the PostgreSQL store ${where} keeps the promises of an entry store:`,
    entryStoreSuite(async () => makeEntries(await via(), isOrdered), {
      canReopen: true,
      canShare: true,
      canDamage: true,
      canOrder: true,
    }),
  );
}

/** Every promise of a body store. */
export function runBodies(where: string, via: () => Promise<string> = serverUrl): void {
  runSuite(
    `the PostgreSQL body store ${where} keeps the promises of a body store:`,
    bodyStoreSuite(async () => makeBodies(await via()), { canReopen: true }),
  );
}
