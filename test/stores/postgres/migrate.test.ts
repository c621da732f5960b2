/** migrate — tables of an older version are brought up to date, step by step, once. */

import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { migrateSchema, type SchemaStep, STEPS } from '../../../src/stores/postgres/schema.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import type { QueryRequest } from '../../../src/stores/postgres/connection.ts';
import { keyedEntry } from '../../../src/testkit/entry-cases/order.ts';
import { withService } from '../../services/index.ts';
import { asking, openClient, openStore, ownSchema } from './setup.ts';
import { claimIds } from '../requests.ts';

/** Two versions that are not there yet; each fails if it is run twice, or before the other. */
const NEXT: readonly SchemaStep[] = [
  ...STEPS,
  ({ table }) => `ALTER TABLE ${table.entries} ADD COLUMN colour text NOT NULL DEFAULT 'red';`,
  ({ table }) => `ALTER TABLE ${table.entries} RENAME COLUMN colour TO hue;`,
];

/** Tables as this program makes them, with one message. */
async function setup() {
  const schema = ownSchema();
  const names = namesOf(schema, '');
  const store = await openStore({ schema });
  await store.insert([sampleEntry('a')]);
  const client = await openClient();
  const version = async () => {
    const { rows } = await client.query(`SELECT value FROM ${names.table.meta}`);
    return Number(rows[0].value);
  };
  const columns = async () => {
    const sql = `SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass
      AND attname IN ('colour', 'hue')`;
    return (await client.query(sql, [names.table.entries])).rows.map(({ attname }) => attname);
  };
  return { schema, names, store, client, version, columns };
}

withService('postgres', () => {
  test('only the steps that are missing are run, in their order, and messages stay', async () => {
    const { names, store, client, version, columns } = await setup();
    await migrateSchema(asking(client), names, true, { steps: NEXT });
    expect(await version()).toBe(STEPS.length + 2);
    expect(await columns()).toEqual(['hue']);
    expect((await store.get('a'))?.envelope.id).toBe('a');
  });

  test('messages of the first version are there in the second, and can be ordered beside', async () => {
    const schema = ownSchema();
    const names = namesOf(schema, '');
    const client = await openClient();
    await migrateSchema(asking(client), names, true, { steps: STEPS.slice(0, 1) });
    const columns = 'id, slot, due_at, enqueued_at, updated_at, revision, attempts, notices, lost';
    await client.query(
      `WITH e AS (INSERT INTO ${names.table.entries} (${columns}, postponed, replays, priority,
        topic, destination, holder) VALUES ('old', 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 5, 't', '', '')
        RETURNING seq)
      INSERT INTO ${names.table.contents} SELECT seq, $1 FROM e`,
      [JSON.stringify({ ...sampleEntry('old').envelope, topic: 't' })],
    );
    const store = await openStore({ schema });
    await store.insert([keyedEntry('b'), keyedEntry('a')]);
    expect(await claimIds(store)).toEqual(['old', 'b']);
  });

  test('of openers that come at once with a newer version each step is run by one', async () => {
    const { names, version, columns } = await setup();
    const clients = await Promise.all([1, 2, 3, 4].map(() => openClient()));
    await Promise.all(
      clients.map((client) => migrateSchema(asking(client), names, true, { steps: NEXT })),
    );
    expect([await version(), await columns()]).toEqual([STEPS.length + 2, ['hue']]);
  });

  test('an older version is refused and left as it is by who may not change it', async () => {
    const { names, client, version, columns } = await setup();
    const refused = migrateSchema(asking(client), names, false, { steps: NEXT });
    await expect(refused).rejects.toMatchObject({
      code: 'store.version',
      message: expect.stringContaining(
        `of version ${STEPS.length}, needed is ${STEPS.length + 2}, and "migrate" is false`,
      ),
    });
    expect([await version(), await columns()]).toEqual([STEPS.length, []]);
    await migrateSchema(asking(client), names, true, { steps: NEXT });
    await migrateSchema(asking(client), names, false, { steps: NEXT });
  });

  test('a step that fails leaves everything as it was', async () => {
    const { names, client, version, columns } = await setup();
    const wrong = [...NEXT.slice(0, -1), () => 'SELECT 1 / 0;'];
    await expect(migrateSchema(asking(client), names, true, { steps: wrong })).rejects.toThrow(
      'zero',
    );
    await client.query('ROLLBACK');
    expect([await version(), await columns()]).toEqual([STEPS.length, []]);
  });

  test('what a newer program has brought up to date is refused by an older one', async () => {
    const { schema, names, client } = await setup();
    await migrateSchema(asking(client), names, true, { steps: NEXT });
    await expect(openStore({ schema })).rejects.toMatchObject({ code: 'store.version' });
  });

  test('a migration that stands still is ended by the server after a minute, and it alone', async () => {
    const { names, client } = await setup();
    const ask = asking(client);
    const shown: unknown[] = [];
    const spying: QueryRequest = async (text, values) => {
      const rows = await ask(text, values);
      if (text.includes('pg_advisory_xact_lock')) {
        shown.push(...(await ask('SHOW idle_in_transaction_session_timeout')));
      }
      return rows;
    };
    await migrateSchema(spying, names, true, { steps: NEXT });
    shown.push(...(await ask('SHOW idle_in_transaction_session_timeout')));
    expect(shown).toEqual([['1min'], ['0']]);
  });
});
