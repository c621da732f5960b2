/**
 * store — the simulated entry store keeps the same promises as any other. (The suite of body stores
 * measures by the real clock, which a store in virtual time does not have.)
 */
import { entryStoreSuite, SimProcess, SimWorld, type StoreUnderTest } from 'respool/testkit';
import { runSuite } from '../suite.ts';

/** A world without processes of its own, in which nothing goes wrong. */
function calmWorld(): { readonly world: SimWorld; readonly join: () => SimProcess } {
  const world = new SimWorld(1, {
    plan: (plan) => ({ ...plan, site: 'machine', processes: 0 }),
  });
  world.faults.heal();
  // The suite enqueues what no producer of this world knows of; the world must not stop at that.
  world.findings.add = () => undefined;
  let joined = 0;
  const join = (): SimProcess => {
    joined += 1;
    const { timeline } = world;
    return new SimProcess(joined, 1, { timeline, wall: () => world.storeNow() });
  };
  return { world, join };
}

async function makeEntries(): Promise<StoreUnderTest> {
  const { world, join } = calmWorld();
  let process = join();
  const open = async () => {
    const { entries } = world.makeStores(process);
    await entries.open();
    return entries;
  };
  const store = await open();
  return {
    store,
    async reopen() {
      await store.close();
      world.end(process);
      process = join();
      return open();
    },
    second() {
      process = join();
      return open();
    },
    damage: async (id) => world.disk.damage(id),
    dispose: () => store.close(),
  };
}

runSuite(
  'the simulated store keeps the promises of an entry store:',
  entryStoreSuite(makeEntries, {
    canReopen: true,
    canShare: true,
    canDamage: true,
    canExpireLost: true,
    canOrder: true,
  }),
);
