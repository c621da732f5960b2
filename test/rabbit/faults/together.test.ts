/** A fleet that starts at once, where nothing has been declared yet. */

import { expect, test } from 'vitest';
import { createConsumer, shared } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { Hands, ownName } from '../ground.ts';

withService('rabbitmq', (url) => {
  // Regression: the broker ended connections that came while the queue was being made.
  test('consumers that declare the same new queue in the same moment all start', async () => {
    const hands = await Hands.open();
    for (let round = 0; round < 12; round += 1) {
      const queue = ownName();
      const options = { url: url(), queue, topology: shared({ prefix: queue }) };
      const all = Array.from({ length: 4 }, () => createConsumer(options, () => undefined));
      await Promise.all(all.map((consumer) => consumer.start()));
      expect(all.map(({ isConnected }) => isConnected)).toEqual(all.map(() => true));
      await Promise.all(all.map((consumer) => consumer.stop()));
      await hands.remove(all[0]?.plan ?? expect.fail('there are four'));
    }
  });
});
