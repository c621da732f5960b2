/** within — messages that are inserted in a transaction of the user's, for an outbox. */

import { expect, test } from 'vitest';
import type { SqlTx } from '../../../src/ports/sql.ts';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { postgres } from 'respool/stores/postgres';
import { withService } from '../../services/index.ts';
import { openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { claimRequest, later } from '../requests.ts';

withService('postgres', () => {
  test('a message is there when the transaction commits, and nowhere before', async () => {
    const store = await openStore();
    const client = await openClient();
    await client.query('BEGIN');
    const entry = sampleEntry('a', { bytes: Uint8Array.of(1, 2) });
    expect(await store.insertWithin(client, [entry])).toEqual(['stored']);
    expect(await store.get('a')).toBeUndefined();
    expect(await store.claim(claimRequest(store))).toEqual([]);
    await client.query('COMMIT');
    expect((await store.get('a'))?.inlineBody).toEqual(Uint8Array.of(1, 2));
  });

  test('a message of a transaction that is rolled back was never there', async () => {
    const store = await openStore();
    const client = await openClient();
    await client.query('BEGIN');
    await store.insertWithin(client, sampleEntries(3, 'm'));
    await client.query('ROLLBACK');
    expect((await store.list({ limit: 10 })).entries).toEqual([]);
  });

  test('a duplicate is told and does not fail the transaction', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    await store.insert([sampleEntry('a', { dedupeKey: 'k' })]);
    const client = await openClient();
    await client.query(`CREATE TABLE "${schema}".orders (id int)`);
    await client.query('BEGIN');
    await client.query(`INSERT INTO "${schema}".orders VALUES (1)`);
    const entries = [
      sampleEntry('a'),
      sampleEntry('b', { dedupeKey: 'k' }),
      sampleEntry('c'),
      sampleEntry('c'),
    ];
    expect(await store.insertWithin(client, entries)).toEqual([
      { duplicateOf: 'a' },
      { duplicateOf: 'a' },
      'stored',
      { duplicateOf: 'c' },
    ]);
    await client.query('COMMIT');
    expect((await client.query(`SELECT id FROM "${schema}".orders`)).rows).toEqual([{ id: 1 }]);
    expect((await store.get('c'))?.envelope.id).toBe('c');
  });

  test('a message that cannot be stored is refused before the transaction is touched', async () => {
    const store = await openStore();
    const client = await openClient();
    await client.query('BEGIN');
    const wrong = sampleEntry('a', { dueAt: 0.5 });
    await expect(store.insertWithin(client, [wrong])).rejects.toMatchObject({
      code: 'message.invalid',
    });
    expect(await store.insertWithin(client, [])).toEqual([]);
    expect(await store.insertWithin(client, [sampleEntry('b')])).toEqual(['stored']);
    await client.query('COMMIT');
  });

  test('a store that was never opened emits into tables that another one has made', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const emitting = postgres({ url: 'postgres://nobody@127.0.0.1:1/nowhere', schema });
    const client = await openClient();
    await client.query('BEGIN');
    const entries = [sampleEntry('a', { bytes: Uint8Array.of(1) }), sampleEntry('b')];
    expect(await emitting.insertWithin(client, entries)).toEqual(['stored', 'stored']);
    await client.query('COMMIT');
    expect((await store.get('a'))?.inlineBody).toEqual(Uint8Array.of(1));
  });

  test('without tables the error of the server comes as it is', async () => {
    const emitting = postgres({ url: await serverUrl(), schema: ownSchema() });
    const client = await openClient();
    await expect(emitting.insertWithin(client, [sampleEntry('a')])).rejects.toMatchObject({
      code: '42P01',
    });
  });

  test('what runs the statements has to know of texts, numbers and bytes alone', async () => {
    const store = await openStore();
    const client = await openClient();
    const kinds = new Set<string>();
    const tx: SqlTx = {
      async query(text, values) {
        for (const value of values) kinds.add(Buffer.isBuffer(value) ? 'bytes' : typeof value);
        // An array goes as a text that the server reads.
        expect(text).not.toMatch(/\$\d+::\w+\[\]/);
        const { rows } = await client.query(text, values);
        return { rows: rows.map((row: object) => ({ ...row })) };
      },
    };
    const entries = [
      sampleEntry('a', { dedupeKey: 'k', destination: 'there', bytes: Uint8Array.of(0, 255) }),
      sampleEntry('b', { priority: 1, dueAt: later(5), topic: 'other "topic", {quoted}' }),
      sampleEntry('c', { dedupeKey: 'k' }),
      sampleEntry('a'),
    ];
    await client.query('BEGIN');
    expect(await store.insertWithin(tx, entries)).toEqual([
      'stored',
      'stored',
      { duplicateOf: 'a' },
      { duplicateOf: 'a' },
    ]);
    await client.query('COMMIT');
    expect([...kinds].sort()).toEqual(['bytes', 'number', 'string']);
    expect(await store.get('a')).toEqual(entries[0]);
    expect(await store.get('b')).toEqual(entries[1]);
  });

  test('the transaction keeps its own setting of synchronous_commit', async () => {
    const store = await openStore();
    const client = await openClient();
    await client.query('BEGIN');
    await client.query("SET LOCAL synchronous_commit = 'local'");
    await store.insertWithin(client, [sampleEntry('a')]);
    expect((await client.query('SHOW synchronous_commit')).rows[0]).toEqual({
      synchronous_commit: 'local',
    });
    await client.query('ROLLBACK');
  });
});
