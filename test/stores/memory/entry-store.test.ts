import { createMemoryData, memory } from '../../../src/stores/memory/index.ts';
import { entryStoreSuite, type StoreUnderTest } from '../../../src/testkit/index.ts';
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
  entryStoreSuite(make, { canReopen: true, canShare: true, canDamage: true }),
);
