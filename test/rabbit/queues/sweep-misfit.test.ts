/** A message that cannot be copied holds up nobody. */

import { expect, test } from 'vitest';
import { withService } from '../../services/index.ts';
import { numberOf, range } from './queues.ts';
import { died, openGround } from './sweep-ground.ts';

withService('rabbitmq', () => {
  test('one whose headers have no room for ours stays, is told, and the others are moved', async () => {
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    const { headers } = died(9);
    // The client writes 64 KiB of headers, and a stack trace may have that.
    const wide = { headers: { ...headers, trace: 'x'.repeat(65_200) }, messageId: 'wide' };
    await queues.hands.publish('', queue, 'wide', wide);
    await queues.fill(queue, 300, () => died(9));
    for (const moved of [300, 0]) {
      const report = await sweep({ queue, target });
      expect(report).toMatchObject({ moved, left: 1, end: 'done' });
      expect(report.error).toMatch(/^cannot publish to queue/);
    }
    expect((await queues.takeAll(target, 300)).map(numberOf)).toEqual(range(300));
    expect(await queues.hands.depth(queue)).toBe(1);
  });
});
