/** locks — what others hold, or commit late, is passed over and found afterwards. */

import { expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import type { PostgresStore } from 'respool/stores/postgres';
import type { Entry } from 'respool';
import { withService } from '../../services/index.ts';
import { openClient, openStore, ownSchema } from './setup.ts';
import { claim, claimIds, entryChange } from '../requests.ts';

/** A store, and another transaction that has two of its four entries locked. */
async function lockTwo() {
  const schema = ownSchema();
  const store: PostgresStore = await openStore({
    schema,
    statementTimeout: '60s',
    retryFor: '1ms',
  });
  await store.insert(sampleEntries(4, 'm'));
  const client = await openClient();
  await client.query('BEGIN');
  await client.query(
    `SELECT FROM "${schema}".entries WHERE id IN ('m-00000', 'm-00002') FOR UPDATE`,
  );
  return { store, client };
}

withService('postgres', () => {
  test('a claim takes what is free beside what another transaction has locked, and does not wait', async () => {
    const { store, client } = await lockTwo();
    expect(await claimIds(store, { max: 3 })).toEqual(['m-00001', 'm-00003']);
    await client.query('COMMIT');
    expect(await claimIds(store)).toEqual(['m-00000', 'm-00002']);
  });

  test('a claim by id does not wait for a lock either', async () => {
    const { store, client } = await lockTwo();
    expect(await claimIds(store, { ids: ['m-00000', 'm-00001'] })).toEqual(['m-00001']);
    await client.query('ROLLBACK');
    expect(await claimIds(store, { ids: ['m-00000', 'm-00001'] })).toEqual(['m-00000']);
  });

  test('leases are kept while a verdict waits for a lock', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    await store.insert(sampleEntries(2, 'm'));
    const [stuck, kept] = (await claim(store, { max: 2 })) as [Entry, Entry];
    const client = await openClient();
    await client.query('BEGIN');
    await client.query(`SELECT FROM "${schema}".entries WHERE id = 'm-00000' FOR UPDATE`);
    let isSettled = false;
    const settling = store.commit([entryChange(stuck, 'remove')]).finally(() => {
      isSettled = true;
    });
    const lease = { ...kept.status, revision: kept.status.revision + 1 };
    expect(await store.commit([entryChange(kept, lease)], { durable: false })).toEqual(['done']);
    expect(isSettled).toBe(false);
    await client.query('COMMIT');
    expect(await settling).toEqual(['done']);
  });

  test('a message of a transaction that commits after a later message was claimed is still found', async () => {
    const store = await openStore();
    const client = await openClient();
    await client.query('BEGIN');
    await store.insertWithin(client, [sampleEntry('early')]);
    await store.insert([sampleEntry('late')]);
    expect(await claimIds(store)).toEqual(['late']);
    await client.query('COMMIT');
    expect(await claimIds(store)).toEqual(['early']);
  });
});
