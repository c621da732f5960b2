import { expect, test } from 'vitest';
import { createTestSpool } from 'respool/testkit';
import type { StoreOperation } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { internalsOf } from '../../src/spool/internals.ts';

async function setup(parts: Parameters<typeof createTestSpool>[0] = {}) {
  const { spool, clock } = await createTestSpool({ limits: { inlineBodyBytes: 10 }, ...parts });
  const told: StoreOperation[] = [];
  const stop = internalsOf(spool).onStoreOperation((operation) => void told.push(operation));
  const items = (name: StoreOperation['name']) =>
    told.reduce((sum, one) => sum + (one.name === name ? one.items : 0), 0);
  return { spool, clock, told, stop, items };
}

test('a spool lets the operations of both its stores be heard, until told to stop', async () => {
  const { spool, clock, told, stop, items } = await setup();
  spool.handle('x', async (delivery) => void (await delivery.body()));
  await spool.enqueue({ topic: 'x', body: 'a body that does not ride with its entry' });
  await clock.advance('1m');
  expect([items('insert'), items('put'), items('get'), items('remove')]).toEqual([1, 1, 1, 1]);
  expect(items('commit')).toBeGreaterThan(0);
  expect(new Set(told.map(({ store }) => store))).toEqual(new Set(['entries', 'bodies']));
  expect(told.every(({ isDone }) => isDone)).toBe(true);
  stop();
  const before = told.length;
  await spool.enqueue({ topic: 'x' });
  await clock.advance('1m');
  expect(told).toHaveLength(before);
  await spool.stop();
});

test('a spool over stores that tell nothing has nothing to tell, and works', async () => {
  const entries = memory();
  const bodies = memoryBodies();
  delete entries.onOperation;
  delete bodies.onOperation;
  const { spool, clock, told, stop } = await setup({ entries, bodies });
  let delivered = 0;
  spool.handle('x', () => void (delivered += 1));
  await spool.enqueue({ topic: 'x' });
  await clock.advance('1m');
  expect({ delivered, told }).toEqual({ delivered: 1, told: [] });
  stop();
  await spool.stop();
});
