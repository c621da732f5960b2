import { expect, test } from 'vitest';
import {
  entryStoreSuite,
  SAMPLE_AT,
  sampleEntries,
  sampleEntry,
  type StoreUnderTest,
} from 'respool/testkit';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { runSuite } from '../../suite.ts';

async function make(): Promise<StoreUnderTest> {
  const shared = createMemoryData();
  const open = async () => {
    const store = memory({ shared });
    await store.open();
    return store;
  };
  const store = await open();
  return {
    store,
    async reopen() {
      await store.close();
      return open();
    },
    second: open,
    damage: async (id) => shared.damage(id),
    dispose: () => store.close(),
  };
}

runSuite(
  'the memory store keeps the promises of an entry store:',
  entryStoreSuite(make, { canReopen: true, canShare: true, canDamage: true, canOrder: true }),
);

test('the defaults of a memory store are as documented', () => {
  const { name, traits } = memory();
  expect(name).toBe('memory');
  expect(traits).toEqual({
    processes: 'one',
    wakes: false,
    ordered: true,
    inlineMaxBytes: 65_536,
    durability: 'none',
  });
});

test('two memory stores see each other only when they share their data', async () => {
  const shared = createMemoryData();
  const [one, other, alone] = [memory({ shared }), memory({ shared }), memory()];
  for (const store of [one, other, alone]) await store.open();
  await one.insert([sampleEntry('a')]);
  expect((await other.get('a'))?.envelope.id).toBe('a');
  expect(await alone.get('a')).toBeUndefined();
  expect(one.instance).not.toBe(other.instance);
});

test('closing a memory store does not close those that share its data', async () => {
  const shared = createMemoryData();
  const [one, other] = [memory({ shared }), memory({ shared })];
  await one.open();
  await other.open();
  await one.insert([sampleEntry('a')]);
  await one.close();
  expect((await other.get('a'))?.envelope.id).toBe('a');
});

test('a memory store is refused before it is opened, and when its data is not what it seems', async () => {
  await expect(memory().get('a')).rejects.toMatchObject({ code: 'store.unavailable' });
  const shared = { damage: () => {} };
  expect(() => memory({ shared })).toThrow(expect.objectContaining({ code: 'config.invalid' }));
});

test('everything a memory store does is done within microtasks', async () => {
  let turned = false;
  setImmediate(() => {
    turned = true;
  });
  const store = memory();
  const bodies = memoryBodies();
  await store.open();
  await bodies.open();
  await store.insert(sampleEntries(100, 'm'));
  const request = { lane: 'delivery', states: ['incoming'], max: 10 } as const;
  const taken = await store.claim({ ...request, now: SAMPLE_AT, leaseMs: 1, holder: 'x:1' });
  await store.commit(taken.map(({ envelope }) => ({ id: envelope.id, revision: 2, to: 'remove' })));
  await store.nextDueAt(request);
  await store.list({ limit: 100 });
  await store.tally('state', {});
  await store.records.append('audit', 1);
  await store.flush();
  await bodies.put('a', (async function* () {})());
  await bodies.get('a')[Symbol.asyncIterator]().next();
  await store.close();
  expect(turned).toBe(false);
});
