/** One at a time works through a queue, at the real broker. */

import { expect, test } from 'vitest';
import { isLockName, lockName, lockQueue } from '../../../src/rabbit/queues/lock.ts';
import { withService } from '../../services/index.ts';
import { ownName } from '../ground.ts';
import { openConnection } from './queues.ts';

withService('rabbitmq', () => {
  test('a lock that is held is taken, for the same connection and for another', async () => {
    const [one, other] = [await openConnection(), await openConnection()];
    const queue = ownName();
    const lock = await lockQueue(one, queue);
    expect(lock).toMatchObject({ queue });
    expect(await lockQueue(one, queue)).toBe('elsewhere');
    expect(await lockQueue(other, queue)).toBe('elsewhere');
    expect(await lockQueue(other, `${queue}.2`)).not.toBe('elsewhere');
  });

  test('a lock that is released can be taken again', async () => {
    const [one, other] = [await openConnection(), await openConnection()];
    const queue = ownName();
    const lock = await lockQueue(one, queue);
    if (lock === 'elsewhere') throw new Error('taken');
    await lock.release();
    await lock.release();
    const again = await lockQueue(other, queue);
    expect(again).not.toBe('elsewhere');
    expect(await lockQueue(one, queue)).toBe('elsewhere');
  });

  test('a lock goes with its connection', async () => {
    const [one, other] = [await openConnection(), await openConnection()];
    const queue = ownName();
    const lock = await lockQueue(one, queue);
    one.connection?.stream?.destroy(new Error('cut by the test'));
    await expect.poll(() => lockQueue(other, queue)).not.toBe('elsewhere');
    if (lock !== 'elsewhere') await lock.release();
    expect(await lockQueue(other, queue)).toBe('elsewhere');
  });

  test('of two that ask at once one gets it', async () => {
    const connections = [await openConnection(), await openConnection()];
    const queue = ownName();
    const answers = await Promise.all(connections.map((one) => lockQueue(one, queue)));
    expect(answers.filter((answer) => answer === 'elsewhere')).toHaveLength(1);
  });

  test('the longest names of queues can be locked, each by its own', async () => {
    const connection = await openConnection();
    const name = 'é'.repeat(127);
    expect(lockName(name)).toMatch(/^respool\.lock\.sha256\.[0-9a-f]{64}$/);
    expect(lockName(name)).not.toBe(lockName(`${name}x`));
    expect([isLockName(lockName('a')), isLockName('a')]).toEqual([true, false]);
    const lock = await lockQueue(connection, name);
    expect(lock).not.toBe('elsewhere');
  });
});
