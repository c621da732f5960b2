/** Sweeping several queues of the real broker at once. */

import { expect, test } from 'vitest';
import { lockQueue } from '../../../src/rabbit/queues/lock.ts';
import type { SweepProgress } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { ownName } from '../ground.ts';
import { lift } from './foreign.ts';
import { KINDS, numberOf, openConnection, range } from './queues.ts';
import { died, type Ground, halfDead, openGround } from './sweep-ground.ts';

withService('rabbitmq', () => {
  test('all queues that fit are swept, each into its own target, with sums', async () => {
    const ground = await openGround();
    const { base, names } = await lay(ground, ['a', 'b', 'c'], 40);
    const total = await ground.sweepAll({ patterns: [`${base}.dlq.*`], target: `${base}.dead.*` });
    expect(total).toMatchObject({ total: 120, seen: 120, moved: 60, left: 60, isWell: true });
    expect(total.problems).toEqual([]);
    expect(total.queues.map(({ queue, target, moved }) => [queue, target, moved])).toEqual(
      names.map((name) => [`${base}.dlq.${name}`, `${base}.dead.${name}`, 20]),
    );
    const left = await ground.queues.takeAll(`${base}.dlq.b`, 20);
    expect(left.map(numberOf)).toEqual(range(40).filter((value) => value % 2 === 1));
    expect(await ground.queues.hands.depth(`${base}.dead.b`)).toBe(20);
  });

  test('a queue that fails does not stop the others', async () => {
    const ground = await openGround();
    const { base } = await lay(ground, ['a', 'b', 'c'], 10);
    // Full from the beginning.
    const full = { 'x-max-length': 0, 'x-overflow': 'reject-publish' };
    await ground.queues.declare('classic', full, `${base}.dead.b`);
    const order = { patterns: [`${base}.dlq.*`, `${base}.none`], target: `${base}.dead.*` };
    const total = await ground.sweepAll({ ...order, parallel: 1 });
    expect(total).toMatchObject({ isWell: false, moved: 10 });
    expect(total.queues.map(({ end }) => end)).toEqual(['done', 'failed', 'done']);
    expect(total.queues[1]?.error).toMatch(/refused it/);
    expect(total.problems).toHaveLength(1);
    expect(await ground.queues.hands.depth(`${base}.dlq.b`)).toBe(10);
  });

  test('a queue that is not there, and one that is locked, do not stop the others', async () => {
    const ground = await openGround();
    const { base } = await lay(ground, ['a', 'b'], 10);
    const lock = await lockQueue(await openConnection(), `${base}.dlq.a`);
    expect(lock).not.toBe('taken');
    const patterns = [`${base}.none`, `${base}.dlq.a`, `${base}.dlq.b`];
    const total = await ground.sweepAll({ patterns, target: `${base}.dead.a` });
    expect(total.queues.map(({ end }) => end)).toEqual(['failed', 'locked', 'done']);
    expect(total).toMatchObject({ moved: 5, isWell: false });
  });

  test('the limit is that of the run, over all queues', async () => {
    const ground = await openGround();
    const { base } = await lay(ground, ['a', 'b', 'c'], 20);
    const order = { patterns: [`${base}.dlq.*`], target: `${base}.dead.*` };
    expect(await ground.sweepAll({ ...order, limit: 17 })).toMatchObject({ moved: 17 });
    expect(await ground.sweepAll({ ...order, limit: 100 })).toMatchObject({ moved: 13 });
  });

  test('no more queues are swept at once than was said', async () => {
    const ground = await openGround();
    const { base } = await lay(ground, ['a', 'b', 'c', 'd'], 10);
    const order = { patterns: [`${base}.dlq.*`], target: `${base}.dead.*` };
    for (const parallel of [1, 2]) {
      const busy = new Set<string>();
      let most = 0;
      const audit = async ({ queue }: { readonly queue: string }): Promise<void> => {
        busy.add(queue);
        most = Math.max(most, busy.size);
        await ground.queues.hands.depth(queue);
      };
      // The last word of each queue is told when it is over.
      const onProgress = ({ queue }: SweepProgress): void => void busy.delete(queue);
      await ground.sweepAll({ ...order, parallel, limit: 8, audit, onProgress });
      expect(most).toBeLessThanOrEqual(parallel);
    }
  });

  test('a sweep that is called off leaves the queues that it has not begun', async () => {
    const ground = await openGround();
    const { base } = await lay(ground, ['a', 'b', 'c'], 10);
    const abort = new AbortController();
    const total = await ground.sweepAll({
      patterns: [`${base}.dlq.*`],
      target: `${base}.dead.*`,
      parallel: 1,
      signal: abort.signal,
      onProgress: () => abort.abort(),
    });
    expect(total.queues.map(({ end }) => end)).toEqual(['done']);
    expect(await ground.queues.hands.depth(`${base}.dlq.c`)).toBe(10);
  });

  test('a connection that was passed in stays open', async () => {
    const ground = await openGround();
    const { base } = await lay(ground, ['a'], 10);
    const connection = await openConnection();
    const target = `${base}.dead.a`;
    const order = { url: undefined, connection, patterns: [`${base}.dlq.a`], target };
    expect(await ground.sweepAll(order)).toMatchObject({ moved: 5, isWell: true });
    await (await connection.createChannel()).close();
  });

  test('a queue, a target and an address have to be given', async () => {
    const { sweepAll } = await openGround();
    await expect(sweepAll({ patterns: [], target: 'a' })).rejects.toThrow(/names no queue/);
    await expect(sweepAll({ patterns: ['a'], target: 'b', parallel: 0 })).rejects.toThrow(
      /parallel/,
    );
    await expect(sweepAll({ patterns: ['a'], target: 'b', url: undefined })).rejects.toThrow(
      /either "url" or "connection"/,
    );
    const unknown = { patterns: ['a'], target: 'b', nonsense: 1 };
    await expect(sweepAll(unknown)).rejects.toThrow(/nonsense/);
  });

  test('messages of all sizes are moved whole', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const sizes = [0, 1, 4_095, 131_072, 3_000_000];
    for (const size of sizes) {
      await queues.hands.publish('', queue, Buffer.alloc(size, 7), died(9));
    }
    expect(await sweep({ queue, target, window: 2 })).toMatchObject({ moved: sizes.length });
    const moved = await queues.takeAll(target, sizes.length);
    expect(moved.map(({ content }) => content.length)).toEqual(sizes);
  });
});

/** Dead queues of one prefix, half of whose messages died too often; their targets go, too. */
async function lay(
  { queues, management }: Ground,
  names: readonly string[],
  count: number,
): Promise<{ base: string; names: readonly string[] }> {
  const base = ownName('many');
  for (const [index, name] of names.entries()) {
    const queue = `${base}.dlq.${name}`;
    await queues.declare(KINDS[index % KINDS.length] ?? 'own', {}, queue);
    await lift(queue, management);
    queues.removeLater(`${base}.dead.${name}`);
    await queues.fill(queue, count, halfDead);
  }
  return { base, names };
}
