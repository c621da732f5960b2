import { expect, test } from 'vitest';
import { type BodiesUnderTest, bodyStoreSuite, SimClock } from 'respool/testkit';
import { createMemoryData, memoryBodies } from 'respool/stores/memory';
import { runSuite } from '../../suite.ts';

async function make(): Promise<BodiesUnderTest> {
  const shared = createMemoryData();
  const open = async () => {
    const bodies = memoryBodies({ shared });
    await bodies.open();
    return bodies;
  };
  const bodies = await open();
  return {
    bodies,
    async reopen() {
      await bodies.close();
      return open();
    },
    dispose: () => bodies.close(),
  };
}

runSuite(
  'the memory body store keeps the promises of a body store:',
  bodyStoreSuite(make, { canReopen: true }),
);

test('the time a body was written comes from the clock it was given', async () => {
  const clock = new SimClock();
  const bodies = memoryBodies({ clock });
  await bodies.open();
  await bodies.put('a', (async function* () {})());
  await clock.advance('1h');
  await bodies.put('b', (async function* () {})());
  const seen = [];
  for await (const body of bodies.refs(clock.now())) seen.push(body);
  expect(seen).toEqual([{ ref: 'a', writtenAt: Date.UTC(2026, 0, 1) }]);
});
