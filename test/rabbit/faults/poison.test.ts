/** A message that kills whoever handles it, and messages beside it. */

import { expect, onTestFinished, test } from 'vitest';
import type { QueueType } from 'respool/rabbit';
import { service, withService } from '../../services/index.ts';
import { freshSeed } from '../../torture/chance.ts';
import { Flow } from './flow.ts';

const MAX_LOST = 5;

withService('rabbitmq', (url) => {
  test.each<QueueType>(['quorum', 'classic'])(
    'in a %s queue it is parked past the lost consumers that are borne, and others are not hurt',
    async (type) => {
      const seed = freshSeed();
      const flow = new Flow({
        url: url(),
        managementUrl: await service('rabbitmq-management'),
        consumers: 2,
        seed,
        type,
        maxLost: MAX_LOST,
        mayCrash: true,
      });
      onTestFinished(() => flow.close());
      await flow.start();
      for (let at = 0; at < 20; at += 1) await flow.producer.produce('ok');
      const poison = await flow.producer.produce('crash');
      for (let at = 0; at < 40; at += 1) {
        await flow.producer.produce(at % 2 === 0 ? 'ok' : 'retry');
      }
      const result = await flow.finish();
      expect(result.complaints, `seed ${seed}`).toEqual([]);
      expect(result).toMatchObject({ lost: 0, unexpected: 0, corrupt: 0 });
      // A crash may fork it, as it may fork everything that is in flight.
      expect(new Set(flow.found.map(({ key, where }) => `${key} ${where}`))).toEqual(
        new Set([`${poison} parked`]),
      );
      expect(result.kills).toBeGreaterThan(MAX_LOST);
    },
  );
});
