import { describe, expect, test } from 'vitest';
import { createBatchLine } from '../../../src/stores/shared/batching.ts';

/** A line whose batches end when the test says so. */
function setup(options: Parameters<typeof createBatchLine>[1]) {
  const batches: {
    items: readonly number[];
    isPart: boolean;
    end: () => void;
    fail: () => void;
  }[] = [];
  const line = createBatchLine<number, string>(
    (items, isPart) =>
      new Promise((resolve, reject) => {
        batches.push({
          items,
          isPart,
          end: () => resolve(items.map((item) => `#${item}`)),
          fail: () => reject(new Error('no disk')),
        });
      }),
    options,
  );
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  return { line, batches, turn, sizes: () => batches.map(({ items }) => items.length) };
}

describe('a line of batches', () => {
  test('takes along everything that queued while a batch was on its way', async () => {
    const { line, batches, turn, sizes } = setup({ batchMax: 100 });
    const calls = [line.add([1]), line.add([2, 3])];
    await turn();
    calls.push(line.add([4]), line.add([5]));
    await turn();
    expect(sizes()).toEqual([3]);
    batches[0]?.end();
    await turn();
    expect(sizes()).toEqual([3, 2]);
    batches[1]?.end();
    expect(await Promise.all(calls)).toEqual([['#1'], ['#2', '#3'], ['#4'], ['#5']]);
  });

  test('keeps a call whole and a batch within its limit', async () => {
    const { line, batches, turn, sizes } = setup({ batchMax: 3 });
    const calls = [line.add([1, 2]), line.add([3, 4]), line.add([5, 6, 7, 8])];
    for (let n = 0; n < 3; n += 1) {
      await turn();
      batches[n]?.end();
    }
    await Promise.all(calls);
    expect(sizes()).toEqual([2, 2, 4]);
  });

  test('sends as many batches of a burst at once as may be on their way', async () => {
    const { line, batches, turn, sizes } = setup({ batchMax: 2, inFlightMax: 3 });
    const calls = Array.from({ length: 8 }, (_, n) => line.add([n]));
    await turn();
    expect(sizes()).toEqual([2, 2, 2]);
    batches[1]?.end();
    await turn();
    expect(sizes()).toEqual([2, 2, 2, 2]);
    for (const batch of batches) batch.end();
    expect((await Promise.all(calls)).flat()).toEqual(Array.from({ length: 8 }, (_, n) => `#${n}`));
  });

  test('fails the calls of a batch that failed, and goes on with the next', async () => {
    const { line, batches, turn } = setup({ batchMax: 1 });
    const first = line.add([1]);
    const second = line.add([2]);
    await turn();
    batches[0]?.fail();
    await expect(first).rejects.toThrow('no disk');
    await turn();
    batches[1]?.end();
    expect(await second).toEqual(['#2']);
  });

  test('may have two on their way, the second made while the first is at the disk', async () => {
    const { line, batches, turn, sizes } = setup({ batchMax: 100, inFlightMax: 2 });
    const calls = [line.add([1])];
    await turn();
    calls.push(line.add([2]));
    await turn();
    calls.push(line.add([3]), line.add([4]));
    await turn();
    expect(sizes()).toEqual([1, 1]);
    batches[1]?.end();
    await turn();
    expect(sizes()).toEqual([1, 1, 2]);
    batches[0]?.end();
    batches[2]?.end();
    expect(await Promise.all(calls)).toEqual([['#1'], ['#2'], ['#3'], ['#4']]);
  });

  test('sends a part at once when many wait, and the rest with the end of the turn', async () => {
    const { line, batches, turn, sizes } = setup({ batchMax: 100, inFlightMax: 2, eagerAt: 3 });
    const calls = [1, 2, 3, 4, 5].map((item) => line.add([item]));
    expect(sizes()).toEqual([2]);
    await turn();
    expect(sizes()).toEqual([2, 3]);
    expect(batches.map(({ isPart }) => isPart)).toEqual([true, false]);
    for (const { end } of batches) end();
    await Promise.all(calls);
  });

  test('sends no part of which the rest might have to wait', async () => {
    const { line, batches, turn } = setup({ batchMax: 100, inFlightMax: 2, eagerAt: 2 });
    const calls = [line.add([0])];
    await turn();
    calls.push(...[1, 2, 3, 4].map((item) => line.add([item])));
    expect(batches).toHaveLength(1);
    await turn();
    expect(batches.map(({ items, isPart }) => [items.length, isPart])).toEqual([
      [1, false],
      [4, false],
    ]);
    for (const { end } of batches) end();
    await Promise.all(calls);
  });

  test('is idle when nothing is queued and nothing is on its way', async () => {
    const { line, batches, turn } = setup({ batchMax: 1, inFlightMax: 2 });
    await line.idle();
    const calls = [line.add([1]), line.add([2]), line.add([3])];
    let isIdle = false;
    const idle = line.idle().then(() => {
      isIdle = true;
    });
    for (let n = 0; n < 3; n += 1) {
      await turn();
      expect(isIdle).toBe(false);
      batches[n]?.end();
    }
    await Promise.all(calls);
    await idle;
  });
});
