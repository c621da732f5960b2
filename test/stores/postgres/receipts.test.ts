/** receipts — what an insert leaves behind by which its repetition knows that it has happened. */

import pg from 'pg';
import { expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import type { Entry } from 'respool';
import { withService } from '../../services/index.ts';
import { faultyPool, loseAnswers } from './faulty-pool.ts';
import { atEnd, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { entryChange } from '../requests.ts';

const INSERT = /INSERT INTO .*"entries"/s;

async function setup() {
  const pool = await faultyPool();
  const schema = ownSchema();
  const store = await openStore({ pool, schema });
  const client = await openClient();
  const count = async (): Promise<number> => {
    const { rows } = await client.query(`SELECT count(*)::int AS n FROM "${schema}".receipts`);
    return (rows[0] as { n: number }).n;
  };
  return { pool, store, schema, client, count };
}

withService('postgres', () => {
  test('a batch that was stored, delivered and removed before its repetition does not come back', async () => {
    const { pool, store, schema } = await setup();
    const other = await openStore({ schema });
    const entries = sampleEntries(3, 'm');
    let tries = 0;
    pool.plan = (text) => {
      if (INSERT.test(text)) tries += 1;
      return tries === 1 && INSERT.test(text) ? 'after' : 'none';
    };
    const inserting = store.insert(entries);
    for (const entry of entries) {
      while ((await other.get(entry.envelope.id)) === undefined);
      await other.commit([entryChange(entry, 'remove')]);
    }
    expect(await inserting).toEqual(['stored', 'stored', 'stored']);
    expect((await store.list({ limit: 10 })).entries).toEqual([]);
  });

  test('a batch of duplicates within itself is told the same when its answer was lost', async () => {
    const { pool, store } = await setup();
    pool.plan = loseAnswers(/^COMMIT/, 1);
    const batch = [
      sampleEntry('a', { dedupeKey: 'k' }),
      sampleEntry('a', { headers: { n: '2' } }),
      sampleEntry('b', { dedupeKey: 'k' }),
      sampleEntry('c'),
    ];
    expect(await store.insert(batch)).toEqual([
      'stored',
      { duplicateOf: 'a' },
      { duplicateOf: 'a' },
      'stored',
    ]);
    expect((await store.list({ limit: 10 })).entries).toHaveLength(2);
  });

  test('receipts that were answered go, many at a time and at the end', async () => {
    const { store, count } = await setup();
    for (const entry of sampleEntries(300, 'm')) await store.insert([entry]);
    await expect.poll(count).toBeLessThan(256);
    await store.close();
    expect(await count()).toBe(0);
  });

  test('the receipt of a batch that was tried twice stays, for a first try that comes late', async () => {
    const { pool, store, client, schema, count } = await setup();
    const late: { text: string; values: unknown[] }[] = [];
    pool.plan = (text, values) => {
      if (late.length > 0 || !INSERT.test(text)) return 'none';
      late.push({ text, values: [...(values ?? [])] });
      return 'before';
    };
    const [entry] = sampleEntries(1, 'm');
    expect(await store.insert([entry as Entry])).toEqual(['stored']);
    await store.commit([entryChange(entry as Entry, 'remove')]);
    for (const other of sampleEntries(300, 'n')) await store.insert([other]);
    await store.close();
    expect(await count()).toBe(1);
    // What the server got at first, and carries out only now.
    await expect(client.query(late[0] as { text: string })).rejects.toThrow(/receipts_pkey/);
    const { rows } = await client.query(`SELECT FROM "${schema}".entries WHERE id = 'm-00000'`);
    expect(rows).toEqual([]);
  });

  // Regression: receipts of before were taken for those of the batches after it was opened again.
  test.each(['none', 'before'] as const)(
    'the receipt of a batch that was tried twice is not taken for one of a later opening (%s)',
    async (fault) => {
      const { pool, store, count } = await setup();
      pool.plan = loseAnswers(INSERT, 1, 'after');
      expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
      await store.close();
      expect(await count()).toBe(1);
      await store.open();
      pool.plan = loseAnswers(INSERT, 1, fault);
      expect(await store.insert([sampleEntry('b')])).toEqual(['stored']);
      expect((await store.get('b'))?.envelope.id).toBe('b');
    },
  );

  test('receipts of a process that died are removed a day later by whoever opens the store', async () => {
    const { client, schema, count } = await setup();
    await client.query(`INSERT INTO "${schema}".receipts (node, number, written_at)
      VALUES ('dead', 1, now() - interval '25 hours'), ('dead', 2, now() - interval '1 hour')`);
    await openStore({ schema });
    expect(await count()).toBe(1);
  });

  test('a try that comes late, when its repetition has the receipt, stores nothing', async () => {
    const { store, client, schema } = await setup();
    await store.insert([sampleEntry('a')]);
    await client.query('BEGIN');
    await client.query(
      `INSERT INTO "${schema}".receipts (node, number) SELECT node, number + 1 FROM "${schema}".receipts`,
    );
    const late = store.insert([sampleEntry('b')]);
    const refused = expect(late).rejects.toThrow(/receipts_pkey/);
    await client.query('COMMIT');
    await refused;
    expect(await store.get('b')).toBeUndefined();
  });

  test('a batch of several statements that stands still is ended by the server after 5 s', async () => {
    const pool = new pg.Pool({ connectionString: await serverUrl(), max: 1 });
    atEnd(() => pool.end());
    const shown: string[] = [];
    const show = 'SHOW idle_in_transaction_session_timeout';
    pool.on('connect', (client) => {
      const query = client.query.bind(client) as (given: unknown) => Promise<pg.QueryResult>;
      const spying = async (given: { readonly text: string }) => {
        const result = await query(given);
        if (given.text.includes('"receipts" (node, number) VALUES')) {
          shown.push((await query(show)).rows[0].idle_in_transaction_session_timeout);
        }
        return result;
      };
      Object.assign(client, { query: spying });
    });
    const store = await openStore({ pool });
    await store.insert([
      sampleEntry('a', { dedupeKey: 'k' }),
      sampleEntry('b', { dedupeKey: 'k' }),
    ]);
    expect(shown).toEqual(['5s']);
    const client = await pool.connect();
    const [[after] = []] = (await client.query({ text: show, rowMode: 'array' })).rows;
    client.release();
    expect(after).toBe('0');
  });
});
