/** A message without a delay is incoming, whatever time passes while it is taken. */
import { createSpool } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { expect, onTestFinished, test } from 'vitest';
import { SimClock } from 'respool/testkit';

// Regression: the due time was read a millisecond after the time it is compared with.
test('a message without a delay is incoming though every look at the clock shows more', async () => {
  const clock = new SimClock();
  const shown = clock.now.bind(clock);
  let looks = 0;
  clock.now = () => shown() + (looks += 1);
  const spool = createSpool({ entries: memory(), bodies: memoryBodies(), clock });
  onTestFinished(() => spool.stop());
  // The first opens the store; the next ones take the short way.
  for (const topic of ['a', 'b', 'c']) {
    const { id } = await spool.enqueue({ topic });
    expect((await spool.get(id))?.status.state).toBe('incoming');
  }
});
