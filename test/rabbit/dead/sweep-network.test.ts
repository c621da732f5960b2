/** A network that fails while a sweep publishes: what was not moved is where it was. */

import { expect, test } from 'vitest';
import { FaultProxy, type Spoil } from '../../nodes/proxy.ts';
import { service, withService } from '../../services/index.ts';
import { type Kind, numberOf, range } from './queues.ts';
import { died, openGround } from './sweep-ground.ts';

const ALL = 400;
const WINDOW = 20;
/** Some hundred messages with their frames are on the other side by then. */
const BYTES = 60_000;

withService('rabbitmq', () => {
  test.each<[Spoil, Kind]>([
    ['reset', 'own'],
    ['end', 'own'],
    ['reset', 'classic'],
    ['cut-up', 'classic'],
  ])('%s while it publishes out of a queue (%s) loses nothing', async (spoil, kind) => {
    const ground = await openGround();
    const { queue, target } = await ground.pair(kind);
    await ground.queues.fill(queue, ALL, () => died(4));
    await using proxy = await FaultProxy.start(await service('rabbitmq'));
    proxy.spoilAfter('up', BYTES, spoil);
    const broken = await ground.sweep({ url: proxy.url, queue, target, window: WINDOW });
    expect(broken.error).toBeDefined();
    expect(broken.moved).toBeLessThan(ALL);
    expect(broken.end).toBe('failed');
    const { hands } = ground.queues;
    // The broker has everything back when it has seen the connection end.
    await expect
      .poll(async () => (await hands.depth(queue)) + (await hands.depth(target)))
      .toBeGreaterThanOrEqual(ALL);
    const again = await ground.sweep({ queue, target, window: WINDOW });
    expect(again.error).toBeUndefined();
    expect(await hands.depth(queue)).toBe(0);
    const there = await hands.depth(target);
    // In both places: what waits for its confirm, one window at the most, and whose ack was lost.
    expect(there).toBeLessThanOrEqual(ALL + broken.moved + WINDOW);
    const numbers = (await ground.queues.takeAll(target, there)).map(numberOf);
    expect([...new Set(numbers)].toSorted((a, b) => a - b)).toEqual(range(ALL));
  });
});
