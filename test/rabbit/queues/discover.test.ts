/** Which queues a sweep goes through: over a made-up list, and over that of the real broker. */

import { describe, expect, onTestFinished, test } from 'vitest';
import { type FoundPairs, findPairs } from '../../../src/rabbit/queues/discover.ts';
import { lockQueue } from '../../../src/rabbit/queues/lock.ts';
import { queueInfo, type QueueQuery } from '../../../src/rabbit/management/management.ts';
import type { Management } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { ownName } from '../ground.ts';
import { openManagement } from '../admin/management/setup.ts';
import { DeadQueues, openConnection } from './queues.ts';

interface Listed {
  readonly name: string;
  readonly exclusive?: boolean;
  readonly type?: string;
}

/** As much of a management API as is asked. */
function listOf(queues: readonly (string | Listed)[], asked: QueueQuery[] = []): Management {
  const infos = queues.map((queue) =>
    queueInfo(typeof queue === 'string' ? { name: queue } : queue),
  );
  const told = (query: QueueQuery = {}): Promise<typeof infos> => {
    asked.push(query);
    return Promise.resolve(infos);
  };
  return { queues: told } as unknown as Management;
}

function find(
  queues: readonly (string | Listed)[],
  target: string,
  ...patterns: string[]
): Promise<FoundPairs> {
  return findPairs(listOf(queues), { patterns, target });
}

describe('findPairs', () => {
  test('what a wildcard stood for is carried into the target, in order of names', async () => {
    const found = await find(['dlq.b', 'dlq.a', 'x'], 'dead.*', 'dlq.*');
    expect(found).toEqual({
      pairs: [
        { queue: 'dlq.a', target: 'dead.a' },
        { queue: 'dlq.b', target: 'dead.b' },
      ],
      problems: [],
    });
  });

  test('several wildcards are carried in their order, ? for one character', async () => {
    const { pairs } = await find(['eu.dlq.v1', 'eu.dlq.v10'], '*-dead-?', '*.dlq.v?');
    expect(pairs).toEqual([{ queue: 'eu.dlq.v1', target: 'eu-dead-1' }]);
  });

  test('several patterns may have one fixed target, and the first that fits a queue holds', async () => {
    const { pairs } = await find(['a.dlq', 'b.dlq', 'c'], 'failed', 'b.*', '*.dlq', 'c');
    expect(pairs.map(({ queue }) => queue)).toEqual(['b.dlq', 'a.dlq', 'c']);
    expect(new Set(pairs.map(({ target }) => target))).toEqual(new Set(['failed']));
  });

  test('a target with another number of wildcards is refused, and the others go on', async () => {
    const { pairs, problems } = await find(['a.b', 'c'], 'dead.*', '*.*', 'c*');
    expect(pairs).toEqual([{ queue: 'c', target: 'dead.' }]);
    expect(problems).toEqual([
      { pattern: '*.*', text: expect.stringMatching(/1 of \* and \?.*has 2/s), isSkipped: false },
    ]);
  });

  test('a pattern that cannot be read, and one that fits nothing, are said', async () => {
    const { pairs, problems } = await find(['a'], 'failed', '', 'x*', 'a');
    expect(pairs).toEqual([{ queue: 'a', target: 'failed' }]);
    expect(problems.map(({ pattern }) => pattern)).toEqual(['', 'x*']);
    expect(problems[1]?.text).toMatch(/no queue matches/);
  });

  test('targets, locks, exclusive queues and streams are not swept', async () => {
    const { pairs, problems } = await find(
      [
        'a',
        'dead.a',
        'respool.lock.a',
        { name: 'mine', exclusive: true },
        { name: 'log', type: 'stream' },
      ],
      'dead.*',
      '*',
    );
    expect(pairs).toEqual([{ queue: 'a', target: 'dead.a' }]);
    expect(problems.every(({ isSkipped }) => isSkipped)).toBe(true);
    const texts = Object.fromEntries(problems.map(({ queue, text }) => [queue, text]));
    expect(texts['dead.a']).toMatch(/it is a target of this sweep/);
    expect(texts['respool.lock.a']).toMatch(/it is a lock/);
    expect(texts['mine']).toMatch(/exclusive/);
    expect(texts['log']).toMatch(/it is a stream/);
  });

  test('a queue that would lead into itself is refused', async () => {
    const own = await find(['a'], 'a', 'a');
    expect(own).toMatchObject({ pairs: [], problems: [{ queue: 'a', isSkipped: false }] });
    expect(own.problems[0]?.text).toMatch(/into itself/);
    const wild = await find(['a', 'failed'], 'failed', '*');
    expect(wild.pairs).toEqual([{ queue: 'a', target: 'failed' }]);
    expect(wild.problems).toMatchObject([{ queue: 'failed', isSkipped: true }]);
  });

  test('a target whose name is too long is refused', async () => {
    const { pairs, problems } = await find(['a'.repeat(250)], 'dead.for-good.*', '*');
    expect(pairs).toEqual([]);
    expect(problems[0]?.text).toMatch(/too long/);
  });

  test('plain names need nobody to ask, patterns do', async () => {
    const asked: QueueQuery[] = [];
    const patterns = ['a', 'b'];
    const { pairs } = await findPairs(listOf([], asked), { patterns, target: 'failed' });
    expect(pairs).toHaveLength(2);
    expect(asked).toEqual([]);
    const blind = await findPairs(undefined, { patterns: ['a', 'b*'], target: 'failed' });
    expect(blind.pairs).toEqual([{ queue: 'a', target: 'failed' }]);
    expect(blind.problems[0]?.text).toMatch(/no management API/);
    await findPairs(listOf([], asked), { patterns: ['a*', 'b*'], target: 'failed' });
    expect(asked).toEqual([{ detail: 'totals' }]);
  });
});

withService('rabbitmq', () => {
  test('the queues of the broker are found, with their types', async () => {
    const management = await openManagement();
    onTestFinished(() => management.close());
    const queues = await DeadQueues.open();
    const base = ownName('found');
    await queues.declare('own', {}, `${base}.q`);
    await queues.declare('classic', {}, `${base}.c`);
    await queues.declare('classic', { 'x-queue-type': 'stream' }, `${base}.s`);
    const connection = await openConnection();
    const channel = await connection.createChannel();
    await channel.assertQueue(`${base}.e`, { exclusive: true });
    const found = await findPairs(management, {
      patterns: [`${base}.*`],
      target: `${base}-dead.*`,
    });
    expect(found.pairs.map(({ target }) => target)).toEqual([`${base}-dead.c`, `${base}-dead.q`]);
    expect(found.problems.map(({ queue }) => queue)).toEqual([`${base}.e`, `${base}.s`]);
    const lock = await lockQueue(connection, base);
    expect(lock).not.toBe('taken');
    management.forget();
    const locks = { patterns: [`respool.lock.${base}*`], target: 'failed' };
    expect(await findPairs(management, locks)).toMatchObject({ pairs: [] });
  });
});
