import { expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import type { SqliteStore } from 'respool/stores/sqlite';
import type { StoreOperation } from 'respool';
import { makeFolder, openStore } from './setup.ts';
import { claimRequest } from '../requests.ts';

function listen(store: SqliteStore): StoreOperation[] {
  const told: StoreOperation[] = [];
  store.onOperation?.((operation) => void told.push(operation));
  return told;
}

test.each([false, true])(
  'what goes to the disk in one transaction is told by kind, with the time of the whole (thread: %s)',
  async (thread) => {
    const store = await openStore({ path: await makeFolder(), thread });
    await store.insert(sampleEntries(4, 'old'));
    const told = listen(store);
    await Promise.all([
      store.insert(sampleEntries(3, 'new')),
      store.commit([{ id: 'old-00000', revision: 1, to: 'remove' }]),
      store.claim(claimRequest(store, { max: 2 })),
      store.records.append('audit', 1),
    ]);
    expect(told.map(({ name, items, isDone }) => ({ name, items, isDone }))).toEqual([
      { name: 'insert', items: 3, isDone: true },
      { name: 'commit', items: 1, isDone: true },
      { name: 'claim', items: 2, isDone: true },
      { name: 'write', items: 1, isDone: true },
    ]);
    expect(new Set(told.map(({ tookMs }) => tookMs)).size).toBe(1);
    expect(told[0]?.tookMs).toBeGreaterThan(0);
  },
);

test('a file that cannot grow is told as failed inserts', async () => {
  const store = await openStore({ path: await makeFolder() }, { maxPages: 100 });
  const told = listen(store);
  const large = sampleEntry('large', { bytes: new Uint8Array(900_000) });
  await expect(store.insert([large, sampleEntry('small')])).rejects.toMatchObject({
    code: 'store.full',
  });
  expect(told).toMatchObject([{ store: 'entries', name: 'insert', items: 2, isDone: false }]);
  await store.insert([sampleEntry('small')]);
  expect(told).toMatchObject([{ isDone: false }, { name: 'insert', items: 1, isDone: true }]);
});
