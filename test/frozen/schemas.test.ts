/** Fresh stores have the tables of the snapshots: other programs, views and grants go by them. */
import path from 'node:path';
import { createOutbox, migrateInbox } from 'respool/outbox';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { once, sqliteBodies } from 'respool/stores/sqlite';
import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntries, type SampleParts } from 'respool/testkit';
import { namesOf } from '../../src/stores/postgres/options.ts';
import { withService } from '../services/index.ts';
import { openClient, ownSchema, serverUrl } from '../stores/postgres/setup.ts';
import { makeFolder, openFile, openStore } from '../stores/sqlite/setup.ts';
import { catalogOf } from './postgres-catalog.ts';

/**
 * A crowd of one topic, and others that are not due: by claims that leave the crowd out the index of
 * flows is made, and the table of due bounds, which are not there at first.
 */
const CROWD = 200;
const OTHERS = 300;

async function makeStore(file: string): Promise<void> {
  const store = await openStore({ path: file });
  await store.insert(sampleEntries(CROWD, 'm', { topic: 'crowd' }));
  const other = (at: number): SampleParts => ({ topic: `other.${at}`, dueAt: SAMPLE_AT + 1 });
  await store.insert(sampleEntries(OTHERS, 'other', other));
  await store.claim({
    lane: 'delivery',
    states: ['incoming'],
    topics: [{ pattern: 'other.#', take: true }],
    max: 1,
    now: SAMPLE_AT,
    leaseMs: SAMPLE_LEASE_MS,
    holder: `${store.instance}-1`,
  });
  await store.close();
  const bodies = sqliteBodies({ path: file });
  await bodies.open();
  await bodies.close();
}

describe('SQLite', () => {
  test('a store, bodies, an outbox, its inbox and keys of once', async () => {
    const file = path.join(await makeFolder(), 'app.db');
    const database = await openFile(file);
    await makeStore(file);
    await using outbox = createOutbox({ database });
    outbox.migrate();
    migrateInbox(database);
    once(database, 'key', () => undefined);
    const rows = database
      .prepare(
        `SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'sqlite_sequence'
         ORDER BY tbl_name, type DESC, name`,
      )
      .all() as { readonly name: string; readonly sql: string }[];
    const texts = new Map(rows.map(({ name, sql }) => [name, sql]));
    const lines = rows.map(({ name, sql }) => {
      // An outbox is a store under other names.
      const isSame = sql.replaceAll('outbox_', '') === texts.get(name.replace(/^outbox_/, ''));
      return name.startsWith('outbox_') && isSame ? `-- ${name}: the same` : `${sql};`;
    });
    const pragmas = ['journal_mode', 'page_size', 'auto_vacuum', 'encoding', 'user_version'].map(
      (name) => `PRAGMA ${name} = ${String(database.pragma(name, { simple: true }))};`,
    );
    const text = [...pragmas, ...lines].join('\n\n');
    await expect(`${text}\n`).toMatchFileSnapshot('sqlite.sql');
  });
});

withService('postgres', () => {
  test('a store, bodies, and the inbox of an outbox', async () => {
    const schema = ownSchema();
    const url = await serverUrl();
    for (const store of [postgres({ url, schema }), postgresBodies({ url, schema })]) {
      await store.open();
      await store.close();
    }
    const client = await openClient();
    const pool = { connect: async () => Object.assign(client, { release: () => undefined }) };
    await migrateInbox(pool, { schema });
    // Programs of two versions may be at work on the same tables: they wake each other.
    const { channel, lockKey } = namesOf('respool', '');
    const text = `${await catalogOf(client, schema)}\nchannel ${channel}\nlock ${lockKey}\n`;
    await expect(text).toMatchFileSnapshot('postgres.txt');
  });
});
