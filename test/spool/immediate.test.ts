/** R71, R73, R77: when a new message starts, how often the store is looked at, and the load. */
import { createSpool } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { expect, test } from 'vitest';
import { createTestSpool } from 'respool/testkit';

test('a new message starts at once by default', async () => {
  const { spool, clock } = await createTestSpool();
  let started = 0;
  spool.handle('x', () => {
    started += 1;
  });
  await spool.enqueue({ topic: 'x' });
  await clock.advance(0);
  expect(started).toBe(1);
  await spool.stop();
});

test('with immediate off, a new message is found at the next look, as often as poll says', async () => {
  const { spool, clock } = await createTestSpool({ immediate: false, poll: '5s' });
  const startedAt: number[] = [];
  spool.handle('x', () => {
    startedAt.push(clock.now());
  });
  await clock.advance('1s');
  const enqueuedAt = clock.now();
  await spool.enqueue({ topic: 'x' });
  await clock.advance('3s');
  expect(startedAt).toEqual([]);
  await clock.advance('2s');
  expect(startedAt).toHaveLength(1);
  expect((startedAt[0] ?? 0) - enqueuedAt).toBeLessThanOrEqual(5_000);
  await spool.stop();
});

test.each([
  [{ immediate: 'no' as unknown as boolean }, '"immediate"'],
  [{ poll: '1ms' }, '"poll"'],
  [{ poll: '2h' }, '"poll"'],
])('refuses %o', async (options, named) => {
  await expect(createTestSpool(options)).rejects.toThrow(named);
});

test('the load tells what runs, what may run and what was settled', async () => {
  const { spool, clock } = await createTestSpool({ concurrency: 3 });
  let finish = (): void => undefined;
  spool.handle('x', () => new Promise<void>((resolve) => (finish = resolve)));
  expect(spool.load).toEqual({
    isRunning: true,
    concurrency: 3,
    running: 0,
    waiting: 0,
    settling: 0,
    settled: 0,
  });
  await spool.enqueue({ topic: 'x' });
  await clock.advance(0);
  expect(spool.load.running).toBe(1);
  finish();
  await clock.advance(0);
  expect(spool.load).toMatchObject({ running: 0, settled: 1 });
  await spool.stop();
  expect(spool.load.isRunning).toBe(false);
});

test('a store that throws where it should reject keeps no slot', async () => {
  const entries = memory();
  const throwing = new Proxy(entries, {
    get(store, name) {
      const value: unknown = Reflect.get(store, name);
      if (typeof value !== 'function') return value;
      if (name !== 'insert' || !isBroken) return value.bind(store) as unknown;
      return () => {
        throw new Error('not even a promise');
      };
    },
  });
  let isBroken = false;
  const spool = createSpool({ entries: throwing, bodies: memoryBodies(), concurrency: 1 });
  try {
    const delivered: string[] = [];
    spool.handle('a', (delivery) => void delivered.push(delivery.id));
    await spool.start();
    isBroken = true;
    await expect(spool.enqueue({ topic: 'a' })).rejects.toThrow('not even a promise');
    isBroken = false;
    const { id } = await spool.enqueue({ topic: 'a' });
    await expect.poll(() => delivered).toEqual([id]);
  } finally {
    await spool.stop();
  }
});
