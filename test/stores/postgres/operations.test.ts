import { expect, test } from 'vitest';
import { sampleEntries } from 'respool/testkit';
import type { StoreOperation } from 'respool';
import { withService } from '../../services/index.ts';
import { faultyPool } from './faulty-pool.ts';
import { openStore } from './setup.ts';
import { claimRequest, entryChange } from '../requests.ts';

async function setup() {
  const pool = await faultyPool();
  const store = await openStore({ pool });
  const told: StoreOperation[] = [];
  store.onOperation?.((operation) => void told.push(operation));
  const shown = () => told.map(({ name, items, isDone }) => ({ name, items, isDone }));
  return { pool, store, shown };
}

withService('postgres', () => {
  test('changes that only keep entries for longer are told as heartbeats', async () => {
    const { store, shown } = await setup();
    await store.insert(sampleEntries(3, 'm'));
    const taken = await store.claim(claimRequest(store, { max: 2 }));
    const longer = taken.map((entry) => {
      const { status } = entry;
      return entryChange(entry, { ...status, revision: status.revision + 1 });
    });
    expect(await store.commit(longer, { durable: false })).toEqual(['done', 'done']);
    expect(shown()).toEqual([
      { name: 'insert', items: 3, isDone: true },
      { name: 'claim', items: 2, isDone: true },
      { name: 'heartbeat', items: 2, isDone: true },
    ]);
  });

  test('what the server refuses is told as failed', async () => {
    const { pool, store, shown } = await setup();
    pool.plan = () => ({ code: '53100', message: 'no space left on device' });
    await expect(store.insert(sampleEntries(3, 'm'))).rejects.toMatchObject({ code: 'store.full' });
    await expect(store.claim(claimRequest(store))).rejects.toThrow();
    await expect(store.list({ limit: 10 })).rejects.toThrow();
    pool.plan = () => 'none';
    expect(shown()).toEqual([
      { name: 'insert', items: 3, isDone: false },
      { name: 'claim', items: 0, isDone: false },
      { name: 'read', items: 0, isDone: false },
    ]);
  });
});
