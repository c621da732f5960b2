/** How a consumer stops under load. */

import { expect, onTestFinished, test } from 'vitest';
import { setTimeout as sleep } from 'node:timers/promises';
import { fixed, RetryableError } from 'respool';
import { type QueueType, shared } from 'respool/rabbit';
import { service, withService } from '../../services/index.ts';
import { freshSeed } from '../../torture/chance.ts';
import { consume, Hands, ownName, Tray } from '../ground.ts';
import { Flow } from './flow.ts';
import { Gate } from './setup.ts';

withService('rabbitmq', (url) => {
  test.each<QueueType>(['quorum', 'classic'])(
    'a consumer of a %s queue that stops under load loses nothing and repeats nothing',
    async (type) => {
      const queue = ownName();
      const hands = await Hands.open();
      const done = new Tray<string>();
      const options = { queue, type, topology: shared({ prefix: queue }), waits: [] };
      const start = () =>
        consume(
          { ...options, policy: fixed('50ms', { attempts: 50 }) },
          async ({ id, attempt }) => {
            await sleep(5);
            if (attempt === 1 && id.endsWith('7')) throw new RetryableError('test.busy', 'again');
            done.add(id);
          },
        );
      let consumer = await start();
      const count = 400;
      const ids = Array.from({ length: count }, (_, at) => `m${at}`);
      const published = ids.map((messageId) => hands.publish('', queue, 1, { messageId }));
      for (const enough of [50, 130, 210]) {
        await done.until(enough);
        await consumer.stop();
        consumer = await start();
      }
      await Promise.all(published);
      await done.until(count);
      await consumer.stop();
      expect(done.items.toSorted()).toEqual(ids.toSorted());
      expect(await hands.depth(queue)).toBe(0);
    },
  );

  test('a handler that does not end is aborted, and its message given back', async () => {
    const queue = ownName();
    const hands = await Hands.open();
    const begun = new Gate();
    let aborted: unknown;
    const consumer = await consume(
      { queue, topology: shared({ prefix: queue }) },
      async ({ signal }) => {
        signal.addEventListener('abort', () => {
          aborted = signal.reason;
        });
        begun.open();
        await new Promise(() => undefined);
      },
    );
    await hands.publish('', queue, 1, { messageId: 'm' });
    await begun.opened;
    await consumer.stop({ within: '100ms' });
    expect(aborted).toMatchObject({ code: 'engine.stopping' });
    const { properties } = await hands.take(queue);
    expect(properties.messageId).toBe('m');
    // It cost no attempt.
    expect(properties.headers).not.toHaveProperty('respool-attempts');
  });

  test('processes that get SIGTERM end by themselves, and repeat nothing', async () => {
    const seed = freshSeed();
    const managementUrl = await service('rabbitmq-management');
    const flow = new Flow({ url: url(), managementUrl, consumers: 2, seed });
    onTestFinished(() => flow.close());
    await flow.start();
    flow.producer.start();
    await flow.ledger.heard(100);
    await flow.retire();
    await flow.ledger.heard(50);
    const result = await flow.finish();
    expect(result.complaints, `seed ${seed}`).toEqual([]);
    expect(result).toMatchObject({ lost: 0, unexpected: 0, corrupt: 0, duplicated: 0, kills: 0 });
  });
});
